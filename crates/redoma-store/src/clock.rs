//! Time for retention. The host's clock is looked at once, at the start; from then on time passes as it does, so that a
//! clock that is set forward by a year removes nobody's files.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
    at: i64,
}

impl Clock {
    pub fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), at: i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX) }
    }

    /// Milliseconds since 1970.
    pub fn now(&self) -> i64 {
        let passed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.at.saturating_add(passed)
    }
}

#[cfg(test)]
impl Clock {
    /// A clock of a host that thinks it is this time.
    pub(crate) fn at(at: i64) -> Self {
        Self { started: Instant::now(), at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_goes_on_from_where_the_host_was() {
        let clock = Clock::start();
        let host = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        assert!(host.abs_diff(u128::try_from(clock.now()).unwrap()) < 1000);
        let copy = clock;
        std::thread::sleep(Duration::from_millis(20));
        assert!(clock.now() >= clock.at + 20);
        assert!(copy.now() - clock.now() <= 5);
    }

    /// Nothing here asks the host again, so whatever its clock does, this one goes on.
    #[test]
    fn time_never_turns_back_or_over() {
        let clock = Clock::at(i64::MAX);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(clock.now(), i64::MAX);
        let clock = Clock::at(1_000_000);
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last && now < 1_000_000 + 60_000);
            last = now;
        }
    }
}
