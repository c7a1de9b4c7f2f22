//! Going back in a session whose variables live on, and going on from it in another.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use redoma_model::{
    AuditEvent, AuditedSession, ByteSize, FileId, FileName, Name, Principal, Session, SessionId, StoredFile,
};
use redoma_store::{Added, FileDetails, NewSession, Outcome, Pace, Written};
use serde::Serialize;

use super::kernels::{Idle, Live};
use super::uploads::Share;
use super::{Interpreter, InterpreterError, audited_session};
use crate::request::RunError;
use crate::staging::Input;
use crate::supervise::Cancel;

/// What became of a session whose last cells were undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// Cells whose effects are still there.
    pub cells: u64,
    /// Files that are again what they were.
    pub restored_files: Vec<String>,
    /// Files that are gone, since those cells had made them.
    pub removed_files: Vec<String>,
}

impl Interpreter {
    /// Takes back the last `count` cells of a session of theirs: variables, and files as far as these cells changed them.
    pub fn undo(
        &self,
        principal: &Principal,
        session: &SessionId,
        count: u64,
    ) -> Result<Undone, InterpreterError> {
        let _held = self.store.hold(session);
        let session = self.session(principal, session, None)?;
        let nothing = || {
            InterpreterError::BadRequest(
                "there is no cell to undo: the session has no live variables".to_owned(),
            )
        };
        let slot = self.kernels.find(&session.id).ok_or_else(nothing)?;
        let cancel = Arc::new(Cancel::new().map_err(RunError::from)?);
        let _turn = self.kernels.turn(&slot, &cancel)?;
        // A restart of the session does not wait for this.
        let _busy = slot.claim(&cancel);
        slot.touch();
        let mut slot_live = slot.live();
        let live = slot_live.as_mut().ok_or_else(nothing)?;
        let most = live.kernel.undoable();
        if count > most {
            let detail = format!("{count} cells can't be undone: at most the last {most} can");
            return Err(InterpreterError::BadRequest(detail));
        }
        let before = live.kernel.cells();
        match live.kernel.undo(count, &cancel) {
            Ok(()) => {}
            // Nothing is undone.
            Err(error @ (RunError::NoCheckpoint | RunError::KernelSlow | RunError::Cancelled)) => {
                return Err(error.into());
            }
            Err(error) => {
                slot.end(&mut slot_live);
                self.note_undo(
                    principal,
                    &session,
                    format!("cells: {count}; failed, all variables are gone"),
                );
                return Err(error.into());
            }
        }
        let cells = live.kernel.cells();
        let mut undone = Undone { cells, restored_files: Vec::new(), removed_files: Vec::new() };
        let mut wanted: HashMap<String, Option<FileId>> = HashMap::new();
        while let Some((_, changes)) = live.changes.pop_if(|(number, _)| *number > cells) {
            for change in changes.into_iter().rev() {
                let is_still_so = match wanted.get(&change.name) {
                    Some(id) => *id == change.after,
                    None => live.files.get(&change.name).map(|(id, _)| id) == change.after.as_ref(),
                };
                if is_still_so {
                    wanted.insert(change.name, change.before);
                }
            }
        }
        let reverted = self.revert_files(&session, live, wanted, &mut undone);
        self.note_undo(principal, &session, format!("cells: {}", before.saturating_sub(cells)));
        reverted.map(|()| undone)
    }

    fn note_undo(&self, principal: &Principal, session: &Session, note: String) {
        let session = || AuditedSession { note: Some(note), ..audited_session(principal, session) };
        self.note(|| AuditEvent::SessionUndone(session()));
    }

    /// A new session of theirs that goes on from this one: with its files and, if there are any, its variables as they are now.
    pub fn branch(
        &self,
        principal: &Principal,
        session: &SessionId,
        name: Option<Name>,
    ) -> Result<(Session, bool), InterpreterError> {
        let _held = self.store.hold(session);
        let session = self.session(principal, session, None)?;
        let slot = self.kernels.slot(&session, self.idle(&session));
        let cancel = Arc::new(Cancel::new().map_err(RunError::from)?);
        let _turn = self.kernels.turn(&slot, &cancel)?;
        // A restart of the session does not wait for this.
        let _busy = slot.claim(&cancel);
        slot.touch();
        self.make_room_for_session(&session.owner)?;
        let current = self.store.current_files(&session.id)?;
        let _reserved = self.reserve_copies(&session, &current)?;
        let mut slot_live = slot.live();
        let kernel = match slot_live.as_mut() {
            Some(live) => {
                self.kernels.make_room(&session.owner)?;
                Some((live.kernel.branch(&cancel)?, live.terms.clone()))
            }
            None => None,
        };
        let draft = self.store.draft_session(NewSession {
            owner: session.owner.clone(),
            name,
            profile: session.profile.clone(),
            resource: session.resource.clone(),
            retention: self.profiles().of_name_or_default(&session.profile).profile.retention,
        })?;
        let mut pace = self.store.pace(&draft.owner);
        let mut files = Vec::with_capacity(current.len());
        for (file, _) in &current {
            let (details, mut written) = self.again(&draft, file, &mut pace)?;
            written.close_if_one_of(files.len() + 1);
            files.push((details, written));
        }
        let outcome = Outcome { begins: true, files, all_or_nothing: true, ..Outcome::default() };
        self.store.commit_at(&mut pace, &draft, outcome)?;
        let is_live = kernel.is_some();
        self.note(|| AuditEvent::SessionOpened(audited_session(principal, &draft)));
        if let Some((kernel, terms)) = kernel {
            let inputs = self.input_memory.for_owner(&draft.owner);
            let (files, put, changes) = (HashMap::new(), HashMap::new(), Vec::new());
            let live = Live { kernel, terms, is_restarted: false, inputs, put, files, changes };
            self.kernels.slot(&draft, self.idle(&draft)).move_in(live);
        }
        Ok((draft, is_live))
    }

