//! Memory for the files that programs get.
//!
//! The server copies a session's files into the sandbox's file system, which is in memory. Linux charges these pages to the
//! server's control group and not to the sandbox's, so the sandbox's memory limit does not bound them. This module does: all
//! copies together take at most a quarter of the host's memory, and one owner leaves room for others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redoma_model::Owner;

use super::Interpreter;
use crate::request::RunError;

/// Share of the host's memory that copies of files may take.
const SHARE_OF_MEMORY: u64 = 4;
/// The same, where the host does not tell how much memory it has.
const DEFAULT_TOTAL: u64 = 1 << 30;
/// An owner gets more while it then holds at most this many times what stays free, as with turns.
const SHARE_OF_FREE: u64 = 3;

#[derive(Debug)]
pub(super) struct InputMemory {
    total: AtomicU64,
    held: Mutex<HashMap<Owner, u64>>,
}

impl Default for InputMemory {
    fn default() -> Self {
        Self { total: AtomicU64::new(DEFAULT_TOTAL), held: Mutex::default() }
    }
}

impl InputMemory {
    /// The host, or the server's control group, has this much memory in all.
    fn note_memory(&self, memory: u64) {
        self.total.store(memory / SHARE_OF_MEMORY, Ordering::Relaxed);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Owner, u64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for nothing yet.
    pub(super) fn for_owner(self: &Arc<Self>, owner: &Owner) -> HeldInputs {
        HeldInputs { memory: Arc::clone(self), owner: owner.clone(), bytes: 0 }
    }

    fn add(&self, owner: &Owner, bytes: u64) -> Result<(), Refused> {
        if bytes == 0 {
            return Ok(());
        }
        let mut held = self.held();
        let all: u64 = held.values().sum();
        let own = held.get(owner).copied().unwrap_or(0);
        let total = self.total.load(Ordering::Relaxed);
        let free = total.saturating_sub(all.saturating_add(bytes));
        let fits = all.saturating_add(bytes) <= total;
        let has_share = own == 0 || own.saturating_add(bytes) <= free.saturating_mul(SHARE_OF_FREE);
        // One program's files are bounded by the session's quota; alone, they may exceed the total.
        if !(fits && has_share) && all > 0 {
            let has_less = held.values().any(|others| *others > own.saturating_add(bytes));
            return Err(if has_less { Refused::Full } else { Refused::Share });
        }
        *held.entry(owner.clone()).or_default() += bytes;
        Ok(())
    }

    fn give_back(&self, owner: &Owner, bytes: u64) {
        let mut held = self.held();
        if let Some(own) = held.get_mut(owner) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                held.remove(owner);
            }
        }
    }
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// The owner has its share.
    Share,
    /// Another owner holds more than this one asks for.
    Full,
}

impl Interpreter {
    /// Makes room for files of this many bytes. If others hold too much, an idle session of the owner with the most ends.
    pub(super) fn hold_inputs(&self, held: &mut HeldInputs, bytes: u64) -> Result<(), RunError> {
        if let Some(memory) = self.engine.pressure().and_then(|pressure| pressure.last().total) {
            self.input_memory.note_memory(memory);
        }
        loop {
            match held.resize(bytes) {
                Ok(()) => return Ok(()),
                Err(Refused::Full) if self.kernels.drop_largest_inputs() => {}
                Err(_) => return Err(RunError::InputMemory),
            }
        }
    }
}

/// Memory that the files of one sandbox take. Dropping it gives the memory back.
#[derive(Debug)]
pub(super) struct HeldInputs {
    memory: Arc<InputMemory>,
    owner: Owner,
    bytes: u64,
}

impl HeldInputs {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Files of this many bytes are in the sandbox from now on.
    fn resize(&mut self, bytes: u64) -> Result<(), Refused> {
        if bytes > self.bytes {
            self.memory.add(&self.owner, bytes - self.bytes)?;
        } else {
            self.memory.give_back(&self.owner, self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for HeldInputs {
    fn drop(&mut self) {
        self.memory.give_back(&self.owner, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner { client: "chat".to_owned(), user: Some(name.to_owned()) }
    }

    /// For files there is a quarter of it.
    fn of_memory(bytes: u64) -> Arc<InputMemory> {
        let memory = Arc::<InputMemory>::default();
        memory.note_memory(bytes);
        memory
    }

    fn take(memory: &Arc<InputMemory>, name: &str, bytes: u64) -> Option<HeldInputs> {
        let mut held = memory.for_owner(&owner(name));
        held.resize(bytes).ok().map(|()| held)
    }

    #[test]
    fn one_owner_leaves_room_for_others() {
        let memory = of_memory(1600);
        let held: Vec<_> = std::iter::from_fn(|| take(&memory, "ana", 50)).collect();
        assert_eq!(held.len(), 6, "three quarters of 400");
        let other = take(&memory, "ben", 80);
        assert!(other.is_some());
        assert!(take(&memory, "ana", 10).is_none() && take(&memory, "cleo", 30).is_none());
        drop((held, other));
        assert!(memory.held().is_empty());
    }

    #[test]
    fn a_program_with_many_files_runs_alone() {
        let memory = of_memory(1600);
        let large = take(&memory, "ana", 1000);
        assert!(large.is_some());
        assert_eq!(memory.for_owner(&owner("ben")).resize(10), Err(Refused::Full));
        drop(large);
        assert!(take(&memory, "ben", 10).is_some());
    }

    #[test]
    fn a_session_gives_back_what_its_files_no_longer_take() {
        let memory = of_memory(1600);
        let mut session = take(&memory, "ana", 300).unwrap();
        assert_eq!(session.resize(350), Err(Refused::Share));
        session.resize(100).unwrap();
        assert_eq!(memory.held()[&owner("ana")], 100);
        drop(session);
        assert!(memory.held().is_empty());
    }
}
