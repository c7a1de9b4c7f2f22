//! The interpreter: executions in sessions. Everything that a wire format offers is a call of it.
//!
//! Each call says who asks. What is not theirs is as if it did not exist, whichever way it is asked for.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | sessions, and who may see them |
//! | `execution.rs` | a run on a session's files |
//! | `workspace.rs` | what a program finds there |
//! | `artifacts.rs` | what it leaves, into the store |
//! | `attachments.rs` | files that are made of what it showed |
//! | `uploads.rs` | files that come in |
//! | `file_types.rs` | which files may, by name and content |
//! | `cells.rs` | a run in a session whose variables live on |
//! | `undo.rs` | going back in one, and going on from it in another |
//! | `input_memory.rs` | memory of the files that programs got, shared between owners |
//! | `kernels.rs` | which sessions have a kernel, and for how long |
//! | `keys.rs` | who may come in |
//! | `governance.rs` | what is said about a program before it runs |
//! | `record.rs` | what happens here, for the audit |
//! | `profiles.rs` | which profile holds for whom |
//! | `gauges.rs` | how much of everything there is at the moment |
//! | `sweeper.rs` | what goes when its time is over |

mod artifacts;
mod attachments;
mod cells;
mod execution;
mod file_types;
mod gauges;
mod governance;
mod input_memory;
mod kernels;
mod keys;
mod profiles;
mod record;
mod sweeper;
mod undo;
mod uploads;
mod workspace;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use redoma_model::{
    AuditEvent, AuditedFile, AuditedSession, ExecutionId, FileId, Name, Owner, Principal, Resource,
    Retention, Session, SessionId, StoredFile,
};
use redoma_store::audit::AuditError;
use redoma_store::{Audit, NewSession, Outcome, SessionChange, SessionQuery, Store};

use crate::engine::Engine;
use crate::language::Languages;
use crate::meter::AuditReading;
use crate::pressure::Pressure;
use crate::readers::Readers;
use crate::request::RunError;

pub use execution::{
    Execution, ExecutionRequest, FileReference, MAX_LISTED_ARTIFACTS, MAX_LISTED_NAMES, Refusal, Target,
    Variables,
};
pub use file_types::{BadFileType, FileTypes};
pub use gauges::{Gauges, KernelCounts};
pub use profiles::{BadProfiles, Because, GovernedProfile, ProfileBook};
pub use redoma_store::audit;
pub use redoma_store::{Added, InUse, KeyRecord, NewKey, Secret, StoreError, new_execution_id};
pub use sweeper::Sweeper;
pub use undo::Undone;
pub use uploads::{Upload, UploadError, UploadedFile};

