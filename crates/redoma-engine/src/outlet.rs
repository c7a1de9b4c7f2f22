//! Where harvested files go: a folder of the caller's, or whatever else takes a file under a name.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// Where harvested files go.
pub trait Outlet: Debug {
    /// Takes one file, under its path below the workspace. The path has been checked to stay there: it is relative and has
    /// no `..` in it. No more than `size` bytes are to be read: that much of the limit is left for it, and a file can claim
    /// to be of any length. An error ends the harvest.
    fn put(&mut self, path: &Path, content: File, size: u64) -> io::Result<Put>;

    /// Called before each directory entry. An outlet can sleep here to limit the CPU time that its user takes.
    fn rest(&mut self) {}
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    Kept,
    /// The same as what went in: not a result.
    Unchanged,
    /// Not taken, and why.
    Skipped(String),
}

/// A folder of the host, made when it is needed. Existing files are replaced; links are not followed, so that nothing outside
/// of the folder can be hit.
#[derive(Debug)]
pub struct FolderOutlet {
    path: PathBuf,
    folder: Option<OwnedFd>,
}

impl FolderOutlet {
    pub fn new(path: PathBuf) -> Self {
        Self { path, folder: None }
    }

    fn folder(&mut self) -> io::Result<&OwnedFd> {
        if self.folder.is_none() {
            std::fs::create_dir_all(&self.path)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.folder = Some(rustix::fs::open(&self.path, flags, Mode::empty())?);
        }
        self.folder.as_ref().ok_or_else(|| Errno::BADF.into())
    }

    /// Writes one file under its path, whole or not at all.
    fn write(&mut self, path: &Path, file: File, size: u64) -> io::Result<()> {
        let mut folder = rustix::io::fcntl_dupfd_cloexec(self.folder()?.as_fd(), 3)?;
        let names: Vec<_> = path.components().map(|part| part.as_os_str().to_owned()).collect();
        let Some((name, parents)) = names.split_last() else { return Err(Errno::INVAL.into()) };
        for parent in parents {
            match rustix::fs::mkdirat(&folder, parent, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            folder = open_existing(&folder, parent)?;
        }
        let temporary = format!(".redoma-{:016x}.part", random()?);
        let result = copy_into(&folder, &temporary, file, size)
            .and_then(|()| Ok(rustix::fs::renameat(&folder, &temporary, &folder, name)?));
        if result.is_err() {
            let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
        }
        result
    }
}

impl Outlet for FolderOutlet {
    fn put(&mut self, path: &Path, content: File, size: u64) -> io::Result<Put> {
        match self.write(path, content, size) {
            Ok(()) => Ok(Put::Kept),
            Err(error) if is_about_this_name(&error) => {
                Ok(Put::Skipped(format!("could not be written to {}: {error}", self.path.display())))
            }
            Err(error) => {
                Err(io::Error::new(error.kind(), format!("{}: {error}", self.path.join(path).display())))
            }
        }
    }
}

/// A failure to write that concerns one name (too long for this file system, a folder is in the way, …), not the whole.
fn is_about_this_name(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::NAMETOOLONG
                | Errno::ISDIR
                | Errno::NOTDIR
                | Errno::INVAL
                | Errno::ILSEQ
                | Errno::LOOP
                | Errno::XDEV
        )
    )
}

fn open_existing(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
}

/// So that nobody who may write to the folder too can have put something in the way.
fn random() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Never executable: what hostile code wrote is data, also if it is named like a hook or a script.
fn copy_into(folder: &OwnedFd, name: &str, file: File, size: u64) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = File::from(rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o644))?);
    io::copy(&mut file.take(size), &mut target)?;
    target.flush()
}
