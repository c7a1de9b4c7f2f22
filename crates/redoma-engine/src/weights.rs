//! How the processor is shared between owners. The kernel shares it between sandboxes, each with the same weight: whoever runs six
//! programs would get six times as much as whoever runs one. So the programs of one owner together have about the weight of one,
//! and share that evenly among themselves.
//!
//! Only the steps of 1, 2, 4, 8, … programs change weights, so that an owner who always has a handful of them running costs one
//! write for each, not one for each pair.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redoma_jail::cgroup::Weight;
use redoma_model::Owner;

#[derive(Debug, Default)]
pub(crate) struct Weights {
    owners: Mutex<HashMap<Owner, Running>>,
}

/// What runs of one owner.
#[derive(Debug, Default)]
struct Running {
    next_number: u64,
    sandboxes: Vec<(u64, Weight)>,
}

/// Into how many parts an owner's weight is divided for so many programs.
fn parts(programs: usize) -> u32 {
    u32::try_from(programs.next_power_of_two()).unwrap_or(u32::MAX)
}

impl Weights {
    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Running>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sandbox of this owner's runs, as long as what comes back.
    pub(crate) fn add(&self, owner: &Owner, weight: Weight) -> Weighed<'_> {
        let mut owners = self.lock();
        let running = owners.entry(owner.clone()).or_default();
        let before = parts(running.sandboxes.len());
        let number = running.next_number;
        running.next_number += 1;
        running.sandboxes.push((number, weight));
        let now = parts(running.sandboxes.len());
        // Those before it only if there is something to change.
        let unchanged = if now == before { running.sandboxes.len() - 1 } else { 0 };
        for (_, weight) in &mut running.sandboxes[unchanged..] {
            weight.set(now);
        }
        Weighed { weights: self, owner: owner.clone(), number }
    }

    fn remove(&self, owner: &Owner, number: u64) {
        let mut owners = self.lock();
        let Some(running) = owners.get_mut(owner) else { return };
        let before = parts(running.sandboxes.len());
        running.sandboxes.retain(|(known, _)| *known != number);
        let now = parts(running.sandboxes.len());
        if running.sandboxes.is_empty() {
            owners.remove(owner);
        } else if now != before {
            for (_, weight) in &mut running.sandboxes {
                weight.set(now);
            }
        }
    }
}

/// A sandbox that counts among its owner's, until this is dropped.
#[derive(Debug)]
pub(crate) struct Weighed<'a> {
    weights: &'a Weights,
    owner: Owner,
    number: u64,
}

impl Drop for Weighed<'_> {
    fn drop(&mut self) {
        self.weights.remove(&self.owner, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner { client: name.to_owned(), user: None }
    }

    #[test]
    fn the_programs_of_one_owner_share_the_weight_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "1024").unwrap();
            path
        };
        let shown = |name: &str| {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            text.trim().parse::<u32>().unwrap()
        };
        let weights = Weights::default();
        let first = weights.add(&owner("a"), Weight::new(&place("a1"), 1024));
        let other = weights.add(&owner("b"), Weight::new(&place("b1"), 1024));
        assert_eq!((shown("a1"), shown("b1")), (1024, 1024));
        let second = weights.add(&owner("a"), Weight::new(&place("a2"), 1024));
        let third = weights.add(&owner("a"), Weight::new(&place("a3"), 1024));
        for name in ["a1", "a2", "a3"] {
            assert_eq!(shown(name), 256, "{name}");
        }
        assert_eq!(shown("b1"), 1024);
        drop((second, third));
        assert_eq!(shown("a1"), 1024);
        drop((first, other));
        assert!(weights.lock().is_empty());
    }
}
