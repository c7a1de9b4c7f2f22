//! What is asked of a database.

use std::fmt::Debug;

use redoma_model::{
    ExecutionId, FileId, FileName, KeyId, Name, Origin, Owner, Session, SessionId, StoredFile,
};

use crate::StoreError;
use crate::blobs::BlobPath;
use crate::key::KeyRecord;

/// A file's metadata, with where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    pub file: StoredFile,
    pub blob: BlobPath,
}

/// A file whose bytes are in place, to be made known.
#[derive(Debug, Clone)]
pub struct NewFile {
    pub id: FileId,
    pub name: FileName,
    pub size: u64,
    pub sha256: String,
    pub content_type: String,
    pub origin: Origin,
    pub read_only: bool,
    pub created_at: i64,
    pub execution: Option<ExecutionId>,
    pub blob: BlobPath,
}

/// How much may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub session_bytes: u64,
    pub session_files: u64,
    /// Files of all sessions of an owner, and the records of their executions. Records make room for files.
    pub owner_bytes: u64,
    /// Files of all sessions of an owner. Each takes an inode of the host and a row, also if it is empty.
    pub owner_files: u64,
    pub owner_sessions: u64,
}

/// What an owner has in all sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnerUsage {
    pub file_bytes: u64,
    /// Bytes of records of executions.
    pub record_bytes: u64,
    pub files: u64,
}

impl OwnerUsage {
    pub fn total(self) -> u64 {
        self.file_bytes.saturating_add(self.record_bytes)
    }
}

/// How much is stored, of everybody's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub sessions: u64,
    pub bytes: u64,
    pub files: u64,
    /// What it is stored on, where that can be told.
    pub disk: Option<Disk>,
}

/// A file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub size: u64,
    pub free: u64,
}

/// What became of new files.
#[derive(Debug, Clone, Default)]
pub struct Added {
    pub files: Vec<StoredFile>,
    /// Those for which there is no room, and why.
    pub refused: Vec<Refused>,
}

#[derive(Debug, Clone)]
pub struct Refused {
    pub name: FileName,
    pub blob: BlobPath,
    pub reason: String,
}

/// A session that begins with a commit.
#[derive(Debug, Clone)]
pub struct Beginning {
    pub session: Session,
    /// How long it lives unused.
    pub ttl: Option<i64>,
    /// Whether no caller asked for it, see [`Outcome::is_single_run`](crate::Outcome::is_single_run).
    pub is_single: bool,
}

/// Asked about each session before it goes; false keeps it.
pub type MayGo = Box<dyn Fn(&SessionId) -> bool + Send>;

/// What is to be remembered of one upload or one run.
#[derive(Debug)]
pub struct Commit {
    pub session: SessionId,
    /// The session itself, where it begins with this.
    pub begin: Option<Beginning>,
    pub now: i64,
    /// Each becomes the current one of its name.
    pub files: Vec<NewFile>,
    /// Files that are no longer the current ones of their names. Not the names: another may have come meanwhile.
    pub gone: Vec<FileId>,
    pub execution: Option<NewExecution>,
    /// Whether one that has no room keeps all others out.
    pub all_or_nothing: bool,
}

/// A run to be remembered. What is kept of it names its files, so it is written down when these are known.
pub struct NewExecution {
    pub id: ExecutionId,
    pub started_at: i64,
    pub language: String,
    pub result: Box<dyn FnOnce(&Added) -> String + Send>,
}

impl Debug for NewExecution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewExecution").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Which sessions to list, oldest first.
#[derive(Debug, Clone, Default)]
pub struct SessionQuery {
    /// Everybody's, if none is given.
    pub owner: Option<Owner>,
    /// Those after this one.
    pub after: Option<(i64, SessionId)>,
    pub limit: usize,
}

/// What to change about a session.
#[derive(Debug, Clone, Default)]
pub struct SessionChange {
    pub name: Option<Option<Name>>,
    /// How long it lives unused; `Some(None)` is for ever.
    pub ttl: Option<Option<i64>>,
}

