//! Those who guess wait longer each time. Keys can't be guessed anyway; this keeps the log readable and the disk quiet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::rates::Trickle;

/// After so long without a failure an address is forgotten.
const FORGET: Duration = Duration::from_mins(5);
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(3);
/// So many addresses are remembered.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Slowdown {
    failures: Mutex<HashMap<IpAddr, (u32, Instant)>>,
    /// Of all of them together.
    trickle: Trickle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) time: Duration,
    /// Not each of thousands.
    pub(super) is_worth_a_record: bool,
}

impl Slowdown {
    /// A login from there failed: how long its answer waits.
    pub(super) fn note(&self, address: IpAddr) -> Pause {
        let now = Instant::now();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MOST {
            failures.retain(|_, (_, last)| now - *last < FORGET);
            if failures.len() >= MOST {
                failures.clear();
            }
        }
        let (count, last) = failures.entry(network(address)).or_insert((0, now));
        if now - *last > FORGET {
            *count = 0;
        }
        *count = count.saturating_add(1);
        *last = now;
        let time = FIRST.saturating_mul(1 << (*count - 1).min(10)).min(LONGEST);
        let is_worth_a_record = (*count <= 20 || count.is_multiple_of(100)) && self.trickle.lets_through(now);
        Pause { time, is_worth_a_record }
    }
}

/// Of version 6 a customer has a whole network, and may use each of its addresses once.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_none() => {
            IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes())
        }
        other => other.to_canonical(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_waits_longer_up_to_an_end() {
        let slowdown = Slowdown::default();
        let here = IpAddr::from([127, 0, 0, 1]);
        let times: Vec<_> = (0..10).map(|_| slowdown.note(here).time).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!((times[0], times[9]), (FIRST, LONGEST));
        assert_eq!(slowdown.note(IpAddr::from([10, 0, 0, 1])).time, FIRST);
    }

    #[test]
    fn many_addresses_do_not_take_much_memory() {
        let slowdown = Slowdown::default();
        for number in 0..30_000u32 {
            slowdown.note(IpAddr::from(number.to_be_bytes()));
        }
        assert!(slowdown.failures.lock().unwrap().len() <= MOST);
    }
}
