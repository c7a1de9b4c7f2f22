//! Whose turn is next, fairly between owners: pure bookkeeping, with no threads and no clock. `turns.rs` wakes threads with it,
//! the server's admission wakes tasks.
//!
//! Three rules:
//! - **The one who has the least comes next.** When a turn is free, it goes to the waiting owner with the fewest turns; of those
//!   with as many, to the one who was served longest ago. So a thousand runs of one owner stand in a line of their own, and another's
//!   single run stands at the head of its own line.
//! - **Whoever runs already leaves room.** Programs can't be put aside for a newcomer: if one owner had all turns for as
//!   long as its programs may take, the next would wait as long. So a further turn is given only while what the owner then has is at
//!   most [`GREED`] times what stays free. A first turn is always given: of 8 turns one owner gets 6, a second 1, a third 1.
//! - The same rule bounds who waits: of 1,000 places one owner gets 750.
//!
//! No owner waits for ever as long as programs end: with its last program an owner has no turn, and then comes before all
//! who have one.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::turns::{Concurrency, Sharing};

/// How many times what stays free one owner may have.
pub const GREED: usize = 3;

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What becomes of somebody who comes.
#[derive(Debug, PartialEq, Eq)]
pub enum Entrance<W> {
    /// It is their turn already. `W` comes back: nobody has to be woken.
    Turn(W),
    Waits(Ticket),
    /// Too many wait: all in all, or of this owner.
    Full(Full),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    All,
    OfOwner,
}

/// `K` tells owners apart, `W` is how one who waits is told.
#[derive(Debug)]
pub struct FairQueue<K, W> {
    concurrency: Concurrency,
    owners: HashMap<K, Line<W>>,
    running: usize,
    waiting: usize,
    next_ticket: u64,
    /// Counts turns, for who was served longest ago.
    served: u64,
}

/// One owner's.
#[derive(Debug)]
struct Line<W> {
    running: usize,
    waiting: VecDeque<(Ticket, W)>,
    last_served: u64,
}

/// Whether an owner that has `had` may have one more of what is free: a first one always, a further one only if what it then
/// has is at most [`GREED`] times what stays free.
pub fn is_fair(had: usize, free: usize) -> bool {
    leaves_room(Sharing::Fair, had, free)
}

/// The same, for queues that need not be fair.
fn leaves_room(sharing: Sharing, had: usize, free: usize) -> bool {
    free > 0 && (had == 0 || sharing == Sharing::FirstCome || had < GREED.saturating_mul(free - 1))
}

impl<K: Eq + Hash + Clone, W> FairQueue<K, W> {
    pub fn new(concurrency: Concurrency) -> Self {
        Self { concurrency, owners: HashMap::new(), running: 0, waiting: 0, next_ticket: 0, served: 0 }
    }

