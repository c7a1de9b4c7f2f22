//! How much somebody may ask for: rates of executions and uploads, programs at once, processor time and bytes in a day; for each user,
//! key and address. Admins are not limited.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | from a principal to a permit, or to a 429 that says which limit it was |
//! | `ledger.rs` | what everybody has used |
//! | `bucket.rs` | a rate |
//! | `network.rs` | addresses, also behind a proxy |
//! | `keeping.rs` | over a restart |
//! | `refusals.rs` | which refusals are written down |
//! | `headers.rs` | what is left, on the answer |

mod bucket;
mod headers;
mod keeping;
mod ledger;
mod network;
mod refusals;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use redoma_model::{Principal, Rates, Role};

use crate::failure::Failure;
use crate::memory::Share;
pub use headers::with_standing;
use keeping::Keeper;
pub use ledger::Wanted;
use ledger::{Claims, Ledger, Limit, Now, Refused, Who, seconds};
pub use network::{Network, NotANetwork, client_address, is_over_tls};
pub use refusals::{Refusals, Trickle};

/// So many users, keys and addresses are remembered.
const MOST_ACCOUNTS: usize = 100_000;

/// What everybody has used, for many threads.
#[derive(Debug)]
pub struct RateLimits {
    books: Arc<Books>,
    /// Writes it down now and then, and at the end.
    _keeper: Option<Keeper>,
}

#[derive(Debug)]
struct Books {
    ledger: Mutex<Ledger>,
    started: Instant,
    /// Whether something was used since it was last written down.
    has_changed: AtomicBool,
}

impl Books {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now {
        Now { running: self.started.elapsed(), unix: unix_now() }
    }
}

fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl RateLimits {
    /// `file` is where it is kept over a restart.
    pub fn open(file: Option<PathBuf>) -> Self {
        let started = Instant::now();
        let now = Now { running: Duration::ZERO, unix: unix_now() };
        let mut ledger = Ledger::new(MOST_ACCOUNTS, now);
        if let Some(saved) = file.as_deref().and_then(keeping::read) {
            ledger.load(saved, now);
        }
        let books =
            Arc::new(Books { ledger: Mutex::new(ledger), started, has_changed: AtomicBool::new(false) });
        let keeper = file.and_then(|file| Keeper::start(file, Arc::clone(&books)));
        Self { books, _keeper: keeper }
    }

    /// May they have this? What they have of it lasts as long as the permit.
    pub fn check(&self, who: &Principal, rates: &Rates, wanted: Wanted) -> Result<Permit, Failure> {
        let claims = claims(who, rates, wanted);
        if claims.is_empty() {
            return Ok(Permit { books: Arc::clone(&self.books), claims, wanted, memory: None });
        }
        let taken = self.books.lock().take(&claims, wanted, self.books.now());
        self.books.has_changed.store(true, Ordering::Relaxed);
        match taken {
            Ok((claims, standing)) => {
                headers::note(standing);
                Ok(Permit { books: Arc::clone(&self.books), claims, wanted, memory: None })
            }
            Err((refused, standing)) => {
                headers::note(standing);
                Err(refused.into())
            }
        }
    }
}

/// Whose accounts a request counts on: those that have a limit at all.
fn claims(who: &Principal, rates: &Rates, wanted: Wanted) -> Claims {
    if who.role == Role::Admin {
        return Vec::new();
    }
    let user = Some((Who::User(who.owner.clone()), rates.user));
    let key = who.key.clone().map(|key| (Who::Key(key), rates.key));
    let address = who.address.map(|address| (Who::Address(Network::of_one(address)), rates.address));
    let all = [user, key, address].into_iter().flatten();
    all.filter(|(_, allowance)| wanted.is_limited_by(allowance)).collect()
}

/// Something that goes on and is counted. Dropping it is its end.
#[derive(Debug)]
#[must_use = "dropping it is the end of what was permitted"]
pub struct Permit {
    books: Arc<Books>,
    claims: Claims,
    wanted: Wanted,
    /// The memory of the request.
    memory: Option<Share>,
}

impl Permit {
    /// Holds the memory of what was permitted as long as that goes on.
    pub fn holding(self, memory: Share) -> Self {
        let mut permit = self;
        permit.memory = Some(memory);
        permit
    }

