//! A run on a session's files.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::{
    CellReport, Decision, ExecutionId, FileId, FileName, Principal, Resource, RunReport, Session, SessionId,
    Span, StoredFile, Verdict,
};
use redoma_store::{Added, NewExecution, Outcome, new_session_id};
use serde::{Deserialize, Serialize};

use super::artifacts::Artifacts;
use super::workspace::Workspace;
use super::{GovernedProfile, Interpreter, InterpreterError};
use crate::harvest::HarvestError;
use crate::language::Language;
use crate::meter::Phase;
use crate::pipes::Stdin;
use crate::request::{RunError, RunRequest, Source, Terms};
use crate::staging::Input;
use crate::supervise::{Cancel, Observer};
use crate::tools::Tools;

/// As much of each output stream is kept with the execution.
const KEPT_OUTPUT: usize = 64 << 10;
/// Artifacts that an answer and a record list. The others are in the archive of the execution.
pub const MAX_LISTED_ARTIFACTS: usize = 1000;
/// Names of files that were refused, deleted or missing, in an answer; and in a record, which is kept for long.
pub const MAX_LISTED_NAMES: usize = 1000;
const MAX_KEPT_NAMES: usize = 100;
/// The longest record of an execution.
const MAX_RECORD_BYTES: usize = 256 << 10;

/// Where a run takes place.
#[derive(Debug, Clone)]
pub enum Target {
    /// In this session, which must be theirs.
    Session(SessionId),
    /// In a new one with this id, and with the files of another.
    New { id: SessionId, like: Option<SessionId> },
}

impl Target {
    pub fn id(&self) -> &SessionId {
        match self {
            Self::Session(id) | Self::New { id, .. } => id,
        }
    }
}

/// A file of another session that the program is to see.
#[derive(Debug, Clone)]
pub struct FileReference {
    pub session: SessionId,
    pub id: FileId,
    pub name: FileName,
    /// What the request says that it belongs to.
    pub claimed: Option<Resource>,
}

/// What is asked for.
#[derive(Debug)]
pub struct ExecutionRequest {
    pub id: ExecutionId,
    pub target: Target,
    pub language: String,
    pub code: Vec<u8>,
    pub arguments: Vec<String>,
    pub files: Vec<FileReference>,
    /// Less than the profile's, if less is wanted.
    pub timeout: Option<Duration>,
    pub tools: Option<Tools>,
    /// Whether output is passed on as it comes.
    pub live: bool,
    pub variables: Variables,
    /// Whether pictures that a cell shows become files of the session, for those who can show only these.
    pub pictures: bool,
}

/// What becomes of a program's variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variables {
    /// It begins with none, and they go with it.
    Fresh,
    /// It is a cell of the session's kernel: it finds those of the cells before it.
    Kept,
}

