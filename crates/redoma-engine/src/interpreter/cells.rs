//! A run in a session whose variables live on.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use redoma_model::{
    ByteSize, CellReport, FileId, FileName, Output, Principal, Session, SessionId, StoredFile,
};
use redoma_store::{Added, NewExecution, Outcome};

use super::artifacts::Artifacts;
use super::execution::{Place, to_keep};
use super::kernels::{Change, Live, Slot};
use super::workspace::Workspace;
use super::{Execution, ExecutionRequest, Interpreter, InterpreterError, MAX_LISTED_NAMES, Refusal};
use crate::base64;
use crate::kernel::{Cell, CellEnd, KernelRequest};
use crate::language::Language;
use crate::pipes::Stdin;
use crate::request::{RunError, RunRequest, Source, Terms};
use crate::staging::Input;
use crate::supervise::{Cancel, Observer};

impl Interpreter {
    pub(super) fn execute_cell(
        &self,
        principal: &Principal,
        language: &Language,
        place: Place,
        request: ExecutionRequest,
        observer: &mut dyn Observer,
        cancel: &Arc<Cancel>,
    ) -> Result<Execution, InterpreterError> {
        let Place { session, begins, shown, governed, terms, verdict } = place;
        let profile = &governed.profile;
        let slot = self.kernels.slot(&session, self.idle(&session));
        let _turn = self.kernels.turn(&slot, cancel)?;
        let _busy = slot.claim(cancel);
        if let Some(live) = slot.live().as_ref() {
            // A branch of it may run: that must not keep others from running.
            live.kernel.wait_until_free(cancel)?;
        }
        let _running = self.engine.turn(&session.owner, observer, cancel)?;
        // Looked at now: cells before this one may have changed it.
        let workspace = Workspace::gather(self, principal, &session, shown.as_ref(), &request.files)?;
        let started_at = self.store.now();
        let compiled = self.compile(language, &request.code, &terms, cancel)?;
        let (spoken, code) = compiled.as_deref().map_or((language.id, &*request.code), |js| ("js", js));
        let mut slot_live = slot.live();
        let wanted = KernelRequest {
            terms: &terms,
            code: &request.code,
            files: workspace.bytes(),
            undo: profile.checkpoints.then_some(profile.undo),
        };
        self.make_sure_of_kernel(&slot, &mut slot_live, &session, &wanted, observer)?;
        let stored: Vec<_> = workspace.files.iter().map(|(file, _)| file.clone()).collect();
        let mut artifacts = Artifacts::new(&self.store, &session, request.id.clone(), &stored);
        let (ran, mut refused) = loop {
            let Some(live) = slot_live.as_mut() else { return Err(RunError::KernelLost.into()) };
            live.count_inputs(self, &workspace)?;
            slot.begin(live);
            let refused = bring_up_to_date(live, &session, &workspace);
            let cell =
                Cell { language: spoken, code, terms: &terms, out: &mut artifacts, live: request.live };
            let _weighed = self.engine.weigh(&session.owner, live.kernel.weight());
            let ran = live.kernel.run(cell, observer, cancel);
            if !matches!(ran, Err(RunError::KernelLost)) || live.is_restarted {
                break (ran, refused);
            }
            // It had died since the last cell, and this one has not begun.
            slot.end(&mut slot_live);
            self.make_sure_of_kernel(&slot, &mut slot_live, &session, &wanted, observer)?;
            if let Some(live) = slot_live.as_mut() {
                live.is_restarted = true;
            }
        };
        let ran = self.engine.meter().cell(language.id, ran);
        let CellEnd { mut report, cell: mut done, not_kept, .. } = match ran {
            Ok(end) => end,
            // It had not begun.
            Err(error @ (RunError::Cancelled | RunError::KernelSlow)) => return Err(error.into()),
            Err(error) => {
                slot.end(&mut slot_live);
                return Err(error.into());
            }
        };
        refused.extend(not_kept.map(|error| self.not_stored(&error)));
        let Some(live) = slot_live.as_mut() else { return Err(RunError::KernelLost.into()) };
        done.restarted = std::mem::take(&mut live.is_restarted);
        let pictures =
            if request.pictures { self.keep_pictures(&mut artifacts, &done, &stored) } else { Vec::new() };
        let Artifacts { files, refused: no_room, pace: work, .. } = artifacts;
        refused.extend(no_room.into_iter().map(|(name, reason)| Refusal { name, reason }));
        language.id.clone_into(&mut report.language);
        report.verdict = verdict;
        let by_name: HashMap<_, _> = stored.iter().map(|file| (file.name.as_str(), file)).collect();
        report.deleted_files.retain(|name| by_name.get(name.as_str()).is_none_or(|file| !file.read_only));
        let (gone, mut changes) = note_deleted(live, &report.deleted_files);
        let (is_lost, has_counted) = (done.lost, !done.lost && !done.restored);
        let execution = Execution::new(request.id.clone(), &session, started_at, report);
        let mut execution = Execution { cell: Some(done), refused, missing: workspace.missing, ..execution };
        execution.limit_lists(MAX_LISTED_NAMES);
        let outcome = Outcome {
            begins: begins && self.store.session(&session.id)?.is_none(),
            is_single_run: false,
            files,
            gone,
            all_or_nothing: false,
            execution: Some(NewExecution {
                id: request.id,
                started_at,
                language: language.id.to_owned(),
                result: to_keep(without_pictures(&mut execution)),
            }),
        };
        let mut work = work.unwrap_or_else(|| self.store.pace(&session.owner));
        let added = match self.store.commit_at(&mut work, &session, outcome) {
            Ok(added) => added,
            Err(error) => {
                live.kernel.forget_harvest();
                return Err(error.into());
            }
        };
        note_changes(live, &added, &pictures, &mut changes);
        execution.add(added);
        live.note_cell(has_counted.then_some(changes), profile.undo);
        if is_lost {
            slot.end(&mut slot_live);
        }
        self.kernels.note_end(&slot);
        Ok(execution)
    }

