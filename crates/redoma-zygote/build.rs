//! Builds the library that Python zygotes load, and leaves its path in `REDOMA_PYTHON_LIBRARY`.
//!
//! The program is linked statically and at a fixed address (`.cargo/config.toml`); a library can't be. Cargo has one set of
//! flags for a whole build, so the library gets a build of its own, in a folder of its own below the target folder. It
//! has few dependencies, is always optimised, and is shared by all builds of the program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let crates = here.parent().expect("this crate is in crates/");
    let workspace = crates.parent().expect("crates/ is in the workspace");
    for folder in ["redoma-zygote/python", "redoma-jail", "redoma-model"] {
        println!("cargo::rerun-if-changed={}", crates.join(folder).display());
    }
    println!("cargo::rerun-if-changed={}", workspace.join("Cargo.lock").display());

    let weaken = env::var_os("CARGO_FEATURE_WEAKEN").is_some();
    let target = variable("TARGET");
    let folder =
        target_folder(workspace).join(if weaken { "python-library-weakened" } else { "python-library" });
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(workspace).args([
        "build",
        "--locked",
        "--release",
        "-p",
        "redoma-zygote-python",
        "--target",
    ]);
    cargo.arg(&target).arg("--target-dir").arg(&folder);
    if weaken {
        cargo.args(["--features", "weaken"]);
    }
    // None of the program's flags, and no linter in the compiler's place.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "");
    for name in ["RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "CARGO_TARGET_DIR", "CLIPPY_ARGS"] {
        cargo.env_remove(name);
    }
    let status = cargo.status().expect("cargo can be started again");
    assert!(status.success(), "the library for Python zygotes can't be built");
    let library = folder.join(target).join("release/libredoma_zygote_python.so");
    assert!(library.is_file(), "{} was not built", library.display());
    println!("cargo::rustc-env=REDOMA_PYTHON_LIBRARY={}", library.display());
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// The folder of this build: `OUT_DIR` is some levels below it.
fn target_folder(workspace: &Path) -> PathBuf {
    let out = PathBuf::from(variable("OUT_DIR"));
    let is_target =
        |folder: &&Path| folder.join(".rustc_info.json").is_file() || folder.join("CACHEDIR.TAG").is_file();
    out.ancestors().find(is_target).map_or_else(|| workspace.join("target"), Path::to_owned)
}