/// A file that could not be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub name: String,
    pub reason: String,
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Execution {
    pub id: ExecutionId,
    pub session: SessionId,
    pub started_at: i64,
    pub report: RunReport,
    /// What there is to say of a cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellReport>,
    /// What the program made or changed: the first [`MAX_LISTED_ARTIFACTS`].
    pub files: Vec<StoredFile>,
    /// How many more it made or changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_files: u64,
    /// Bytes of all of them. Not for the record.
    #[serde(skip)]
    pub stored_bytes: u64,
    /// Whether this is a record that leaves out a part of the output or of the lists.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_shortened: bool,
    /// Made, but not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
    /// Files that the request named and that are not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A run that goes on.
#[derive(Debug)]
pub(super) struct Running {
    session: Session,
    cancel: Arc<Cancel>,
}

impl Interpreter {
    /// A new session, with the files of this one if it is theirs.
    pub fn new_target(
        &self,
        principal: &Principal,
        like: Option<SessionId>,
    ) -> Result<Target, InterpreterError> {
        let like = match like.map(|id| self.session(principal, &id, None)) {
            Some(Ok(session)) => Some(session.id),
            Some(Err(InterpreterError::NotFound(_))) | None => None,
            Some(Err(error)) => return Err(error),
        };
        Ok(Target::New { id: new_session_id()?, like })
    }

    /// Runs a program to its end, on its caller's thread.
    pub fn execute(
        &self,
        principal: &Principal,
        request: ExecutionRequest,
        observer: &mut dyn Observer,
        cancel: &Arc<Cancel>,
    ) -> Result<Execution, InterpreterError> {
        let language = self
            .languages
            .by_name(&request.language)
            .map_err(|unknown| InterpreterError::BadRequest(unknown.to_string()))?;
        // Held before it is looked at: from then on it stays.
        let _held = self.store.hold(request.target.id());
        let (session, begins) = match &request.target {
            Target::Session(id) => (self.session(principal, id, None)?, false),
            Target::New { id, .. } => {
                let draft = self.draft_session(principal, None)?;
                (Session { id: id.clone(), ..draft }, true)
            }
        };
        let shown = match &request.target {
            Target::Session(id) => Some(id),
            Target::New { like, .. } => like.as_ref(),
        };
        let _registered = self.register(&request.id, &session, cancel);
        self.store.note_activity(&session.owner);
        let book = self.profiles();
        let governed = book.of_run(principal, &session)?;
        let mut terms = governed.terms.clone();
        if let Some(timeout) = request.timeout {
            terms.limits.wall = Span(terms.limits.wall.0.min(timeout.max(Duration::from_millis(10))));
        }
        let begun = Instant::now();
        let verdict = self.judge(governed, language, &principal.owner, &request, shown, cancel)?;
        self.engine.note(Phase::Policy, begun, observer);
        let is_denied = verdict.as_ref().is_some_and(|verdict| verdict.decision == Decision::Deny);
        let place =
            Place { session, begins, shown: shown.cloned(), governed: Arc::clone(governed), terms, verdict };
        let record = self.record_start(principal, &place, language, &request)?;
        let result = if is_denied {
            self.answer_denied(place, language, request)
        } else if request.variables == Variables::Kept {
            self.execute_cell(principal, language, place, request, observer, cancel)
        } else {
            self.execute_fresh(principal, language, place, request, observer, cancel)
        };
        record.end(&result);
        result
    }

    /// A run whose variables go with it.
    fn execute_fresh(
        &self,
        principal: &Principal,
        language: &Language,
        place: Place,
        request: ExecutionRequest,
        observer: &mut dyn Observer,
        cancel: &Arc<Cancel>,
    ) -> Result<Execution, InterpreterError> {
        let Place { session, begins, shown, governed, terms, verdict } = place;
        let workspace = Workspace::gather(self, principal, &session, shown.as_ref(), &request.files)?;
        let started_at = self.store.now();
        let last_value = governed.profile.last_value && request.tools.is_none();
        let inputs = workspace
            .files
            .iter()
            .map(|(file, path)| Input { path: path.clone(), name: file.name.as_str().into() });
        let stored: Vec<_> = workspace.files.iter().map(|(file, _)| file.clone()).collect();
        let mut artifacts = Artifacts::new(&self.store, &session, request.id.clone(), &stored);
        let run = RunRequest {
            language,
            source: Source { code: request.code, name: Some(script_name(language, &stored)) },
            arguments: request.arguments,
            stdin: Stdin::Empty,
            inputs: inputs.collect(),
            terms,
            out: Some(&mut artifacts),
            list_files: true,
            live: request.live,
            last_value,
            tools: request.tools,
        };
        let mut refused = Vec::new();
        let mut held = self.input_memory.for_owner(&session.owner);
        self.hold_inputs(&mut held, workspace.bytes())?;
        let mut report = match self.engine.execute_for(&session.owner, run, observer, cancel) {
            Ok(report) => report,
            Err(RunError::Harvest { report, error }) => {
                refused.push(self.not_stored(&error));
                *report
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(value) = report.value.take()
            && report.stdout.bytes == 0
        {
            report.stdout.text = format!("{value}\n");
        }
        report.verdict = verdict;
        let Artifacts { files, refused: no_room, pace: work, .. } = artifacts;
        refused.extend(no_room.into_iter().map(|(name, reason)| Refusal { name, reason }));

        let by_name: HashMap<_, _> = stored.iter().map(|file| (file.name.as_str(), file)).collect();
        report.deleted_files.retain(|name| by_name.get(name.as_str()).is_none_or(|file| !file.read_only));
        let deleted = report.deleted_files.iter().filter_map(|name| by_name.get(name.as_str()));
        let gone = deleted.filter(|file| file.session == session.id).map(|file| file.id.clone()).collect();
        let execution = Execution::new(request.id.clone(), &session, started_at, report);
        let mut execution = Execution { refused, missing: workspace.missing, ..execution };
        execution.limit_lists(MAX_LISTED_NAMES);
        let outcome = Outcome {
            begins,
            is_single_run: begins,
            files,
            gone,
            all_or_nothing: false,
            execution: Some(NewExecution {
                id: request.id,
                started_at,
                language: language.id.to_owned(),
                result: to_keep(execution.clone()),
            }),
        };
        let mut work = work.unwrap_or_else(|| self.store.pace(&session.owner));
        let added = self.store.commit_at(&mut work, &session, outcome)?;
        execution.add(added);
        Ok(execution)
    }

    /// What is wrong with the disk is not the client's to know.
    pub(super) fn not_stored(&self, error: &HarvestError) -> Refusal {
        (self.tell)(error);
        let reason = "the server could not store it; its log says why".to_owned();
        Refusal { name: "*".to_owned(), reason }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<ExecutionId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, id: &ExecutionId, session: &Session, cancel: &Arc<Cancel>) -> Registered<'_> {
        let running = Running { session: session.clone(), cancel: Arc::clone(cancel) };
        self.running().insert(id.clone(), running);
        Registered { interpreter: self, id: id.clone() }
    }

    /// Ends a run of theirs.
    pub fn cancel(&self, principal: &Principal, id: &ExecutionId) -> Result<(), InterpreterError> {
        let running = self.running();
        let found = running.get(id).filter(|running| principal.may_see(&running.session, None));
        found.map(|running| running.cancel.cancel()).ok_or(InterpreterError::NotFound("execution that runs"))
    }

    /// Ends all runs; how many.
    pub fn cancel_all(&self) -> usize {
        let running = self.running();
        running.values().for_each(|running| running.cancel.abandon());
        running.len()
    }

    pub fn count_running(&self) -> usize {
        self.running().len()
    }

    /// A run of theirs that is over.
    pub fn execution(&self, principal: &Principal, id: &ExecutionId) -> Result<Execution, InterpreterError> {
        let record = self.store.execution(id)?.ok_or(InterpreterError::NotFound("execution"))?;
        match self.session(principal, &record.session, None) {
            Ok(_) => read(&record.result),
            Err(InterpreterError::NotFound(_)) => Err(InterpreterError::NotFound("execution")),
            Err(error) => Err(error),
        }
    }

    /// All files that a run of theirs made or changed, those included that its record does not list.
    pub fn execution_files(
        &self,
        principal: &Principal,
        id: &ExecutionId,
    ) -> Result<Vec<StoredFile>, InterpreterError> {
        let session = self.execution(principal, id)?.session;
        let mut files = self.all_files(principal, &session)?;
        files.retain(|file| file.execution.as_ref() == Some(id));
        Ok(files)
    }

    /// The last runs in a session, newest first.
    pub fn executions(
        &self,
        principal: &Principal,
        session: &SessionId,
        limit: usize,
    ) -> Result<Vec<Execution>, InterpreterError> {
        let session = self.session(principal, session, None)?;
        self.store.executions(&session.id, limit)?.iter().map(|record| read(&record.result)).collect()
    }
}

/// Where a program runs, and what it is held to.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) session: Session,
    /// Whether the session begins with it.
    pub(super) begins: bool,
    /// Whose files it sees.
    pub(super) shown: Option<SessionId>,
    pub(super) governed: Arc<GovernedProfile>,
    pub(super) terms: Terms,
    /// What was found in it.
    pub(super) verdict: Option<Verdict>,
}

impl Execution {
    pub(super) fn new(id: ExecutionId, session: &Session, started_at: i64, report: RunReport) -> Self {
        Self {
            id,
            session: session.id.clone(),
            started_at,
            report,
            cell: None,
            files: Vec::new(),
            more_files: 0,
            stored_bytes: 0,
            is_shortened: false,
            refused: Vec::new(),
            missing: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, added: Added) {
        self.stored_bytes += added.files.iter().map(|file| file.size).sum::<u64>();
        self.files.extend(added.files);
        let surplus = self.files.len().saturating_sub(MAX_LISTED_ARTIFACTS);
        self.more_files += surplus as u64;
        self.files.truncate(MAX_LISTED_ARTIFACTS);
        let refused = added.refused.into_iter();
        self.refused.extend(
            refused.map(|refused| Refusal { name: refused.name.as_str().to_owned(), reason: refused.reason }),
        );
        self.limit_lists(MAX_LISTED_NAMES);
    }

    /// Cuts lists of names that a program can make as long as it likes; whether anything was left out.
    pub(super) fn limit_lists(&mut self, max: usize) -> bool {
        let report = &mut self.report;
        let surplus = self.refused.len().saturating_sub(max) + report.skipped_files.len().saturating_sub(max);
        report.unlisted_files += surplus as u64;
        let is_cut = surplus > 0
            || [report.deleted_files.len(), report.files.len(), self.missing.len()]
                .iter()
                .any(|len| *len > max);
        self.refused.truncate(max);
        report.skipped_files.truncate(max);
        report.deleted_files.truncate(max);
        report.files.truncate(max);
        self.missing.truncate(max);
        is_cut
    }

    /// Cuts each output stream to `max` bytes.
    fn limit_output(&mut self, max: usize) {
        for stream in [&mut self.report.stdout, &mut self.report.stderr] {
            if stream.text.len() > max {
                stream.text.truncate(stream.text.floor_char_boundary(max));
                stream.truncated = true;
            }
        }
    }
}

/// While this lives, the run can be cancelled by its id.
struct Registered<'a> {
    interpreter: &'a Interpreter,
    id: ExecutionId,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.interpreter.running().remove(&self.id);
    }
}