    pub fn running(&self) -> usize {
        self.running
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many of this owner run, and how many wait.
    pub fn of(&self, owner: &K) -> (usize, usize) {
        self.owners.get(owner).map_or((0, 0), |line| (line.running, line.waiting.len()))
    }

    fn free(&self) -> usize {
        self.concurrency.running.saturating_sub(self.running)
    }

    /// A turn if it can be had at once, else a place in the queue.
    pub fn enter(&mut self, owner: &K, who: W) -> Entrance<W> {
        let (running, waiting) = self.of(owner);
        // Those of its own who wait come first, and there is nobody else who could have this turn: whoever waits may not.
        if waiting == 0 && self.may_run(running) {
            self.start(owner);
            return Entrance::Turn(who);
        }
        let places = self.concurrency.waiting.saturating_sub(self.waiting);
        if places == 0 {
            return Entrance::Full(Full::All);
        }
        if !leaves_room(self.concurrency.sharing, waiting, places) {
            return Entrance::Full(Full::OfOwner);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting += 1;
        let served = self.served;
        let line = self.owners.entry(owner.clone()).or_insert_with(|| Line::new(served));
        line.waiting.push_back((ticket, who));
        Entrance::Waits(ticket)
    }

    /// A turn, if it can be had at once and nobody waits for it.
    pub fn try_enter(&mut self, owner: &K) -> bool {
        let is_free = self.waiting == 0 && self.may_run(self.of(owner).0);
        if is_free {
            self.start(owner);
        }
        is_free
    }

    fn may_run(&self, had: usize) -> bool {
        leaves_room(self.concurrency.sharing, had, self.free())
    }

    fn start(&mut self, owner: &K) {
        self.served += 1;
        self.running += 1;
        let served = self.served;
        let line = self.owners.entry(owner.clone()).or_insert_with(|| Line::new(served));
        line.running += 1;
        line.last_served = served;
    }

    /// A turn of this owner's is over. Those whose turn it is now have theirs when this comes back, and are to be told.
    #[must_use = "who is not told waits for ever"]
    pub fn leave(&mut self, owner: &K) -> Vec<(K, W)> {
        if let Some(line) = self.owners.get_mut(owner)
            && line.running > 0
        {
            line.running -= 1;
            self.running -= 1;
        }
        self.forget_idle(owner);
        self.serve()
    }

    /// Somebody does not wait any more: whether they still did. If not, they have a turn, which is theirs to give back.
    pub fn give_up(&mut self, owner: &K, ticket: Ticket) -> bool {
        let Some(line) = self.owners.get_mut(owner) else { return false };
        let Some(at) = line.waiting.iter().position(|(known, _)| *known == ticket) else { return false };
        line.waiting.remove(at);
        self.waiting -= 1;
        self.forget_idle(owner);
        true
    }

    fn forget_idle(&mut self, owner: &K) {
        if self.owners.get(owner).is_some_and(|line| line.running == 0 && line.waiting.is_empty()) {
            self.owners.remove(owner);
        }
    }

    fn serve(&mut self) -> Vec<(K, W)> {
        let mut served = Vec::new();
        while let Some(owner) = self.next_owner() {
            let next = self.owners.get_mut(&owner).and_then(|line| line.waiting.pop_front());
            let Some((_, who)) = next else { break };
            self.waiting -= 1;
            self.start(&owner);
            served.push((owner, who));
        }
        served
    }

    fn next_owner(&self) -> Option<K> {
        if self.waiting == 0 || self.free() == 0 {
            return None;
        }
        let waits = self.owners.iter().filter(|(_, line)| !line.waiting.is_empty());
        let may = waits.filter(|(_, line)| self.may_run(line.running));
        let least = may.min_by_key(|(_, line)| {
            (line.running, line.last_served, line.waiting.front().map(|(ticket, _)| *ticket))
        });
        least.map(|(owner, _)| owner.clone())
    }
}

impl<W> Line<W> {
    /// As if it had been served now: else whoever comes new would always come before those who were there.
    fn new(served: u64) -> Self {
        Self { running: 0, waiting: VecDeque::new(), last_served: served }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queue(running: usize, waiting: usize) -> FairQueue<&'static str, u32> {
        FairQueue::new(Concurrency { running, waiting, patience: Duration::ZERO, sharing: Sharing::Fair })
    }

    fn is_turn<W>(entrance: &Entrance<W>) -> bool {
        matches!(entrance, Entrance::Turn(_))
    }

    #[test]
    fn one_owner_leaves_room_for_others() {
        for (turns, alone) in [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (16, 12), (64, 48)] {
            let mut queue = queue(turns, 1000);
            let had = (0..100).filter(|number| is_turn(&queue.enter(&"a", *number))).count();
            assert_eq!(had, alone, "of {turns}");
            if turns > 1 {
                assert!(is_turn(&queue.enter(&"b", 0)), "of {turns}");
            }
        }
    }

    #[test]
    fn a_single_run_comes_before_a_thousand_of_another() {
        let mut queue = queue(2, 2000);
        assert!(is_turn(&queue.enter(&"b", 0)));
        for number in 0..1000 {
            queue.enter(&"a", number);
        }
        assert!(matches!(queue.enter(&"c", 7), Entrance::Waits(_)));
        assert_eq!(queue.leave(&"b"), [("c", 7)], "it came last, and has the least");
        assert_eq!(queue.leave(&"a"), [("a", 1)]);
    }

    #[test]
    fn first_come_first_served_where_there_is_one_owner() {
        let concurrency =
            Concurrency { running: 2, waiting: 3, patience: Duration::ZERO, sharing: Sharing::FirstCome };
        let mut queue = FairQueue::new(concurrency);
        let entered: Vec<_> = (0..6).map(|number| queue.enter(&"a", number)).collect();
        assert!(is_turn(&entered[0]) && is_turn(&entered[1]));
        assert!(matches!(entered[5], Entrance::Full(Full::All)));
        assert_eq!(queue.leave(&"a"), [("a", 2)]);
        assert_eq!(queue.leave(&"a"), [("a", 3)]);
    }

    #[test]
    fn nobody_takes_all_places_to_wait() {
        let mut queue = queue(1, 100);
        assert!(is_turn(&queue.enter(&"x", 0)));
        let waits =
            (0..200).filter(|number| matches!(queue.enter(&"a", *number), Entrance::Waits(_))).count();
        assert_eq!(waits, 75);
        assert_eq!(queue.enter(&"a", 0), Entrance::Full(Full::OfOwner));
        assert!(matches!(queue.enter(&"b", 0), Entrance::Waits(_)));
    }

    #[test]
    fn who_gives_up_after_being_served_still_has_a_turn_to_give_back() {
        let mut queue = queue(1, 10);
        assert!(is_turn(&queue.enter(&"a", 0)));
        let Entrance::Waits(first) = queue.enter(&"b", 1) else { panic!("it waits") };
        let Entrance::Waits(second) = queue.enter(&"c", 2) else { panic!("it waits") };
        assert_eq!(queue.leave(&"a"), [("b", 1)]);
        assert!(!queue.give_up(&"b", first), "it has a turn by now");
        assert!(queue.give_up(&"c", second));
        assert_eq!(queue.leave(&"b"), []);
        assert_eq!((queue.running(), queue.waiting(), queue.owners.len()), (0, 0, 0));
    }

    /// A small generator: the sequences are the same each time.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }
    }

    /// Whatever happens in whichever order: the counts are right, nobody runs who was not told, no turn is left unused that
    /// somebody may have, and all who wait are served in the end.
    #[test]
    fn turns_are_neither_lost_nor_made_in_any_order_of_events() {
        const OWNERS: [&str; 5] = ["a", "b", "c", "d", "e"];
        for seed in 1..200 {
            let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
            let turns = usize::try_from(1 + random.below(9)).unwrap();
            let mut queue = queue(turns, 40);
            let (mut running, mut waiting): (Vec<&str>, Vec<(&str, Ticket, u32)>) = (Vec::new(), Vec::new());
            let mut number = 0;
            for step in 0..600 {
                let is_ending = step > 400;
                match random.below(if is_ending { 2 } else { 5 }) {
                    0 if !running.is_empty() => {
                        let at = usize::try_from(random.below(running.len() as u64)).unwrap();
                        let owner = running.swap_remove(at);
                        for (owner, who) in queue.leave(&owner) {
                            let at = waiting.iter().position(|(_, _, known)| *known == who);
                            assert_eq!(waiting.swap_remove(at.expect("it waited")).0, owner);
                            running.push(owner);
                        }
                    }
                    1 if !waiting.is_empty() && !is_ending => {
                        let at = usize::try_from(random.below(waiting.len() as u64)).unwrap();
                        let (owner, ticket, _) = waiting.swap_remove(at);
                        assert!(queue.give_up(&owner, ticket));
                    }
                    2.. => {
                        // The first of them asks most.
                        let owner = OWNERS[usize::try_from(random.below(5) * random.below(5) / 5).unwrap()];
                        number += 1;
                        match queue.enter(&owner, number) {
                            Entrance::Turn(_) => running.push(owner),
                            Entrance::Waits(ticket) => waiting.push((owner, ticket, number)),
                            Entrance::Full(_) => {}
                        }
                    }
                    _ => {}
                }
                assert_eq!((queue.running(), queue.waiting()), (running.len(), waiting.len()));
                assert!(running.len() <= turns);
                assert!(queue.next_owner().is_none(), "a turn is free that somebody may have");
            }
            while let Some(owner) = running.pop() {
                for (owner, who) in queue.leave(&owner) {
                    waiting.retain(|(_, _, known)| *known != who);
                    running.push(owner);
                }
            }
            assert_eq!(waiting, [], "somebody waits for ever");
            assert!(queue.owners.is_empty());
        }
    }
}
