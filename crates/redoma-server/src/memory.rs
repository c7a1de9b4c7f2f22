//! Memory that requests take of the server, counted by owner. Three pools, each with a bound for all owners together:
//!
//! | pool | holds | when there is no room |
//! |---|---|---|
//! | [`Memory::arriving`] | JSON bodies and WebSocket messages that have not arrived completely | the largest of the owner with the most is given up; the owner with the most is refused |
//! | [`Memory::waiting`] | requests that wait or run, as far as they were read | the request is refused |
//! | [`Memory::leaving`] | what waits to be sent: downloads, archives, output for Jupyter's clients | the download is refused; Jupyter's client is let go after a while |
//!
//! An owner gets a further byte only while what it then has is at most [`GREED`] times what stays free, as with turns
//! (`redoma_engine::fair_queue`). One owner alone gets three quarters of a pool, and another still finds room. From the pools
//! where nothing can be given up, an owner always gets [`FIRST_SHARE`]: several owners together can't shut another one out.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redoma_engine::fair_queue::GREED;
use redoma_model::Owner;
use tokio::sync::Notify;

/// Bytes of a request that are not counted: a request of usual size is never refused for want of memory. How many there may be
/// is bounded by connections and by the places to wait.
pub const UNCOUNTED: usize = 16 << 10;
/// Bytes are taken from a pool in steps of this.
const STEP: usize = 64 << 10;

/// Bytes that each owner gets of [`Memory::waiting`] and [`Memory::leaving`], also beyond the pool's bound: those of an upload or
/// a download. How many owners there can be at a time is bounded by connections.
pub const FIRST_SHARE: usize = 128 << 10;

const MAX_ARRIVING: usize = 64 << 20;
const MAX_WAITING: usize = 128 << 20;
const MAX_LEAVING: usize = 128 << 20;

/// The pools of a server.
#[derive(Debug)]
pub struct Memory {
    pub arriving: Arc<Pool>,
    pub waiting: Arc<Pool>,
    pub leaving: Arc<Pool>,
}

impl Memory {
    /// For requests of at most `max_request` bytes: one owner alone can have three of the largest at a time.
    pub fn new(max_request: usize) -> Self {
        let pool = |max: usize, first| Arc::new(Pool::new(max.max(max_request.saturating_mul(4)), first));
        Self {
            arriving: pool(MAX_ARRIVING, 0),
            waiting: pool(MAX_WAITING, FIRST_SHARE),
            leaving: pool(MAX_LEAVING, FIRST_SHARE),
        }
    }
}

#[derive(Debug)]
pub struct Pool {
    max: usize,
    /// Bytes that an owner always gets.
    first: usize,
    state: Mutex<State>,
    /// Told whenever there is more room.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    owners: HashMap<Owner, Account>,
    taken: usize,
    /// Bytes of shares that were told to go and have not gone yet.
    going: usize,
    next_id: u64,
}

#[derive(Debug, Default)]
struct Account {
    bytes: usize,
    /// Of these, bytes of shares that were told to go.
    going: usize,
    shares: HashMap<u64, Entry>,
}

struct Entry {
    bytes: usize,
    is_going: bool,
    /// Whether bytes of a message are arriving. A share without is only memory that is kept for the next one.
    is_in_use: Arc<AtomicBool>,
    /// Ends whatever the share is for. None: it can't be ended from outside.
    end: Option<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} bytes)", self.bytes)
    }
}

/// The owner has reached its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

enum Growth {
    Done,
    /// There will be room when others have gone.
    Wait,
    Refused,
}

