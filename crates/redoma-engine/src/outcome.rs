//! What a run came to: from what was watched to a report.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use redoma_jail::Event;
use redoma_jail::cgroup::GroupUsage;
use redoma_model::{Captured, Ending, IsolationReport, LimitName, Limits, RunReport, Usage, UsedOf, Verdict};

use crate::capture::Stream;
use crate::request::{RunError, RunRequest, Terms};
use crate::supervise::{Observer, Stop, Watched};
use crate::workspace::WorkspaceFiles;

/// Everything about a run but its files.
pub(crate) fn report(
    language: &str,
    terms: &Terms,
    mut watched: Watched,
    isolation: IsolationReport,
    observer: &mut dyn Observer,
) -> RunReport {
    let limits = &terms.limits;
    let used = watched.used;
    let (ending, limit) = ending(&watched, used, limits);
    let limits_hit = limits_hit(&watched, used, limit);
    let (exit_code, signal) = match watched.event {
        Event::Exited(code) => (Some(code), None),
        Event::Signaled(signal) => (None, Some(signal)),
        Event::Gone => (None, Some(9)),
    };
    // Of a run that the caller ended, the signal that the caller sent is the one to tell.
    let signal = match watched.stop {
        Some(Stop::Signal(sent)) => Some(sent),
        Some(Stop::Cancelled | Stop::ToolWait | Stop::TooManyCalls) => None,
        _ => signal,
    };
    let of = |used: u64, limit: u64| UsedOf { used, limit };
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let usage = Usage {
        wall_ms: of(millis(watched.wall), millis(limits.wall.0)),
        cpu_ms: of(millis(used.cpu.unwrap_or_default()), millis(limits.cpu_time.0)),
        cpu_user_ms: used.cpu_user.map(millis),
        cpu_system_ms: used.cpu_system.map(millis),
        memory_peak_bytes: used.memory_peak.map(|peak| of(peak, limits.memory.0)),
        // The group counts the sandbox's init too; the limit does not.
        pids_peak: used
            .pids_peak
            .map(|peak| peak.saturating_sub(1))
            .or(used.pids_current.map(|_| watched.pids_seen))
            .map(|peak| of(peak, limits.pids)),
        disk_bytes: of(watched.disk.bytes, limits.disk.0),
        files: of(watched.disk.files, limits.files),
        stdout_bytes: of(watched.stdout.total(), limits.output.0),
        stderr_bytes: of(watched.stderr.total(), limits.output.0),
    };
    for (stream, capture) in [(Stream::Stdout, &mut watched.stdout), (Stream::Stderr, &mut watched.stderr)] {
        let ending = capture.ending();
        if !ending.is_empty() {
            observer.output(stream, &ending);
        }
    }
    RunReport {
        language: language.to_owned(),
        profile: terms.profile.clone(),
        ending,
        exit_code,
        signal: signal.map(signal_name),
        signal_number: signal,
        limit,
        limits_hit,
        stdout: watched.stdout.finish(),
        stderr: watched.stderr.finish(),
        usage,
        files: Vec::new(),
        skipped_files: Vec::new(),
        unlisted_files: 0,
        deleted_files: Vec::new(),
        value: watched.value,
        tool_wait_exceeded: watched.stop == Some(Stop::ToolWait),
        too_many_tool_calls: watched.stop == Some(Stop::TooManyCalls),
        verdict: None,
        isolation,
    }
}

