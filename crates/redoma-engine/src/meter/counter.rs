//! Numbers that many threads write and one reads now and then. A scrape need not be one instant, so nothing is ordered.

use std::sync::atomic::{AtomicU64, Ordering};

/// Only goes up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_one(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The largest number so far.
#[derive(Debug, Default)]
pub struct Peak(AtomicU64);

impl Peak {
    pub fn note(&self, value: u64) {
        // Nearly always it is no new one, and then nothing is written.
        if value > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