    /// Stores what a cell has drawn; under which names.
    fn keep_pictures(
        &self,
        artifacts: &mut Artifacts<'_>,
        cell: &CellReport,
        files: &[StoredFile],
    ) -> Vec<String> {
        let mut names = Vec::new();
        if let Err(error) = store_pictures(artifacts, cell, files, &mut names) {
            (self.tell)(&error);
        }
        names
    }

    /// What a cell becomes that is in no language of a kernel's own: in a sandbox of its own, since that is a parser for hostile code.
    fn compile(
        &self,
        language: &Language,
        code: &[u8],
        terms: &Terms,
        cancel: &Cancel,
    ) -> Result<Option<Vec<u8>>, InterpreterError> {
        let Some(compiler) = language.compiler() else { return Ok(None) };
        let mut terms = terms.clone();
        terms.limits.output = ByteSize::mib(32);
        let report = self.engine.execute_within(
            RunRequest {
                language: &compiler,
                source: Source { code: code.to_vec(), name: None },
                arguments: Vec::new(),
                stdin: Stdin::Empty,
                inputs: Vec::new(),
                terms,
                out: None,
                list_files: false,
                live: false,
                last_value: false,
                tools: None,
            },
            cancel,
        )?;
        if report.exit_code == Some(0) && !report.stdout.truncated {
            return Ok(Some(report.stdout.text.into_bytes()));
        }
        let why = match report.stderr.text.trim() {
            "" => "the cell can't be compiled",
            why => why,
        };
        Ok(Some(format!("throw new SyntaxError({})", serde_json::Value::from(why)).into_bytes()))
    }