/// Why something can't be had.
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// It is not there, or not theirs: nobody is told which.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    #[error("{0}")]
    BadRequest(String),
    /// Theirs to know, and not to do.
    #[error("{0}")]
    Forbidden(String),
    #[error("the session is in use; cancel what runs in it, or wait")]
    InUse,
    #[error(
        "this user has {max} sessions, as many as may be kept; remove some (DELETE /api/v1/sessions/ID), or ask the \
         operator to raise `storage.user_sessions`"
    )]
    TooManySessions { max: u64 },
    /// A quota leaves no room.
    #[error("{0}")]
    NoRoom(String),
    #[error(transparent)]
    Run(#[from] RunError),
    /// Nothing happens that can't be written down.
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Everything that an interpreter is made with.
#[derive(Debug)]
pub struct InterpreterParts {
    pub engine: Engine,
    pub store: Arc<Store>,
    pub profiles: ProfileBook,
    pub file_types: FileTypes,
    /// The most bytes of an uploaded file.
    pub most_upload: u64,
    /// So many sessions have live variables at the same time.
    pub most_kernels: usize,
    pub audit: Option<Arc<Audit>>,
    /// Who reads programs before they run; nobody, for a caller that trusts its parsers with them.
    pub readers: Option<Readers>,
    /// Who hears of what is wrong here and not for clients to know.
    pub tell: fn(&dyn std::fmt::Display),
}

/// Executions in sessions, for many at once.
#[derive(Debug)]
pub struct Interpreter {
    /// First, so that they go before who made them.
    kernels: kernels::Kernels,
    engine: Engine,
    store: Arc<Store>,
    profiles: RwLock<Arc<ProfileBook>>,
    file_types: FileTypes,
    most_upload: u64,
    languages: Languages,
    running: Mutex<HashMap<ExecutionId, execution::Running>>,
    /// Bytes of uploads that are on their way, by owner.
    incoming: uploads::IncomingBytes,
    /// Memory of the files that programs got.
    input_memory: Arc<input_memory::InputMemory>,
    /// Where everything is written down, if anywhere.
    audit: Option<Arc<Audit>>,
    readers: Option<Readers>,
    tell: fn(&dyn std::fmt::Display),
}

impl Interpreter {
    pub fn new(parts: InterpreterParts) -> Self {
        let InterpreterParts {
            engine,
            store,
            profiles,
            file_types,
            most_upload,
            most_kernels,
            audit,
            readers,
            tell,
        } = parts;
        if let Some(audit) = audit.clone() {
            let read = move || AuditReading { lag: audit.unsynced_for(), pending: audit.lag() };
            engine.meter().read_audit_with(read);
        }
        expect_rules(&engine, &profiles);
        let (languages, running, incoming) = (Languages::built_in(), Mutex::default(), Arc::default());
        Self {
            engine,
            store,
            profiles: RwLock::new(Arc::new(profiles)),
            file_types,
            most_upload,
            languages,
            running,
            incoming,
            input_memory: Arc::default(),
            kernels: kernels::Kernels::new(most_kernels),
            audit,
            readers,
            tell,
        }
    }

    /// Comes back when sandboxes wait for the first requests.
    pub fn prepare(&self) -> Result<(), RunError> {
        self.engine.prepare()
    }

    /// How hard it is for the host, where somebody looks.
    pub fn pressure(&self) -> Option<&Arc<Pressure>> {
        self.engine.pressure()
    }

    /// What can only be put right by starting anew.
    pub fn stuck(&self) -> Option<String> {
        self.engine.stuck()
    }

    pub fn languages(&self) -> &Languages {
        &self.languages
    }

    /// The profiles as they are now.
    pub fn profiles(&self) -> Arc<ProfileBook> {
        Arc::clone(&self.profiles.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on these hold.
    pub fn replace_profiles(&self, book: ProfileBook) {
        expect_rules(&self.engine, &book);
        *self.profiles.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(book);
    }

    pub fn open_session(
        &self,
        principal: &Principal,
        name: Option<Name>,
        profile: Option<&str>,
        retention: Option<Retention>,
    ) -> Result<Session, InterpreterError> {
        let session = self.draft_named(principal, name, profile, retention)?;
        self.store.commit(&session, Outcome { begins: true, ..Outcome::default() })?;
        self.note(|| AuditEvent::SessionOpened(audited_session(principal, &session)));
        Ok(session)
    }

    /// A session of a Jupyter kernel, which does not make room for others while the kernel holds on to what comes with it.
    /// From then on it is like that of a conversation.
    pub fn open_kernel_session(
        &self,
        principal: &Principal,
        name: Option<Name>,
    ) -> Result<(Session, InUse), InterpreterError> {
        let session = self.draft_named(principal, name, None, None)?;
        let spared = self.store.spare(&session.id);
        self.store.commit(&session, Outcome { begins: true, is_single_run: true, ..Outcome::default() })?;
        self.note(|| AuditEvent::SessionOpened(audited_session(principal, &session)));
        Ok((session, spared))
    }

    fn draft_named(
        &self,
        principal: &Principal,
        name: Option<Name>,
        profile: Option<&str>,
        retention: Option<Retention>,
    ) -> Result<Session, InterpreterError> {
        let book = self.profiles();
        let profile = &book.choose(principal, profile)?.profile;
        self.make_room_for_session(&principal.owner)?;
        Ok(self.store.draft_session(NewSession {
            owner: principal.owner.clone(),
            name,
            profile: profile.name.clone(),
            resource: None,
            retention: book.retention(principal, retention.unwrap_or(profile.retention)),
        })?)
    }

    /// A session of a conversation that no caller has asked for by itself. Without files and live variables it goes when its
    /// owner has too many.
    pub fn open_conversation(&self, principal: &Principal) -> Result<Session, InterpreterError> {
        let session = self.draft_session(principal, None)?;
        self.store.commit(&session, Outcome { begins: true, is_single_run: true, ..Outcome::default() })?;
        self.note(|| AuditEvent::SessionOpened(audited_session(principal, &session)));
        Ok(session)
    }

    /// Makes sure that an owner may have one more session.
    fn make_room_for_session(&self, owner: &Owner) -> Result<(), InterpreterError> {
        if self.store.make_room_for_session(owner, || self.kernels.live_of(owner))? {
            return Ok(());
        }
        Err(InterpreterError::TooManySessions { max: self.store.quota().owner_sessions })
    }

    /// A session that begins with what is first committed to it.
    fn draft_session(
        &self,
        principal: &Principal,
        resource: Option<Resource>,
    ) -> Result<Session, InterpreterError> {
        let book = self.profiles();
        let profile = &book.of(principal)?.0.profile;
        self.make_room_for_session(&principal.owner)?;
        Ok(self.store.draft_session(NewSession {
            owner: principal.owner.clone(),
            name: None,
            profile: profile.name.clone(),
            resource,
            retention: profile.retention,
        })?)
    }

    /// The session, if it is theirs.
    pub fn session(
        &self,
        principal: &Principal,
        id: &SessionId,
        claimed: Option<&Resource>,
    ) -> Result<Session, InterpreterError> {
        let session = self.store.session(id)?;
        // One whose time runs out while it is used is still there.
        let is_alive = |session: &Session| {
            session.expires_at.is_none_or(|at| at > self.store.now()) || self.store.is_in_use(id)
        };
        session
            .filter(|session| principal.may_see(session, claimed) && is_alive(session))
            .ok_or(InterpreterError::NotFound("session"))
    }

    /// A page of their sessions, oldest first.
    pub fn sessions(
        &self,
        principal: &Principal,
        after: Option<&SessionId>,
        limit: usize,
    ) -> Result<Vec<Session>, InterpreterError> {
        let after = match after {
            Some(id) => Some((self.session(principal, id, None)?.created_at, id.clone())),
            None => None,
        };
        let query = SessionQuery { owner: Some(principal.owner.clone()), after, limit };
        Ok(self.store.sessions(&query)?)
    }

    pub fn change_session(
        &self,
        principal: &Principal,
        id: &SessionId,
        name: Option<Option<Name>>,
        retention: Option<Retention>,
    ) -> Result<Session, InterpreterError> {
        self.session(principal, id, None)?;
        let book = self.profiles();
        let retention = retention.map(|wanted| book.retention(principal, wanted));
        let change = SessionChange { name, ttl: retention.map(Retention::millis) };
        self.store.change_session(id, change)?;
        self.session(principal, id, None)
    }

    /// Removes it with all its files.
    pub fn remove_session(&self, principal: &Principal, id: &SessionId) -> Result<(), InterpreterError> {
        let session = self.session(principal, id, None)?;
        match self.store.remove_session(id)? {
            Some(_) => {
                self.kernels.forget(id);
                self.note(|| AuditEvent::SessionRemoved(audited_session(principal, &session)));
                Ok(())
            }
            None if self.store.is_in_use(id) => Err(InterpreterError::InUse),
            None => Err(InterpreterError::NotFound("session")),
        }
    }

    /// The files that programs in this session see.
    pub fn files(
        &self,
        principal: &Principal,
        session: &SessionId,
        claimed: Option<&Resource>,
    ) -> Result<Vec<StoredFile>, InterpreterError> {
        let session = self.session(principal, session, claimed)?;
        Ok(self.store.current_files(&session.id)?.into_iter().map(|(file, _)| file).collect())
    }

    /// Earlier versions too, and what programs have deleted.
    pub fn all_files(
        &self,
        principal: &Principal,
        session: &SessionId,
    ) -> Result<Vec<StoredFile>, InterpreterError> {
        let session = self.session(principal, session, None)?;
        Ok(self.store.all_files(&session.id)?)
    }

    /// One file of theirs, whichever version. Both ids must be right.
    pub fn file(
        &self,
        principal: &Principal,
        session: &SessionId,
        id: &FileId,
        claimed: Option<&Resource>,
    ) -> Result<StoredFile, InterpreterError> {
        let session = self.session(principal, session, claimed)?;
        let file = self.store.file(id)?.filter(|file| file.session == session.id);
        file.ok_or(InterpreterError::NotFound("file"))
    }

    /// Its bytes.
    pub fn open_file(
        &self,
        principal: &Principal,
        session: &SessionId,
        id: &FileId,
        claimed: Option<&Resource>,
    ) -> Result<(StoredFile, File), InterpreterError> {
        let file = self.file(principal, session, id, claimed)?;
        self.record(|| AuditEvent::FileRead(AuditedFile::new(principal.into(), &file)))?;
        self.store.open_file(id)?.ok_or(InterpreterError::NotFound("file"))
    }

    pub fn remove_file(
        &self,
        principal: &Principal,
        session: &SessionId,
        id: &FileId,
        claimed: Option<&Resource>,
    ) -> Result<(), InterpreterError> {
        // What is shared with all who use an agent is not theirs to delete, where it is known who they are.
        let file = self.file(principal, session, id, claimed.filter(|_| !principal.is_proven))?;
        self.store.remove_file(id)?.ok_or(InterpreterError::NotFound("file"))?;
        self.note(|| AuditEvent::FileDeleted(AuditedFile::new(principal.into(), &file)));
        Ok(())
    }
}

/// What is counted by rule begins with nothing for each of them.
fn expect_rules(engine: &Engine, book: &ProfileBook) {
    let rules: BTreeSet<String> = book.all().flat_map(|governed| governed.rules()).collect();
    engine.meter().expect_rules(rules.iter().map(String::as_str).chain(["language"]));
}

pub(super) fn audited_session(principal: &Principal, session: &Session) -> AuditedSession {
    let profile = Some(session.profile.clone());
    AuditedSession { who: principal.into(), session: session.id.clone(), profile, note: None }
}
