//! The record locks (`fcntl`) that a sandbox holds, counted from outside.
//!
//! Linux charges a lock to no cgroup (192 bytes each), and no limit of a process bounds their number. Databases need them:
//! SQLite holds some five for each connection. The kernel lists all locks of the host in `/proc/locks`, and in the `/proc` of a PID
//! namespace only those of its processes. That file is opened while the sandbox is built, before `/proc` is covered, and
//! the supervisor reads it from time to time.
//!
//! Every lock in there has a process that is alive: the filter refuses locks of open files (`F_OFD_SETLK`), which have
//! none, and processes that share their descriptors, whose locks stay when the one that took them is gone. `flock` takes one
//! lock for each open file, which is charged, and needs no count.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Maximum number of record locks of a sandbox. No honest program comes near it.
pub const MAX_LOCKS: usize = 2000;

/// A sandbox's own list of locks.
#[derive(Debug)]
pub struct LockList(OwnedFd);

impl LockList {
    pub(crate) fn new(list: OwnedFd) -> Self {
        Self(list)
    }

    /// Inside: opens the list below the new `/proc`. A kernel without the list has no locks.
    pub(crate) fn open(proc: &OwnedFd) -> Result<OwnedFd, Errno> {
        match rustix::fs::openat(proc, c"locks", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => {
                rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            }
            other => other,
        }
    }

    /// Whether there are more than [`MAX_LOCKS`]. Stops reading as soon as that is clear: the kernel begins at the first lock
    /// with each page that is read.
    pub fn is_too_long(&self) -> bool {
        let mut buffer = [0u8; 8192];
        let (mut offset, mut count) = (0, 0);
        while count <= MAX_LOCKS {
            match rustix::io::pread(&self.0, &mut buffer[..], offset) {
                Ok(0) => return false,
                Ok(length) => {
                    offset += length as u64;
                    count += buffer[..length].windows(7).filter(|word| *word == b" POSIX ").count();
                }
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}
