//! A bucket that refills evenly, as one moment: when it would be full again (the "generic cell rate algorithm"). Times are since
//! the server started, by a clock that nobody sets.

use std::time::Duration;

use redoma_model::Rate;

/// How much of a rate has been taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    /// When it is full again; in the past if it is.
    full_at: Duration,
}

/// What a bucket holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holds {
    pub(super) left: u32,
    /// Until all are back.
    pub(super) full_in: Duration,
    /// Until there is one, if there is none.
    pub(super) next_in: Duration,
}

impl Bucket {
    /// One of which so much is to come back.
    pub(super) fn with_debt(now: Duration, debt: Duration) -> Self {
        Self { full_at: now + debt }
    }

    /// What is still to come back.
    pub(super) fn debt(self, now: Duration) -> Duration {
        self.full_at.saturating_sub(now)
    }

    pub(super) fn is_full(self, now: Duration) -> bool {
        self.full_at <= now
    }

    pub(super) fn look(self, rate: Rate, now: Duration) -> Holds {
        // A rate that was higher when this was taken must not count for longer than a whole period of what it is now.
        let period = rate.per.duration();
        let debt = self.debt(now).min(period);
        let interval = rate.interval().max(Duration::from_nanos(1));
        let left = period.saturating_sub(debt).as_nanos() / interval.as_nanos();
        let left = u32::try_from(left).unwrap_or(u32::MAX).min(rate.count.get());
        let next_in = if left > 0 { Duration::ZERO } else { (debt + interval).saturating_sub(period) };
        Holds { left, full_in: debt, next_in }
    }

    /// Takes one; there must be one.
    pub(super) fn take(&mut self, rate: Rate, now: Duration) {
        let debt = self.debt(now).min(rate.per.duration());
        self.full_at = now + debt + rate.interval();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    fn takes(bucket: &mut Bucket, rate: Rate, now: Duration) -> u32 {
        let mut count = 0;
        while bucket.look(rate, now).left > 0 {
            bucket.take(rate, now);
            count += 1;
        }
        count
    }

    #[test]
    fn all_may_come_at_once_and_then_come_back_evenly() {
        let (mut bucket, rate) = (Bucket::default(), rate("60/m"));
        assert_eq!(takes(&mut bucket, rate, SECOND * 5), 60);
        let holds = bucket.look(rate, SECOND * 5);
        assert_eq!((holds.left, holds.full_in, holds.next_in), (0, SECOND * 60, SECOND));
        assert_eq!(takes(&mut bucket, rate, SECOND * 6), 1);
        assert_eq!(takes(&mut bucket, rate, SECOND * 16), 10);
        assert_eq!(takes(&mut bucket, rate, SECOND * 1000), 60, "more than all never come back");
    }

    #[test]
    fn no_rate_is_exceeded_over_a_long_time() {
        for text in ["3/s", "7/m", "1000/h", "1/d", "86399/d"] {
            let (mut bucket, rate) = (Bucket::default(), rate(text));
            let (mut now, mut count) = (Duration::ZERO, 0u64);
            let step = rate.per.duration() / 97;
            for _ in 0..970 {
                count += u64::from(takes(&mut bucket, rate, now));
                now += step;
            }
            let most = u64::from(rate.count.get()) * 11;
            assert!(
                count <= most && count + 2 >= most - u64::from(rate.count.get()),
                "{text}: {count} of {most}"
            );
        }
    }

    #[test]
    fn a_lower_rate_locks_nobody_out_for_longer_than_its_period() {
        let mut bucket = Bucket::default();
        takes(&mut bucket, rate("1000/d"), SECOND);
        assert!(bucket.look(rate("5/s"), SECOND).next_in <= SECOND);
    }
}
