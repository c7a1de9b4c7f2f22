//! What everything looks like as JSON.

use std::collections::HashSet;

use redoma_engine::interpreter::{Execution, KeyRecord, MAX_LISTED_NAMES, Refusal};
use redoma_model::{Origin, Retention, Role, RunReport, Session, StoredFile};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::body::{Weigh, short_list};

/// Milliseconds since 1970 as `2026-11-15T14:30:00.000Z`.
pub fn time(ms: i64) -> String {
    let (seconds, millis) = (ms.div_euclid(1000), ms.rem_euclid(1000));
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days are counted from the first of March of the year 0: then a leap day is the last of its year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// A conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionView {
    #[schema(example = "V1StGXR8_Z5jdHi6B-myT")]
    pub id: String,
    pub name: Option<String>,
    pub profile: String,
    /// The user that it belongs to, where one was named.
    pub user: Option<String>,
    pub created_at: String,
    pub used_at: String,
    /// When it is removed if it is not used; null is never.
    pub expires_at: Option<String>,
    /// Files, earlier versions included.
    pub files: u64,
    pub bytes: u64,
}

impl From<Session> for SessionView {
    fn from(session: Session) -> Self {
        Self {
            id: session.id.to_string(),
            name: session.name,
            profile: session.profile,
            user: session.owner.user,
            created_at: time(session.created_at),
            used_at: time(session.used_at),
            expires_at: session.expires_at.map(time),
            files: session.files,
            bytes: session.bytes,
        }
    }
}

/// One version of a file.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileView {
    pub id: String,
    pub session_id: String,
    /// Where programs see it, below `/mnt/data`.
    #[schema(example = "data/sales.csv")]
    pub name: String,
    /// Counts up from 1 with each file of this name.
    pub version: u64,
    /// Whether programs see this version.
    pub is_current: bool,
    pub size: u64,
    pub sha256: String,
    pub content_type: String,
    pub origin: OriginView,
    pub created_at: String,
    /// The execution that made it.
    pub execution_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OriginView {
    Upload,
    Artifact,
}

impl From<StoredFile> for FileView {
    fn from(file: StoredFile) -> Self {
        Self {
            id: file.id.to_string(),
            session_id: file.session.to_string(),
            name: file.name.as_str().to_owned(),
            version: file.version,
            is_current: file.is_current,
            size: file.size,
            sha256: file.sha256,
            content_type: file.content_type,
            origin: match file.origin {
                Origin::Upload => OriginView::Upload,
                Origin::Artifact => OriginView::Artifact,
            },
            created_at: time(file.created_at),
            execution_id: file.execution.map(|id| id.to_string()),
        }
    }
}

/// A program to run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutionBody {
    /// `py`, `js`, `ts` or `bash`.
    #[schema(example = "py")]
    pub language: String,
    #[schema(example = "print(6 * 7)")]
    pub code: String,
    #[serde(default, deserialize_with = "short_list")]
    pub arguments: Vec<String>,
    /// Milliseconds after which it is ended; at most the profile's wall time.
    pub timeout_ms: Option<u64>,
    /// Whether it finds the variables of the cells before it and leaves its own [true in a session].
    pub stateful: Option<bool>,
}

impl Weigh for ExecutionBody {
    fn weight(&self) -> usize {
        self.language.weight() + self.code.weight() + self.arguments.weight()
    }
}

/// What there is to say of a cell of a live session.
#[derive(Debug, Serialize, ToSchema)]
pub struct CellView {
    /// Counts the cells of this kernel, from 1.
    pub number: u64,
    /// What it showed, in order: objects with `type` `stdout`, `stderr`, `display`, `result`, `error` or `clear`.
    #[schema(value_type = Vec<Object>)]
    pub outputs: Vec<redoma_model::Output>,
    /// Variables of earlier cells were gone before this one.
    pub restarted: bool,
    /// It had to be ended, or ended its process: variables are as they were before it.
    pub restored: bool,
    /// It had to be ended, or ended its process, and all variables are gone with it.
    pub lost: bool,
    /// What else there is to know about the session's state.
    pub notes: Vec<String>,
}

impl From<redoma_model::CellReport> for CellView {
    fn from(cell: redoma_model::CellReport) -> Self {
        let redoma_model::CellReport { number, outputs, restarted, restored, lost, notes } = cell;
        Self { number, outputs, restarted, restored, lost, notes }
    }
}

/// A session's live process.
#[derive(Debug, Serialize, ToSchema)]
pub struct KernelView {
    /// `none`, `idle`, `busy` or `frozen`.
    #[schema(example = "idle")]
    pub state: String,
    /// Cells whose effects are in its variables.
    pub cells: u64,
    /// How many of the last of them can be undone.
    pub undoable: u64,
    /// Cells that wait for their turn.
    pub waiting: u64,
    pub memory_bytes: Option<u64>,
}

impl From<redoma_model::KernelStatus> for KernelView {
    fn from(status: redoma_model::KernelStatus) -> Self {
        let redoma_model::KernelStatus { cells, undoable, waiting, memory_bytes, .. } = status;
        Self { state: word(&status.state), cells, undoable, waiting, memory_bytes }
    }
}

/// One output stream, as much of it as was kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct OutputView {
    pub text: String,
    /// Bytes that the program wrote, kept or not.
    pub bytes: u64,
    pub truncated: bool,
}

