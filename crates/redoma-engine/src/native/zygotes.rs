//! The tree of zygotes: one interpreter with the standard library, and copies of it that have imported more. The imports
//! that a program names pick the smallest that fits, so that `print(1)` does not pay for the page tables of pandas.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redoma_jail::nursery::{Channel, ChannelError};
use rustix::process::Signal;

use super::Supply;
use crate::meter::Counter;

/// How long imports may take.
const WARM_UP: Duration = Duration::from_mins(1);
/// How long a set that can't be had is left alone.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Zygotes {
    sets: Vec<Set>,
    /// Modules that no zygote may import, and why.
    banned: Mutex<BTreeMap<String, String>>,
    /// How often one was replaced because it had died, and because it was worn.
    died: Counter,
    worn: Counter,
}

/// What one zygote has imported.
#[derive(Debug)]
struct Set {
    modules: Vec<String>,
    /// The set that it is made from: the largest that it contains. The first has none.
    parent: Option<usize>,
    zygote: Mutex<Option<Arc<Zygote>>>,
    /// When it last could not be made.
    failed: Mutex<Option<Instant>>,
}

/// A live zygote. Dropping the last of it ends it; sandboxes that were made of it live on.
#[derive(Debug)]
pub(crate) struct Zygote {
    channel: Channel,
    pidfd: OwnedFd,
    made: AtomicU32,
    is_broken: AtomicBool,
    born: Instant,
}

impl Zygote {
    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Counts a sandbox, or that it could not make one: it is then replaced.
    pub(crate) fn note(&self, could: bool) {
        if could {
            self.made.fetch_add(1, Ordering::Relaxed);
        } else {
            self.is_broken.store(true, Ordering::Relaxed);
        }
    }

    fn is_worn(&self, supply: &Supply) -> bool {
        self.made.load(Ordering::Relaxed) >= supply.zygote_sandboxes
            || self.born.elapsed() >= supply.zygote_age
    }

