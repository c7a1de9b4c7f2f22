//! Room for the moment in which there is none. A database can't forget anything without writing that down, so on a full disk
//! not even a removal would be possible. A file of no use is kept for that: it goes, the removal takes its place, and when
//! there is room again it comes back.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::StoreError;

/// Enough for what a removal writes, many times over.
const SIZE: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    one_at_a_time: Mutex<()>,
}

impl Reserve {
    pub(crate) fn keep(path: PathBuf) -> Self {
        let reserve = Self { path, one_at_a_time: Mutex::default() };
        reserve.refill();
        reserve
    }

    /// If there is room.
    pub(crate) fn refill(&self) {
        if self.path.metadata().is_ok_and(|meta| meta.len() == SIZE) {
            return;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path);
        let is_kept = file.is_ok_and(|file| {
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SIZE).is_ok()
        });
        if !is_kept {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Does a removal; if there is no room for it, in the room that was kept.
    pub(crate) fn lend<T>(&self, removal: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        match removal() {
            Err(error) if error.is_full() => {
                let _one = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = fs::remove_file(&self.path);
                let result = removal();
                self.refill();
                result
            }
            result => result,
        }
    }
}
