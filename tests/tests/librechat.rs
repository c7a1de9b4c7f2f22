//! LibreChat's real clients against a running server. The suites themselves are in `tests/librechat`: they drive the packages
//! that `scripts/test.sh` installs from npm, unmodified.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use redoma_tests::Mode;
use redoma_tests::server::Home;

/// Keys as LibreChat has them, and what the server knows of them.
const MAKE_KEYS: &str = r"
const { generateKeyPairSync } = require('crypto');
const { writeFileSync } = require('fs');
const folder = process.argv[1];
const keys = [['ed25519', {}], ['rsa', { modulusLength: 2048 }]].map(([kind, options]) => {
  const { privateKey, publicKey } = generateKeyPairSync(kind, options);
  writeFileSync(`${folder}/${kind}.pem`, privateKey.export({ type: 'pkcs8', format: 'pem' }));
  return { ...publicKey.export({ format: 'jwk' }), kid: 'lc-codeapi-2026-05' };
});
writeFileSync(`${folder}/jwks.json`, JSON.stringify({ keys }));
";

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn clients() -> PathBuf {
    let chosen = std::env::var_os("REDOMA_LIBRECHAT_CLIENTS").map(PathBuf::from);
    let clients = chosen.unwrap_or_else(|| workspace().join("target/librechat-clients"));
    assert!(
        clients.exists(),
        "the clients are not installed; run tests/librechat/install.sh {}",
        clients.display()
    );
    clients
}

fn passes(suite: &str) {
    let mode = Mode::available()[0];
    let home = Home::new(mode);
    let keys = tempfile::tempdir().unwrap();
    let status = Command::new("node").args(["-e", MAKE_KEYS]).arg(keys.path()).status().unwrap();
    assert!(status.success());
    let server =
        home.serve_with(|command| command.arg("--librechat-jwt-key").arg(keys.path().join("jwks.json")));
    server.wait_until_ready();
    let output = Command::new("node")
        .arg(workspace().join("tests/librechat").join(suite))
        .env("REDOMA_BASE", format!("http://{}", server.address))
        .env("REDOMA_KEY", server.key("client", "librechat"))
        .env("REDOMA_CLIENTS", clients())
        .env("REDOMA_JWT_ED25519_PRIVATE", keys.path().join("ed25519.pem"))
        .env("REDOMA_JWT_RSA_PRIVATE", keys.path().join("rsa.pem"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<_> = said.lines().filter(|line| !line.starts_with("ok")).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", failed.join("\n"));
    assert!(said.contains(" passed in "), "the suite did not run: {said}{errors}");
}

#[test]
fn the_client_of_today_works_unmodified() {
    passes("gen_b.cjs");
}

#[test]
fn the_client_of_yesterday_works_unmodified() {
    passes("gen_a.cjs");
}
