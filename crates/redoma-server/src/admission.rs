//! Who may run now. Requests wait without taking a thread, fairly between owners (`redoma_engine::fair_queue` has the rules); more
//! than may wait are told to come back. The engine has turns too, for those who call it from threads of their own; whoever
//! comes through here finds one free.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redoma_engine::Concurrency;
use redoma_engine::fair_queue::{Entrance, FairQueue, Full, Ticket};
use redoma_model::Owner;
use tokio::sync::oneshot;

use crate::failure::Failure;

type Queue = FairQueue<Owner, oneshot::Sender<()>>;

#[derive(Debug)]
pub struct Admission {
    queue: Arc<Mutex<Queue>>,
    concurrency: Concurrency,
}

impl Admission {
    pub fn new(concurrency: Concurrency) -> Self {
        Self { queue: Arc::new(Mutex::new(FairQueue::new(concurrency))), concurrency }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        lock(&self.queue).waiting()
    }

    /// How many run, and how many wait.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        (queue.running(), queue.waiting())
    }

    /// Comes back when it is this one's turn, which lasts as long as what it gives. May be dropped at any moment.
    pub async fn enter(&self, owner: &Owner) -> Result<Turn, Failure> {
        let (sender, receiver) = oneshot::channel();
        let entrance = lock(&self.queue).enter(owner, sender);
        let turn = || Turn { queue: Arc::clone(&self.queue), owner: owner.clone() };
        let ticket = match entrance {
            Entrance::Turn(_) => return Ok(turn()),
            Entrance::Waits(ticket) => ticket,
            Entrance::Full(Full::All) => {
                return Err(Failure::busy("too many programs wait already; try again"));
            }
            Entrance::Full(Full::OfOwner) => {
                return Err(Failure::busy("too many programs of yours wait already; try again"));
            }
        };
        let place = Place { queue: &self.queue, owner, ticket: Some(ticket) };
        match tokio::time::timeout(self.concurrency.patience, receiver).await {
            Ok(Ok(())) => {
                place.becomes_turn();
                Ok(turn())
            }
            // The place is given up with it.
            _ => Err(Failure::busy("waited too long for a turn; try again")),
        }
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a turn of this owner's, and tells those whose turn it is now. One that does not listen any more gives it back when
/// its place is dropped.
fn pass_on(queue: &Mutex<Queue>, owner: &Owner) {
    let served = lock(queue).leave(owner);
    for (_, sender) in served {
        let _ = sender.send(());
    }
}

/// Somebody who waits. If the request goes away, so does the place; and if a turn came meanwhile, it goes to the next.
struct Place<'a> {
    queue: &'a Mutex<Queue>,
    owner: &'a Owner,
    ticket: Option<Ticket>,
}

impl Place<'_> {
    fn becomes_turn(mut self) {
        self.ticket = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let still_waited = lock(self.queue).give_up(self.owner, ticket);
        if !still_waited {
            pass_on(self.queue, self.owner);
        }
    }
}

/// The right to run, given back when dropped.
#[derive(Debug)]
pub struct Turn {
    queue: Arc<Mutex<Queue>>,
    owner: Owner,
}

impl Drop for Turn {
    fn drop(&mut self) {
        pass_on(&self.queue, &self.owner);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redoma_engine::Sharing;

    use super::*;

    fn owner(name: &str) -> Owner {
        Owner { client: "chat".to_owned(), user: Some(name.to_owned()) }
    }

    fn admission(running: usize, waiting: usize) -> Arc<Admission> {
        let patience = Duration::from_secs(20);
        Arc::new(Admission::new(Concurrency { running, waiting, patience, sharing: Sharing::Fair }))
    }

    async fn until(mut is_so: impl FnMut() -> bool) {
        for _ in 0..2000 {
            if is_so() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it did not come to that");
    }

    #[tokio::test]
    async fn one_with_a_thousand_waiting_does_not_delay_another() {
        let admission = admission(2, 2000);
        let held = admission.enter(&owner("greedy")).await.unwrap();
        let other = admission.enter(&owner("other")).await.unwrap();
        let waiting: Vec<_> = (0..1000)
            .map(|_| {
                let admission = Arc::clone(&admission);
                tokio::spawn(async move { admission.enter(&owner("greedy")).await })
            })
            .collect();
        until(|| admission.counts() == (2, 1000)).await;
        let single = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.enter(&owner("single")).await }
        });
        until(|| admission.counts() == (2, 1001)).await;
        drop(other);
        let turn = tokio::time::timeout(Duration::from_secs(5), single).await.expect("it is next").unwrap();
        assert!(turn.is_ok());
        assert_eq!(admission.counts(), (2, 1000));
        drop((held, turn));
        for task in waiting {
            drop(task.await.unwrap().unwrap());
        }
        assert_eq!(admission.counts(), (0, 0));
    }

    #[tokio::test]
    async fn requests_that_go_away_leave_neither_places_nor_turns() {
        let admission = admission(1, 100);
        for round in 0..300u64 {
            let held = admission.enter(&owner("a")).await.unwrap();
            let waiting: Vec<_> = (0..5)
                .map(|number| {
                    let admission = Arc::clone(&admission);
                    tokio::spawn(
                        async move { admission.enter(&owner(&format!("b{number}"))).await.map(drop) },
                    )
                })
                .collect();
            until(|| admission.counts() == (1, 5)).await;
            // Some go before they were served, some in the same moment.
            for (number, task) in waiting.iter().enumerate() {
                if (round >> number) & 1 == 1 {
                    task.abort();
                }
            }
            drop(held);
            for task in waiting {
                let _ = task.await;
            }
            assert_eq!(admission.counts(), (0, 0), "in round {round}");
        }
    }

    #[tokio::test]
    async fn a_turn_that_came_to_one_who_had_gone_goes_to_the_next() {
        let admission = admission(1, 100);
        let held = admission.enter(&owner("a")).await.unwrap();
        let mut gone = Box::pin({
            let admission = Arc::clone(&admission);
            async move { admission.enter(&owner("b")).await }
        });
        // Begun, and not looked at again.
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut gone).await.is_err());
        let next = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.enter(&owner("c")).await }
        });
        until(|| admission.counts() == (1, 2)).await;
        drop(held);
        assert_eq!(admission.counts(), (1, 1), "it is b's turn, who does not know yet");
        drop(gone);
        assert!(
            tokio::time::timeout(Duration::from_secs(5), next).await.expect("it is next").unwrap().is_ok()
        );
    }

    #[tokio::test]
    async fn too_many_are_told_at_once() {
        let admission = admission(1, 4);
        let _held = admission.enter(&owner("a")).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let admission = Arc::clone(&admission);
            waiting.push(tokio::spawn(async move { admission.enter(&owner("a")).await }));
        }
        until(|| admission.counts().1 == 3).await;
        let failure = admission.enter(&owner("a")).await.unwrap_err();
        assert_eq!((failure.code, failure.retry_after), ("rate_limited", Some(2)));
        assert!(failure.detail.contains("of yours"), "{}", failure.detail);
    }
}
