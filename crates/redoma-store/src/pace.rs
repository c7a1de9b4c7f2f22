//! How much of the machine the server's own work for one user takes.
//!
//! Control groups limit what programs do. They don't limit what the server does with the files that a program leaves: it
//! reads, hashes and writes up to ten thousand of them. Without a bound, one user keeps all processors busy with that.
//!
//! Each owner has an account of CPU time, and of the time that the disk takes for its files, which others' files then wait
//! for. Work for the owner adds to it, and the account empties at a steady rate. While it
//! holds more than [`BURST`] and the server works for others too, the thread that works for the owner rests between two files.
//! It holds no lock of the store then. Its run keeps its turn, so a run rests for [`MAX_TOTAL_REST`] at most.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::Owner;
use rustix::time::{ClockId, clock_gettime};

/// A thread never rests while its owner's account holds less than this.
const BURST: Duration = Duration::from_millis(20);
/// All owners with more in their accounts get about this share of the processors together.
const SHARE_OF_PROCESSORS: f64 = 0.125;
/// Others count as active for this long after one of their runs began or ended.
const ACTIVE: Duration = Duration::from_secs(5);
/// A thread looks at its clock this often.
const STEP: Duration = Duration::from_millis(1);
/// The longest rest at a time, and of one run.
const MAX_REST: Duration = Duration::from_secs(1);
const MAX_TOTAL_REST: Duration = Duration::from_secs(10);
/// After this long without work an account is empty.
const FORGET: Duration = Duration::from_secs(2);
/// From this many accounts on, further users of a client share one.
const MAX_ACCOUNTS: usize = 1024;

/// The accounts of all owners.
pub(crate) struct Workload {
    /// Seconds of CPU time that heavy work may take in a second.
    rate: f64,
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    by_owner: HashMap<Owner, Account>,
    /// The owner that the server worked for last, and the last one that was another.
    last: Option<(Owner, Instant)>,
    last_other: Option<(Owner, Instant)>,
}

#[derive(Clone, Copy)]
struct Account {
    seconds: f64,
    at: Instant,
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workload")
    }
}

impl Default for Workload {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            rate: f64::from(u32::try_from(processors).unwrap_or(u32::MAX)) * SHARE_OF_PROCESSORS,
            accounts: Mutex::default(),
        }
    }
}

impl Workload {
    /// For a thread that begins to work for an owner.
    pub(crate) fn pace(self: &Arc<Self>, owner: &Owner) -> Pace {
        Pace {
            work: Arc::clone(self),
            owner: owner.clone(),
            looked: Instant::now(),
            cpu: cpu_time(),
            disk: Duration::ZERO,
            rested: Duration::ZERO,
        }
    }

    /// A run of this owner begins.
    pub(crate) fn note(&self, owner: &Owner) {
        self.note_at(owner, Instant::now());
    }

    fn note_at(&self, owner: &Owner, now: Instant) {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner).note(owner, now);
    }

    /// Adds work to an owner's account. Returns how long the thread has to rest.
    fn add(&self, owner: &Owner, work: Duration, now: Instant) -> Duration {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.note(owner, now);
        accounts.by_owner.retain(|_, account| now.saturating_duration_since(account.at) < FORGET);
        let common = Owner { client: owner.client.clone(), user: None };
        let has_own = accounts.by_owner.len() < MAX_ACCOUNTS || accounts.by_owner.contains_key(owner);
        let name = if has_own { owner } else { &common };
        let busy = accounts.by_owner.values().filter(|account| account.seconds > BURST.as_secs_f64()).count();
        let rate = self.rate / f64::from(u32::try_from(busy.max(1)).unwrap_or(u32::MAX));
        let most = BURST.as_secs_f64() + MAX_REST.as_secs_f64() * rate;
        let before = accounts.by_owner.get(name).map_or(0.0, |account| account.left(rate, now));
        let seconds = (before + work.as_secs_f64()).min(most);
        accounts.by_owner.insert(name.clone(), Account { seconds, at: now });
        let is_alone = accounts.is_alone(owner, now);
        let over = (seconds - BURST.as_secs_f64()).max(0.0);
        if is_alone { Duration::ZERO } else { Duration::from_secs_f64(over / rate).min(MAX_REST) }
    }
}

impl Account {
    fn left(self, rate: f64, now: Instant) -> f64 {
        (self.seconds - now.saturating_duration_since(self.at).as_secs_f64() * rate).max(0.0)
    }
}

impl Accounts {
    fn note(&mut self, owner: &Owner, now: Instant) {
        match &mut self.last {
            Some((last, at)) if last == owner => *at = now,
            last => self.last_other = last.replace((owner.clone(), now)),
        }
    }

    /// Whether this owner is the only active one. The server must have worked for them last.
    fn is_alone(&self, owner: &Owner, now: Instant) -> bool {
        let other = self.last_other.as_ref().filter(|(other, _)| other != owner);
        other.is_none_or(|(_, at)| now.saturating_duration_since(*at) > ACTIVE)
    }
}

