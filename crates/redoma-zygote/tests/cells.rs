//! What a session's kernel does with cells, without a sandbox around it: each file of `tests/cells` by itself. They are
//! Python's own tests, for people who change the kernel: `python3 -m unittest discover -s tests/cells` runs them as well.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The libraries of the runtime that tests use, if it has been prepared. What needs them is skipped without.
fn site_packages() -> Vec<PathBuf> {
    let data = std::env::var_os("REDOMA_TEST_DATA")
        .map_or_else(|| PathBuf::from("/var/tmp/redoma-test"), PathBuf::from);
    std::fs::read_dir(data.join("runtimes/base/python/lib"))
        .into_iter()
        .flatten()
        .map(|version| version.unwrap().path().join("site-packages"))
        .filter(|folder| folder.is_dir())
        .collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cells")
}

/// Runs one file of tests.
fn pass(name: &str) {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/inside/cells");
    let path = std::env::join_paths([own].into_iter().chain(site_packages())).unwrap();
    let home = tempfile::tempdir().unwrap();
    let done = Command::new("/usr/bin/python3")
        .args(["-m", "unittest", "discover", "-v", "-p", &format!("test_{name}.py"), "-s"])
        .arg(folder())
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Libraries keep things there.
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}\n{said}", String::from_utf8_lossy(&done.stdout));
    assert!(!said.contains("Ran 0 tests"), "{said}");
}

macro_rules! files {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                pass(stringify!($name));
            }
        )*

        const FILES: &[&str] = &[$(stringify!($name)),*];
    };
}

files! {
    commands cost display errors libraries loading magics nasty node repeats shell values waiting
}

#[test]
fn no_file_is_left_out() {
    let mut found: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            Some(name.strip_prefix("test_")?.strip_suffix(".py")?.to_owned())
        })
        .collect();
    found.sort();
    assert_eq!(found, FILES);
}
