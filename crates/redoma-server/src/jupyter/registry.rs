//! The kernels that there are. Only in memory: after a restart of the server a kernel is unknown, its session is not.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use redoma_model::{Owner, Principal};

use super::kernel::Kernel;
use crate::failure::Failure;

/// One that nobody is connected to and that has done nothing for so long gives way when its owner wants another.
const FORSAKEN: Duration = Duration::from_mins(5);

/// How long a new kernel is not evicted for another owner's: its client connects in this time.
const EVICTION_GRACE: Duration = Duration::from_secs(30);

/// How many kernels there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelLimits {
    /// Of one owner.
    pub per_owner: usize,
    pub in_all: usize,
    /// One that nobody is connected to and that does nothing is forgotten after this.
    pub idle: Duration,
}

impl Default for KernelLimits {
    fn default() -> Self {
        Self { per_owner: 128, in_all: 4096, idle: Duration::from_hours(24) }
    }
}

#[derive(Debug)]
pub struct Registry {
    limits: KernelLimits,
    eviction_grace: Duration,
    kernels: Mutex<HashMap<String, Arc<Kernel>>>,
}

impl Registry {
    pub fn new(limits: KernelLimits) -> Self {
        Self { limits, eviction_grace: EVICTION_GRACE, kernels: Mutex::default() }
    }

    fn kernels(&self) -> MutexGuard<'_, HashMap<String, Arc<Kernel>>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kernel of theirs; one of somebody else's is as if there were none.
    pub fn find(&self, principal: &Principal, id: &str) -> Result<Arc<Kernel>, Failure> {
        let kernels = self.kernels();
        let found = kernels.get(id).filter(|kernel| kernel.owner == principal.owner);
        found.cloned().ok_or_else(|| Failure::not_found("kernel"))
    }

    /// Theirs, in the order of their ids.
    pub fn list(&self, owner: &Owner) -> Vec<Arc<Kernel>> {
        let mut list: Vec<_> =
            self.kernels().values().filter(|kernel| kernel.owner == *owner).cloned().collect();
        list.sort_by(|one, other| one.id.cmp(&other.id));
        list
    }

    /// Adds one, and gives back those that had to go for it.
    pub fn add(&self, kernel: &Arc<Kernel>) -> Result<Vec<Arc<Kernel>>, Failure> {
        let mut kernels = self.kernels();
        let mut gone = forget(&mut kernels, self.limits.idle);
        let of_owner = kernels.values().filter(|other| other.owner == kernel.owner);
        if of_owner.clone().count() >= self.limits.per_owner {
            let oldest =
                of_owner.filter(|other| is_idle(other, FORSAKEN)).min_by_key(|other| other.last_used());
            let Some(oldest) = oldest.map(|oldest| oldest.id.clone()) else {
                let most = self.limits.per_owner;
                let detail =
                    format!("there are {most} kernels already; shut some down (DELETE /api/kernels/ID)");
                return Err(Failure::busy(detail));
            };
            gone.extend(kernels.remove(&oldest));
        }
        if kernels.len() >= self.limits.in_all {
            gone.extend(evicted(&mut kernels, &kernel.owner, self.eviction_grace));
        }
        if kernels.len() >= self.limits.in_all {
            let detail = "the server has as many kernels as it may have; try again later";
            let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_kernels", detail);
            return Err(Failure { retry_after: Some(30), ..failure });
        }
        kernels.insert(kernel.id.clone(), Arc::clone(kernel));
        Ok(gone)
    }

    /// Takes it out; whether it was there.
    pub fn remove(&self, kernel: &Kernel) -> bool {
        self.kernels().remove(&kernel.id).is_some()
    }

    /// Takes those out that nobody has used for long.
    pub fn forget_idle(&self) -> Vec<Arc<Kernel>> {
        forget(&mut self.kernels(), self.limits.idle)
    }
}

fn is_idle(kernel: &Kernel, time: Duration) -> bool {
    kernel.count_connections() == 0
        && !kernel.is_busy()
        && Instant::now().saturating_duration_since(kernel.last_used()) >= time
}