impl Pool {
    fn new(max: usize, first: usize) -> Self {
        Self { max, first, state: Mutex::default(), freed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share of no bytes yet.
    pub fn share(self: &Arc<Self>, owner: &Owner) -> Share {
        self.add(owner, None)
    }

    /// A share of exactly `bytes`, if there is room now.
    pub fn take(self: &Arc<Self>, owner: &Owner, bytes: usize) -> Result<Share, NoRoom> {
        let share = self.share(owner);
        if bytes > 0 && !matches!(self.grow(owner, share.id, bytes), Growth::Done) {
            return Err(NoRoom);
        }
        share.bytes.store(bytes, Ordering::Relaxed);
        Ok(share)
    }

    /// A share that others may push out: `end` is then called, once, and the share is to be dropped soon after.
    pub fn evictable_share(self: &Arc<Self>, owner: &Owner, end: impl Fn() + Send + Sync + 'static) -> Share {
        self.add(owner, Some(Box::new(end)))
    }

    fn add(self: &Arc<Self>, owner: &Owner, end: Option<Box<dyn Fn() + Send + Sync>>) -> Share {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        let account = state.owners.entry(owner.clone()).or_default();
        let is_in_use = Arc::new(AtomicBool::new(true));
        let entry = Entry { bytes: 0, is_going: false, is_in_use: Arc::clone(&is_in_use), end };
        account.shares.insert(id, entry);
        drop(state);
        Share { pool: Arc::clone(self), owner: owner.clone(), id, bytes: AtomicUsize::new(0), is_in_use }
    }

    fn grow(&self, owner: &Owner, id: u64, more: usize) -> Growth {
        let mut state = self.state();
        let is_going = |account: &Account| account.shares.get(&id).is_none_or(|entry| entry.is_going);
        if state.owners.get(owner).is_none_or(is_going) {
            return Growth::Refused;
        }
        let free = self.max.saturating_sub(state.taken);
        let own = state.owners.get(owner).map_or(0, |account| account.bytes);
        if own + more <= self.first || (more <= free && own + more <= GREED * (free - more)) {
            state.taken += more;
            if let Some(account) = state.owners.get_mut(owner) {
                account.bytes += more;
                if let Some(entry) = account.shares.get_mut(&id) {
                    entry.bytes += more;
                }
            }
            return Growth::Done;
        }
        // If the shares that were told to go leave enough room, no further one has to.
        let then_free = free + state.going;
        let own_staying = state.owners.get(owner).map_or(0, |account| account.bytes - account.going);
        if more <= then_free && own_staying + more <= GREED * (then_free - more) {
            return Growth::Wait;
        }
        if !state.end_one_of_the_largest(own_staying + more) {
            return Growth::Refused;
        }
        drop(state);
        // A share that was told to go may wait for room itself: it wakes up, is refused, and goes.
        self.freed.notify_waiters();
        Growth::Wait
    }

    fn shrink(&self, owner: &Owner, id: u64, less: usize, is_over: bool) {
        let mut state = self.state();
        let Some(account) = state.owners.get_mut(owner) else { return };
        let is_going = account.shares.get_mut(&id).is_some_and(|entry| {
            entry.bytes -= less;
            entry.is_going
        });
        account.bytes -= less;
        if is_going {
            account.going -= less;
        }
        if is_over {
            account.shares.remove(&id);
        }
        if account.shares.is_empty() {
            state.owners.remove(owner);
        }
        state.taken -= less;
        if is_going {
            state.going -= less;
        }
        drop(state);
        if less > 0 {
            self.freed.notify_waiters();
        }
    }

    #[cfg(test)]
    fn taken(&self) -> usize {
        self.state().taken
    }
}

impl State {
    /// Tells the largest share of the owner with the most to go, if that owner has more than `than`. Shares in use go first: to
    /// end one costs a request, to end another one costs a connection that waits for its user.
    fn end_one_of_the_largest(&mut self, than: usize) -> bool {
        let most = self.owners.values_mut().max_by_key(|account| account.bytes - account.going);
        let Some(account) = most.filter(|account| account.bytes - account.going > than) else { return false };
        let stays = account.shares.values_mut().filter(|entry| !entry.is_going && entry.end.is_some());
        let stays = stays.filter(|entry| entry.bytes > 0);
        let largest = stays.max_by_key(|entry| (entry.is_in_use.load(Ordering::Relaxed), entry.bytes));
        let Some(largest) = largest else { return false };
        largest.is_going = true;
        account.going += largest.bytes;
        self.going += largest.bytes;
        if let Some(end) = &largest.end {
            end();
        }
        true
    }
}

/// Bytes of a pool that something of an owner's takes. Dropping it gives them back.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub struct Share {
    pool: Arc<Pool>,
    owner: Owner,
    id: u64,
    bytes: AtomicUsize,
    is_in_use: Arc<AtomicBool>,
}

impl Share {
    /// Whether bytes are arriving for it; so at first. One that is not in use is kept longer.
    pub fn set_in_use(&self, is_in_use: bool) {
        self.is_in_use.store(is_in_use, Ordering::Relaxed);
    }