    /// Starts a kernel where there is none.
    fn make_sure_of_kernel(
        &self,
        slot: &Slot,
        live: &mut Option<Live>,
        session: &Session,
        wanted: &KernelRequest<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(), InterpreterError> {
        if live.as_mut().is_some_and(|live| !live.kernel.can_go_on()) {
            slot.end(live);
        }
        // Under another profile it would have other limits, and other libraries could be imported.
        if live.as_ref().is_some_and(|live| !live.is_under(wanted.terms)) {
            slot.end(live);
        }
        if live.is_some() {
            return Ok(());
        }
        let mut inputs = self.input_memory.for_owner(&session.owner);
        self.hold_inputs(&mut inputs, wanted.files)?;
        self.kernels.make_room(&session.owner)?;
        let is_restarted = self.had_cells(&session.id)?;
        let kernel = self.engine.start_kernel(wanted, observer)?;
        let terms = wanted.terms.clone();
        let (files, put, changes) = (HashMap::new(), HashMap::new(), Vec::new());
        *live = Some(Live { kernel, terms, is_restarted, inputs, put, files, changes });
        Ok(())
    }

    /// Whether cells of this session have had variables before.
    fn had_cells(&self, session: &SessionId) -> Result<bool, InterpreterError> {
        let last = self.store.executions(session, 20)?;
        let had_variables = |result: &str| {
            // One that was denied has had none.
            result.contains("\"cell\":{") && !result.contains("\"ending\":\"denied\"")
        };
        Ok(last.iter().any(|record| had_variables(&record.result)))
    }
}

/// A copy without what is not kept anyway, and may be large.
fn without_pictures(execution: &mut Execution) -> Execution {
    let outputs = execution.cell.as_mut().map(|cell| std::mem::take(&mut cell.outputs)).unwrap_or_default();
    let mut copy = execution.clone();
    let is_error = |output: &&Output| matches!(output, Output::Error { .. });
    if let Some(cell) = &mut copy.cell {
        cell.outputs = outputs.iter().filter(is_error).take(MOST_KEPT_ERRORS).map(shortened).collect();
        cell.notes.truncate(MOST_KEPT_ERRORS);
        cell.notes.iter_mut().for_each(cut);
    }
    if let Some(cell) = &mut execution.cell {
        cell.outputs = outputs;
    }
    copy
}

/// So many errors and notes are kept with an execution, each cut to so many bytes.
const MOST_KEPT_ERRORS: usize = 8;
const LONGEST_KEPT: usize = 2048;

fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(LONGEST_KEPT));
}

fn shortened(output: &Output) -> Output {
    let Output::Error { name, value, traceback } = output else { return output.clone() };
    let short = |text: &String| text[..text.floor_char_boundary(LONGEST_KEPT)].to_owned();
    let traceback = traceback.iter().rev().take(MOST_KEPT_ERRORS).rev().map(short).collect();
    Output::Error { name: short(name), value: short(value), traceback }
}

/// Forgets files that a cell has deleted: those of the session's own, and what to remember of it.
fn note_deleted(live: &mut Live, names: &[String]) -> (Vec<FileId>, Vec<Change>) {
    let (mut gone, mut changes) = (Vec::new(), Vec::new());
    for name in names {
        if let Some((id, is_own)) = live.files.remove(name) {
            changes.push(Change { name: name.clone(), before: Some(id.clone()), after: None });
            gone.extend(is_own.then_some(id));
        }
    }
    (gone, changes)
}

/// What is stored of a cell's files is what the workspace has; but for pictures, which are not there yet.
fn note_changes(live: &mut Live, added: &Added, pictures: &[String], changes: &mut Vec<Change>) {
    for file in &added.files {
        let name = file.name.as_str().to_owned();
        if !pictures.contains(&name) {
            let before = live.files.insert(name.clone(), (file.id.clone(), true)).map(|(id, _)| id);
            changes.push(Change { name, before, after: Some(file.id.clone()) });
        }
    }
}