/// What was used of what was allowed.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageView {
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub memory_peak_bytes: Option<u64>,
    pub disk_bytes: u64,
}

/// A file that could not be kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefusalView {
    pub name: String,
    pub reason: String,
}

/// What came of a program.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExecutionView {
    pub id: String,
    pub session_id: String,
    pub started_at: String,
    pub language: String,
    /// The profile that held for it.
    pub profile: String,
    /// `exited`, `signaled`, `limit`, `cancelled`, or `denied` if a rule kept it from running.
    #[schema(example = "exited")]
    pub ending: String,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    /// The limit that ended it: `wall`, `cpu_time`, `memory`, `output`, …
    pub limit: Option<String>,
    /// Every limit that was reached, also where the program went on.
    pub limits_hit: Vec<String>,
    pub stdout: OutputView,
    pub stderr: OutputView,
    /// If it was a cell.
    pub cell: Option<CellView>,
    pub usage: UsageView,
    /// Files that it made or changed: the first 1,000.
    pub files: Vec<FileView>,
    /// How many more it made or changed: these are in `archive`.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub more_files: u64,
    /// Where all of them can be had as a ZIP archive, if they are not all listed.
    #[schema(example = "/api/v1/executions/V1StGXR8_Z5jdHi6B-myT/archive")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// Files that it deleted.
    pub deleted_files: Vec<String>,
    /// What it left that is no file to hand out, or could not be kept, and why: the first 1,000.
    pub refused_files: Vec<RefusalView>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub more_refused_files: u64,
    /// The record leaves out a part of the output or of the lists, to be no longer than 256 KiB.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub is_shortened: bool,
    /// What rules found in it before it ran, if anything: `decision` (`flag` or `deny`) and `findings` with `rule`, `class`,
    /// `line`, `excerpt`, `reason` and `hint`.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<serde_json::Value>,
    /// Which isolation it ran in.
    #[schema(value_type = Object)]
    pub isolation: serde_json::Value,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference to the field")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference to the field")]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

impl From<Execution> for ExecutionView {
    fn from(execution: Execution) -> Self {
        let Execution {
            id, session, started_at, report, cell, files, more_files, refused, is_shortened, ..
        } = execution;
        let RunReport { stdout, stderr, usage, .. } = report;
        let output = |captured: redoma_model::Captured| OutputView {
            text: captured.text,
            bytes: captured.bytes,
            truncated: captured.truncated,
        };
        let skipped = report
            .skipped_files
            .into_iter()
            .map(|skipped| Refusal { name: skipped.name, reason: skipped.reason });
        let (mut refused_files, mut known) = (Vec::new(), HashSet::new());
        let mut more_refused_files = report.unlisted_files;
        for Refusal { name, reason } in refused.into_iter().chain(skipped) {
            if !known.insert(name.clone()) {
                continue;
            }
            if refused_files.len() < MAX_LISTED_NAMES {
                refused_files.push(RefusalView { name, reason });
            } else {
                more_refused_files += 1;
            }
        }
        let archive = (more_files > 0).then(|| format!("/api/v1/executions/{id}/archive"));
        Self {
            id: id.to_string(),
            session_id: session.to_string(),
            started_at: time(started_at),
            language: report.language,
            profile: report.profile,
            verdict: report.verdict.as_ref().and_then(|verdict| serde_json::to_value(verdict).ok()),
            ending: word(&report.ending),
            exit_code: report.exit_code,
            signal: report.signal,
            limit: report.limit.as_ref().map(word),
            limits_hit: report.limits_hit.iter().map(word).collect(),
            stdout: output(stdout),
            stderr: output(stderr),
            cell: cell.map(CellView::from),
            usage: UsageView {
                wall_ms: usage.wall_ms.used,
                cpu_ms: usage.cpu_ms.used,
                memory_peak_bytes: usage.memory_peak_bytes.map(|memory| memory.used),
                disk_bytes: usage.disk_bytes.used,
            },
            files: files.into_iter().map(FileView::from).collect(),
            deleted_files: report.deleted_files,
            refused_files,
            more_refused_files,
            more_files,
            archive,
            is_shortened,
            isolation: serde_json::to_value(&report.isolation).unwrap_or_default(),
        }
    }
}

/// How long a session lives after it was last used: `12h`, `30d` or `forever`.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[schema(value_type = String, example = "30d")]
#[serde(transparent)]
pub struct RetentionField(pub Retention);

/// A key. The secret itself is shown only when it is made.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyView {
    pub id: String,
    pub role: RoleView,
    /// Whose things it opens.
    pub client: String,
    pub user: Option<String>,
    pub label: Option<String>,
    /// The profile of those who come with it, if it is bound to one.
    pub profile: Option<String>,
    pub created_at: String,
    pub revoked_at: Option<String>,
    /// Only in the answer that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoleView {
    Admin,
    Client,
    User,
}

impl From<KeyRecord> for KeyView {
    fn from(key: KeyRecord) -> Self {
        Self {
            id: key.id.to_string(),
            role: match key.role {
                Role::Admin => RoleView::Admin,
                Role::Client => RoleView::Client,
                Role::User => RoleView::User,
            },
            client: key.owner.client,
            user: key.owner.user,
            label: key.label,
            profile: key.profile,
            created_at: time(key.created_at),
            revoked_at: key.revoked_at.map(time),
            secret: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_read_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_832_199_999, "2026-11-16T12:29:59.999Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(ms), text);
        }
    }
}