/// Makes room for a kernel of this owner: takes out the idle one that was not used for longest, of the owner with the most
/// kernels of all owners that have an idle one. That owner must have more than the other then has. A kernel younger than
/// `grace` stays.
fn evicted(
    kernels: &mut HashMap<String, Arc<Kernel>>,
    owner: &Owner,
    grace: Duration,
) -> Option<Arc<Kernel>> {
    let mut counts: HashMap<&Owner, usize> = HashMap::new();
    for kernel in kernels.values() {
        *counts.entry(&kernel.owner).or_default() += 1;
    }
    let own = counts.get(owner).copied().unwrap_or(0);
    let idle = kernels.values().filter(|kernel| {
        counts[&kernel.owner] > own + 1
            && kernel.created.elapsed() >= grace
            && is_idle(kernel, Duration::ZERO)
    });
    let evicted = idle.max_by_key(|kernel| (counts[&kernel.owner], Reverse(kernel.last_used())));
    let evicted = evicted?.id.clone();
    kernels.remove(&evicted)
}

fn forget(kernels: &mut HashMap<String, Arc<Kernel>>, idle: Duration) -> Vec<Arc<Kernel>> {
    let old: Vec<_> =
        kernels.values().filter(|kernel| is_idle(kernel, idle)).map(|kernel| kernel.id.clone()).collect();
    old.iter().filter_map(|id| kernels.remove(id)).collect()
}

#[cfg(test)]
mod tests {
    use redoma_model::{Role, SessionId};

    use super::super::kernel::KernelSession;
    use super::super::messages::Parent;
    use super::super::specs::SPECS;
    use super::*;

    fn kernel(client: &str) -> Arc<Kernel> {
        let owner = Owner { client: client.to_owned(), user: None };
        let session = KernelSession::new(SessionId::from_random([1; 21]), None);
        Kernel::new(&SPECS[0], owner, session).unwrap().0
    }

    #[test]
    fn there_are_as_many_as_there_may_be_and_each_owner_sees_their_own() {
        let limits = KernelLimits { per_owner: 2, in_all: 3, idle: Duration::from_hours(1) };
        let registry = Registry { eviction_grace: Duration::ZERO, ..Registry::new(limits) };
        let first = kernel("a");
        for kernel in [&first, &kernel("a"), &kernel("b")] {
            assert!(registry.add(kernel).unwrap().is_empty());
        }
        assert_eq!(registry.add(&kernel("a")).unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        // A newcomer takes a place of the owner with the most, one who has as much as that then has does not.
        let evicted = registry.add(&kernel("c")).unwrap();
        assert_eq!(evicted.iter().map(|kernel| kernel.owner.client.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(registry.add(&kernel("d")).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        let first = registry.list(&first.owner).remove(0);
        let principal = |client: &str, user: Option<&str>| {
            let owner = Owner { client: client.to_owned(), user: user.map(ToOwned::to_owned) };
            Principal::without_key(Role::Client, owner, false)
        };
        assert!(registry.find(&principal("a", None), &first.id).is_ok());
        assert!(registry.find(&principal("b", None), &first.id).is_err());
        assert!(registry.find(&principal("a", Some("x")), &first.id).is_err());
        assert_eq!(registry.list(&first.owner).len(), 1);
        assert!(registry.remove(&first) && !registry.remove(&first));
        assert!(registry.add(&kernel("c")).is_ok());
    }

    #[tokio::test]
    async fn a_kernel_is_evicted_of_the_largest_owner_with_an_idle_one() {
        let limits = KernelLimits { per_owner: 9, in_all: 7, idle: Duration::from_hours(1) };
        let registry = Registry { eviction_grace: Duration::ZERO, ..Registry::new(limits) };
        let busy: Vec<_> = (0..4).map(|_| kernel("busy")).collect();
        for kernel in &busy {
            kernel.become_busy(&Parent::none(), true).await;
        }
        let idle: Vec<_> = (0..3).map(|_| kernel("idle")).collect();
        for kernel in busy.iter().chain(&idle) {
            assert!(registry.add(kernel).unwrap().is_empty());
        }
        let evicted = registry.add(&kernel("newcomer")).unwrap();
        assert_eq!(evicted.iter().map(|kernel| &kernel.id).collect::<Vec<_>>(), [&idle[0].id]);
    }

    #[test]
    fn a_new_kernel_is_not_evicted() {
        let limits = KernelLimits { per_owner: 9, in_all: 3, idle: Duration::from_hours(1) };
        let registry = Registry::new(limits);
        for _ in 0..3 {
            registry.add(&kernel("a")).unwrap();
        }
        assert_eq!(registry.add(&kernel("b")).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn what_nobody_uses_is_forgotten() {
        let registry = Registry::new(KernelLimits { per_owner: 9, in_all: 9, idle: Duration::ZERO });
        let old = kernel("a");
        registry.add(&old).unwrap();
        assert_eq!(registry.forget_idle().len(), 1);
        assert!(registry.list(&old.owner).is_empty());
    }
}