    fn missing(&self, bytes: usize) -> Option<usize> {
        let wanted = bytes.checked_sub(UNCOUNTED + 1)?.next_multiple_of(STEP).max(STEP);
        wanted.checked_sub(self.bytes.load(Ordering::Relaxed)).filter(|missing| *missing > 0)
    }

    /// Whether this is a share for `bytes` already.
    pub fn holds(&self, bytes: usize) -> bool {
        self.missing(bytes).is_none()
    }

    /// Makes this a share for `bytes`, if there is room now.
    pub fn try_grow_to(&self, bytes: usize) -> Result<(), NoRoom> {
        let Some(missing) = self.missing(bytes) else { return Ok(()) };
        match self.pool.grow(&self.owner, self.id, missing) {
            Growth::Done => {
                self.bytes.fetch_add(missing, Ordering::Relaxed);
                Ok(())
            }
            Growth::Wait | Growth::Refused => Err(NoRoom),
        }
    }

    /// The same; waits for those that have to go for it. Not for two tasks at once.
    pub async fn grow_to(&self, bytes: usize) -> Result<(), NoRoom> {
        let Some(missing) = self.missing(bytes) else { return Ok(()) };
        loop {
            let mut freed = std::pin::pin!(self.pool.freed.notified());
            freed.as_mut().enable();
            match self.pool.grow(&self.owner, self.id, missing) {
                Growth::Done => break,
                Growth::Wait => freed.await,
                Growth::Refused => return Err(NoRoom),
            }
        }
        self.bytes.fetch_add(missing, Ordering::Relaxed);
        Ok(())
    }
}

impl Share {
    /// The same share as another owner's.
    pub fn moved_to(self, owner: &Owner) -> Result<Self, NoRoom> {
        if self.owner == *owner {
            return Ok(self);
        }
        self.pool.take(owner, self.bytes.load(Ordering::Relaxed))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.shrink(&self.owner, self.id, self.bytes.load(Ordering::Relaxed), true);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: usize = 1 << 20;

    fn owner(name: &str) -> Owner {
        Owner { client: "chat".to_owned(), user: Some(name.to_owned()) }
    }

    fn pool(max: usize) -> Arc<Pool> {
        Arc::new(Pool::new(max, 0))
    }

    #[test]
    fn one_owner_gets_three_quarters_and_another_still_finds_room() {
        let pool = pool(64 * MIB);
        let mut shares = Vec::new();
        loop {
            let share = pool.share(&owner("greedy"));
            if share.try_grow_to(MIB).is_err() {
                break;
            }
            shares.push(share);
        }
        assert_eq!(shares.len(), 48);
        let other = pool.share(&owner("other"));
        assert_eq!(other.try_grow_to(8 * MIB), Ok(()));
        drop(shares);
        assert_eq!(pool.taken(), 8 * MIB);
        drop(other);
        assert_eq!((pool.taken(), pool.state().owners.len()), (0, 0));
    }

    #[test]
    fn each_owner_has_a_first_share_of_a_full_pool() {
        let pool = Arc::new(Pool::new(4 * MIB, FIRST_SHARE));
        let mut held = Vec::new();
        for number in 0..100 {
            let owner = owner(&number.to_string());
            while let Ok(share) = pool.take(&owner, FIRST_SHARE) {
                held.push(share);
            }
        }
        assert!(pool.taken() > 4 * MIB && pool.taken() <= 4 * MIB + 100 * FIRST_SHARE);
        let newcomer = pool.share(&owner("newcomer"));
        assert_eq!(newcomer.try_grow_to(FIRST_SHARE), Ok(()));
        assert_eq!(newcomer.try_grow_to(FIRST_SHARE + UNCOUNTED + STEP), Err(NoRoom));
        drop((held, newcomer));
        assert_eq!((pool.taken(), pool.state().owners.len()), (0, 0));
    }

    #[test]
    fn small_requests_need_no_room() {
        let pool = pool(STEP);
        let shares: Vec<_> = (0..100).map(|_| pool.share(&owner("one"))).collect();
        assert!(shares.iter().all(|share| share.try_grow_to(UNCOUNTED).is_ok()));
        assert_eq!(pool.taken(), 0);
    }

    #[tokio::test]
    async fn a_share_that_waits_for_room_goes_when_it_is_told() {
        let pool = pool(16 * MIB);
        let share = |name: &str| pool.evictable_share(&owner(name), || {});
        let mut held = Vec::new();
        for _ in 0..12 {
            held.push(share("one"));
            held[held.len() - 1].grow_to(MIB / 2).await.unwrap();
        }
        let waiting = share("two");
        waiting.grow_to(9 * MIB / 2).await.unwrap();
        let others = ["three", "four", "five"].map(|name| pool.take(&owner(name), 3 * MIB / 2).unwrap());
        // It waits until shares of the first owner have gone, which takes their time.
        let waiting = tokio::spawn(async move { waiting.grow_to(19 * MIB / 4).await });
        while pool.state().going < MIB {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        let newcomer = share("six");
        let newcomer = tokio::spawn(async move { newcomer.grow_to(3 * MIB).await });
        let told = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        assert_eq!(told.expect("it sleeps on").unwrap(), Err(NoRoom));
        drop((held, others));
        assert_eq!(newcomer.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn shares_in_use_go_before_those_that_are_only_kept() {
        let pool = pool(16 * MIB);
        let ended = Arc::new(Mutex::new(Vec::new()));
        let share = |name: &'static str| {
            let ended = Arc::clone(&ended);
            pool.evictable_share(&owner("one"), move || ended.lock().unwrap().push(name))
        };
        let (kept, used) = (share("kept"), share("used"));
        kept.grow_to(8 * MIB).await.unwrap();
        used.grow_to(4 * MIB).await.unwrap();
        kept.set_in_use(false);
        let newcomer = pool.share(&owner("two"));
        assert_eq!(newcomer.try_grow_to(4 * MIB), Err(NoRoom));
        assert_eq!(*ended.lock().unwrap(), ["used"]);
        drop(used);
        newcomer.grow_to(4 * MIB).await.unwrap();
        let more = pool.share(&owner("three"));
        assert_eq!(more.try_grow_to(7 * MIB), Err(NoRoom));
        assert_eq!(*ended.lock().unwrap(), ["used", "kept"], "when there is nothing else");
        drop(kept);
    }

    #[tokio::test]
    async fn the_owner_with_the_most_has_to_go_first() {
        let pool = pool(16 * MIB);
        let mut held = Vec::new();
        for name in ["one", "one", "one", "two", "three"] {
            let is_ended = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&is_ended);
            let share = pool.evictable_share(&owner(name), move || seen.store(true, Ordering::SeqCst));
            let size = if name == "one" { 4 * MIB } else { MIB };
            share.grow_to(size).await.unwrap();
            held.push((name, share, is_ended));
        }
        // 14 of 16 are taken. The one with the most gets no more, and another does.
        let more = pool.evictable_share(&owner("one"), || {});
        assert_eq!(more.grow_to(MIB).await, Err(NoRoom));
        let newcomer = pool.evictable_share(&owner("four"), || {});
        let waits = tokio::time::timeout(Duration::from_millis(20), newcomer.grow_to(4 * MIB)).await;
        assert!(waits.is_err(), "nothing has gone yet");
        let ended: Vec<_> =
            held.iter().filter(|(.., ended)| ended.load(Ordering::SeqCst)).map(|(name, ..)| *name).collect();
        assert_eq!(ended, ["one"], "one is enough");
        held.retain(|(.., ended)| !ended.load(Ordering::SeqCst));
        newcomer.grow_to(4 * MIB).await.unwrap();
        assert_eq!(pool.taken(), 14 * MIB);
        drop((held, more, newcomer));
        assert_eq!((pool.taken(), pool.state().going), (0, 0));
    }
}
