//! How numbers are spread, in fixed buckets.

use std::time::Duration;

use super::counter::Counter;

/// Bounds in whole parts of a unit, so that recording compares integers.
#[derive(Debug)]
pub struct Buckets {
    bounds: &'static [u64],
    /// How many parts make one unit.
    parts: u32,
}

const fn micros<const N: usize>(bounds: [u64; N]) -> [u64; N] {
    let mut nanos = bounds;
    let mut at = 0;
    while at < N {
        nanos[at] *= 1000;
        at += 1;
    }
    nanos
}

/// Seconds, from half a millisecond to a minute: a warm start takes a few, the longest run that is usual half a minute.
pub const SECONDS: Buckets = Buckets {
    bounds: &micros([
        500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
        5_000_000, 10_000_000, 30_000_000, 60_000_000,
    ]),
    parts: 1_000_000_000,
};

/// How much of a limit was used: from a twentieth to all of it.
pub const RATIO: Buckets = Buckets {
    bounds: &[50_000, 100_000, 250_000, 500_000, 750_000, 900_000, 950_000, 1_000_000],
    parts: 1_000_000,
};

/// Counts by bucket, and their sum.
#[derive(Debug)]
pub struct Histogram {
    buckets: &'static Buckets,
    /// One for each bound, and one for what is beyond.
    counts: Box<[Counter]>,
    sum: Counter,
}

impl Histogram {
    pub fn of_seconds() -> Self {
        Self::new(&SECONDS)
    }

    pub fn of_ratios() -> Self {
        Self::new(&RATIO)
    }

    fn new(buckets: &'static Buckets) -> Self {
        let counts = (0..=buckets.bounds.len()).map(|_| Counter::default()).collect();
        Self { buckets, counts, sum: Counter::default() }
    }

    pub fn note(&self, time: Duration) {
        self.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// `used` of `limit`. Without a limit there is nothing to tell.
    pub fn note_ratio(&self, used: u64, limit: u64) {
        let parts = u64::from(self.buckets.parts);
        let ratio = match used.checked_mul(parts) {
            Some(used) => used.checked_div(limit),
            // As exact as can be, of numbers that no limit has.
            None => used.checked_div((limit / parts).max(u64::from(limit > 0))),
        };
        if let Some(ratio) = ratio {
            self.add(ratio);
        }
    }

    fn add(&self, parts: u64) {
        let bucket = self.buckets.bounds.partition_point(|bound| *bound < parts);
        self.counts[bucket].add_one();
        self.sum.add(parts);
    }

    /// Each bound with how many were at most that, then all of them, and their sum. Taken from one reading, so that a
    /// scrape in the middle of a run adds up.
    pub fn read(&self) -> Reading {
        let mut so_far = 0;
        let mut cumulative = self.counts.iter().map(|count| {
            so_far += count.get();
            so_far
        });
        let bounds = self.buckets.bounds.iter().map(|bound| self.in_units(*bound));
        let below = bounds.zip(cumulative.by_ref()).collect();
        let count = cumulative.next().unwrap_or_default();
        Reading { below, count, sum: self.in_units(self.sum.get()) }
    }

    #[expect(clippy::cast_precision_loss, reason = "a sum of times may be off by a millionth")]
    fn in_units(&self, parts: u64) -> f64 {
        parts as f64 / f64::from(self.buckets.parts)
    }
}

/// What a histogram held at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub below: Vec<(f64, u64)>,
    pub count: u64,
    pub sum: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::of_seconds();
        for millis in [0, 1, 2, 600, 120_000] {
            histogram.note(Duration::from_millis(millis));
        }
        let Reading { below, count, sum } = histogram.read();
        let at = |bound: f64| below.iter().find(|(known, _)| (known - bound).abs() < 1e-9).unwrap().1;
        assert_eq!((at(0.0005), at(0.001), at(0.0025), at(0.5), at(1.0), at(60.0)), (1, 2, 3, 3, 4, 4));
        assert_eq!(count, 5);
        assert!((sum - 120.603).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_limit_that_is_reached_is_a_ratio_of_one_and_none_is_no_ratio() {
        let histogram = Histogram::of_ratios();
        histogram.note_ratio(512, 512);
        histogram.note_ratio(1, 0);
        histogram.note_ratio(u64::MAX, u64::MAX);
        let reading = histogram.read();
        assert_eq!((reading.below.last(), reading.count), (Some(&(1.0, 2)), 2));
    }
}
