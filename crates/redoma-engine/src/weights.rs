//! How owners share the processors. Linux shares them between sandboxes, so an owner with six programs would get six times
//! as much as an owner with one. Two rules prevent that:
//!
//! - **The programs of one owner together have the weight of one**, and share it evenly. Only the steps of 1, 2, 4, 8, …
//!   programs change weights, so an owner who always runs a handful of programs costs one write for each.
//! - **An owner who has used more than an even share gets what the others leave over.** Weights alone are not enough: a
//!   short program that wakes up still waits until the time slice of a long one ends. Each owner has an account of CPU
//!   time. The programs of the owner add to it, and it drains at the rate of an even share: the number of processors,
//!   divided by the number of active owners. While it holds more than [`BURST`] and another owner is active, the owner's
//!   sandboxes have [`Share::Leftover`]. If that is less than an even share, the account drains and the owner gets the full
//!   weight back.
//!
//! Accounts are reviewed when a program begins, at most once per [`REVIEW_INTERVAL`]. A thread reviews them while there is
//! an owner with [`Share::Leftover`], so that it ends when the other owners have gone.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redoma_jail::cgroup::{Share, Weight};
use redoma_model::Owner;

/// CPU time that an owner may use beyond an even share before others come first.
const BURST: Duration = Duration::from_millis(500);
/// An owner with [`Share::Leftover`] gets the full weight back when the account holds less than this.
const LOW: Duration = Duration::from_millis(250);
/// An account holds at most [`BURST`] and what drains from it in this time.
const LONGEST_DEBT: Duration = Duration::from_secs(2);
/// An owner counts as active for this long after a program of theirs has ended.
const ACTIVE: Duration = Duration::from_secs(2);
const REVIEW_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of accounts. Beyond it, accounts of owners without a running program are removed.
const MAX_ACCOUNTS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Weights {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    processors: f64,
    accounts: Mutex<Accounts>,
    /// Wakes the thread: an owner has got [`Share::Leftover`], or the engine ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Accounts {
    by_owner: HashMap<Owner, Account>,
    reviewed_at: Option<Instant>,
    is_closed: bool,
}

/// One owner's programs and CPU time.
#[derive(Debug)]
struct Account {
    next_number: u64,
    sandboxes: Vec<Sandbox>,
    /// Seconds of CPU time that have not drained yet.
    debt: f64,
    drained_at: Instant,
    is_over: bool,
    active_until: Instant,
}

#[derive(Debug)]
struct Sandbox {
    number: u64,
    weight: Weight,
    /// CPU time that is in the account already. A live session has used some before its cell begins.
    counted: Duration,
}

impl Sandbox {
    /// CPU time since the last call, in seconds.
    fn used(&mut self) -> f64 {
        let Some(now) = self.weight.cpu_time() else { return 0.0 };
        let used = now.saturating_sub(self.counted);
        self.counted = now;
        used.as_secs_f64()
    }
}

impl Account {
    fn new(now: Instant) -> Self {
        Self {
            next_number: 0,
            sandboxes: Vec::new(),
            debt: 0.0,
            drained_at: now,
            is_over: false,
            active_until: now,
        }
    }

    /// The share of each of the owner's sandboxes.
    fn share(&self) -> Share {
        let parts = u32::try_from(self.sandboxes.len().next_power_of_two()).unwrap_or(u32::MAX);
        if self.is_over { Share::Leftover } else { Share::Part(parts) }
    }

    fn set_shares(&self) {
        let share = self.share();
        for sandbox in &self.sandboxes {
            sandbox.weight.set(share);
        }
    }

    fn is_active(&self, now: Instant) -> bool {
        !self.sandboxes.is_empty() || now < self.active_until
    }

    /// Adds the CPU time that running programs have used, and takes off what has drained.
    fn settle(&mut self, rate: f64, now: Instant) {
        let used: f64 = self.sandboxes.iter_mut().map(Sandbox::used).sum();
        let drained = now.saturating_duration_since(self.drained_at).as_secs_f64() * rate;
        self.drained_at = now;
        let most = BURST.as_secs_f64() + LONGEST_DEBT.as_secs_f64() * rate;
        self.debt = (self.debt + used - drained).clamp(0.0, most);
    }
}

impl Accounts {
    /// Counts the CPU time of all programs and gives each owner the share that follows from it. Returns whether an owner
    /// has [`Share::Leftover`].
    fn review(&mut self, processors: f64, now: Instant) -> bool {
        self.reviewed_at = Some(now);
        let active = self.by_owner.values().filter(|account| account.is_active(now)).count();
        let rate = processors / f64::from(u32::try_from(active.max(1)).unwrap_or(u32::MAX));
        let mut has_leftover = false;
        for account in self.by_owner.values_mut() {
            account.settle(rate, now);
            let limit = if account.is_over { LOW } else { BURST };
            let is_over = active > 1 && account.debt > limit.as_secs_f64();
            if is_over != account.is_over {
                account.is_over = is_over;
                account.set_shares();
            }
            has_leftover |= is_over;
        }
        let is_full = self.by_owner.len() > MAX_ACCOUNTS;
        self.by_owner.retain(|_, account| {
            !account.sandboxes.is_empty() || !is_full && (account.debt > 0.0 || account.is_active(now))
        });
        has_leftover
    }

