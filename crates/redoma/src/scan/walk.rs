//! Which files are looked at: everything below the named folders but what others made.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use redoma_policy::scan::{is_minified_name, subject_of};

use super::ignore_file::IgnoreFile;
use super::shown_path;
use super::skipped::Skipped;
use crate::terminal;

/// Larger files are data, or made by a program.
const MAX_FILE: u64 = 2 << 20;

/// Folders that hold other people's code, or what was built.
const SKIPPED: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "bower_components",
    "target",
    "venv",
    ".venv",
    "__pycache__",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".eggs",
    ".cache",
    ".next",
    ".nuxt",
];

/// A file that may be worth reading.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    pub(super) shown: String,
}

impl Candidate {
    /// By what is shown; names that are not text may look alike.
    pub(super) fn order(&self) -> (&str, &Path) {
        (&self.shown, &self.path)
    }

    /// Its place in the list that it is from.
    pub(super) fn number(&self, candidates: &[Self]) -> usize {
        candidates.binary_search_by(|other| other.order().cmp(&self.order())).unwrap_or(usize::MAX)
    }
}

/// What a walk came across.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) candidates: Vec<Candidate>,
    pub(super) skipped: Vec<(String, Skipped)>,
}

/// Adds a file, or the files of a folder. What is named by itself is taken whatever its folder's rules say.
pub(super) fn collect(path: &Path, walked: &mut Walked) -> Result<()> {
    let metadata = std::fs::metadata(path).with_context(|| format!("can't look at {}", path.display()))?;
    if metadata.is_dir() {
        let mut walk = Walk { ignore_files: Vec::new(), walked };
        walk.folder(path, true);
    } else {
        walked.candidates.push(Candidate { path: path.to_owned(), shown: shown_path(path) });
    }
    Ok(())
}

struct Walk<'w> {
    /// Of the folders around, outermost first.
    ignore_files: Vec<IgnoreFile>,
    walked: &'w mut Walked,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, is_named: bool) {
        // A folder that can't be deeper than the system's longest path ends this.
        if !is_named && folder.join("pyvenv.cfg").exists() {
            return;
        }
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                terminal::warning(&format!("can't look into {}: {error}", folder.display()));
                self.walked.skipped.push((shown_path(folder), Skipped::Unreadable));
                return;
            }
        };
        let ignore_file = IgnoreFile::of(folder);
        let has_ignore_file = ignore_file.is_some();
        self.ignore_files.extend(ignore_file);
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            let is_folder = kind.is_dir();
            if self.ignore_files.iter().any(|file| file.leaves_out(&path, is_folder)) {
                continue;
            }
            if is_folder && !SKIPPED.contains(&name.as_ref()) {
                self.folder(&path, false);
            } else if kind.is_file() {
                self.file(path, entry.metadata().map_or(0, |metadata| metadata.len()));
            }
        }
        if has_ignore_file {
            self.ignore_files.pop();
        }
    }

    fn file(&mut self, path: PathBuf, size: u64) {
        let shown = shown_path(&path);
        if size <= MAX_FILE {
            self.walked.candidates.push(Candidate { path, shown });
        } else if is_minified_name(&shown) || subject_of(&shown, &[]).is_some() {
            // By its name it is code; large data is not missed.
            self.walked.skipped.push((shown, Skipped::TooLarge));
        }
    }
}
