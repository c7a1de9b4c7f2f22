//! What everybody has used: pure bookkeeping, which is told what time it is.
//!
//! The number of accounts is bounded, since clients may name users as they like. One is forgotten only when that changes nothing:
//! its buckets are full, nothing of its runs, and today's counters are at zero. If there is no such account, newcomers share one
//! with others of their kind. So nobody gets rid of what they have used by making others forget it.

use std::collections::HashMap;
use std::time::Duration;

use redoma_model::{Allowance, KeyId, Owner, Rate};
use serde::{Deserialize, Serialize};

use super::bucket::Bucket;
use super::network::Network;

/// What time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Now {
    /// Since the server started, by a clock that nobody sets.
    pub(super) running: Duration,
    /// Seconds since 1970.
    pub(super) unix: i64,
}

const DAY: i64 = 86_400;

impl Now {
    fn day(self) -> i64 {
        self.unix.div_euclid(DAY)
    }

    fn until_midnight(self) -> Duration {
        Duration::from_secs(u64::try_from(DAY - self.unix.rem_euclid(DAY)).unwrap_or(0))
    }
}

/// Whose an account is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    User(Owner),
    Key(KeyId),
    Address(Network),
    /// Users of this client for whom there was no room.
    OtherUsers(String),
    OtherKeys,
    OtherAddresses,
}

impl Who {
    /// Whom newcomers of this kind share an account with when there is no room.
    fn others(&self) -> Self {
        match self {
            Self::User(owner) => Self::OtherUsers(owner.client.clone()),
            Self::Key(_) => Self::OtherKeys,
            Self::Address(_) => Self::OtherAddresses,
            others => others.clone(),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::User(_) | Self::OtherUsers(_) => "user",
            Self::Key(_) | Self::OtherKeys => "key",
            Self::Address(_) | Self::OtherAddresses => "address",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    executions: Bucket,
    uploads: Bucket,
    sessions: Bucket,
    running: usize,
    /// Today.
    cpu: Duration,
    bytes: u64,
}

/// What somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Execution,
    Upload,
    /// A session that is opened or branched off, not one that a run begins.
    Session,
}

impl Wanted {
    /// For the audit and the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Execution => "execution",
            Self::Upload => "upload",
            Self::Session => "session",
        }
    }
}

/// Why they don't get it: whose limit it is, which, and when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) kind: &'static str,
    pub(super) limit: Limit,
    pub(super) retry_in: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Executions(Rate),
    Uploads(Rate),
    Sessions(Rate),
    Concurrency(usize),
    CpuPerDay(redoma_model::Span),
    BytesPerDay(redoma_model::ByteSize),
}

/// What is left of the tightest rate, for the answer's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub limit: u32,
    pub left: u32,
    /// Seconds until all are back.
    pub reset: u64,
}

/// What came of asking, and what is left in either case.
pub(super) type Taken = Result<(Claims, Option<Standing>), (Refused, Option<Standing>)>;
/// Accounts that something counts on, with what each may use.
pub(super) type Claims = Vec<(Who, Allowance)>;

#[derive(Debug)]
pub(super) struct Ledger {
    accounts: HashMap<Who, Account>,
    day: i64,
    most: usize,
    /// When it was last looked through for what can be forgotten.
    last_sweep: Option<Duration>,
}

/// When to come back if one's own programs are in the way.
const A_MOMENT: Duration = Duration::from_secs(2);

impl Ledger {
    pub(super) fn new(most: usize, now: Now) -> Self {
        Self { accounts: HashMap::new(), day: now.day(), most, last_sweep: None }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.accounts.len()
    }

    /// A clock that is set back makes today longer and forgets nothing; one that is set forward makes it tomorrow. Neither
    /// keeps anybody out for longer than until the next midnight that it shows.
    fn roll(&mut self, now: Now) {
        if now.day() > self.day {
            for account in self.accounts.values_mut() {
                (account.cpu, account.bytes) = (Duration::ZERO, 0);
            }
        }
        self.day = now.day();
    }

