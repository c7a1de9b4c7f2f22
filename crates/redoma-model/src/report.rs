//! What a run gives back.

use serde::{Deserialize, Serialize};

use crate::isolation::IsolationReport;
use crate::limits::LimitName;
use crate::verdict::Verdict;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It left by itself, with an exit code.
    Exited,
    /// A signal ended it, which was not a limit's doing.
    Signaled,
    /// It was ended because it reached a limit.
    Limit,
    /// The caller ended it.
    Cancelled,
    /// It did not run: a rule forbids it.
    Denied,
}

/// One output stream, as much of it as was kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// UTF-8; each malformed sequence is one U+FFFD. Where `truncated`, a line between head and tail says what is left out.
    pub text: String,
    /// Bytes that the program wrote, kept or not.
    pub bytes: u64,
    pub truncated: bool,
    /// Whether what the program wrote was UTF-8 throughout (in the part that was kept).
    pub valid_utf8: bool,
}

/// How much was used of how much was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UsedOf {
    pub used: u64,
    pub limit: u64,
}

/// Usage against limits. A value that this host can't tell is absent, never a guess.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub wall_ms: UsedOf,
    /// User plus system time of all processes.
    pub cpu_ms: UsedOf,
    pub cpu_user_ms: Option<u64>,
    pub cpu_system_ms: Option<u64>,
    pub memory_peak_bytes: Option<UsedOf>,
    pub pids_peak: Option<UsedOf>,
    /// The most bytes that the sandbox's files held, of those moments that were looked at (every 50 ms, and the end).
    pub disk_bytes: UsedOf,
    pub files: UsedOf,
    pub stdout_bytes: UsedOf,
    pub stderr_bytes: UsedOf,
}

/// A file that the program made or changed in its workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HarvestedFile {
    /// Path below `/mnt/data`; bytes that are not UTF-8 show as U+FFFD.
    pub name: String,
    pub size: u64,
}

/// Something in the workspace that is not handed out, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedFile {
    pub name: String,
    pub reason: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

/// The whole result of one run; `redoma run --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    pub language: String,
    pub profile: String,
    pub ending: Ending,
    pub exit_code: Option<i32>,
    /// The signal's name, such as `SIGSEGV`.
    pub signal: Option<String>,
    pub signal_number: Option<i32>,
    /// The limit that ended the run.
    pub limit: Option<LimitName>,
    /// Every limit that was reached, also where the program went on (a refused fork, a full disk, cut output).
    pub limits_hit: Vec<LimitName>,
    pub stdout: Captured,
    pub stderr: Captured,
    pub usage: Usage,
    pub files: Vec<HarvestedFile>,
    pub skipped_files: Vec<SkippedFile>,
    /// How many more of either there are, whose names would have made this report too long.
    pub unlisted_files: u64,
    /// Inputs that the program deleted or put something else in the place of.
    #[serde(default)]
    pub deleted_files: Vec<String>,
    /// The value of the script's last line, if that was asked for and it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The run was ended because nobody answered a tool's call in time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tool_wait_exceeded: bool,
    /// The run was ended because it had too many calls without an answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub too_many_tool_calls: bool,
    /// What was found in the program before it ran, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    pub isolation: IsolationReport,
}
