//! The files that come out: whatever the code left in its workspace, read as if it were a trap.
//!
//! Of a run, every process is dead by now; of a session's kernel those that go on are stopped. Still, nothing that they made is followed:
//! each file is opened beneath the workspace's descriptor with symlinks, magic links and mount crossings refused, must be
//! a plain file with one name, and the sum of sizes is bounded, since a sparse file can claim any size for free.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use redoma_model::{HarvestedFile, SkippedFile};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::outlet::{Outlet, Put};

/// Folders deeper than this are left; no honest program nests so far.
const MAX_DEPTH: usize = 64;
/// At most this many files are handed out.
const MAX_FILES: usize = 10_000;
/// And this many entries are looked at.
const MAX_ENTRIES: usize = 100_000;
/// All names in the report together, in bytes: ten thousand paths of fifteen thousand bytes each cost nothing to make.
const MAX_NAMES: usize = 1 << 20;
/// What this program itself puts into workspaces.
const OURS: [&CStr; 2] = [c".redoma-main.mjs", c".redoma-main.cjs"];

/// Why something is left that may be a trap.
pub(crate) const LINK: &str = "a symbolic link";
pub(crate) const HARD_LINK: &str = "has several names (a hard link)";
pub(crate) const DEVICE: &str = "a device";
pub(crate) const SPARSE: &str = "larger than the disk limit leaves room for (a sparse file)";

#[derive(Debug, thiserror::Error)]
pub enum HarvestError {
    #[error("could not keep {}: {source}; what was not kept is lost", path.display())]
    Keep { path: PathBuf, source: io::Error },
    #[error("could not read the workspace: {0}")]
    Read(Errno),
}

#[derive(Debug, Default)]
pub(crate) struct Harvest {
    pub(crate) files: Vec<HarvestedFile>,
    pub(crate) skipped: Vec<SkippedFile>,
    /// Entries of both kinds that are not listed.
    pub(crate) unlisted: u64,
}

/// Lists what is in the workspace and, if `out` is given, hands it there. `script` is the program's own source: not a
/// result unless the code changed it. `budget` bounds the bytes.
pub(crate) fn harvest(
    workspace: BorrowedFd<'_>,
    script: (&str, &[u8]),
    budget: u64,
    out: Option<&mut (dyn Outlet + '_)>,
) -> Result<Harvest, HarvestError> {
    let mut walk = Walk {
        script,
        budget,
        names: MAX_NAMES,
        count: 0,
        entries: MAX_ENTRIES,
        out,
        result: Harvest::default(),
    };
    let top = rustix::io::fcntl_dupfd_cloexec(workspace, 3).map_err(HarvestError::Read)?;
    walk.folder(&top, Path::new(""), 0)?;
    walk.result.files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(walk.result)
}

struct Walk<'a, 'o> {
    script: (&'a str, &'a [u8]),
    budget: u64,
    /// Bytes of names that may still be listed.
    names: usize,
    /// Files handed out.
    count: usize,
    /// Entries that may still be looked at: while anybody lives in there, a tree need have no end.
    entries: usize,
    out: Option<&'a mut (dyn Outlet + 'o)>,
    result: Harvest,
}

impl Walk<'_, '_> {
    fn skip(&mut self, path: &Path, reason: impl Into<String>) {
        if let Some(name) = self.listed(path) {
            self.result.skipped.push(SkippedFile { name, reason: reason.into() });
        }
    }

    /// The name for the report, if there is still room for it.
    fn listed(&mut self, path: &Path) -> Option<String> {
        let length = path.as_os_str().len();
        if length > self.names {
            self.result.unlisted += 1;
            return None;
        }
        self.names -= length;
        Some(path.to_string_lossy().into_owned())
    }

