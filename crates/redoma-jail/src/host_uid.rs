//! A host uid of its own for each live sandbox, where the supervisor is root.
//!
//! Two sandboxes with different uids share none of the kernel's per-user counts (processes, inotify watches, pipe
//! buffers), and a file that one could somehow reach would still not be its own. Numbers come from a range that neither
//! distributions nor systemd give out. Who uses which is told by locks on the bytes of one file: the kernel lets go of
//! them when the last holder is gone, however it went.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::sys;

/// systemd leaves 1879048192 to 2147483647 unused (its UIDS-GIDS page); these are in the middle of that.
const FIRST: u32 = 1_900_000_000;
const COUNT: u32 = 65_536;

#[derive(Debug, thiserror::Error)]
pub enum HostUidError {
    #[error("{}: {source}; the folder must be writable for root", path.display())]
    LockFile { path: PathBuf, source: io::Error },
    #[error("all {COUNT} sandbox uids are in use")]
    AllInUse,
}

/// A uid that no other sandbox has as long as this (or a copy of its descriptor) lives.
#[derive(Debug)]
pub struct HostUid {
    uid: u32,
    lock: File,
}

impl HostUid {
    /// Takes a free uid, by a lock in `folder`.
    pub fn take(folder: &Path) -> Result<Self, HostUidError> {
        let path = folder.join("uids.lock");
        let failed = |source| HostUidError::LockFile { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        // Start anywhere: sandboxes that start at the same time then seldom try the same byte.
        let start = std::process::id().wrapping_mul(2_654_435_761);
        for step in 0..COUNT {
            let slot = start.wrapping_add(step) % COUNT;
            if sys::lock_byte(lock.as_fd(), i64::from(slot)).map_err(|errno| failed(errno.into()))? {
                return Ok(Self { uid: FIRST + slot, lock });
            }
        }
        Err(HostUidError::AllInUse)
    }

    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The lock, for a process that must keep it past this one's end.
    pub(crate) fn lock(&self) -> &File {
        &self.lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_never_have_the_same_uid_and_a_dropped_one_is_free_again() {
        let folder = std::env::temp_dir().join(format!("redoma-uid-test-{}", std::process::id()));
        let first = HostUid::take(&folder).unwrap();
        let second = HostUid::take(&folder).unwrap();
        assert_ne!(first.uid(), second.uid());
        let uid = first.uid();
        drop(first);
        assert_eq!(HostUid::take(&folder).unwrap().uid(), uid);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
