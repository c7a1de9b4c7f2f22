//! How a cell ended, in the words that people and models read. Clients show an error's traceback and nothing else of it, so
//! each one says there all that there is to say.

use redoma_engine::interpreter::Execution;
use redoma_model::{Ending, LimitName, RunReport};
use serde_json::{Value, json};

use super::limits;
use crate::failure::Failure;

/// Bytes of an error that are passed on.
const MOST_NAME: usize = 1000;
const MOST_VALUE: usize = 100_000;
const MOST_TRACEBACK: usize = 500_000;

/// Why a cell failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    name: String,
    value: String,
    traceback: Vec<String>,
}

impl Problem {
    /// What the program raised.
    pub fn new(name: &str, value: &str, traceback: Vec<String>) -> Self {
        let length: usize = traceback.iter().map(|line| limits::text_length(line) + 3).sum();
        let traceback = if length > MOST_TRACEBACK {
            vec![limits::shortened(&traceback.join("\n"), MOST_TRACEBACK).into_owned()]
        } else {
            traceback
        };
        let name = limits::shortened(name, MOST_NAME).into_owned();
        Self { name, value: limits::shortened(value, MOST_VALUE).into_owned(), traceback }
    }

    /// What happened to it.
    fn told(name: &str, value: &str) -> Self {
        Self::new(name, value, vec![format!("{name}: {value}")])
    }

    /// What an `error` message and a reply say.
    pub fn content(&self) -> Value {
        json!({ "ename": self.name, "evalue": self.value, "traceback": self.traceback })
    }

    /// A cell that did not get its turn, because it was interrupted or because there was none.
    pub fn interrupted() -> Self {
        Self::told("KeyboardInterrupt", "interrupted before it began")
    }

    pub fn malformed(why: &str) -> Self {
        Self::told("BadRequest", why)
    }
}

impl From<&Failure> for Problem {
    fn from(failure: &Failure) -> Self {
        let name = match failure.code {
            "rate_limited" => "ServerBusy",
            "shutting_down" => "ServerShuttingDown",
            "cancelled" => "Cancelled",
            "bad_request" => "BadRequest",
            "not_found" => {
                let text = "the kernel's session is over, and its files are gone; restart the kernel";
                return Self::told("SessionOver", text);
            }
            "unavailable" | "no_space" => "ServerUnavailable",
            _ => "ServerError",
        };
        Self::told(name, &failure.detail)
    }
}

/// Why a cell failed that has not shown an error by itself.
pub fn problem(execution: &Execution) -> Option<Problem> {
    let report = &execution.report;
    let (name, what) = match (report.ending, report.limit) {
        (Ending::Exited, _) => match report.exit_code {
            None | Some(0) => return None,
            Some(code) => ("ExitCode", format!("the program ended with exit code {code}.")),
        },
        (Ending::Denied, _) => ("PolicyDenied", report.stderr.text.trim_end().to_owned()),
        (Ending::Cancelled, _) => ("Cancelled", "the cell was ended from outside.".to_owned()),
        (Ending::Signaled, _) => {
            let signal = report.signal.as_deref().unwrap_or("a signal");
            ("Killed", format!("the program was ended by {signal}."))
        }
        (Ending::Limit, limit) => limit_reached(limit, report),
    };
    Some(Problem::told(name, &format!("{what}{}", variables(execution))))
}

fn limit_reached(limit: Option<LimitName>, report: &RunReport) -> (&'static str, String) {
    let usage = &report.usage;
    let seconds = |ms: u64| format!("{} s", std::time::Duration::from_millis(ms).as_secs_f64());
    match limit {
        Some(LimitName::Wall) => {
            ("TimeLimit", format!("the cell was stopped after {}.", seconds(usage.wall_ms.limit)))
        }
        Some(LimitName::CpuTime) => {
            ("TimeLimit", format!("the cell has used its {} of CPU time.", seconds(usage.cpu_ms.limit)))
        }
        Some(LimitName::Memory) => {
            let limit = usage.memory_peak_bytes.map_or(0, |memory| memory.limit >> 20);
            ("MemoryLimit", format!("the cell needed more memory than the {limit} MiB that it may use."))
        }
        Some(LimitName::Output) => {
            ("OutputLimit", "the cell was stopped, for its output was far more than is kept.".to_owned())
        }
        Some(limit) => ("Limit", format!("the cell reached its limit of {}.", limit.name())),
        None => ("Limit", "the cell reached a limit.".to_owned()),
    }
}

/// What became of the session's variables.
fn variables(execution: &Execution) -> &'static str {
    match &execution.cell {
        Some(cell) if cell.lost => " Variables of earlier cells are gone with it; files are kept.",
        Some(cell) if cell.restored => " Variables are as they were before this cell; files are kept.",
        _ => "",
    }
}

/// What else there is to say.
pub fn notes(execution: &Execution, has_failed: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(cell) = &execution.cell {
        if cell.restarted {
            notes.push("The kernel had to be started anew: variables of earlier cells were gone.".to_owned());
        }
        if !has_failed && (cell.lost || cell.restored) {
            notes.push(format!("The cell ended its process.{}", variables(execution)));
        }
        notes.extend(cell.notes.iter().cloned());
    }
    let report = &execution.report;
    for (name, stream, limit) in [
        ("stdout", &report.stdout, report.usage.stdout_bytes.limit),
        ("stderr", &report.stderr, report.usage.stderr_bytes.limit),
    ] {
        if stream.truncated {
            let bytes = stream.bytes;
            notes.push(format!("{name} had {bytes} bytes; more than {limit} are not shown."));
        }
    }
    for refused in &execution.refused {
        notes.push(format!("`{}` was not kept: {}", refused.name, refused.reason));
    }
    notes.iter().take(50).map(|note| limits::shortened(note, 4000).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_error_is_cut() {
        let problem = Problem::new("E", &"\u{1}".repeat(1 << 20), vec!["line\n".repeat(1 << 18); 3]);
        assert!(limits::length(&problem.content()) < limits::MOST_CONTENT - 100_000);
        assert_eq!(problem.traceback.len(), 1);
        let small = Problem::new("ValueError", "x", vec!["a".into(), "b".into()]);
        assert_eq!(small.content(), json!({ "ename": "ValueError", "evalue": "x", "traceback": ["a", "b"] }));
    }

    #[test]
    fn every_failure_has_a_traceback() {
        for failure in [Failure::busy("wait"), Failure::not_found("session"), Failure::bad_request("no")] {
            let problem = Problem::from(&failure);
            assert!(problem.traceback[0].starts_with(&problem.name) && problem.traceback[0].len() > 5);
        }
    }
}