    fn is_alive(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed) && self.channel.is_open()
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl Zygotes {
    /// A lean one, and one for each of these lists of modules.
    pub(crate) fn new(preload: &[Vec<String>]) -> Self {
        let mut lists: Vec<Vec<String>> = vec![Vec::new()];
        lists.extend(preload.iter().filter(|list| !list.is_empty()).cloned());
        let contains = |outer: &[String], inner: &[String]| inner.iter().all(|module| outer.contains(module));
        let sets = lists.iter().enumerate().map(|(index, modules)| Set {
            modules: modules.clone(),
            parent: (0..lists.len())
                .filter(|other| *other < index && contains(modules, &lists[*other]))
                .max_by_key(|other| lists[*other].len()),
            zygote: Mutex::default(),
            failed: Mutex::default(),
        });
        Self {
            sets: sets.collect(),
            banned: Mutex::default(),
            died: Counter::default(),
            worn: Counter::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.sets.len()
    }

    /// A name for people: the last module of the set says most about it.
    pub(crate) fn name(&self, set: usize) -> String {
        let last = self.sets[set].modules.last().and_then(|module| module.split('.').next());
        last.unwrap_or("lean").to_owned()
    }

    pub(crate) fn get(&self, set: usize) -> Option<Arc<Zygote>> {
        lock(&self.sets.get(set)?.zygote).clone()
    }

    pub(crate) fn left_out(&self) -> Vec<(String, String)> {
        lock(&self.banned).iter().map(|(module, reason)| (module.clone(), reason.clone())).collect()
    }

    /// How often one was replaced because it had died, and because it was worn.
    pub(crate) fn replaced(&self) -> (u64, u64) {
        (self.died.get(), self.worn.get())
    }

    /// Sets by how well they suit a program: first the smallest that has everything it imports, or most of that.
    pub(crate) fn best_for(&self, imports: &BTreeSet<&str>) -> Vec<usize> {
        let top = |module: &String| module.split('.').next().unwrap_or_default().to_owned();
        let tops: Vec<BTreeSet<String>> =
            self.sets.iter().map(|set| set.modules.iter().map(top).collect()).collect();
        let missing = |set: usize| {
            let known = tops.iter().flatten().filter(|module| imports.contains(module.as_str()));
            known.collect::<BTreeSet<_>>().into_iter().filter(|module| !tops[set].contains(*module)).count()
        };
        let mut order: Vec<usize> = (0..self.sets.len()).collect();
        order.sort_by_key(|set| (missing(*set), self.sets[*set].modules.len()));
        // Beyond the best and the lean one, others are no better than a start from nothing.
        let lean = 0;
        let best = order.first().copied().unwrap_or(lean);
        if best == lean { vec![lean] } else { vec![best, lean] }
    }

    /// Starts what is missing, replaces what is broken or worn.
    pub(crate) fn tend(&self, keeper: &Channel, supply: &Supply, stopping: &AtomicBool) {
        for (index, set) in self.sets.iter().enumerate() {
            if stopping.load(Ordering::Relaxed) {
                return;
            }
            let current = self.get(index);
            let is_fine = current.as_ref().is_some_and(|zygote| zygote.is_alive() && !zygote.is_worn(supply));
            let is_resting = lock(&set.failed).is_some_and(|when| when.elapsed() < PAUSE);
            if is_fine || is_resting {
                continue;
            }
            let is_dead = current.as_ref().is_some_and(|zygote| !zygote.is_alive());
            if is_dead {
                *lock(&set.zygote) = None;
                self.died.add_one();
            }
            match self.start(keeper, set, &self.name(index)) {
                Ok(zygote) => {
                    *lock(&set.zygote) = Some(Arc::new(zygote));
                    *lock(&set.failed) = None;
                    if current.is_some() && !is_dead {
                        self.worn.add_one();
                    }
                }
                Err(_) => *lock(&set.failed) = Some(Instant::now()),
            }
        }
    }

    fn start(&self, keeper: &Channel, set: &Set, name: &str) -> Result<Zygote, ChannelError> {
        let who = format!("zygote `{name}`");
        loop {
            let parent = set.parent.map(|parent| (parent, self.get(parent)));
            let inherited = match &parent {
                Some((parent, Some(_))) => self.sets[*parent].modules.as_slice(),
                _ => &[],
            };
            let banned = lock(&self.banned).clone();
            let is_wanted = |module: &&String| !inherited.contains(module) && !banned.contains_key(*module);
            let imports: Vec<String> = set.modules.iter().filter(is_wanted).cloned().collect();
            let (channel, pidfd) = match &parent {
                Some((_, Some(zygote))) => zygote.channel.branch(&who, &imports)?,
                _ => keeper.start_zygote(&who, &imports)?,
            };
            let zygote = Zygote {
                channel,
                pidfd,
                made: AtomicU32::new(0),
                is_broken: AtomicBool::new(false),
                born: Instant::now(),
            };
            let warm_up = zygote.channel.warm_up(WARM_UP)?;
            for left_out in warm_up.left_out {
                lock(&self.banned).insert(left_out.module, left_out.reason);
            }
            // A module that ruins the process is known now, and the next attempt does without it.
            if !warm_up.spoiled {
                return Ok(zygote);
            }
        }
    }

    pub(crate) fn clear(&self) {
        for set in &self.sets {
            *lock(&set.zygote) = None;
            *lock(&set.failed) = None;
        }
        lock(&self.banned).clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zygotes() -> Zygotes {
        let list = |modules: &[&str]| modules.iter().map(|module| (*module).to_owned()).collect::<Vec<_>>();
        Zygotes::new(&[
            list(&["numpy", "pandas"]),
            list(&["numpy", "pandas", "matplotlib.pyplot"]),
            list(&["sympy"]),
        ])
    }

    #[test]
    fn each_set_is_made_from_the_largest_that_it_contains() {
        let parents: Vec<_> = zygotes().sets.iter().map(|set| set.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn the_smallest_set_that_has_everything_comes_first() {
        let best = |imports: &[&str]| zygotes().best_for(&imports.iter().copied().collect())[0];
        assert_eq!(best(&[]), 0);
        assert_eq!(best(&["os", "requests"]), 0);
        assert_eq!(best(&["numpy"]), 1);
        assert_eq!(best(&["matplotlib"]), 2);
        assert_eq!(best(&["sympy", "os"]), 3);
        assert_eq!(best(&["pandas", "matplotlib", "sympy"]), 2);
    }
}
