//! The clock of a run, which stands still while the program waits for somebody else.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    start: Instant,
    /// For how long it stood still before.
    stood: Duration,
    /// Since when it stands still.
    stands_since: Option<Instant>,
}

impl WallClock {
    pub(crate) fn start(now: Instant) -> Self {
        Self { start: now, stood: Duration::ZERO, stands_since: None }
    }

    /// Stops it or lets it go on, as of now.
    pub(crate) fn stand_still(&mut self, stands: bool, now: Instant) {
        match (self.stands_since, stands) {
            (None, true) => self.stands_since = Some(now),
            (Some(since), false) => {
                self.stood += now.saturating_duration_since(since);
                self.stands_since = None;
            }
            _ => {}
        }
    }

    /// The time that counts.
    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        let end = self.stands_since.unwrap_or(now);
        end.saturating_duration_since(self.start).saturating_sub(self.stood)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_in_which_it_goes_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clock = WallClock::start(start);
        assert_eq!(clock.elapsed(at(2)).as_secs(), 2);
        clock.stand_still(true, at(2));
        clock.stand_still(true, at(5));
        assert_eq!(clock.elapsed(at(9)).as_secs(), 2);
        clock.stand_still(false, at(10));
        clock.stand_still(false, at(11));
        assert_eq!(clock.elapsed(at(13)).as_secs(), 5);
    }
}
