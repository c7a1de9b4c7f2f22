//! `redoma setup`: prepares what is inside sandboxes. Idempotent; what exists is replaced whole or not at all.
//!
//! The new runtime is built in a folder beside the old one and takes its place by renaming, so that a run in progress
//! keeps the one it has, and a setup that is killed leaves the old one as it was.

mod delegate;
mod etc;
mod python;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use redoma_engine::Manifest;
use redoma_engine::runtime::FORMAT;
use redoma_model::ByteSize;
use rustix::fs::RenameFlags;
use sha2::{Digest, Sha256};

use crate::cli::{Global, SetupArguments};
use crate::config::data_dir;
use crate::terminal;

/// What the environment takes, with room for the downloads.
const ROOM_NEEDED: ByteSize = ByteSize::gib(2);
const NODES: [&str; 2] = ["/usr/bin/node", "/usr/local/bin/node"];

pub fn setup(global: &Global, arguments: &SetupArguments) -> anyhow::Result<()> {
    if let Some(user) = &arguments.delegate {
        return delegate::delegate(user);
    }
    let data_dir = data_dir(global)?;
    let runtimes = data_dir.join("runtimes");
    fs::create_dir_all(&runtimes)
        .with_context(|| format!("can't make {}; name another folder with --data-dir", runtimes.display()))?;
    let _lock = lock(&data_dir)?;
    let python = python::find(arguments.python.as_deref())?;
    let node = find_node();
    let fingerprint = fingerprint(&python);
    let folder = runtimes.join("base");
    let manifest = |home_links: BTreeMap<String, String>| Manifest {
        format: FORMAT,
        fingerprint: fingerprint.clone(),
        python: python.path.clone(),
        python_version: python.version.clone(),
        node: node.as_ref().map(|(path, _)| path.clone()),
        node_version: node.as_ref().map(|(_, version)| version.clone()),
        home_links,
    };

    match read_manifest(&folder).filter(|old| old.fingerprint == fingerprint && !arguments.force) {
        Some(old) => {
            // The folders of the host that it refers to may have changed since.
            etc::write(&folder.join("etc"))?;
            python::add_plots(&folder.join("python"))?;
            write_manifest(&folder, &manifest(old.home_links))?;
            terminal::done(&format!("the runtime `base` in {} is up to date", folder.display()));
        }
        None => build(&runtimes, &folder, &python, &manifest)?,
    }
    match &node {
        Some((path, version)) => terminal::done(&format!("Node {version} at {}", path.display())),
        None => terminal::warning(
            "Node is not installed, so JavaScript and TypeScript can't run; `apt-get install nodejs`, then run this again",
        ),
    }
    Ok(())
}

fn build(
    runtimes: &Path,
    folder: &Path,
    python: &python::Python,
    manifest: &dyn Fn(BTreeMap<String, String>) -> Manifest,
) -> anyhow::Result<()> {
    make_room(runtimes)?;
    let new = runtimes.join(".base-new");
    let old = runtimes.join(".base-old");
    for leftover in [&new, &old] {
        remove_unused(leftover)?;
    }
    if new.exists() {
        bail!("runs still use two older runtimes in {}; try again when they have ended", runtimes.display());
    }
    fs::create_dir(&new).with_context(|| format!("can't make {}", new.display()))?;
    etc::write(&new.join("etc"))?;
    python::build(python, &new.join("python"))?;
    python::add_plots(&new.join("python"))?;
    let links = python::matplotlib_cache(&new.join("python"))?;
    write_manifest(&new, &manifest(links))?;
    let in_place = || format!("can't put {} in place", folder.display());
    if folder.exists() {
        // In one step, so that there is no moment without a runtime.
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, &new, cwd, folder, RenameFlags::EXCHANGE).with_context(in_place)?;
        remove_unused(&old)?;
        if !old.exists() {
            fs::rename(&new, &old).with_context(in_place)?;
            remove_unused(&old)?;
        }
    } else {
        fs::rename(&new, folder).with_context(in_place)?;
    }
    terminal::done(&format!("the runtime `base` is ready in {}", folder.display()));
    Ok(())
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("can't remove {}", folder.display()))?;
    }
    Ok(())
}

/// Removes a runtime that no run holds; one that is in use stays until the next setup.
fn remove_unused(folder: &Path) -> anyhow::Result<()> {
    match File::open(folder) {
        Ok(file) if file.try_lock().is_err() => {
            terminal::note(&format!("{} is still in use; the next setup removes it", folder.display()));
            Ok(())
        }
        _ => remove(folder),
    }
}

/// One setup at a time for a data folder.
fn lock(data_dir: &Path) -> anyhow::Result<File> {
    let path = data_dir.join("setup.lock");
    let file = File::create(&path).with_context(|| format!("can't write {}", path.display()))?;
    if file.try_lock().is_err() {
        terminal::note("another `redoma setup` is running; waiting for it");
        file.lock().with_context(|| format!("can't lock {}", path.display()))?;
    }
    Ok(file)
}

fn make_room(folder: &Path) -> anyhow::Result<()> {
    let stat = rustix::fs::statvfs(folder).with_context(|| format!("can't look at {}", folder.display()))?;
    let free = ByteSize(stat.f_bavail * stat.f_frsize);
    if free < ROOM_NEEDED {
        let free = ByteSize::mib(free.0 >> 20);
        bail!(
            "{} has {free} free, and the runtime needs {ROOM_NEEDED}; make room, or name another folder with --data-dir",
            folder.display()
        );
    }
    Ok(())
}

/// Changes with everything that goes into the runtime.
fn fingerprint(python: &python::Python) -> String {
    let mut hash = Sha256::new();
    hash.update(FORMAT.to_le_bytes());
    hash.update(python::LOCK);
    hash.update(python.version.as_bytes());
    hash.update(python.path.as_os_str().as_encoded_bytes());
    let digest = hash.finalize();
    let start = digest.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
    format!("{start:032x}")
}

fn find_node() -> Option<(PathBuf, String)> {
    NODES.iter().map(PathBuf::from).find_map(|path| {
        let output = std::process::Command::new(&path).arg("--version").output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some((path, version))
    })
}

fn read_manifest(folder: &Path) -> Option<Manifest> {
    toml::from_str(&fs::read_to_string(folder.join("manifest.toml")).ok()?).ok()
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    let path = folder.join("manifest.toml");
    let new = folder.join(".manifest.new");
    fs::write(&new, toml::to_string(manifest)?)
        .and_then(|()| fs::rename(&new, &path))
        .with_context(|| format!("can't write {}", path.display()))
}
