//! What is counted: runs and how they ended, what they used of their limits, where the time went, and what ran into a wall.
//!
//! Counting is on every run's way, so it is plain atomics: one lookup for the labels of the run, additions for the rest.
//! Nobody is named in it: labels say which language, profile and outcome, never which user, session or address.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | what is counted, and when |
//! | `counter.rs`, `histogram.rs` | the numbers |
//! | `family.rs` | numbers with labels, of which there are only so many |
//! | `violation.rs` | what counts as running into a wall |
//! | `exposition.rs` | all of it as text |
//! | `page.rs` | which of it has which name |

mod counter;
mod exposition;
mod family;
mod histogram;
mod page;
mod violation;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redoma_model::{Ending, LimitName, RunReport};

pub use counter::{Counter, Peak};
pub use exposition::{Exposition, Format, Samples};
pub use family::{Family, OTHER};
pub use histogram::Histogram;
pub use violation::Violation;

use crate::kernel::CellEnd;
use crate::request::RunError;

/// Profiles × languages × outcomes that have a series of their own.
const MOST_EXECUTIONS: usize = 1024;
const MOST_RULES: usize = 256;
const MOST_SCOPES: usize = 64;

/// A part of the way from a request to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Until its rules have been looked at.
    Policy,
    /// Until it is this one's turn.
    Queue,
    /// Until it has a sandbox with everything in it.
    Assign,
    /// The program itself.
    Run,
    /// Until its files are out.
    Harvest,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Policy, Self::Queue, Self::Assign, Self::Run, Self::Harvest];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Queue => "queue",
            Self::Assign => "assign",
            Self::Run => "run",
            Self::Harvest => "harvest",
        }
    }
}

/// Where the time of one run went, once it had its turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Took {
    pub assign: Duration,
    pub run: Duration,
    pub harvest: Duration,
}

/// How the audit is doing, asked at each scrape.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AuditReading {
    /// How old the oldest record is that is not yet where it should be.
    pub lag: Duration,
    /// How many such records there are.
    pub pending: u64,
}

type AuditReader = Box<dyn Fn() -> AuditReading + Send + Sync>;

/// Everything that is counted. Shared by all who have something to count.
pub struct Meter {
    executions: Family<Counter>,
    failures: Family<Counter>,
    limits_hit: Family<Counter>,
    cpu_millis: Counter,
    memory_peak: Peak,
    timeouts: Counter,
    cpu_ratio: Histogram,
    memory_ratio: Histogram,
    phases: [Histogram; Phase::ALL.len()],
    violations: [Counter; Violation::ALL.len()],
    policy_denials: Family<Counter>,
    rate_limited: Family<Counter>,
    audit: OnceLock<AuditReader>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Default for Meter {
    fn default() -> Self {
        let labels = &["isolation", "language", "profile", "outcome"];
        let meter = Self {
            executions: Family::new(labels, MOST_EXECUTIONS, Counter::default),
            failures: Family::new(&["reason"], MOST_SCOPES, Counter::default),
            limits_hit: Family::new(&["limit"], MOST_SCOPES, Counter::default),
            cpu_millis: Counter::default(),
            memory_peak: Peak::default(),
            timeouts: Counter::default(),
            cpu_ratio: Histogram::of_ratios(),
            memory_ratio: Histogram::of_ratios(),
            phases: std::array::from_fn(|_| Histogram::of_seconds()),
            violations: std::array::from_fn(|_| Counter::default()),
            policy_denials: Family::new(&["rule"], MOST_RULES, Counter::default),
            rate_limited: Family::new(&["scope"], MOST_SCOPES, Counter::default),
            audit: OnceLock::new(),
        };
        // From the start at 0: how much a number went up that was not there before, nobody can tell.
        for reason in REASONS {
            meter.failures.with(&[reason], |_| {});
        }
        for limit in [LimitName::Wall, LimitName::CpuTime, LimitName::Memory, LimitName::Pids]
            .into_iter()
            .chain([LimitName::Disk, LimitName::Files, LimitName::Output])
        {
            meter.limits_hit.with(&[limit.name()], |_| {});
        }
        meter
    }
}

impl Meter {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A run has ended, however that was.
    pub fn run(&self, language: &str, report: &RunReport, took: Took) {
        let outcome = outcome(report);
        let labels = [report.isolation.engine.as_str(), language, &report.profile, outcome];
        self.executions.with(&labels, Counter::add_one);
        let usage = &report.usage;
        self.cpu_millis.add(usage.cpu_ms.used);
        self.cpu_ratio.note_ratio(usage.cpu_ms.used, usage.cpu_ms.limit);
        if let Some(memory) = usage.memory_peak_bytes {
            self.memory_peak.note(memory.used);
            self.memory_ratio.note_ratio(memory.used, memory.limit);
        }
        if report.limit == Some(LimitName::Wall) {
            self.timeouts.add_one();
        }
        for limit in &report.limits_hit {
            self.limits_hit.with(&[limit.name()], Counter::add_one);
        }
        for violation in Violation::of_report(report) {
            self.violation(violation);
        }
        // A cell mostly finds its sandbox as the one before has left it.
        if !took.assign.is_zero() {
            self.phase(Phase::Assign, took.assign);
        }
        self.phase(Phase::Run, took.run);
        self.phase(Phase::Harvest, took.harvest);
    }