fn read(result: &str) -> Result<Execution, InterpreterError> {
    let invalid = |error: serde_json::Error| redoma_store::StoreError::Invalid(error.to_string());
    serde_json::from_str(result).map_err(|error| invalid(error).into())
}

/// The execution as it is kept: with the ids of its files, and not all of what it printed.
pub(super) fn to_keep(mut execution: Execution) -> Box<dyn FnOnce(&Added) -> String + Send> {
    Box::new(move |added| {
        execution.add(added.clone());
        // The same names as in `files`.
        execution.report.files.clear();
        execution.limit_output(KEPT_OUTPUT);
        execution.is_shortened |= execution.limit_lists(MAX_KEPT_NAMES);
        short_record(execution)
    })
}

/// The record, with as much of outputs and lists as there is room for.
fn short_record(mut execution: Execution) -> String {
    let mut record = serde_json::to_string(&execution).unwrap_or_default();
    let (mut output, mut names, mut files) = (KEPT_OUTPUT, MAX_KEPT_NAMES, execution.files.len());
    while record.len() > MAX_RECORD_BYTES && output > 0 {
        (output, names, files) = (output / 2, names / 2, files / 2);
        execution.is_shortened = true;
        execution.limit_output(output);
        execution.limit_lists(names);
        execution.more_files += execution.files.len().saturating_sub(files) as u64;
        execution.files.truncate(files);
        if let Some(cell) = &mut execution.cell {
            cell.outputs.truncate(names / 8);
            cell.notes.truncate(names / 8);
        }
        if let Some(verdict) = &mut execution.report.verdict {
            verdict.findings.truncate(names.max(1));
        }
        record = serde_json::to_string(&execution).unwrap_or_default();
    }
    record
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference to the field")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference to the field")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The usual name of a program in this language, or another if one of the files has that.
fn script_name(language: &Language, files: &[StoredFile]) -> String {
    let is_taken = |name: &str| {
        files.iter().any(|file| file.name.as_str().split('/').next().is_some_and(|first| first == name))
    };
    let (stem, extension) = language.script.rsplit_once('.').unwrap_or((language.script, ""));
    let mut name = language.script.to_owned();
    let mut number = 1;
    while is_taken(&name) {
        number += 1;
        name = format!("{stem}-{number}.{extension}");
    }
    name
}