    fn folder(&mut self, folder: &OwnedFd, path: &Path, depth: usize) -> Result<(), HarvestError> {
        let listed = match list(folder) {
            // The code may have taken its own rights away; as the files' owner we give them back.
            Err(Errno::ACCESS) => {
                let _ = rustix::fs::fchmod(folder, Mode::from_raw_mode(0o700));
                list(folder)
            }
            other => other,
        };
        let mut names = match listed {
            Ok(names) => names,
            Err(errno) => {
                self.skip(path, format!("can't be read: {errno}"));
                return Ok(());
            }
        };
        names.sort();
        for name in names {
            let path = path.join(&name);
            if self.entries == 0 {
                self.skip(&path, "too many files and folders");
                return Ok(());
            }
            self.entries -= 1;
            if let Some(out) = &mut self.out {
                out.rest();
            }
            let stat = match rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(errno) => {
                    self.skip(&path, format!("can't be looked at: {errno}"));
                    continue;
                }
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => self.file(folder, &name, &path, &stat)?,
                FileType::Directory if depth < MAX_DEPTH => {
                    match open_beneath(folder, &name, OFlags::DIRECTORY) {
                        Ok(below) => self.folder(&below, &path, depth + 1)?,
                        Err(errno) => self.skip(&path, format!("can't be opened: {errno}")),
                    }
                }
                FileType::Directory => self.skip(&path, "nested too deep"),
                FileType::Symlink if redoma_jail::Weakening::from_environment().has("harvest") => {
                    self.follow(folder, &name, &path);
                }
                FileType::Symlink => self.skip(&path, LINK),
                FileType::Fifo => self.skip(&path, "a named pipe"),
                FileType::Socket => self.skip(&path, "a socket"),
                _ => self.skip(&path, DEVICE),
            }
        }
        Ok(())
    }

    /// What a careless harvest would do; only in the attack suite's own build.
    fn follow(&mut self, folder: &OwnedFd, name: &OsStr, path: &Path) {
        let file = rustix::fs::openat(folder, name, OFlags::RDONLY, Mode::empty());
        if let (Ok(file), Some(out)) = (file, &mut self.out) {
            let _ = out.put(path, File::from(file), 1 << 20);
        }
    }

    fn file(&mut self, folder: &OwnedFd, name: &OsStr, path: &Path, stat: &Stat) -> Result<(), HarvestError> {
        if self.count >= MAX_FILES {
            self.skip(path, "too many files");
            return Ok(());
        }
        if stat.st_nlink != 1 {
            self.skip(path, HARD_LINK);
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > self.budget {
            self.skip(path, SPARSE);
            return Ok(());
        }
        let file = match open_beneath(folder, name, OFlags::empty()) {
            Ok(file) => File::from(file),
            Err(errno) => {
                self.skip(path, format!("can't be opened: {errno}"));
                return Ok(());
            }
        };
        if path == Path::new(self.script.0) && holds_exactly(&file, self.script.1) {
            return Ok(());
        }
        self.budget -= size;
        if let Some(out) = &mut self.out {
            match out.put(path, file, size) {
                Ok(Put::Kept) => {}
                Ok(Put::Unchanged) => return Ok(()),
                Ok(Put::Skipped(reason)) => {
                    self.skip(path, reason);
                    return Ok(());
                }
                Err(source) => return Err(HarvestError::Keep { path: path.to_owned(), source }),
            }
        }
        self.count += 1;
        if let Some(name) = self.listed(path) {
            self.result.files.push(HarvestedFile { name, size });
        }
        Ok(())
    }
}

/// The names in a folder, without the customary two and what this program put there itself.
fn list(folder: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if ![c".", c".."].contains(&name.as_c_str()) && !OURS.contains(&name.as_c_str()) {
            names.push(OsString::from_vec(name.into_bytes()));
        }
    }
    Ok(names)
}

/// Opens a name in a folder without following anything. A file that its owner made unreadable is made readable first,
/// which a supervisor that is not root can do because the file is its own uid's.
pub(crate) fn open_beneath(folder: &OwnedFd, name: &OsStr, extra: OFlags) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | extra;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let open = || rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve);
    match open() {
        Err(Errno::ACCESS) => {
            make_readable(folder, name, resolve)?;
            open()
        }
        other => other,
    }
}

/// By a descriptor, so that it is the thing itself and not what somebody has put in its place meanwhile.
fn make_readable(folder: &OwnedFd, name: &OsStr, resolve: ResolveFlags) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let thing = rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&thing)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return Err(Errno::ACCESS);
    }
    let path = format!("/proc/self/fd/{}", thing.as_raw_fd());
    rustix::fs::chmod(path, Mode::from_raw_mode(0o700))
}

fn holds_exactly(file: &File, content: &[u8]) -> bool {
    // One more than there should be, so that more is noticed at once.
    let mut buffer = vec![0; (content.len() + 1).min(64 << 10)];
    let mut offset = 0;
    loop {
        match rustix::io::pread(file, &mut buffer[..], offset as u64) {
            Ok(0) => return offset == content.len(),
            Ok(count) if content.get(offset..offset + count) == Some(&buffer[..count]) => offset += count,
            _ => return false,
        }
    }
}
