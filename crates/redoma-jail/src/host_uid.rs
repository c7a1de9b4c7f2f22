//! A host uid of its own for each live sandbox, where the supervisor is root.
//!
//! Two sandboxes with different uids share none of the kernel's per-user counts (processes, inotify watches, pipe
//! buffers), and a file that one could somehow reach would still not be its own. Numbers come from a range that neither
//! distributions nor systemd give out. Who uses which is told by locks on the bytes of one file: the kernel lets go of
//! them when the last holder is gone, however it went.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// The range that sandboxes' uids are from: the first, and how many.
pub const RANGE: (u32, u32) = (FIRST, COUNT);

/// Gives out uids. Dropped, or gone with its process, it lets go of all that it gave.
#[derive(Debug)]
pub struct HostUids {
    path: PathBuf,
    lock: File,
    /// Locks of one open file do not exclude each other: who has what in this process is kept here.
    taken: Mutex<BTreeSet<u32>>,
    /// All that this process has ever given out, a bit for each.
    given: Box<[AtomicU64]>,
}

impl HostUids {
    /// By locks on a file in `folder`, which all supervisors of this host share.
    pub fn open(folder: &Path) -> Result<Arc<Self>, HostUidError> {
        let path = folder.join("uids.lock");
        let open = || {
            std::fs::create_dir_all(folder)?;
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)
        };
        match open() {
            Ok(lock) => {
                let given = (0..COUNT.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
                Ok(Arc::new(Self { path, lock, taken: Mutex::default(), given }))
            }
            Err(source) => Err(HostUidError::LockFile { path, source }),
        }
    }

    /// A uid that nobody else has.
    pub fn take(self: &Arc<Self>) -> Result<HostUid, HostUidError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Start anywhere: supervisors that start at the same time then seldom try the same byte.
        let start = std::process::id().wrapping_mul(2_654_435_761);
        let slots = (0..COUNT).map(|step| start.wrapping_add(step) % COUNT);
        for slot in slots {
            if taken.contains(&slot) {
                continue;
            }
            let locked = sys::lock_byte(self.lock.as_fd(), i64::from(slot), true)
                .map_err(|errno| HostUidError::LockFile { path: self.path.clone(), source: errno.into() })?;
            if locked {
                taken.insert(slot);
                self.given[(slot / 64) as usize].fetch_or(1 << (slot % 64), Ordering::Relaxed);
                return Ok(HostUid { slot, from: Arc::clone(self) });
            }
        }
        Err(HostUidError::AllInUse)
    }

    /// Whether this process has ever given out this one: what is told of it is likely told of a sandbox of ours, also when
    /// that is gone already.
    pub fn has_given(&self, uid: u32) -> bool {
        let Some(slot) = uid.checked_sub(FIRST).filter(|slot| *slot < COUNT) else { return false };
        self.given[(slot / 64) as usize].load(Ordering::Relaxed) & (1 << (slot % 64)) != 0
    }

    /// The locks, for a process that must keep them past this one's end.
    pub(crate) fn lock(&self) -> &File {
        &self.lock
    }
}

/// A uid that no other sandbox has as long as this lives.
#[derive(Debug)]
pub struct HostUid {
    slot: u32,
    from: Arc<HostUids>,
}

impl HostUid {
    pub fn uid(&self) -> u32 {
        FIRST + self.slot
    }

    /// Where it is from.
    pub fn from(&self) -> &HostUids {
        &self.from
    }
}

impl Drop for HostUid {
    fn drop(&mut self) {
        let mut taken = self.from.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sys::lock_byte(self.from.lock.as_fd(), i64::from(self.slot), false);
        taken.remove(&self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_never_have_the_same_uid_and_a_dropped_one_is_free_again() {
        let folder = std::env::temp_dir().join(format!("redoma-uid-test-{}", std::process::id()));
        let (one, other) = (HostUids::open(&folder).unwrap(), HostUids::open(&folder).unwrap());
        let first = one.take().unwrap();
        let others = [one.take().unwrap(), other.take().unwrap()];
        assert!(others.iter().all(|uid| uid.uid() != first.uid()));
        assert_ne!(others[0].uid(), others[1].uid());
        let uid = first.uid();
        drop(first);
        assert!(one.has_given(uid) && !other.has_given(uid) && !one.has_given(0) && !one.has_given(u32::MAX));
        assert_eq!(other.take().unwrap().uid(), uid);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
