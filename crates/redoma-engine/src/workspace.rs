//! The files of a workspace that are known: those that went in, and those that came out already. What is new or has changed
//! since comes out.
//!
//! Files are copied into the sandbox's own file system, before a run's program starts, and at any time into a session's
//! workspace, which lives on between cells. Its processes go on meanwhile: nothing in there is what it was a moment ago, and
//! nothing is followed. The original can't be reached, a private one (mode 0600) is readable for the sandbox's uid, and code
//! may change or remove its copy.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use redoma_jail::{Ids, as_user};
use redoma_model::{FileName, RunReport};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::harvest::{Harvest, HarvestError, harvest};
use crate::outlet::{Outlet, Put};
use crate::staging::{Input, StagingError};

/// By which a file is known to be the same: whoever changes it changes its time, which code can't set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    size: i64,
    changed: (i64, i64),
    /// Of a file that was put there it is the original's, in whole seconds: a change in the same tick of the clock shows here.
    modified: (i64, i64),
}

impl From<&Stat> for Fingerprint {
    #[expect(clippy::useless_conversion, reason = "the kernel's types differ between architectures")]
    fn from(stat: &Stat) -> Self {
        let nanos = |nanos| i64::try_from(nanos).unwrap_or(0);
        Self {
            inode: stat.st_ino.into(),
            size: stat.st_size,
            changed: (stat.st_ctime.into(), nanos(stat.st_ctime_nsec)),
            modified: (stat.st_mtime.into(), nanos(stat.st_mtime_nsec)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct WorkspaceFiles {
    ids: Ids,
    /// What is there and is known to the session, as it was when it was last looked at.
    known: HashMap<PathBuf, Fingerprint>,
    /// Bytes that were put there.
    put: u64,
    /// What the last look handed out.
    handed_out: Vec<PathBuf>,
}

/// What files take of a sandbox's file system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

impl Room {
    pub(crate) fn of(files: &[Input]) -> Result<Self, StagingError> {
        const PAGE: u64 = 4096;
        let mut room = Self::default();
        let mut folders = HashSet::new();
        for input in files {
            room.bytes += input.size()?.next_multiple_of(PAGE);
            folders.extend(Path::new(&input.name).ancestors().skip(1).filter(|path| *path != Path::new("")));
        }
        room.inodes = (files.len() + folders.len()) as u64;
        Ok(room)
    }
}

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) harvest: Harvest,
    pub(crate) deleted: Vec<String>,
}

impl Found {
    pub(crate) fn add_to(self, report: &mut RunReport) {
        report.files = self.harvest.files;
        report.skipped_files = self.harvest.skipped;
        report.unlisted_files = self.harvest.unlisted;
        report.deleted_files = self.deleted;
    }
}

impl WorkspaceFiles {
    pub(crate) fn new(ids: Ids) -> Self {
        Self { ids, known: HashMap::new(), put: 0, handed_out: Vec::new() }
    }

    /// Puts files there, each whole or not at all.
    pub(crate) fn put(&mut self, workspace: BorrowedFd<'_>, files: &[Input]) -> Result<(), StagingError> {
        for input in files {
            let mut source = input.open()?;
            let failed = |source| StagingError::Copy {
                path: input.path.clone(),
                folder: redoma_jail::WORKSPACE.into(),
                source,
            };
            let name = Path::new(&input.name);
            let written = as_user(self.ids, || write(workspace, name, &mut source))
                .map_err(io::Error::from)
                .map_err(failed)?;
            let (stat, length) = written.map_err(failed)?;
            self.put += length;
            self.known.insert(name.to_owned(), Fingerprint::from(&stat));
        }
        Ok(())
    }

    /// Everything was moved away and back, by us: that changed the time of what is at the top.
    pub(crate) fn note_move(&mut self, workspace: BorrowedFd<'_>) {
        for (path, known) in self.known.iter_mut().filter(|(path, _)| path.components().count() == 1) {
            if let Ok(stat) = rustix::fs::statat(workspace, path, AtFlags::SYMLINK_NOFOLLOW) {
                let now = Fingerprint::from(&stat);
                if (now.inode, now.size) == (known.inode, known.size) {
                    *known = now;
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, workspace: BorrowedFd<'_>, names: &[FileName]) {
        for name in names {
            let path = Path::new(name.as_str());
            self.known.remove(path);
            let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else { continue };
            let _ = as_user(self.ids, || {
                let folder = open_folder(workspace, parent)?;
                rustix::fs::unlinkat(&folder, last, AtFlags::empty())
            });
        }
    }

    /// What was handed out last could not be kept after all: it is new the next time.
    pub(crate) fn forget_harvest(&mut self) {
        for path in self.handed_out.drain(..) {
            self.known.remove(&path);
        }
    }

    /// Hands what is new or has changed since the last look to `out`, if there is one. `script` is the program's own source:
    /// not a result unless the code changed it.
    pub(crate) fn harvest(
        &mut self,
        workspace: BorrowedFd<'_>,
        script: (&str, &[u8]),
        budget: u64,
        out: Option<&mut (dyn Outlet + '_)>,
    ) -> Result<Found, HarvestError> {
        let budget = budget.saturating_add(self.put);
        self.handed_out.clear();
        let mut changed =
            Changed { known: &mut self.known, seen: HashSet::new(), handed_out: &mut self.handed_out, out };
        let harvest = harvest(workspace, script, budget, Some(&mut changed))?;
        let seen = changed.seen;
        let mut deleted = Vec::new();
        self.known.retain(|path, _| {
            let is_there = seen.contains(path) || is_file(workspace, path);
            if !is_there {
                deleted.push(path.to_string_lossy().into_owned());
            }
            is_there
        });
        deleted.sort();
        Ok(Found { harvest, deleted })
    }
}

/// Lets through what is not as it was.
#[derive(Debug)]
struct Changed<'a, 'o> {
    known: &'a mut HashMap<PathBuf, Fingerprint>,
    seen: HashSet<PathBuf>,
    handed_out: &'a mut Vec<PathBuf>,
    out: Option<&'a mut (dyn Outlet + 'o)>,
}

impl Outlet for Changed<'_, '_> {
    fn rest(&mut self) {
        if let Some(out) = &mut self.out {
            out.rest();
        }
    }

    fn put(&mut self, path: &Path, content: File, size: u64) -> io::Result<Put> {
        self.seen.insert(path.to_owned());
        // Before it is read: what is changed meanwhile is another the next time.
        let fingerprint = Fingerprint::from(&rustix::fs::fstat(&content)?);
        if self.known.get(path) == Some(&fingerprint) {
            return Ok(Put::Unchanged);
        }
        let put = match &mut self.out {
            Some(out) => out.put(path, content, size)?,
            None => Put::Kept,
        };
        if !matches!(put, Put::Skipped(_)) {
            self.known.insert(path.to_owned(), fingerprint);
            self.handed_out.push(path.to_owned());
        }
        Ok(put)
    }
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

fn is_file(workspace: BorrowedFd<'_>, path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(workspace, path, flags, Mode::empty(), BENEATH)
        .and_then(rustix::fs::fstat)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

fn open_folder(workspace: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    rustix::fs::openat2(workspace, path, flags, Mode::empty(), BENEATH)
}

/// A folder for a file, with those above it. What is in its place and is none goes.
fn make_folders(workspace: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let mut folder = rustix::io::fcntl_dupfd_cloexec(workspace, 3)?;
    for name in path.components().map(std::path::Component::as_os_str) {
        folder = match open_folder(folder.as_fd(), Path::new(name)) {
            Ok(below) => below,
            Err(error) => {
                if error != Errno::NOENT {
                    rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
                }
                rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755))?;
                open_folder(folder.as_fd(), Path::new(name))?
            }
        };
    }
    Ok(folder)
}

/// Writes a file beside its place and then puts it there.
fn write(
    workspace: BorrowedFd<'_>,
    name: &Path,
    source: &mut File,
) -> Result<io::Result<(Stat, u64)>, Errno> {
    let folder = make_folders(workspace, name.parent().unwrap_or(Path::new("")))?;
    let last: &OsStr = name.file_name().ok_or(Errno::INVAL)?;
    let mut number = [0u8; 8];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
    let temporary = format!(".redoma-{:016x}.part", u64::from_ne_bytes(number));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = File::from(rustix::fs::openat(&folder, &temporary, flags, Mode::from_raw_mode(0o644))?);
    let copied = io::copy(source, &mut target).and_then(|length| {
        let modified = source.metadata()?.modified()?;
        let seconds = modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        target.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))?;
        rustix::fs::renameat(&folder, &temporary, &folder, last)?;
        Ok((rustix::fs::fstat(&target)?, length))
    });
    if copied.is_err() {
        let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
    }
    Ok(copied)
}
