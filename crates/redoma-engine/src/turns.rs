//! Who may go on now: so many at once, the others wait on their threads, fairly between owners (`fair_queue.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::Owner;

use crate::fair_queue::{Entrance, FairQueue, Full};
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
    pub sharing: Sharing,
}

/// Whether those who come are several that don't know each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody takes all turns, nor all places to wait.
    Fair,
    /// They all belong together: in the order in which they came.
    FirstCome,
}

impl Default for Concurrency {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            running: (cores * 4).max(8),
            waiting: 1000,
            patience: Duration::from_mins(1),
            sharing: Sharing::Fair,
        }
    }
}

/// Whoever comes without saying who they are: a program's own calls.
pub(crate) fn nobody() -> Owner {
    Owner { client: String::new(), user: None }
}

#[derive(Debug)]
pub(crate) struct Turns {
    patience: Duration,
    queue: Mutex<FairQueue<Owner, Arc<AtomicBool>>>,
    /// Some of those who wait have been given a turn.
    served: Condvar,
}

impl Turns {
    pub(crate) fn new(concurrency: Concurrency) -> Self {
        let queue = Mutex::new(FairQueue::new(concurrency));
        Self { patience: concurrency.patience, queue, served: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue<Owner, Arc<AtomicBool>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// A turn, if one can be had at once and nobody waits for it.
    pub(crate) fn try_take(&self, owner: &Owner) -> Option<Turn<'_>> {
        self.lock().try_enter(owner).then(|| Turn { turns: self, owner: owner.clone() })
    }

    pub(crate) fn wait(&self, owner: &Owner, cancel: &Cancel) -> Result<Turn<'_>, RunError> {
        let turn = || Turn { turns: self, owner: owner.clone() };
        let mut queue = self.lock();
        let is_served = Arc::new(AtomicBool::new(false));
        let ticket = match queue.enter(owner, Arc::clone(&is_served)) {
            Entrance::Turn(_) => return Ok(turn()),
            Entrance::Waits(ticket) => ticket,
            Entrance::Full(Full::All | Full::OfOwner) => {
                return Err(RunError::Busy { running: queue.running(), waiting: queue.waiting() });
            }
        };
        let deadline = Instant::now() + self.patience;
        loop {
            // Set under the lock, so that it can't be missed.
            if is_served.load(Ordering::Relaxed) {
                return Ok(turn());
            }
            let now = Instant::now();
            let is_cancelled = cancel.is_cancelled();
            if now >= deadline || is_cancelled {
                queue.give_up(owner, ticket);
                return Err(if is_cancelled {
                    RunError::Cancelled
                } else {
                    RunError::Busy { running: queue.running(), waiting: queue.waiting() }
                });
            }
            // Looked at now and then for the cancellation, which can't wake this up.
            let pause = (deadline - now).min(Duration::from_millis(100));
            queue = self.served.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The right to go on, given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    owner: Owner,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.turns.lock();
        let served = queue.leave(&self.owner);
        for (_, is_served) in &served {
            is_served.store(true, Ordering::Relaxed);
        }
        drop(queue);
        if !served.is_empty() {
            self.turns.served.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner { client: name.to_owned(), user: None }
    }

    fn turns(running: usize, patience: Duration) -> Turns {
        Turns::new(Concurrency { running, waiting: 100, patience, sharing: Sharing::Fair })
    }

    #[test]
    fn a_thread_that_waits_gets_the_turn_that_becomes_free() {
        let turns = turns(1, Duration::from_secs(20));
        let first = turns.try_take(&owner("a")).expect("it is free");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turns.wait(&owner("b"), &Cancel::new().unwrap()).map(drop));
            while turns.waiting() == 0 {
                std::thread::yield_now();
            }
            assert!(turns.try_take(&owner("c")).is_none());
            drop(first);
            waits.join().unwrap().expect("it had its turn");
        });
        assert!(turns.try_take(&owner("c")).is_some());
    }

    #[test]
    fn whoever_gives_up_is_in_nobodys_way() {
        let turns = turns(1, Duration::from_millis(20));
        let first = turns.try_take(&owner("a")).expect("it is free");
        let cancel = Cancel::new().unwrap();
        assert!(matches!(turns.wait(&owner("b"), &cancel), Err(RunError::Busy { running: 1, waiting: 0 })));
        cancel.cancel();
        assert!(matches!(turns.wait(&owner("b"), &cancel), Err(RunError::Cancelled)));
        drop(first);
        assert!(turns.try_take(&owner("c")).is_some());
    }

    #[test]
    fn many_threads_of_one_do_not_delay_another() {
        // One at a time: who has a turn writes that down before anybody else has one.
        let turns = turns(1, Duration::from_secs(20));
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let held = turns.wait(&owner("a"), &Cancel::new().unwrap()).unwrap();
            for _ in 0..20 {
                scope.spawn(|| {
                    let _turn = turns.wait(&owner("a"), &Cancel::new().unwrap()).unwrap();
                    order.lock().unwrap().push("a");
                });
            }
            while turns.waiting() < 20 {
                std::thread::yield_now();
            }
            scope.spawn(|| {
                let _turn = turns.wait(&owner("b"), &Cancel::new().unwrap()).unwrap();
                order.lock().unwrap().push("b");
            });
            while turns.waiting() < 21 {
                std::thread::yield_now();
            }
            drop(held);
        });
        let order = order.into_inner().unwrap();
        let place = order.iter().position(|who| *who == "b").unwrap();
        assert!(place <= 2, "{order:?}");
        assert_eq!(order.len(), 21);
    }
}
