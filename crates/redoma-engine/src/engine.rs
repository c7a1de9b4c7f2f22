//! The engine: many executions at once, under a limit, each in a sandbox of its own.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::RunReport;

use crate::backend::{Backend, Status};
use crate::request::{RunError, RunRequest};
use crate::supervise::{Cancel, Observer};

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

/// Runs programs. Shared between threads; each call runs on its caller's.
#[derive(Debug)]
pub struct Engine {
    backend: Box<dyn Backend>,
    concurrency: Concurrency,
    turns: Mutex<Turns>,
    turn_is_free: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    running: usize,
    waiting: usize,
    /// Who comes next: first come, first served.
    next_ticket: u64,
    serving: u64,
    /// Tickets of those who have given up.
    given_up: std::collections::BTreeSet<u64>,
}

impl Engine {
    pub fn new(backend: Box<dyn Backend>, concurrency: Concurrency) -> Self {
        Self { backend, concurrency, turns: Mutex::default(), turn_is_free: Condvar::new() }
    }

    /// Comes back when sandboxes wait for the first requests.
    pub fn prepare(&self) -> Result<(), RunError> {
        self.backend.prepare()
    }

    pub fn status(&self) -> Status {
        self.backend.status()
    }

    /// Runs a program to its end, after waiting for its turn if it must.
    pub fn execute(
        &self,
        request: RunRequest<'_>,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<RunReport, RunError> {
        // One that calls tools mostly waits for others; it would keep a turn from those who run.
        let _turn = if request.tools.is_some() { None } else { Some(self.wait_for_turn(cancel)?) };
        self.backend.assign(request)?.run(observer, cancel)
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_turn(&self, cancel: &Cancel) -> Result<Turn<'_>, RunError> {
        let mut turns = self.lock();
        if turns.waiting >= self.concurrency.waiting && turns.running >= self.concurrency.running {
            return Err(RunError::Busy { running: turns.running, waiting: turns.waiting });
        }
        let ticket = turns.next_ticket;
        turns.next_ticket += 1;
        turns.waiting += 1;
        let deadline = Instant::now() + self.concurrency.patience;
        loop {
            let is_next = ticket == turns.serving;
            if is_next && turns.running < self.concurrency.running {
                turns.waiting -= 1;
                turns.running += 1;
                turns.serve_next();
                drop(turns);
                self.turn_is_free.notify_all();
                return Ok(Turn(self));
            }
            let now = Instant::now();
            let is_cancelled = cancel.is_cancelled();
            if now >= deadline || is_cancelled {
                turns.waiting -= 1;
                let error = if is_cancelled {
                    RunError::Cancelled
                } else {
                    RunError::Busy { running: turns.running, waiting: turns.waiting }
                };
                if is_next {
                    turns.serve_next();
                } else {
                    turns.given_up.insert(ticket);
                }
                drop(turns);
                self.turn_is_free.notify_all();
                return Err(error);
            }
            // Looked at now and then for the cancellation, which can't wake this up.
            let pause = (deadline - now).min(Duration::from_millis(100));
            turns = self.turn_is_free.wait_timeout(turns, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Turns {
    fn serve_next(&mut self) {
        self.serving += 1;
        while self.given_up.remove(&self.serving) {
            self.serving += 1;
        }
    }
}

/// The right to run, given back when dropped.
struct Turn<'a>(&'a Engine);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.turn_is_free.notify_all();
    }
}
