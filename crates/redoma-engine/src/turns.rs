//! Who may go on now: so many at once, the others in the order in which they came.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::request::RunError;
use crate::supervise::Cancel;

/// How much may go on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// Programs that run at the same time.
    pub running: usize,
    /// Requests that wait for their turn; more are turned away.
    pub waiting: usize,
    /// How long one waits at most.
    pub patience: Duration,
}

impl Default for Concurrency {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { running: (cores * 4).max(8), waiting: 1000, patience: Duration::from_mins(1) }
    }
}

#[derive(Debug)]
pub(crate) struct Turns {
    concurrency: Concurrency,
    queue: Mutex<Queue>,
    turn_is_free: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    running: usize,
    waiting: usize,
    /// Who comes next: first come, first served.
    next_ticket: u64,
    serving: u64,
    /// Tickets of those who have given up.
    given_up: BTreeSet<u64>,
}

impl Turns {
    pub(crate) fn new(concurrency: Concurrency) -> Self {
        Self { concurrency, queue: Mutex::default(), turn_is_free: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// A turn, if one can be had at once and nobody waits for it.
    pub(crate) fn try_take(&self) -> Option<Turn<'_>> {
        let mut queue = self.lock();
        let is_free = queue.waiting == 0 && queue.running < self.concurrency.running;
        is_free.then(|| {
            queue.running += 1;
            Turn(self)
        })
    }

    pub(crate) fn wait(&self, cancel: &Cancel) -> Result<Turn<'_>, RunError> {
        let mut queue = self.lock();
        if queue.waiting >= self.concurrency.waiting && queue.running >= self.concurrency.running {
            return Err(RunError::Busy { running: queue.running, waiting: queue.waiting });
        }
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.waiting += 1;
        let deadline = Instant::now() + self.concurrency.patience;
        loop {
            let is_next = ticket == queue.serving;
            if is_next && queue.running < self.concurrency.running {
                queue.waiting -= 1;
                queue.running += 1;
                queue.serve_next();
                drop(queue);
                self.turn_is_free.notify_all();
                return Ok(Turn(self));
            }
            let now = Instant::now();
            let is_cancelled = cancel.is_cancelled();
            if now >= deadline || is_cancelled {
                queue.waiting -= 1;
                let error = if is_cancelled {
                    RunError::Cancelled
                } else {
                    RunError::Busy { running: queue.running, waiting: queue.waiting }
                };
                if is_next {
                    queue.serve_next();
                } else {
                    queue.given_up.insert(ticket);
                }
                drop(queue);
                self.turn_is_free.notify_all();
                return Err(error);
            }
            // Looked at now and then for the cancellation, which can't wake this up.
            let pause = (deadline - now).min(Duration::from_millis(100));
            queue = self.turn_is_free.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Queue {
    fn serve_next(&mut self) {
        self.serving += 1;
        while self.given_up.remove(&self.serving) {
            self.serving += 1;
        }
    }
}

/// The right to go on, given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.turn_is_free.notify_all();
    }
}
