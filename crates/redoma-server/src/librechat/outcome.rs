//! How a program ended, in the words that a model is shown.

use redoma_engine::interpreter::Execution;
use redoma_model::{Ending, LimitName, Output, RunReport};

/// Of a traceback as much is shown.
const LONGEST_ERROR: usize = 64 << 10;

/// A sentence about why it was ended, where it did not end by itself.
pub(super) fn explanation(report: &RunReport) -> Option<String> {
    let limits = &report.usage;
    let text = match (report.ending, report.limit) {
        (Ending::Exited | Ending::Denied, _) => return None,
        (Ending::Cancelled, _) => "The run was cancelled.".to_owned(),
        (Ending::Signaled, _) => {
            format!("The program was ended by {}.", report.signal.as_deref().unwrap_or("a signal"))
        }
        (Ending::Limit, Some(LimitName::Wall)) => {
            format!("Time limit exceeded: the program was stopped after {} s.", seconds(limits.wall_ms.limit))
        }
        (Ending::Limit, Some(LimitName::CpuTime)) => format!(
            "Time limit exceeded: the program used its {} s of CPU time.",
            seconds(limits.cpu_ms.limit)
        ),
        (Ending::Limit, Some(LimitName::Memory)) => {
            let limit = limits.memory_peak_bytes.map_or(0, |memory| memory.limit >> 20);
            format!("Out of memory: the program may use {limit} MiB.")
        }
        (Ending::Limit, Some(LimitName::Output)) => {
            format!(
                "stdout length exceeded: the program was stopped, for its output was far more than {} bytes.",
                limits.stdout_bytes.limit
            )
        }
        (Ending::Limit, Some(limit)) => format!("The program reached its limit of {limit}."),
        (Ending::Limit, None) => "The program reached a limit.".to_owned(),
    };
    Some(text)
}

fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) {
        (ms / 1000).to_string()
    } else {
        format!("{}.{}", ms / 1000, ms % 1000 / 100)
    }
}

/// What it printed; or its value, if it printed nothing.
pub(super) fn stdout(execution: &Execution) -> String {
    let text = &execution.report.stdout.text;
    let mut values = execution.cell.iter().flat_map(|cell| &cell.outputs).filter_map(|output| match output {
        Output::Result { data, .. } => data.get("text/plain").and_then(serde_json::Value::as_str),
        _ => None,
    });
    match values.next_back() {
        Some(value) if text.is_empty() => format!("{value}\n"),
        _ => text.clone(),
    }
}

/// What went to stderr, and why it ended. In a live session also what became of its variables.
pub(super) fn stderr(execution: &Execution) -> String {
    let report = &execution.report;
    let mut text = report.stderr.text.clone();
    let errors = execution.cell.iter().flat_map(|cell| &cell.outputs).filter_map(|output| match output {
        Output::Error { traceback, .. } => {
            let mut text = traceback.join("\n");
            text.truncate(text.floor_char_boundary(LONGEST_ERROR));
            Some(text)
        }
        _ => None,
    });
    let missing = execution.missing.iter().map(|name| {
        format!("`{name}` is not stored any more and was not there for the program; upload it again.")
    });
    let restarted = execution.cell.as_ref().filter(|cell| cell.restarted).map(|_| {
        "Variables of earlier calls were gone: the session had to be started anew. Files are all there."
            .to_owned()
    });
    let unlisted = (execution.more_files > 0).then(|| {
        let (listed, more) = (execution.files.len(), execution.more_files);
        let id = &execution.id;
        format!(
            "{listed} of the files that were made are listed, {more} more are not: all are in \
             /api/v1/executions/{id}/archive. Put many files into one archive to hand them out."
        )
    });
    // A cell that had to be ended has said so already.
    let explanation = if execution.cell.is_some() { None } else { explanation(report) };
    for note in errors.chain(missing).chain(restarted).chain(unlisted).chain(explanation) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// The short code that the official server uses.
pub(super) fn status(report: &RunReport) -> Option<&'static str> {
    match (report.ending, report.limit) {
        (Ending::Exited, _) if report.exit_code == Some(0) => None,
        (Ending::Signaled | Ending::Cancelled, _) => Some("SG"),
        (Ending::Limit, Some(LimitName::Wall | LimitName::CpuTime)) => Some("TO"),
        (Ending::Limit, Some(LimitName::Output)) => Some("OL"),
        (Ending::Exited | Ending::Limit | Ending::Denied, _) => Some("RE"),
    }
}

/// The words that the client of programmatic calls knows, which then shows nothing else; none for a program that ended by
/// itself, whatever it came to.
pub(super) fn known_error(report: &RunReport) -> Option<&'static str> {
    match (report.ending, report.limit) {
        (Ending::Exited | Ending::Signaled, _) => None,
        (Ending::Denied, _) => Some("Denied by policy"),
        (Ending::Limit, Some(LimitName::Memory)) => Some("Out of memory"),
        (Ending::Limit, Some(LimitName::Output)) => Some("stdout length exceeded"),
        (Ending::Limit, Some(LimitName::Wall | LimitName::CpuTime)) => Some("Time limit exceeded"),
        (Ending::Limit | Ending::Cancelled, _) => Some("Execution failed or timed out"),
    }
}
