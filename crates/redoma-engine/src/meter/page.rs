//! Which number has which name. `docs/metrics.md` lists them all, and a test sees to that.

use super::{Exposition, Meter, Phase, Violation};
use crate::backend::{KernelWords, PoolStatus, Status};
use crate::frames;

impl Meter {
    /// Everything that was counted.
    pub fn write(&self, page: &mut Exposition) {
        let help = "Runs and cells that have ended, by how.";
        page.counter("redoma_sandbox_executions", help).counts(&self.executions);
        let help = "Runs and cells that did not come to be, or whose results were lost, by why.";
        page.counter("redoma_execution_failures", help).counts(&self.failures);
        let help = "CPU time of all processes of runs and cells, in whole milliseconds of each.";
        page.counter("redoma_sandbox_cpu_seconds", help).number(&[], seconds(self.cpu_millis.get()));
        let help = "The most memory that any run or cell has held since the start.";
        page.gauge("redoma_sandbox_memory_bytes_max", help).count(&[], self.memory_peak.get());
        let help = "Runs and cells that were ended because their time was over.";
        page.counter("redoma_sandbox_timeouts", help).count(&[], self.timeouts.get());
        let help = "Runs and cells that reached a limit, also where they went on.";
        page.counter("redoma_sandbox_limits_hit", help).counts(&self.limits_hit);
        let help = "How much of its CPU time a run or cell used.";
        page.histogram("redoma_sandbox_cpu_used_ratio", help).spread(&[], &self.cpu_ratio);
        let help = "How much of its memory a run or cell used at its peak.";
        page.histogram("redoma_sandbox_memory_used_ratio", help).spread(&[], &self.memory_ratio);
        let help = "Where the time of runs and cells goes.";
        let mut phases = page.histogram("redoma_execution_phase_seconds", help);
        for phase in Phase::ALL {
            phases.spread(&[("phase", phase.name())], &self.phases[phase as usize]);
        }
        let help = "Code that a rule of the command policy kept from running.";
        page.counter("redoma_policy_denials", help).counts(&self.policy_denials);
        let help = "Requests that were turned away for a rate or a quota.";
        page.counter("redoma_rate_limited", help).counts(&self.rate_limited);
        let audit = self.audit.get().map(|read| read());
        let mut lag =
            page.gauge("redoma_audit_lag_seconds", "Age of the oldest audit record that is not yet on disk.");
        if let Some(audit) = audit {
            lag.number(&[], audit.lag.as_secs_f64());
        }
        let mut pending =
            page.gauge("redoma_audit_pending_records", "Audit records that can't be looked up yet.");
        if let Some(audit) = audit {
            pending.count(&[], audit.pending);
        }
    }

    /// What ran into a wall: as counted here, and as told by the kernel.
    pub fn write_violations(&self, page: &mut Exposition, words: &KernelWords) {
        let help = "What ran into a wall of the sandbox, by kind.";
        let mut kinds = page.counter("redoma_sandbox_security_violations", help);
        for kind in Violation::ALL {
            let counted = self.violations[kind as usize].get();
            let elsewhere = if kind == Violation::RefusedFrame { frames::refused() } else { 0 };
            kinds.count(&[("kind", kind.name())], counted + elsewhere);
        }
        kinds.count(&[("kind", "seccomp")], words.seccomp);
        let help = "Whether violations are heard of from here: the reports of runs, the kernel's audit log.";
        let mut sources = page.gauge("redoma_violations_source", help);
        sources.count(&[("source", "reports")], 1).count(&[("source", "audit")], u64::from(words.is_heard));
        let help = "Times that the kernel's audit log came faster than it was read.";
        page.counter("redoma_violations_overruns", help).count(&[], words.overruns);
    }
}

impl Status {
    /// What waits, and who provides it.
    pub fn write(&self, page: &mut Exposition) {
        let pools = by_name(&self.pools);
        let mut gauge = |name: &str, help: &str, of: fn(&PoolStatus) -> usize| {
            let mut samples = page.gauge(name, help);
            for (labels, pools) in &pools {
                let sum: usize = pools.iter().map(|pool| of(pool)).sum();
                samples.count(labels, sum as u64);
            }
        };
        gauge("redoma_pool_waiting", "Sandboxes that wait for a program.", |pool| pool.idle);
        gauge("redoma_pool_wanted", "Sandboxes that should wait, going by demand.", |pool| pool.wanted);
        gauge("redoma_pool_floor", "Sandboxes that should wait at least.", |pool| pool.floor);
        let mut counter = |name: &str, help: &str, of: fn(&PoolStatus) -> u64| {
            let mut samples = page.counter(name, help);
            for (labels, pools) in &pools {
                samples.count(labels, pools.iter().map(|pool| of(pool)).sum());
            }
        };
        counter("redoma_pool_taken", "Programs that found a sandbox waiting.", |pool| pool.hits);
        counter("redoma_pool_misses", "Programs that found none, and waited for one.", |pool| pool.misses);
        let help = "Interpreters with libraries loaded that were replaced, by why.";
        let mut restarts = page.counter("redoma_zygote_restarts", help);
        restarts
            .count(&[("reason", "died")], self.restarts.died)
            .count(&[("reason", "worn")], self.restarts.worn)
            .count(&[("reason", "nursery")], self.restarts.nursery);
    }
}

type Labels<'a> = [(&'static str, &'a str); 2];

/// Pools by what they are called: two lists of modules to load ahead may end with the same one.
fn by_name(pools: &[PoolStatus]) -> Vec<(Labels<'_>, Vec<&PoolStatus>)> {
    let mut named: Vec<(Labels<'_>, Vec<&PoolStatus>)> = Vec::new();
    for pool in pools {
        let (name, seal) = match pool.name.split_once(", ") {
            Some((name, seal)) => (name, seal),
            None => (pool.name.as_str(), "sealed"),
        };
        let labels = [("pool", name), ("seal", seal)];
        match named.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, same)) => same.push(pool),
            None => named.push((labels, vec![pool])),
        }
    }
    named
}

#[expect(clippy::cast_precision_loss, reason = "exact for a hundred thousand years")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}
