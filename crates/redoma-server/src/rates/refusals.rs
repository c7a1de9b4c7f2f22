//! Which refusals are written down. Whoever is told to come back later and does not listen must not fill the audit with that.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::Owner;

/// One record in such a time for each owner.
const PAUSE: Duration = Duration::from_secs(10);
/// So many owners are remembered; when there are more, all are forgotten.
const MOST: usize = 10_000;

/// So many records in a second, whoever they are about: names and addresses can be made up.
const IN_A_SECOND: u32 = 10;

#[derive(Debug, Default)]
pub struct Refusals {
    last: Mutex<HashMap<Owner, Instant>>,
    trickle: Trickle,
}

/// Lets some through in each second, and no more.
#[derive(Debug, Default)]
pub struct Trickle(Mutex<Option<(Instant, u32)>>);

impl Trickle {
    pub fn lets_through(&self, now: Instant) -> bool {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (begun, count) = second
            .filter(|(begun, _)| now.duration_since(*begun) < Duration::from_secs(1))
            .unwrap_or((now, 0));
        *second = Some((begun, count + 1));
        count < IN_A_SECOND
    }
}

impl Refusals {
    pub fn is_worth_a_record(&self, owner: &Owner) -> bool {
        self.is_at(owner, Instant::now())
    }

    fn is_at(&self, owner: &Owner, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get(owner).is_some_and(|last| now.duration_since(*last) < PAUSE) {
            return false;
        }
        if last.len() >= MOST {
            last.clear();
        }
        last.insert(owner.clone(), now);
        self.trickle.lets_through(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_while_is_enough() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let owner = |user: &str| Owner { client: "chat".to_owned(), user: Some(user.to_owned()) };
        assert!(refusals.is_at(&owner("ana"), now));
        assert!(!refusals.is_at(&owner("ana"), now + PAUSE / 2));
        assert!(refusals.is_at(&owner("bo"), now + PAUSE / 2));
        assert!(refusals.is_at(&owner("ana"), now + PAUSE));
    }
}
