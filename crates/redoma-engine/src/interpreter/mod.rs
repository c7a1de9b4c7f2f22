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
//! | `kernels.rs` | which sessions have a kernel, and for how long |
//! | `keys.rs` | who may come in |
//! | `sweeper.rs` | what goes when its time is over |

mod artifacts;
mod attachments;
mod cells;
mod execution;
mod file_types;
mod kernels;
mod keys;
mod sweeper;
mod undo;
mod uploads;
mod workspace;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::{Arc, Mutex};

use redoma_model::{
    ExecutionId, FileId, Owner, Principal, Profile, Resource, Retention, Session, SessionId, StoredFile,
};
use redoma_store::{NewSession, SessionChange, SessionQuery, Store};

use crate::engine::Engine;
use crate::language::Languages;
use crate::request::RunError;

pub use execution::{Execution, ExecutionRequest, FileReference, Refusal, Target, Variables};
pub use file_types::{BadFileType, FileTypes};
pub use redoma_store::{Added, KeyRecord, NewKey, Secret, StoreError, new_execution_id};
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
    #[error("the session is in use; cancel what runs in it, or wait")]
    InUse,
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Everything that an interpreter is made with.
#[derive(Debug)]
pub struct InterpreterParts {
    pub engine: Engine,
    pub store: Arc<Store>,
    /// By name; there is one called `default`.
    pub profiles: BTreeMap<String, Profile>,
    pub file_types: FileTypes,
    /// The most bytes of an uploaded file.
    pub most_upload: u64,
    /// So many sessions have live variables at the same time.
    pub most_kernels: usize,
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
    profiles: BTreeMap<String, Profile>,
    default_profile: Profile,
    file_types: FileTypes,
    most_upload: u64,
    languages: Languages,
    running: Mutex<HashMap<ExecutionId, execution::Running>>,
    /// Bytes of uploads that are on their way, by owner.
    incoming: uploads::IncomingBytes,
    tell: fn(&dyn std::fmt::Display),
}

impl Interpreter {
    pub fn new(parts: InterpreterParts) -> Self {
        let InterpreterParts { engine, store, mut profiles, file_types, most_upload, most_kernels, tell } =
            parts;
        // What is loaded ahead is the engine's affair; each run would copy the lists.
        for profile in profiles.values_mut() {
            profile.preload.clear();
        }
        let default_profile = profiles.get("default").cloned().unwrap_or_default();
        let (languages, running, incoming) = (Languages::built_in(), Mutex::default(), Arc::default());
        Self {
            engine,
            store,
            profiles,
            default_profile,
            file_types,
            most_upload,
            languages,
            running,
            incoming,
            kernels: kernels::Kernels::new(most_kernels),
            tell,
        }
    }

    /// Comes back when sandboxes wait for the first requests.
    pub fn prepare(&self) -> Result<(), RunError> {
        self.engine.prepare()
    }

    pub fn languages(&self) -> &Languages {
        &self.languages
    }

    fn profile(&self, name: &str) -> &Profile {
        self.profiles.get(name).unwrap_or(&self.default_profile)
    }

    pub fn open_session(
        &self,
        owner: &Owner,
        name: Option<String>,
        profile: Option<&str>,
        retention: Option<Retention>,
    ) -> Result<Session, InterpreterError> {
        let profile = match profile {
            None => &self.default_profile,
            Some(name) => self
                .profiles
                .get(name)
                .ok_or_else(|| InterpreterError::BadRequest(format!("there is no profile `{name}`")))?,
        };
        let new = NewSession {
            owner: owner.clone(),
            name,
            profile: profile.name.clone(),
            resource: None,
            retention: retention.unwrap_or(profile.retention),
        };
        Ok(self.store.open_session(new)?)
    }

    /// A session that begins with what is first committed to it.
    fn draft_session(&self, owner: &Owner, resource: Option<Resource>) -> Result<Session, StoreError> {
        self.store.draft_session(NewSession {
            owner: owner.clone(),
            name: None,
            profile: self.default_profile.name.clone(),
            resource,
            retention: self.default_profile.retention,
        })
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
        name: Option<Option<String>>,
        retention: Option<Retention>,
    ) -> Result<Session, InterpreterError> {
        self.session(principal, id, None)?;
        let change = SessionChange { name, ttl: retention.map(Retention::millis) };
        self.store.change_session(id, change)?;
        self.session(principal, id, None)
    }

    /// Removes it with all its files.
    pub fn remove_session(&self, principal: &Principal, id: &SessionId) -> Result<(), InterpreterError> {
        self.session(principal, id, None)?;
        match self.store.remove_session(id)? {
            Some(_) => {
                self.kernels.forget(id);
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
        self.file(principal, session, id, claimed)?;
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
        self.file(principal, session, id, claimed.filter(|_| !principal.is_proven))?;
        self.store.remove_file(id)?.map(|_| ()).ok_or(InterpreterError::NotFound("file"))
    }
}