    /// The account to use for somebody.
    fn resolve(&mut self, who: &Who, now: Now) -> Who {
        if self.accounts.contains_key(who) {
            return who.clone();
        }
        if self.accounts.len() >= self.most {
            let is_due = self.last_sweep.is_none_or(|last| now.running >= last + Duration::from_secs(1));
            if is_due {
                self.last_sweep = Some(now.running);
                self.accounts.retain(|_, account| !account.is_as_new(now));
            }
        }
        let who = if self.accounts.len() >= self.most { who.others() } else { who.clone() };
        self.accounts.entry(who.clone()).or_default();
        who
    }

    /// Takes what is wanted from all of these accounts, or from none. Which accounts those really are comes back.
    pub(super) fn take(&mut self, claims: &[(Who, Allowance)], wanted: Wanted, now: Now) -> Taken {
        self.roll(now);
        let claims: Vec<_> =
            claims.iter().map(|(who, allowance)| (self.resolve(who, now), *allowance)).collect();
        let mut refused: Option<Refused> = None;
        for (who, allowance) in &claims {
            let account = self.accounts.get(who).copied().unwrap_or_default();
            if let Some((limit, retry_in)) = account.refuses(allowance, wanted, now)
                // The one that takes longest to come back decides when to try again.
                && refused.is_none_or(|known| known.retry_in < retry_in)
            {
                refused = Some(Refused { kind: who.kind(), limit, retry_in });
            }
        }
        if refused.is_none() {
            for (who, allowance) in &claims {
                if let Some(account) = self.accounts.get_mut(who) {
                    account.take(allowance, wanted, now);
                }
            }
        }
        let standings = claims.iter().filter_map(|(who, allowance)| {
            let rate = wanted.rate(allowance)?;
            let holds = wanted.bucket(self.accounts.get(who)?).look(rate, now.running);
            Some(Standing { limit: rate.count.get(), left: holds.left, reset: seconds(holds.full_in) })
        });
        let standing = standings.min_by_key(|standing| (standing.left, std::cmp::Reverse(standing.reset)));
        match refused {
            Some(refused) => Err((refused, standing)),
            None => Ok((claims, standing)),
        }
    }

    /// Something that was taken is over.
    pub(super) fn end(&mut self, claims: &[(Who, Allowance)], wanted: Wanted) {
        for (who, _) in claims {
            if let Some(account) = self.accounts.get_mut(who)
                && wanted == Wanted::Execution
            {
                account.running = account.running.saturating_sub(1);
            }
        }
    }

    /// Counts what was used.
    pub(super) fn charge(&mut self, claims: &[(Who, Allowance)], cpu: Duration, bytes: u64, now: Now) {
        self.roll(now);
        for (who, _) in claims {
            if let Some(account) = self.accounts.get_mut(who) {
                account.cpu += cpu;
                account.bytes = account.bytes.saturating_add(bytes);
            }
        }
    }

    /// Whether today's bytes are used up already.
    pub(super) fn beyond_bytes(&mut self, claims: &[(Who, Allowance)], now: Now) -> Option<Refused> {
        self.roll(now);
        claims.iter().find_map(|(who, allowance)| {
            let (account, most) = (self.accounts.get(who)?, allowance.bytes_per_day?);
            let refused =
                Refused { kind: who.kind(), limit: Limit::BytesPerDay(most), retry_in: now.until_midnight() };
            (account.bytes > most.0).then_some(refused)
        })
    }

    /// What is worth keeping over a restart.
    pub(super) fn save(&self, now: Now) -> Saved {
        let accounts = self.accounts.iter().filter(|(_, account)| !account.is_as_new(now));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let accounts = accounts.map(|(who, account)| SavedAccount {
            who: who.clone(),
            executions_debt_ms: millis(account.executions.debt(now.running)),
            uploads_debt_ms: millis(account.uploads.debt(now.running)),
            sessions_debt_ms: millis(account.sessions.debt(now.running)),
            cpu_ms: millis(account.cpu),
            bytes: account.bytes,
        });
        Saved { version: VERSION, day: self.day, written: now.unix, accounts: accounts.collect() }
    }