    /// Counts what was used.
    pub fn charge(&self, cpu: Duration, bytes: u64) {
        let is_something = bytes > 0 || !cpu.is_zero();
        if is_something && !self.claims.is_empty() {
            self.books.lock().charge(&self.claims, cpu, bytes, self.books.now());
            self.books.has_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Counts bytes as they come, and says when there have been too many.
    pub fn take_bytes(&self, bytes: u64) -> Result<(), Failure> {
        if self.claims.is_empty() {
            return Ok(());
        }
        self.charge(Duration::ZERO, bytes);
        match self.books.lock().beyond_bytes(&self.claims, self.books.now()) {
            Some(refused) => Err(refused.into()),
            None => Ok(()),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.memory = None;
        if !self.claims.is_empty() {
            self.books.lock().end(&self.claims, self.wanted);
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let Refused { kind, limit, retry_in } = refused;
        let after = seconds(retry_in).max(1);
        let detail = match limit {
            Limit::Executions(rate) => {
                format!("the limit of {rate} executions for this {kind} is reached; try again in {after} s")
            }
            Limit::Uploads(rate) => {
                format!("the limit of {rate} uploads for this {kind} is reached; try again in {after} s")
            }
            Limit::Sessions(rate) => {
                format!("the limit of {rate} new sessions for this {kind} is reached; try again in {after} s")
            }
            Limit::Concurrency(most) => format!(
                "{most} programs of this {kind} run or wait already, as many as may; try again when one has ended"
            ),
            Limit::CpuPerDay(most) => format!(
                "this {kind} has used its {most} of processor time for today; it begins anew at midnight UTC, in {after} s"
            ),
            Limit::BytesPerDay(most) => format!(
                "this {kind} has stored its {most} for today; it begins anew at midnight UTC, in {after} s"
            ),
        };
        let failure = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail);
        Self { retry_after: Some(after), ..failure }
    }
}

#[cfg(test)]
mod tests {
    use redoma_model::{Owner, RatesPatch};

    use super::*;

    fn principal(role: Role, user: &str, address: [u8; 4]) -> Principal {
        let owner = Owner { client: "chat".to_owned(), user: Some(user.to_owned()) };
        Principal { address: Some(address.into()), ..Principal::without_key(role, owner, true) }
    }

    fn rates(text: &str) -> Rates {
        Rates::default().with(&toml::from_str::<RatesPatch>(text).unwrap())
    }

    #[test]
    fn a_permit_counts_as_long_as_it_lives() {
        let limits = RateLimits::open(None);
        let rates = rates("[user]\nconcurrency = 1\n");
        let ana = principal(Role::User, "ana", [10, 0, 0, 1]);
        let first = limits.check(&ana, &rates, Wanted::Execution).unwrap();
        let failure = limits.check(&ana, &rates, Wanted::Execution).unwrap_err();
        assert_eq!(
            (failure.status.as_u16(), failure.code, failure.retry_after),
            (429, "rate_limited", Some(2))
        );
        drop(first);
        assert!(limits.check(&ana, &rates, Wanted::Execution).is_ok());
        let ben = principal(Role::User, "ben", [10, 0, 0, 1]);
        assert!(limits.check(&ben, &rates, Wanted::Execution).is_ok());
    }

    #[test]
    fn admins_are_not_limited_and_whose_limit_it_was_is_told() {
        let limits = RateLimits::open(None);
        let rates = rates("[address]\nexecutions = \"1/h\"\n");
        let here = [10, 0, 0, 1];
        for _ in 0..5 {
            assert!(limits.check(&principal(Role::Admin, "root", here), &rates, Wanted::Execution).is_ok());
        }
        assert!(limits.check(&principal(Role::User, "ana", here), &rates, Wanted::Execution).is_ok());
        let failure =
            limits.check(&principal(Role::User, "ben", here), &rates, Wanted::Execution).unwrap_err();
        assert_eq!(
            failure.detail,
            "the limit of 1/h executions for this address is reached; try again in 3600 s"
        );
        assert!(
            limits.check(&principal(Role::User, "ben", [10, 0, 0, 2]), &rates, Wanted::Execution).is_ok()
        );
    }

    #[test]
    fn bytes_are_counted_as_they_come() {
        let limits = RateLimits::open(None);
        let rates = rates("[user]\nbytes_per_day = \"1KiB\"\n");
        let ana = principal(Role::User, "ana", [10, 0, 0, 1]);
        let permit = limits.check(&ana, &rates, Wanted::Upload).unwrap();
        assert!(permit.take_bytes(1000).is_ok());
        assert!(permit.take_bytes(25).unwrap_err().detail.contains("has stored its 1KiB for today"));
        assert!(limits.check(&ana, &rates, Wanted::Execution).is_err(), "programs could leave more");
    }

    #[test]
    fn what_was_used_is_found_again_and_a_broken_file_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rates.json");
        let rates = rates("[user]\nexecutions = \"2/d\"\ncpu_per_day = \"10s\"\n");
        let ana = principal(Role::User, "ana", [10, 0, 0, 1]);
        let limits = RateLimits::open(Some(file.clone()));
        limits.check(&ana, &rates, Wanted::Execution).unwrap().charge(Duration::from_secs(11), 0);
        drop(limits);
        let limits = RateLimits::open(Some(file.clone()));
        let failure = limits.check(&ana, &rates, Wanted::Execution).unwrap_err();
        assert!(failure.detail.contains("processor time"), "{}", failure.detail);
        drop(limits);
        let whole = std::fs::read(&file).unwrap();
        for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&file, &whole[..cut]).unwrap();
            assert!(
                RateLimits::open(Some(file.clone())).check(&ana, &rates, Wanted::Execution).is_ok(),
                "{cut}"
            );
        }
    }

    #[test]
    fn what_was_used_is_written_down_without_an_orderly_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rates.json");
        let rates = rates("[user]\nexecutions = \"1/d\"\n");
        let ana = principal(Role::User, "ana", [10, 0, 0, 1]);
        let limits = RateLimits::open(Some(file.clone()));
        drop(limits.check(&ana, &rates, Wanted::Execution).unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !file.exists() {
            assert!(Instant::now() < deadline, "it was not written down");
            std::thread::sleep(Duration::from_millis(20));
        }
        // As after a kill: nobody had the time for more.
        let copy = folder.path().join("copy.json");
        std::fs::copy(&file, &copy).unwrap();
        assert!(RateLimits::open(Some(copy)).check(&ana, &rates, Wanted::Execution).is_err());
    }
}