/// The report of a program that a rule forbids to run: what it would have printed is why.
pub(crate) fn denied(language: &str, terms: &Terms, verdict: Verdict, message: String) -> RunReport {
    let limits = &terms.limits;
    let none_of = |limit: u64| UsedOf { used: 0, limit };
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let captured = |text: String| {
        let bytes = text.len() as u64;
        Captured { text, bytes, truncated: false, valid_utf8: true }
    };
    RunReport {
        language: language.to_owned(),
        profile: terms.profile.clone(),
        ending: Ending::Denied,
        exit_code: Some(CAN_NOT_EXECUTE),
        signal: None,
        signal_number: None,
        limit: None,
        limits_hit: Vec::new(),
        stdout: captured(String::new()),
        usage: Usage {
            wall_ms: none_of(millis(limits.wall.0)),
            cpu_ms: none_of(millis(limits.cpu_time.0)),
            cpu_user_ms: None,
            cpu_system_ms: None,
            memory_peak_bytes: None,
            pids_peak: None,
            disk_bytes: none_of(limits.disk.0),
            files: none_of(limits.files),
            stdout_bytes: none_of(limits.output.0),
            stderr_bytes: none_of(limits.output.0),
        },
        stderr: captured(message),
        files: Vec::new(),
        skipped_files: Vec::new(),
        unlisted_files: 0,
        deleted_files: Vec::new(),
        value: None,
        tool_wait_exceeded: false,
        too_many_tool_calls: false,
        verdict: Some(verdict),
        isolation: IsolationReport::of_nothing(),
    }
}

/// What shells say of a program that is there and must not be run.
const CAN_NOT_EXECUTE: i32 = 126;

/// The report with the files that the program left. `script` is the program's own, as it was put there.
pub(crate) fn add_files(
    mut report: RunReport,
    workspace: BorrowedFd<'_>,
    files: &mut WorkspaceFiles,
    script: (&str, &[u8]),
    request: &mut RunRequest<'_>,
    limits: &Limits,
) -> Result<RunReport, RunError> {
    if !request.wants_files() {
        return Ok(report);
    }
    match files.harvest(workspace, script, limits.disk.0, request.out.as_deref_mut()) {
        Ok(found) => {
            found.add_to(&mut report);
            Ok(report)
        }
        Err(error) => Err(RunError::Harvest { report: Box::new(report), error }),
    }
}

fn ending(watched: &Watched, used: GroupUsage, limits: &Limits) -> (Ending, Option<LimitName>) {
    match (watched.stop, watched.event) {
        (Some(Stop::Limit(limit)), _) => (Ending::Limit, Some(limit)),
        (Some(Stop::Signal(_) | Stop::Cancelled | Stop::ToolWait | Stop::TooManyCalls), _) => {
            (Ending::Cancelled, None)
        }
        (None, Event::Exited(_)) => (Ending::Exited, None),
        (None, Event::Signaled(9) | Event::Gone) if used.oom_kills > 0 => {
            (Ending::Limit, Some(LimitName::Memory))
        }
        (None, Event::Signaled(SIGXCPU)) if used.cpu.is_none_or(|cpu| cpu >= limits.cpu_time.0) => {
            (Ending::Limit, Some(LimitName::CpuTime))
        }
        (None, Event::Signaled(SIGXFSZ)) => (Ending::Limit, Some(LimitName::Disk)),
        (None, Event::Signaled(_) | Event::Gone) => (Ending::Signaled, None),
    }
}

const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

fn limits_hit(watched: &Watched, used: GroupUsage, ended_by: Option<LimitName>) -> Vec<LimitName> {
    let mut hit: Vec<_> = ended_by.into_iter().collect();
    let mut add = |limit, is_hit: bool| {
        if is_hit && !hit.contains(&limit) {
            hit.push(limit);
        }
    };
    add(LimitName::Memory, used.oom_kills > 0);
    add(LimitName::Pids, used.forks_refused > 0);
    add(LimitName::Disk, watched.disk.was_full);
    add(LimitName::Files, watched.disk.was_out_of_files);
    add(LimitName::Output, watched.stdout.is_truncated() || watched.stderr.is_truncated());
    hit
}

fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    usize::try_from(number - 1)
        .ok()
        .and_then(|index| NAMES.get(index))
        .map_or_else(|| format!("signal {number}"), |name| format!("SIG{name}"))
}