    /// What was kept. Buckets have filled meanwhile, as far as the clock tells.
    pub(super) fn load(&mut self, saved: Saved, now: Now) {
        let meanwhile = Duration::from_secs(u64::try_from(now.unix - saved.written).unwrap_or(0));
        let is_today = saved.day >= now.day();
        for saved in saved.accounts.into_iter().take(self.most) {
            let day = Duration::from_hours(24);
            let debt = |millis: u64| Duration::from_millis(millis).min(day).saturating_sub(meanwhile);
            let mut account = Account {
                executions: Bucket::with_debt(now.running, debt(saved.executions_debt_ms)),
                uploads: Bucket::with_debt(now.running, debt(saved.uploads_debt_ms)),
                sessions: Bucket::with_debt(now.running, debt(saved.sessions_debt_ms)),
                ..Account::default()
            };
            if is_today {
                account.cpu = Duration::from_millis(saved.cpu_ms);
                account.bytes = saved.bytes;
            }
            self.accounts.insert(saved.who, account);
        }
    }
}

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) version: u32,
    day: i64,
    /// Seconds since 1970.
    written: i64,
    accounts: Vec<SavedAccount>,
}

pub(super) const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedAccount {
    who: Who,
    executions_debt_ms: u64,
    uploads_debt_ms: u64,
    #[serde(default)]
    sessions_debt_ms: u64,
    cpu_ms: u64,
    bytes: u64,
}

/// Whole seconds, the last one begun.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

impl Wanted {
    fn rate(self, allowance: &Allowance) -> Option<Rate> {
        match self {
            Self::Execution => allowance.executions,
            Self::Upload => allowance.uploads,
            Self::Session => allowance.sessions,
        }
    }

    fn bucket(self, account: &Account) -> Bucket {
        match self {
            Self::Execution => account.executions,
            Self::Upload => account.uploads,
            Self::Session => account.sessions,
        }
    }
}

impl Wanted {
    /// Whether an allowance says anything about it. Without that, no account is looked at.
    pub(super) fn is_limited_by(self, allowance: &Allowance) -> bool {
        match self {
            Self::Session => allowance.sessions.is_some(),
            Self::Execution | Self::Upload => !Allowance { sessions: None, ..*allowance }.is_unlimited(),
        }
    }
}

impl Account {
    fn is_as_new(&self, now: Now) -> bool {
        let buckets = [self.executions, self.uploads, self.sessions];
        let is_full = buckets.iter().all(|bucket| bucket.is_full(now.running));
        is_full && self.running == 0 && self.cpu.is_zero() && self.bytes == 0
    }

    /// The limit that is reached, and when it is not any more.
    fn refuses(&self, allowance: &Allowance, wanted: Wanted, now: Now) -> Option<(Limit, Duration)> {
        let midnight = now.until_midnight();
        if let Some(most) = allowance.bytes_per_day
            && wanted != Wanted::Session
            && self.bytes >= most.0
        {
            return Some((Limit::BytesPerDay(most), midnight));
        }
        if wanted == Wanted::Execution {
            if let Some(most) = allowance.cpu_per_day
                && self.cpu >= most.0
            {
                return Some((Limit::CpuPerDay(most), midnight));
            }
            if let Some(most) = allowance.concurrency
                && self.running >= most.get()
            {
                return Some((Limit::Concurrency(most.get()), A_MOMENT));
            }
        }
        let rate = wanted.rate(allowance)?;
        let holds = wanted.bucket(self).look(rate, now.running);
        let limit = match wanted {
            Wanted::Execution => Limit::Executions(rate),
            Wanted::Upload => Limit::Uploads(rate),
            Wanted::Session => Limit::Sessions(rate),
        };
        (holds.left == 0).then_some((limit, holds.next_in))
    }

    fn take(&mut self, allowance: &Allowance, wanted: Wanted, now: Now) {
        let bucket = match wanted {
            Wanted::Execution => &mut self.executions,
            Wanted::Upload => &mut self.uploads,
            Wanted::Session => &mut self.sessions,
        };
        if let Some(rate) = wanted.rate(allowance) {
            bucket.take(rate, now.running);
        }
        if wanted == Wanted::Execution {
            self.running += 1;
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