/// Measures one thread's work for an owner, and adds it to the owner's account: at each step, and when this is dropped.
#[derive(Debug)]
pub struct Pace {
    work: Arc<Workload>,
    owner: Owner,
    looked: Instant,
    cpu: Duration,
    /// Time of the disk that is not in the account yet.
    disk: Duration,
    rested: Duration,
}

impl Pace {
    /// Call this often, and without a lock: it rests if the owner's work has taken too much.
    pub fn step(&mut self) {
        if self.looked.elapsed() < STEP {
            return;
        }
        let rest = self.charge().min(MAX_TOTAL_REST.saturating_sub(self.rested));
        if !rest.is_zero() {
            std::thread::sleep(rest);
            self.rested += rest;
            self.looked = Instant::now();
        }
    }

    /// Waits for the disk. The time counts as work.
    pub fn on_disk<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = wait();
        self.disk += start.elapsed();
        result
    }

    fn charge(&mut self) -> Duration {
        let (now, cpu) = (Instant::now(), cpu_time());
        let worked = cpu.saturating_sub(self.cpu) + std::mem::take(&mut self.disk);
        (self.looked, self.cpu) = (now, cpu);
        self.work.add(&self.owner, worked, now)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.charge();
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn owner(user: &str) -> Owner {
        Owner { client: "key".into(), user: Some(user.to_owned()) }
    }

    fn workload() -> Workload {
        Workload { rate: 0.25, accounts: Mutex::default() }
    }

    #[test]
    fn work_up_to_the_burst_never_rests() {
        let (work, now) = (workload(), Instant::now());
        work.add(&owner("b"), MS, now);
        for _ in 0..20 {
            assert_eq!(work.add(&owner("a"), MS, now), Duration::ZERO);
        }
        assert!(work.add(&owner("a"), MS, now) > 3 * MS);
    }

    #[test]
    fn heavy_work_gets_its_share_and_no_more() {
        let (work, mut now) = (workload(), Instant::now());
        let (mut worked, start) = (Duration::ZERO, now);
        while now - start < Duration::from_secs(10) {
            work.add(&owner("other"), MS / 10, now);
            // Six threads of one owner at the same time.
            let rests: Vec<_> = (0..6).map(|_| work.add(&owner("heavy"), MS, now)).collect();
            worked += 6 * MS;
            now += MS + rests.into_iter().min().unwrap();
        }
        let share = worked.as_secs_f64() / (now - start).as_secs_f64();
        assert!((0.2..0.6).contains(&share), "{share}");
    }

    #[test]
    fn who_is_alone_does_not_rest_and_runs_up_little_debt() {
        let (work, mut now) = (workload(), Instant::now());
        work.add(&owner("gone"), MS, now);
        now += 2 * ACTIVE;
        for _ in 0..10_000 {
            now += MS;
            assert_eq!(work.add(&owner("a"), MS, now), Duration::ZERO);
        }
        work.add(&owner("b"), MS, now);
        let rest = work.add(&owner("a"), MS, now);
        assert!(rest > Duration::ZERO && rest <= MAX_REST, "{rest:?}");
    }

    #[test]
    fn heavy_work_of_one_owner_does_not_slow_light_work_of_another() {
        let (work, mut now) = (workload(), Instant::now());
        for _ in 0..1000 {
            now += 10 * MS;
            work.add(&owner("heavy"), 10 * MS, now);
            assert_eq!(work.add(&owner("light"), MS / 2, now), Duration::ZERO);
        }
    }

    /// Fifty owners were busy a while ago: the next one has the whole share again.
    #[test]
    fn who_was_busy_once_does_not_count_for_good() {
        let (work, mut now) = (workload(), Instant::now());
        for number in 0..50 {
            work.add(&owner(&number.to_string()), 2 * BURST, now);
        }
        now += 10 * MAX_REST;
        work.note_at(&owner("b"), now);
        let rest = work.add(&owner("a"), BURST + 10 * MS, now);
        assert!(rest <= 40 * MS, "{rest:?}");
    }

    #[test]
    fn a_run_that_begins_makes_its_owner_active() {
        let (work, now) = (workload(), Instant::now());
        work.note_at(&owner("b"), now);
        assert!(work.add(&owner("a"), 2 * BURST, now) > Duration::ZERO);
    }

    #[test]
    fn accounts_have_an_end_however_many_users_there_are() {
        let (work, mut now) = (workload(), Instant::now());
        let count = |work: &Workload| work.accounts.lock().unwrap().by_owner.len();
        for number in 0..5000 {
            work.add(&owner(&number.to_string()), MS, now);
        }
        assert!(count(&work) <= MAX_ACCOUNTS + 1, "{}", count(&work));
        now += FORGET;
        work.add(&owner("a"), MS, now);
        assert_eq!(count(&work), 1);
    }
}
