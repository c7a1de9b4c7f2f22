//! The files that go in: whose they are and what they are called. `workspace.rs` puts them there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use redoma_jail::janitor::OwnerTag;

/// A file of the caller's for the workspace.
#[derive(Debug, Clone)]
pub struct Input {
    pub path: PathBuf,
    /// Its path below the workspace, such as `table.csv` or `skills/pptx/fill.py`.
    pub name: OsString,
}

#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    #[error("input file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("input {} is not a plain file; only files can be passed in", .0.display())]
    NotAFile(PathBuf),
    #[error("input {} has no file name", .0.display())]
    NoName(PathBuf),
    #[error("the input name `{name}` {reason}; name a path below the workspace, such as `data/table.csv`")]
    BadName { name: String, reason: &'static str },
    #[error("input `{folder}` is a file, and input `{input}` needs a folder of that name; rename one")]
    FolderIsAFile { folder: String, input: String },
    #[error("two inputs are named `{0}`; rename one")]
    TwiceTheSame(String),
    #[error("input `{0}` has the name of the program itself; rename one")]
    NamedAsScript(String),
    #[error("could not copy {} to {}: {source}", path.display(), folder.display())]
    Copy { path: PathBuf, folder: PathBuf, source: io::Error },
    #[error("could not make the run's folder {}: {source}", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
}

impl Input {
    /// An input under its own file name.
    pub fn new(path: PathBuf) -> Result<Self, StagingError> {
        let name =
            path.file_name().map(ToOwned::to_owned).ok_or_else(|| StagingError::NoName(path.clone()))?;
        Ok(Self { path, name })
    }

    pub(crate) fn size(&self) -> Result<u64, StagingError> {
        let read = |source| StagingError::Read { path: self.path.clone(), source };
        fs::metadata(&self.path).map(|metadata| metadata.len()).map_err(read)
    }

    pub(crate) fn open(&self) -> Result<File, StagingError> {
        let read = |source| StagingError::Read { path: self.path.clone(), source };
        // Not blocking on a FIFO that somebody passes by mistake.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(&self.path)
            .map_err(read)?;
        let is_file = file.metadata().map_err(read)?.is_file();
        if is_file { Ok(file) } else { Err(StagingError::NotAFile(self.path.clone())) }
    }
}

/// Checks that the inputs can go into one workspace with `script`.
pub(crate) fn check_names(inputs: &[Input], script: &str) -> Result<(), StagingError> {
    let shown = |name: &Path| name.to_string_lossy().into_owned();
    let mut names = Vec::with_capacity(inputs.len());
    for input in inputs {
        let name = Path::new(&input.name);
        check_name(&input.name).map_err(|reason| StagingError::BadName { name: shown(name), reason })?;
        if name.starts_with(script) {
            return Err(StagingError::NamedAsScript(shown(name)));
        }
        names.push(name);
    }
    // Ordered by components, so that what is in a folder comes right behind the folder's own name.
    names.sort_unstable();
    for pair in names.windows(2) {
        if pair[0] == pair[1] {
            return Err(StagingError::TwiceTheSame(shown(pair[0])));
        }
        if pair[1].starts_with(pair[0]) {
            return Err(StagingError::FolderIsAFile { folder: shown(pair[0]), input: shown(pair[1]) });
        }
    }
    Ok(())
}

/// Whether a name stays below the workspace; if not, why.
fn check_name(name: &OsStr) -> Result<(), &'static str> {
    let bytes = name.as_bytes();
    if bytes.is_empty() {
        return Err("is empty");
    }
    if bytes.starts_with(b"/") {
        return Err("is absolute");
    }
    if bytes.contains(&0) {
        return Err("has a NUL byte in it");
    }
    for component in bytes.split(|byte| *byte == b'/') {
        match component {
            b"" => return Err("has an empty part"),
            b"." | b".." => return Err("has a part that is `.` or `..`"),
            long if long.len() > 255 => return Err("has a part of more than 255 bytes"),
            _ => {}
        }
    }
    Ok(())
}

/// A run's folder on the host. Removed with everything in it when dropped; by the janitor if this process is killed.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    tag: OwnerTag,
}

impl RunFolder {
    /// Nobody else can enter it.
    pub(crate) fn make(parent: &Path, tag: &OwnerTag) -> Result<Self, StagingError> {
        let folder = parent.join(tag.as_str());
        let failed = |source| StagingError::Folder { folder: folder.clone(), source };
        fs::create_dir_all(parent).map_err(failed)?;
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        Ok(Self { path: folder, tag: tag.clone() })
    }

    /// A second name, or a copy, of this program: what is started later is what runs now, also if the file has been replaced
    /// by a newer one meanwhile.
    pub(crate) fn keep_program(&self, program: &Path) -> Result<PathBuf, StagingError> {
        let kept = self.path.join("redoma");
        let failed =
            |source| StagingError::Copy { path: program.to_owned(), folder: self.path.clone(), source };
        // A link can't be made to another file system, nor by everybody to a file of root's.
        if fs::hard_link(program, &kept).is_err() {
            fs::copy(program, &kept).map_err(failed)?;
        }
        Ok(kept)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if fs::remove_dir_all(&self.path).is_err() && self.path.exists() {
            self.tag.keep_number();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str]) -> Result<(), String> {
        let inputs: Vec<_> =
            names.iter().map(|name| Input { path: "/nowhere".into(), name: (*name).into() }).collect();
        check_names(&inputs, "main.py").map_err(|error| error.to_string())
    }

    #[test]
    fn paths_below_the_workspace_are_taken() {
        let names =
            ["a.csv", "skills/pptx/a.py", "skills/pptx/b.py", "größe/ü ß.csv", "a", "a-b/c", "a.b/c", "..."];
        assert_eq!(check(&names), Ok(()));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused_with_the_reason() {
        let long = "x".repeat(256);
        for (name, reason) in [
            ("", "is empty"),
            ("/etc/passwd", "is absolute"),
            ("../up", "`.` or `..`"),
            ("a/../../up", "`.` or `..`"),
            ("./a", "`.` or `..`"),
            ("a//b", "empty part"),
            ("a/", "empty part"),
            ("a\0b", "NUL"),
            (long.as_str(), "more than 255 bytes"),
        ] {
            let error = check(&[name]).unwrap_err();
            assert!(error.contains(reason), "{name:?}: {error}");
        }
    }

    #[test]
    fn inputs_that_are_in_each_others_way_are_refused() {
        assert!(check(&["a/b", "c", "a/b"]).unwrap_err().contains("two inputs are named `a/b`"));
        let error = check(&["a/b/c", "a-b", "a/b"]).unwrap_err();
        assert!(error.contains("`a/b` is a file, and input `a/b/c` needs a folder"), "{error}");
        for name in ["main.py", "main.py/x"] {
            assert!(check(&[name]).unwrap_err().contains("the program itself"), "{name}");
        }
        assert_eq!(check(&["folder/main.py"]), Ok(()));
    }
}