    /// What came of a run, or of the attempt.
    pub(crate) fn result(&self, language: &str, result: &Result<RunReport, RunError>, took: Took) {
        match result {
            Ok(report) => self.run(language, report, took),
            Err(error) => {
                if let RunError::Harvest { report, .. } = error {
                    self.run(language, report, took);
                }
                self.failed(error);
            }
        }
    }

    /// The same of a cell; what came of it is handed on.
    pub(crate) fn cell(&self, language: &str, ran: Result<CellEnd, RunError>) -> Result<CellEnd, RunError> {
        match &ran {
            Ok(end) => self.run(language, &end.report, end.took),
            Err(error) => self.failed(error),
        }
        ran
    }

    /// Something that was to run did not, or its results are lost.
    pub fn failed(&self, error: &RunError) {
        self.failures.with(&[reason(error)], Counter::add_one);
    }

    pub fn phase(&self, phase: Phase, time: Duration) {
        self.phases[phase as usize].note(time);
    }

    pub fn violation(&self, kind: Violation) {
        self.violations[kind as usize].add_one();
    }

    /// A rule has kept code from running. Rules are named in the configuration; a name of any other origin must not come here.
    pub fn policy_denied(&self, rule: &str) {
        self.policy_denials.with(&[rule], Counter::add_one);
    }

    /// Rules that may deny something: they are there from now on, with 0.
    pub fn expect_rules<'a>(&self, rules: impl IntoIterator<Item = &'a str>) {
        rules.into_iter().for_each(|rule| self.policy_denials.with(&[rule], |_| {}));
    }

    /// A request was turned away for a rate or a quota: of what, such as `user_executions`. Never of whom.
    pub fn rate_limited(&self, scope: &str) {
        self.rate_limited.with(&[scope], Counter::add_one);
    }

    /// Rates and quotas that there are: they are there from now on, with 0.
    pub fn expect_scopes<'a>(&self, scopes: impl IntoIterator<Item = &'a str>) {
        scopes.into_iter().for_each(|scope| self.rate_limited.with(&[scope], |_| {}));
    }

    /// Whom to ask how the audit is doing. The first who says so is asked.
    pub fn read_audit_with(&self, read: impl Fn() -> AuditReading + Send + Sync + 'static) {
        let _ = self.audit.set(Box::new(read));
    }
}

/// How a run ended, in one word. A limit that ended it is named, but for the time, which everybody calls a timeout.
pub fn outcome(report: &RunReport) -> &'static str {
    match (report.ending, report.limit, report.exit_code) {
        (Ending::Limit, Some(LimitName::Wall), _) => "timeout",
        (Ending::Limit, Some(limit), _) => limit.name(),
        (Ending::Limit, None, _) => OTHER,
        (Ending::Cancelled, ..) => "cancelled",
        (Ending::Denied, ..) => "denied",
        (Ending::Signaled, ..) => "signaled",
        (Ending::Exited, _, Some(0)) => "ok",
        (Ending::Exited, ..) => "error",
    }
}

const REASONS: [&str; 10] = [
    "busy",
    "cancelled",
    "shutting_down",
    "kernel_lost",
    "harvest",
    "staging",
    "host",
    "sandbox",
    "request",
    "no_checkpoint",
];

