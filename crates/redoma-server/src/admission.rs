//! Who may run now. Requests wait in order without taking a thread; more than may wait are told to come back. The engine has
//! turns too, for those who call it from threads of their own; whoever comes through here finds one free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redoma_engine::Concurrency;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;

#[derive(Debug)]
pub struct Admission {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
    concurrency: Concurrency,
}

impl Admission {
    pub fn new(concurrency: Concurrency) -> Self {
        let turns = Arc::new(Semaphore::new(concurrency.running));
        Self { turns, waiting: AtomicUsize::new(0), concurrency }
    }

    /// Comes back when it is this one's turn, which lasts as long as what it gives.
    pub async fn enter(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Ok(turn);
        }
        let waiting = Waiting::begin(&self.waiting);
        if waiting.before >= self.concurrency.waiting {
            return Err(Failure::busy("too many programs wait already; try again"));
        }
        let turn = Arc::clone(&self.turns).acquire_owned();
        match tokio::time::timeout(self.concurrency.patience, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) => Err(Failure::busy("the server is shutting down")),
            Err(_) => Err(Failure::busy("waited too long for a turn; try again")),
        }
    }
}

struct Waiting<'a> {
    all: &'a AtomicUsize,
    /// How many waited before this one.
    before: usize,
}

impl<'a> Waiting<'a> {
    fn begin(all: &'a AtomicUsize) -> Self {
        Self { all, before: all.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}