/// A run, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionRecord {
    pub id: ExecutionId,
    pub session: SessionId,
    pub started_at: i64,
    pub language: String,
    /// JSON.
    pub result: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedLogin {
    pub at: i64,
    pub address: String,
    /// How it was tried: a key, a token, …
    pub way: String,
    pub reason: String,
}

/// The database. Called from many threads at once; each call is done when it comes back.
pub trait Metadata: Debug + Send + Sync {
    /// What a server that died has left comes to its place. Only by the one server of a data folder, before it serves: from
    /// then on, runs may come to their place a moment later than they are acknowledged.
    fn recover(&self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Has everything come to its place that was acknowledged. To be called now and then.
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;
    fn sessions(&self, query: &SessionQuery) -> Result<Vec<Session>, StoreError>;
    /// Whether there was one.
    fn change_session(&self, id: &SessionId, change: SessionChange, now: i64) -> Result<bool, StoreError>;
    /// It was used: its time begins anew.
    fn touch_session(&self, id: &SessionId, now: i64) -> Result<(), StoreError>;
    /// Those whose time is over, after this one of them, in the order in which it was over.
    fn expired_sessions(
        &self,
        now: i64,
        after: Option<&(i64, SessionId)>,
        limit: usize,
    ) -> Result<Vec<(i64, SessionId)>, StoreError>;
    /// With all that is in it. `may` is asked at the last moment, when nobody else can write, with the session as it is then.
    fn remove_session(
        &self,
        id: &SessionId,
        may: Box<dyn FnOnce(&Session) -> bool + Send>,
    ) -> Result<Option<Session>, StoreError>;

    /// Everything about one upload or one run, all at once.
    fn commit(&self, commit: Commit, quota: Quota) -> Result<Added, StoreError>;
    fn file(&self, id: &FileId) -> Result<Option<FileRecord>, StoreError>;
    /// The files that programs see.
    fn current_files(&self, session: &SessionId) -> Result<Vec<FileRecord>, StoreError>;
    /// Earlier versions too.
    fn all_files(&self, session: &SessionId) -> Result<Vec<FileRecord>, StoreError>;
    fn remove_file(&self, id: &FileId) -> Result<Option<FileRecord>, StoreError>;
    fn knows_blob(&self, blob: &BlobPath) -> Result<bool, StoreError>;
    /// Of all sessions together.
    fn totals(&self) -> Result<Totals, StoreError>;
    fn owner_usage(&self, owner: &Owner) -> Result<OwnerUsage, StoreError>;
    fn owner_sessions(&self, owner: &Owner) -> Result<u64, StoreError>;
    /// Removes up to `count` sessions of an owner that began as single ones, that no caller has named since, and that have no
    /// files, those first that were not used for longest. A crash may bring the last ones back. One without records stays if it was not opened
    /// before this time: the request that opened it may not have begun to use it.
    fn evict_sessions(
        &self,
        owner: &Owner,
        count: usize,
        opened_before: i64,
        may: MayGo,
    ) -> Result<Vec<Session>, StoreError>;

    fn execution(&self, id: &ExecutionId) -> Result<Option<ExecutionRecord>, StoreError>;
    /// Newest first.
    fn executions(&self, session: &SessionId, limit: usize) -> Result<Vec<ExecutionRecord>, StoreError>;

    fn add_key(&self, key: KeyRecord) -> Result<(), StoreError>;
    /// The key with this hash that has not been revoked.
    fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>, StoreError>;
    fn keys(&self) -> Result<Vec<KeyRecord>, StoreError>;
    /// Whether there was one.
    fn revoke_key(&self, id: &KeyId, now: i64) -> Result<bool, StoreError>;

    fn note_failed_login(&self, failed: FailedLogin) -> Result<(), StoreError>;
    /// Newest first.
    fn failed_logins(&self, limit: usize) -> Result<Vec<FailedLogin>, StoreError>;

    /// What is wrong with it, if anything.
    fn check(&self) -> Result<Vec<String>, StoreError>;
}