    /// Makes sure that the quotas have room for a copy of these files, before a byte is copied. The bytes count until what
    /// comes back is dropped.
    fn reserve_copies(
        &self,
        session: &Session,
        files: &[(StoredFile, PathBuf)],
    ) -> Result<Share, InterpreterError> {
        let quota = self.store.quota();
        let (bytes, count) = (files.iter().map(|(file, _)| file.size).sum::<u64>(), files.len() as u64);
        let mut share = Share::new(&self.incoming, &session.owner);
        let owner = self.store.owner_usage(&session.owner)?;
        let room = quota.owner_bytes.saturating_sub(owner.file_bytes);
        let has_room = bytes <= quota.session_bytes
            && count <= quota.session_files
            && owner.files.saturating_add(count) <= quota.owner_files
            && share.grow(bytes, room);
        if has_room {
            return Ok(share);
        }
        let size = ByteSize(bytes);
        Err(InterpreterError::NoRoom(format!(
            "the quota has no room for a copy of this session's {count} files ({size}); remove files or sessions first"
        )))
    }

    pub(super) fn idle(&self, session: &Session) -> Idle {
        let book = self.profiles();
        let profile = &book.of_name_or_default(&session.profile).profile;
        Idle { freeze: profile.freeze_after.0, reclaim: profile.reclaim_after.0, drop: profile.drop_after.0 }
    }

    /// Makes files what they were, in the workspace and in the store: there, as new versions.
    fn revert_files(
        &self,
        session: &Session,
        live: &mut Live,
        wanted: HashMap<String, Option<FileId>>,
        undone: &mut Undone,
    ) -> Result<(), InterpreterError> {
        let (mut files, mut gone, mut removed, mut inputs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut again = HashMap::new();
        let mut share = Share::new(&self.incoming, &session.owner);
        let quota = self.store.quota();
        let of_owner = self.store.room_for_files(&session.owner)?;
        let used = self.store.session(&session.id)?.map_or(session.bytes, |session| session.bytes);
        let room = quota.session_bytes.saturating_sub(used).min(of_owner);
        let mut pace = self.store.pace(&session.owner);
        for (name, id) in wanted {
            let Ok(file_name) = name.parse::<FileName>() else { continue };
            let found = id.map(|id| self.store.file_with_path(&id)).transpose()?.flatten();
            if let Some((file, path)) = found {
                inputs.push(Input { path, name: name.clone().into() });
                // Without room it is restored for programs, and not stored as a further version.
                if share.grow(file.size, room) {
                    let (details, mut written) = self.again(session, &file, &mut pace)?;
                    written.close_if_one_of(files.len() + 1);
                    files.push((details, written));
                }
                again.insert(name.clone(), file.id);
                undone.restored_files.push(name);
            } else {
                if let Some((id, true)) = live.files.remove(&name) {
                    gone.push(id);
                }
                removed.push(file_name);
                undone.removed_files.push(name);
            }
        }
        live.kernel.remove_files(&removed);
        live.kernel.put_files(&inputs)?;
        let outcome = Outcome { files, gone, ..Outcome::default() };
        let Added { files, .. } = self.store.commit_at(&mut pace, session, outcome)?;
        for file in files {
            let name = file.name.as_str();
            // Cells before those that were undone had left it under another id.
            let former = again.get(name);
            for change in live.changes.iter_mut().flat_map(|(_, changes)| changes) {
                for id in [&mut change.before, &mut change.after].into_iter().flatten() {
                    if Some(&*id) == former {
                        *id = file.id.clone();
                    }
                }
            }
            live.files.insert(name.to_owned(), (file.id, true));
        }
        undone.restored_files.sort();
        undone.removed_files.sort();
        Ok(())
    }

    /// The content of a stored file, to be stored again.
    fn again(
        &self,
        session: &Session,
        file: &StoredFile,
        pace: &mut Pace,
    ) -> Result<(FileDetails, Written), InterpreterError> {
        let (file, mut content) =
            self.store.open_file(&file.id)?.ok_or(InterpreterError::NotFound("file"))?;
        let mut incoming = self.store.begin_file(session, &file.name)?;
        incoming.fill(&mut content, file.size, pace).map_err(RunError::from)?;
        let details = FileDetails {
            name: file.name,
            content_type: file.content_type,
            origin: file.origin,
            read_only: file.read_only,
            execution: file.execution,
        };
        Ok((details, incoming.finish()))
    }
}
