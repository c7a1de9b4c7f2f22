//! The files that go in: copied into a folder of the run's own, which the sandbox sees under its workspace.
//!
//! A copy, not a mount of the original: there is then nothing of the caller's in the sandbox's mount table, a private
//! file (mode 0600) is readable for the sandbox's uid, and where the file system can share blocks a copy costs nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use redoma_jail::Ids;

/// A file of the caller's for the workspace.
#[derive(Debug, Clone)]
pub struct Input {
    pub path: PathBuf,
    /// Its name in the workspace: one component.
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
}

/// Checks that the inputs can go side by side into one workspace with `script`.
pub(crate) fn check_names(inputs: &[Input], script: &str) -> Result<(), StagingError> {
    let mut seen = BTreeSet::new();
    for input in inputs {
        let shown = input.name.to_string_lossy().into_owned();
        if input.name == script {
            return Err(StagingError::NamedAsScript(shown));
        }
        if !seen.insert(&input.name) {
            return Err(StagingError::TwiceTheSame(shown));
        }
    }
    Ok(())
}

/// A run's folder on the host. Removed with everything in it when dropped; by the janitor if this process is killed.
#[derive(Debug)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    /// Nobody else can enter it. For a sandbox made on the spot it is this user's, as whom it is opened; for one in a
    /// nursery, where this user is nobody, it is the sandbox's own.
    pub(crate) fn make(parent: &Path, name: &str, owner: Option<Ids>) -> Result<Self, StagingError> {
        let folder = parent.join(name);
        let failed = |source| StagingError::Folder { folder: folder.clone(), source };
        fs::create_dir_all(parent).map_err(failed)?;
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let made = Self(folder.clone());
        owner.map_or(Ok(()), |ids| own(&folder, ids)).map_err(failed)?;
        Ok(made)
    }

    /// Copies the inputs; gives the folder that holds them, owned by the sandbox's uid.
    pub(crate) fn stage(&self, inputs: &[Input], ids: Ids) -> Result<PathBuf, StagingError> {
        let folder = self.0.join("in");
        let made = fs::DirBuilder::new().mode(0o755).create(&folder).and_then(|()| own(&folder, ids));
        made.map_err(|source| StagingError::Folder { folder: folder.clone(), source })?;
        for input in inputs {
            copy(input, &folder, ids)?;
        }
        Ok(folder)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn own(path: &Path, ids: Ids) -> io::Result<()> {
    if ids.by_root {
        std::os::unix::fs::lchown(path, Some(ids.host_uid), Some(ids.host_gid))?;
    }
    Ok(())
}

fn copy(input: &Input, folder: &Path, ids: Ids) -> Result<(), StagingError> {
    let read = |source| StagingError::Read { path: input.path.clone(), source };
    // Not blocking on a FIFO that somebody passes by mistake.
    let mut source = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(&input.path)
        .map_err(read)?;
    if !source.metadata().map_err(read)?.is_file() {
        return Err(StagingError::NotAFile(input.path.clone()));
    }
    let target = folder.join(&input.name);
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&target)
        .and_then(|mut copy| io::copy(&mut source, &mut copy))
        .and_then(|_| own(&target, ids))
        .map_err(|source| StagingError::Copy { path: input.path.clone(), folder: folder.to_owned(), source })
}
