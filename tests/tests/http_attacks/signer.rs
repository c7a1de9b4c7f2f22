//! Tokens, good and forged, made by node: the server's own library must not be the one that checks it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// A signer with a key of its own. The public half is in a file for the server.
pub struct Signer {
    folder: tempfile::TempDir,
}

const MAKE: &str = "const { generateKeyPairSync } = require('crypto'); const fs = require('fs'); \
    for (const name of ['real', 'other']) { const pair = generateKeyPairSync('ed25519'); \
    fs.writeFileSync(process.argv[1] + '/' + name + '.pem', pair.publicKey.export({ type: 'spki', format: 'pem' })); \
    fs.writeFileSync(process.argv[1] + '/' + name + '.key', pair.privateKey.export({ type: 'pkcs8', format: 'pem' })); }";

/// Takes a list of `{header, claims, by}` and prints the tokens; `by` is a key's name, `hmac` (with the public key as the
/// secret) or nothing.
const SIGN: &str = "const crypto = require('crypto'); const fs = require('fs'); const folder = process.argv[1]; \
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url'); \
    const tokens = JSON.parse(fs.readFileSync(0)).map(({ header, claims, by }) => { \
    const text = part(header) + '.' + part(claims); \
    if (!by) return text + '.'; \
    if (by === 'hmac') return text + '.' + crypto.createHmac('sha256', fs.readFileSync(folder + '/real.pem')).update(text).digest('base64url'); \
    return text + '.' + crypto.sign(null, Buffer.from(text), fs.readFileSync(folder + '/' + by + '.key')).toString('base64url'); \
    }); console.log(JSON.stringify(tokens));";

impl Signer {
    /// Nothing where there is no node; says so.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    pub fn new() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("redoma-jwt-").tempdir_in("/var/tmp").unwrap();
        // The server may run as another user.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let made = Command::new("node").args(["-e", MAKE]).arg(folder.path()).status();
        if made.is_ok_and(|status| status.success()) {
            return Some(Self { folder });
        }
        eprintln!("skipped: node, which makes the tokens, is not installed");
        None
    }

    pub fn public_key(&self) -> PathBuf {
        self.folder.path().join("real.pem")
    }

    pub fn sign(&self, tokens: &[Value]) -> Vec<String> {
        sign_in(self.folder.path(), tokens)
    }

    /// A good token for this user.
    pub fn token(&self, user: &str, tenant: Option<&str>) -> String {
        let mut claims = claims(user);
        if let Some(tenant) = tenant {
            claims["tenant_id"] = tenant.into();
        }
        self.sign(&[json!({ "header": header(), "claims": claims, "by": "real" })]).remove(0)
    }
}

fn sign_in(folder: &Path, tokens: &[Value]) -> Vec<String> {
    let mut node = Command::new("node");
    node.args(["-e", SIGN]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = node.spawn().unwrap();
    node.stdin.take().unwrap().write_all(Value::from(tokens).to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn header() -> Value {
    json!({ "alg": "EdDSA", "typ": "JWT" })
}

/// What LibreChat would say about this user.
pub fn claims(user: &str) -> Value {
    let now = now();
    json!({ "iss": "librechat", "aud": "codeapi", "sub": user, "iat": now, "exp": now + 300 })
}

pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}