    fn is_review_due(&self, now: Instant) -> bool {
        self.reviewed_at.is_none_or(|at| now.saturating_duration_since(at) >= REVIEW_INTERVAL)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's work.
    fn review_while_needed(&self) {
        let mut accounts = self.lock();
        while !accounts.is_closed {
            let now = Instant::now();
            accounts = if accounts.review(self.processors, now) {
                self.changed.wait_timeout(accounts, REVIEW_INTERVAL).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.changed.wait(accounts).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

impl Weights {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let processors = f64::from(u32::try_from(processors).unwrap_or(u32::MAX));
        let shared = Shared { processors, accounts: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Starts the thread that reviews accounts. Without it, shares change only when programs begin and end.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("shares".to_owned());
        thread.spawn(move || shared.review_while_needed()).map(drop)
    }

    /// A sandbox of this owner runs until the returned value is dropped.
    pub(crate) fn add(&self, owner: &Owner, weight: Weight) -> Weighed<'_> {
        self.add_at(owner, weight, Instant::now())
    }

    fn add_at(&self, owner: &Owner, weight: Weight, now: Instant) -> Weighed<'_> {
        let counted = weight.cpu_time().unwrap_or_default();
        let mut accounts = self.shared.lock();
        let account = accounts.by_owner.entry(owner.clone()).or_insert_with(|| Account::new(now));
        let before = account.share();
        let number = account.next_number;
        account.next_number += 1;
        weight.set(before);
        account.sandboxes.push(Sandbox { number, weight, counted });
        if account.share() != before {
            account.set_shares();
        }
        if accounts.is_review_due(now) && accounts.review(self.shared.processors, now) {
            self.shared.changed.notify_one();
        }
        Weighed { weights: self, owner: owner.clone(), number }
    }

    fn remove(&self, owner: &Owner, number: u64, now: Instant) {
        let mut accounts = self.shared.lock();
        let Some(account) = accounts.by_owner.get_mut(owner) else { return };
        let Some(at) = account.sandboxes.iter().position(|sandbox| sandbox.number == number) else { return };
        let before = account.share();
        let mut sandbox = account.sandboxes.swap_remove(at);
        account.debt += sandbox.used();
        account.active_until = now + ACTIVE;
        // The sandbox of a live session stays, and makes its checkpoints between cells.
        sandbox.weight.set(Share::Part(1));
        if account.share() != before {
            account.set_shares();
        }
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_one();
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
        self.weights.remove(&self.owner, self.number, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use redoma_jail::cgroup::WeightFiles;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn owner(name: &str) -> Owner {
        Owner { client: name.to_owned(), user: None }
    }

    /// Files in place of control groups.
    struct Groups {
        folder: tempfile::TempDir,
    }

    impl Groups {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        fn make(&self, name: &str) -> Weight {
            let path = |file: &str| self.folder.path().join(format!("{name}.{file}"));
            for (file, content) in [("shares", "1024"), ("idle", "0"), ("usage", "0")] {
                fs::write(path(file), content).unwrap();
            }
            Weight::new(WeightFiles {
                weight: path("shares"),
                idle: path("idle"),
                usage: (path("usage"), "", 1),
                whole: 1024,
            })
        }

        fn number(&self, name: &str, file: &str) -> u64 {
            let text = fs::read_to_string(self.folder.path().join(format!("{name}.{file}"))).unwrap();
            text.lines().next().unwrap().parse().unwrap()
        }

        fn use_cpu(&self, name: &str, time: Duration) {
            let all = u128::from(self.number(name, "usage")) + time.as_nanos();
            fs::write(self.folder.path().join(format!("{name}.usage")), all.to_string()).unwrap();
        }

        fn is_idle(&self, name: &str) -> bool {
            self.number(name, "idle") == 1
        }
    }

    fn weights(processors: f64) -> Weights {
        let shared = Shared { processors, accounts: Mutex::default(), changed: Condvar::new() };
        Weights { shared: Arc::new(shared) }
    }

    fn review(weights: &Weights, now: Instant) -> bool {
        weights.shared.lock().review(weights.shared.processors, now)
    }

    #[test]
    fn the_programs_of_one_owner_share_the_weight_of_one() {
        let (groups, weights) = (Groups::new(), weights(2.0));
        let first = weights.add(&owner("a"), groups.make("a1"));
        let other = weights.add(&owner("b"), groups.make("b1"));
        assert_eq!((groups.number("a1", "shares"), groups.number("b1", "shares")), (1024, 1024));
        let second = weights.add(&owner("a"), groups.make("a2"));
        let third = weights.add(&owner("a"), groups.make("a3"));
        for name in ["a1", "a2", "a3"] {
            assert_eq!(groups.number(name, "shares"), 256, "{name}");
        }
        assert_eq!(groups.number("b1", "shares"), 1024);
        drop((second, third));
        assert_eq!(groups.number("a1", "shares"), 1024);
        drop((first, other));
        review(&weights, Instant::now() + 2 * ACTIVE);
        assert!(weights.shared.lock().by_owner.is_empty());
    }

    #[test]
    fn an_owner_above_an_even_share_gets_what_others_leave_over() {
        let (groups, weights, now) = (Groups::new(), weights(2.0), Instant::now());
        let _hog = weights.add_at(&owner("hog"), groups.make("hog"), now);
        groups.use_cpu("hog", 100 * SECOND);
        assert!(!review(&weights, now + 50 * SECOND), "without others, all processors are an even share");
        let light = weights.add_at(&owner("light"), groups.make("light"), now + 50 * SECOND);
        groups.use_cpu("hog", 2 * SECOND);
        assert!(review(&weights, now + 51 * SECOND));
        assert!(groups.is_idle("hog") && !groups.is_idle("light"));
        // The next program of the same owner starts behind others at once.
        let _next = weights.add_at(&owner("hog"), groups.make("next"), now + 51 * SECOND);
        assert!(groups.is_idle("next"));
        weights.remove(&owner("light"), light.number, now + 51 * SECOND);
        assert!(review(&weights, now + 51 * SECOND), "an owner stays active between two programs");
        assert!(!review(&weights, now + 51 * SECOND + ACTIVE));
        assert!(!groups.is_idle("hog") && !groups.is_idle("next"));
    }

    #[test]
    fn an_owner_below_an_even_share_is_never_behind_others() {
        let (groups, weights, mut now) = (Groups::new(), weights(2.0), Instant::now());
        let _even = weights.add_at(&owner("even"), groups.make("even"), now);
        let _hog = weights.add_at(&owner("hog"), groups.make("hog"), now);
        for _ in 0..100 {
            now += REVIEW_INTERVAL;
            groups.use_cpu("even", REVIEW_INTERVAL.mul_f64(0.99));
            groups.use_cpu("hog", REVIEW_INTERVAL.mul_f64(1.05));
            review(&weights, now);
            assert!(!groups.is_idle("even"));
        }
        // 0.05 of a processor too much for 10 s is the burst; a little later the owner is behind.
        for _ in 0..10 {
            now += REVIEW_INTERVAL;
            groups.use_cpu("hog", REVIEW_INTERVAL.mul_f64(1.2));
            review(&weights, now);
        }
        assert!(groups.is_idle("hog"));
    }

    #[test]
    fn an_owner_who_gets_less_than_an_even_share_has_the_full_weight_again() {
        let (groups, weights, mut now) = (Groups::new(), weights(2.0), Instant::now());
        let _hog = weights.add_at(&owner("hog"), groups.make("hog"), now);
        let _other = weights.add_at(&owner("other"), groups.make("other"), now);
        groups.use_cpu("hog", 100 * SECOND);
        now += SECOND;
        assert!(review(&weights, now));
        let begun = now;
        while review(&weights, now) {
            now += REVIEW_INTERVAL;
            groups.use_cpu("hog", REVIEW_INTERVAL / 10);
        }
        assert!(!groups.is_idle("hog"));
        assert!(now - begun <= 2 * LONGEST_DEBT, "{:?}", now - begun);
    }

    #[test]
    fn short_programs_count_too() {
        let (groups, weights, now) = (Groups::new(), weights(2.0), Instant::now());
        let _other = weights.add_at(&owner("other"), groups.make("other"), now);
        for number in 0..100 {
            let name = format!("short{number}");
            let short = weights.add_at(&owner("hog"), groups.make(&name), now);
            groups.use_cpu(&name, Duration::from_millis(20));
            weights.remove(&owner("hog"), short.number, now);
        }
        let _next = weights.add_at(&owner("hog"), groups.make("next"), now + REVIEW_INTERVAL);
        assert!(groups.is_idle("next"));
    }

    #[test]
    fn a_group_without_cpu_idle_gets_a_small_weight() {
        let (groups, now) = (Groups::new(), Instant::now());
        let weights = weights(2.0);
        let hog = groups.make("hog");
        fs::remove_file(groups.folder.path().join("hog.idle")).unwrap();
        let _hog = weights.add_at(&owner("hog"), hog, now);
        let _other = weights.add_at(&owner("other"), groups.make("other"), now);
        groups.use_cpu("hog", 100 * SECOND);
        assert!(review(&weights, now + SECOND));
        assert_eq!(groups.number("hog", "shares"), 16);
    }

    #[test]
    fn accounts_of_owners_who_left_are_bounded() {
        let (groups, weights, now) = (Groups::new(), weights(2.0), Instant::now());
        for number in 0..=MAX_ACCOUNTS {
            let group = groups.make("one");
            let one = weights.add_at(&owner(&number.to_string()), group, now);
            weights.remove(&one.owner, one.number, now);
        }
        review(&weights, now);
        assert!(weights.shared.lock().by_owner.len() <= MAX_ACCOUNTS);
    }
}