impl Live {
    /// Counts the files that the server is about to copy into the workspace, beside those that it has copied before.
    fn count_inputs(
        &mut self,
        interpreter: &Interpreter,
        workspace: &Workspace,
    ) -> Result<(), InterpreterError> {
        let is_new =
            |file: &StoredFile| self.files.get(file.name.as_str()).is_none_or(|(id, _)| *id != file.id);
        let new: Vec<_> = workspace.files.iter().map(|(file, _)| file).filter(|file| is_new(file)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut put = self.put.clone();
        put.extend(new.iter().map(|file| (file.name.as_str().to_owned(), file.size)));
        interpreter.hold_inputs(&mut self.inputs, put.values().sum())?;
        self.put = put;
        Ok(())
    }

    /// Whether a process that was started for the one may run cells under the other.
    fn is_under(&self, terms: &Terms) -> bool {
        self.terms.profile == terms.profile && self.terms.libraries == terms.libraries
    }

    /// A cell has ended: with these changes, if its effects are in the variables.
    fn note_cell(&mut self, changes: Option<Vec<Change>>, undo: usize) {
        let cells = self.kernel.cells();
        // Of cells that a restore has taken back, files stay.
        let earlier = if changes.is_some() { cells.saturating_sub(1) } else { cells };
        self.changes.retain(|(number, _)| *number <= earlier);
        self.changes.extend(changes.map(|changes| (cells, changes)));
        let surplus = self.changes.len().saturating_sub(undo + 1);
        self.changes.drain(..surplus);
    }
}

/// Stores what a cell has drawn, under names that nothing has yet, and notes these.
fn store_pictures(
    artifacts: &mut Artifacts<'_>,
    cell: &CellReport,
    files: &[StoredFile],
    names: &mut Vec<String>,
) -> std::io::Result<()> {
    let bundles = cell.outputs.iter().filter_map(|output| match output {
        Output::Display { data, .. } | Output::Result { data, .. } => Some(data),
        _ => None,
    });
    let pictures = bundles.filter_map(|data| {
        let formats = [("image/png", "png"), ("image/jpeg", "jpg"), ("image/svg+xml", "svg")];
        formats.into_iter().find_map(|(mime, extension)| {
            let text = data.get(mime)?.as_str()?;
            let bytes = if extension == "svg" { text.as_bytes().to_vec() } else { base64::decode(text)? };
            Some((bytes, extension))
        })
    });
    let mut number = 0;
    for (bytes, extension) in pictures {
        let name = loop {
            number += 1;
            let name = format!("figure-{number}.{extension}");
            if !files.iter().any(|file| file.name.as_str() == name) {
                break name;
            }
        };
        artifacts.store(Path::new(&name), &mut bytes.as_slice(), bytes.len() as u64)?;
        names.push(name);
    }
    Ok(())
}

/// Brings files that came or went since the last cell into the workspace. Those that could not be are named.
fn bring_up_to_date(live: &mut Live, session: &Session, workspace: &Workspace) -> Vec<Refusal> {
    let names: HashMap<_, _> = workspace.files.iter().map(|(file, _)| (file.name.as_str(), file)).collect();
    let gone: Vec<_> = live
        .files
        .iter()
        .filter(|(name, (_, is_own))| *is_own && !names.contains_key(name.as_str()))
        .filter_map(|(name, _)| name.parse::<FileName>().ok())
        .collect();
    live.kernel.remove_files(&gone);
    for name in &gone {
        live.files.remove(name.as_str());
    }
    let mut refused = Vec::new();
    for (file, path) in &workspace.files {
        let name = file.name.as_str();
        if live.files.get(name).is_some_and(|(id, _)| *id == file.id) {
            continue;
        }
        let input = Input { path: path.clone(), name: name.into() };
        match live.kernel.put_files(&[input]) {
            Ok(()) => {
                live.files.insert(name.to_owned(), (file.id.clone(), file.session == session.id));
            }
            Err(error) => refused.push(Refusal { name: name.to_owned(), reason: error.to_string() }),
        }
    }
    refused
}