fn reason(error: &RunError) -> &'static str {
    match error {
        RunError::Busy { .. } | RunError::InputMemory => "busy",
        RunError::Overloaded => "overloaded",
        RunError::Cancelled => "cancelled",
        RunError::ShuttingDown => "shutting_down",
        RunError::KernelLost => "kernel_lost",
        RunError::KernelSlow => "kernel_slow",
        RunError::Harvest { .. } => "harvest",
        RunError::Staging(_) => "staging",
        RunError::Refused(_) | RunError::Runtime(_) => "host",
        RunError::Cgroup(_)
        | RunError::HostUid(_)
        | RunError::Jail(_)
        | RunError::Nursery(_)
        | RunError::Prepare(_) => "sandbox",
        RunError::Plan(_)
        | RunError::ScriptName(_)
        | RunError::ArgumentsTooLong
        | RunError::ToolsInLanguage(_)
        | RunError::ToolsWithoutEngine => "request",
        RunError::NoCheckpoint => "no_checkpoint",
        RunError::Reader(_) => "reader",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use redoma_model::{Captured, IsolationReport, SkippedFile, Usage, UsedOf};

    use super::*;

    fn report() -> RunReport {
        let of = |used, limit| UsedOf { used, limit };
        RunReport {
            language: "py".to_owned(),
            profile: "default".to_owned(),
            ending: Ending::Exited,
            exit_code: Some(0),
            signal: None,
            signal_number: None,
            limit: None,
            limits_hit: Vec::new(),
            stdout: Captured::default(),
            stderr: Captured::default(),
            usage: Usage {
                wall_ms: of(20, 30_000),
                cpu_ms: of(15, 30_000),
                cpu_user_ms: None,
                cpu_system_ms: None,
                memory_peak_bytes: Some(of(64 << 20, 512 << 20)),
                pids_peak: None,
                disk_bytes: of(0, 1),
                files: of(0, 1),
                stdout_bytes: of(0, 1),
                stderr_bytes: of(0, 1),
            },
            files: Vec::new(),
            skipped_files: Vec::new(),
            unlisted_files: 0,
            deleted_files: Vec::new(),
            value: None,
            tool_wait_exceeded: false,
            too_many_tool_calls: false,
            verdict: None,
            isolation: IsolationReport {
                engine: "native".to_owned(),
                mode: "root".to_owned(),
                layers: Vec::new(),
                missing: Vec::new(),
                cgroup_version: None,
                landlock_abi: None,
                host_uid: 0,
            },
        }
    }

    fn page(meter: &Meter) -> String {
        let mut page = Exposition::new(Format::Prometheus);
        meter.write(&mut page);
        meter.write_violations(&mut page, &crate::backend::KernelWords::default());
        page.finish()
    }

    #[test]
    fn every_ending_has_an_outcome_of_its_own() {
        let ended = |ending, limit, exit_code| {
            let meter = Meter::default();
            let report = RunReport { ending, limit, exit_code, ..report() };
            meter.run("py", &report, Took::default());
            let page = page(&meter);
            let line =
                page.lines().find(|line| line.starts_with("redoma_sandbox_executions_total{")).unwrap();
            line.split("outcome=\"").nth(1).unwrap().trim_end_matches("\"} 1").to_owned()
        };
        assert_eq!(ended(Ending::Exited, None, Some(0)), "ok");
        assert_eq!(ended(Ending::Exited, None, Some(3)), "error");
        assert_eq!(ended(Ending::Signaled, None, None), "signaled");
        assert_eq!(ended(Ending::Cancelled, None, None), "cancelled");
        assert_eq!(ended(Ending::Limit, Some(LimitName::Wall), None), "timeout");
        assert_eq!(ended(Ending::Limit, Some(LimitName::Memory), None), "memory");
    }

    #[test]
    fn what_a_run_did_is_counted_where_it_belongs() {
        let meter = Meter::default();
        let skipped = |reason: &str| SkippedFile { name: "x".to_owned(), reason: reason.to_owned() };
        let report = RunReport {
            ending: Ending::Signaled,
            exit_code: None,
            signal_number: Some(31),
            limits_hit: vec![LimitName::Pids],
            skipped_files: vec![skipped(crate::harvest::LINK), skipped("too many files")],
            ..report()
        };
        meter.run("py", &report, Took { run: Duration::from_millis(20), ..Took::default() });
        meter.policy_denied("fork-bomb");
        meter.rate_limited("user_executions");
        let page = page(&meter);
        for line in [
            "redoma_sandbox_cpu_seconds_total 0.015",
            "redoma_sandbox_memory_bytes_max 67108864",
            "redoma_sandbox_security_violations_total{kind=\"sigsys\"} 1",
            "redoma_sandbox_security_violations_total{kind=\"pids_limit\"} 1",
            "redoma_sandbox_security_violations_total{kind=\"link\"} 1",
            "redoma_sandbox_security_violations_total{kind=\"device\"} 0",
            "redoma_sandbox_memory_used_ratio_bucket{le=\"0.1\"} 0",
            "redoma_sandbox_memory_used_ratio_bucket{le=\"0.25\"} 1",
            "redoma_execution_phase_seconds_bucket{phase=\"run\",le=\"0.01\"} 0",
            "redoma_execution_phase_seconds_bucket{phase=\"run\",le=\"0.025\"} 1",
            "redoma_policy_denials_total{rule=\"fork-bomb\"} 1",
            "redoma_rate_limited_total{scope=\"user_executions\"} 1",
            "redoma_sandbox_limits_hit_total{limit=\"pids\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(!page.lines().any(|line| line.starts_with("redoma_audit_lag_seconds ")), "nobody told it");
        meter.read_audit_with(|| AuditReading { lag: Duration::from_millis(1500), pending: 2 });
        assert!(self::page(&meter).contains("\nredoma_audit_lag_seconds 1.5\n"));
    }

    /// Generous, since this is not an optimised build and others run too; it prints what it measured: the best of many rounds, in
    /// which nobody else had the core.
    #[test]
    #[expect(clippy::print_stderr, reason = "a measurement")]
    fn counting_a_run_takes_no_time_to_speak_of() {
        let (meter, report) = (Meter::default(), report());
        let took = Took { assign: Duration::from_millis(2), ..Took::default() };
        let (rounds, runs) = (50, 2000);
        let each = (0..rounds).map(|_| {
            let start = Instant::now();
            for _ in 0..runs {
                meter.run("py", std::hint::black_box(&report), took);
            }
            start.elapsed() / runs
        });
        let best = each.min().unwrap();
        eprintln!("counting a run: {} ns", best.as_nanos());
        assert!(best < Duration::from_micros(10), "{best:?}");
    }
}
