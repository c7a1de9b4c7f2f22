//! Sandboxes that wait: each behind all its walls, in a cgroup and with a uid of its own, and for one use only.
//!
//! How many wait follows demand: a request that found none doubles the number wanted, up to the ceiling; those that nobody
//! has needed for a while are let go, down to the floor. When memory is tight one of each is kept, and none when it runs out:
//! sandboxes that wait give way before programs that run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redoma_jail::cgroup::Group;
use redoma_jail::nursery::WaitingSandbox;
use redoma_model::Limits;

use super::Supply;
use super::nursery::Nursery;
use crate::backend::PoolStatus;
use crate::identity::Identity;
use crate::pipes::Pipes;
use crate::pressure::Level;

/// What waits in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A process that will execute whatever it is told.
    Exec,
    /// The same, with this program inside for a stage before it.
    Staged,
    /// A program that is started already, by its language.
    Ahead(String),
    /// A copy of a zygote.
    Zygote { set: usize, name: String },
}

/// Whether a sandbox has its limits before it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal {
    /// Those of the profile; it can have no inputs. Nearly all are.
    Ahead,
    /// They come with the request.
    OnAssignment,
}

/// A sandbox that waits, and what belongs to it. The order is that in which they go.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) sandbox: WaitingSandbox,
    pub(crate) pipes: Pipes,
    pub(crate) group: Option<Box<dyn Group>>,
    pub(crate) identity: Identity,
    /// What its group was made with.
    pub(crate) limits: Limits,
    pub(crate) nursery: Arc<Nursery>,
}

#[derive(Debug)]
pub(crate) struct Pool {
    kind: Kind,
    seal: Seal,
    supply: Supply,
    idle: Mutex<Idle>,
    wanted: AtomicUsize,
    /// Being made at this moment.
    making: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct Idle {
    ready: VecDeque<Ready>,
    /// The fewest that there were since the last look.
    fewest: usize,
    last_look: Instant,
}

/// How often a pool that has too many lets some go.
const LOOK: Duration = Duration::from_secs(10);

impl Pool {
    pub(crate) fn new(kind: Kind, seal: Seal, supply: Supply) -> Self {
        // Of those that are seldom needed, none wait until one was.
        let floor = if seal == Seal::Ahead { supply.floor } else { 0 };
        let supply = Supply { floor, ..supply };
        let idle = Idle { ready: VecDeque::new(), fewest: 0, last_look: Instant::now() };
        Self {
            kind,
            seal,
            supply,
            idle: Mutex::new(idle),
            wanted: AtomicUsize::new(supply.floor),
            making: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    pub(crate) fn seal(&self) -> Seal {
        self.seal
    }

    pub(crate) fn name(&self) -> String {
        let kind = match &self.kind {
            Kind::Exec => "exec",
            Kind::Staged => "staged",
            Kind::Ahead(name) | Kind::Zygote { name, .. } => name,
        };
        match self.seal {
            Seal::Ahead => kind.to_owned(),
            Seal::OnAssignment => format!("{kind}, open"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn idle(&self) -> usize {
        self.lock().ready.len()
    }

    pub(crate) fn is_at_floor(&self) -> bool {
        self.idle() >= self.supply.floor
    }

    /// The one that has waited longest, if any waits.
    pub(crate) fn take(&self) -> Option<Ready> {
        let (taken, dead) = {
            let mut idle = self.lock();
            let mut dead = Vec::new();
            let taken = loop {
                match idle.ready.pop_front() {
                    Some(ready) if !ready.sandbox.is_alive() => dead.push(ready),
                    other => break other,
                }
            };
            idle.fewest = idle.fewest.min(idle.ready.len());
            (taken, dead)
        };
        drop(dead);
        if taken.is_some() {
            self.hits.fetch_add(1, Ordering::Relaxed);
        } else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            let wanted = self.wanted.load(Ordering::Relaxed);
            if self.supply.ceiling > 0 {
                self.wanted.store((wanted * 2).clamp(1, self.supply.ceiling), Ordering::Relaxed);
            }
        }
        taken
    }

    pub(crate) fn put(&self, ready: Ready) {
        self.lock().ready.push_back(ready);
    }

    pub(crate) fn want(&self, count: usize) {
        self.wanted.store(count, Ordering::Relaxed);
    }

    /// How many are missing.
    pub(crate) fn need(&self) -> usize {
        let there = self.idle() + self.making.load(Ordering::Relaxed);
        self.wanted.load(Ordering::Relaxed).saturating_sub(there)
    }

    /// Whether one should be made now. While programs run they have the cores to themselves, as long as any are left.
    pub(crate) fn wants_more(&self, is_quiet: bool) -> bool {
        self.need() > 0 && (is_quiet || self.idle() == 0)
    }

    /// Counts one as being made, until this is dropped.
    pub(crate) fn note_making(&self) -> Making<'_> {
        self.making.fetch_add(1, Ordering::Relaxed);
        Making(self)
    }

    /// Lets go of what nobody needs, or of what others need more.
    pub(crate) fn adjust(&self, level: Level) {
        let most = match level {
            Level::Normal => usize::MAX,
            Level::Tight => 1,
            Level::Critical => 0,
        };
        let surplus: Vec<Ready> = {
            let mut idle = self.lock();
            let wanted = self.wanted.load(Ordering::Relaxed);
            if level > Level::Normal {
                self.wanted.store(wanted.min(most), Ordering::Relaxed);
            } else if idle.last_look.elapsed() >= LOOK || wanted < self.supply.floor {
                // So many were never needed in all that time; half of them go.
                let fewer = wanted.saturating_sub(idle.fewest.div_ceil(2));
                self.wanted.store(fewer.max(self.supply.floor), Ordering::Relaxed);
                idle.fewest = idle.ready.len();
                idle.last_look = Instant::now();
            }
            let wanted = self.wanted.load(Ordering::Relaxed);
            let surplus = idle.ready.len().saturating_sub(wanted.max(self.supply.floor.min(1)).min(most));
            idle.ready.drain(..surplus).collect()
        };
        drop(surplus);
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut self.lock().ready);
        drop(all);
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let idle = self.lock();
        PoolStatus {
            name: self.name(),
            idle: idle.ready.len(),
            wanted: self.wanted.load(Ordering::Relaxed),
            floor: self.supply.floor,
            pids: idle
                .ready
                .iter()
                .filter_map(|ready| u32::try_from(ready.sandbox.pid().as_raw_nonzero().get()).ok())
                .collect(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}

/// See [`Pool::note_making`].
#[derive(Debug)]
pub(crate) struct Making<'a>(&'a Pool);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.making.fetch_sub(1, Ordering::Relaxed);
    }
}
