//! Metadata and bytes together.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use redoma_model::{
    ExecutionId, FileId, FileName, KeyId, Name, Origin, Owner, Resource, Retention, Role, Session, SessionId,
    StoredFile,
};

use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::blobs::{BlobPath, Blobs, FolderBlobs, Incoming, Known, RemovalMark, Written, make_folder};
use crate::clock::Clock;
use crate::key::{KeyRecord, NewKey, Secret};
use crate::metadata::{
    Added, Beginning, Commit, Disk, ExecutionRecord, FailedLogin, FileRecord, Metadata, NewExecution,
    NewFile, OwnerUsage, Quota, SessionChange, SessionQuery, Totals,
};
use crate::pace::{Pace, Workload};
use crate::random::{hex, new_file_id, new_session_id};
use crate::reserve::Reserve;
use crate::sqlite::Sqlite;

/// What quotas leave for further files.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub bytes: u64,
    pub files: u64,
}

impl Room {
    /// Why there is no room for one more file of this size, if there is none.
    pub fn refusal(self, size: u64) -> Option<&'static str> {
        if size > self.bytes {
            return Some("the quota is used up");
        }
        (self.files == 0).then_some("the session or the user has too many files; what is removed makes room")
    }

    #[must_use]
    pub fn without(self, size: u64) -> Self {
        Self { bytes: self.bytes.saturating_sub(size), files: self.files.saturating_sub(1) }
    }
}

/// A session to be made.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub owner: Owner,
    pub name: Option<Name>,
    pub profile: String,
    pub resource: Option<Resource>,
    pub retention: Retention,
}

/// What a sweep removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub sessions: usize,
    pub bytes: u64,
}

/// Everything that survives.
#[derive(Debug)]
pub struct Store {
    metadata: Box<dyn Metadata>,
    blobs: Box<dyn Blobs>,
    clock: Clock,
    quota: Quota,
    reserve: Option<Reserve>,
    /// Where the bytes are, if they are in a folder.
    storage: Option<PathBuf>,
    in_use: Arc<Mutex<HashMap<SessionId, usize>>>,
    /// Sessions that don't make room for others.
    spared: Arc<Mutex<HashMap<SessionId, usize>>>,
    work: Arc<Workload>,
}

/// While this lives, nothing of the session is removed; or only, if it came from [`Store::spare`], not to make room.
#[derive(Debug)]
pub struct InUse {
    id: SessionId,
    all: Arc<Mutex<HashMap<SessionId, usize>>>,
}

impl InUse {
    fn new(id: &SessionId, all: &Arc<Mutex<HashMap<SessionId, usize>>>) -> Self {
        *all.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default() += 1;
        Self { id: id.clone(), all: Arc::clone(all) }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.id);
            }
        }
    }
}

/// Nothing lives for longer, unless it is for ever: a thousand years.
const LONGEST: i64 = 1000 * 365 * 86_400_000;
/// Sessions that make room at once for new ones.
const MAX_EVICTED: usize = 64;
/// Milliseconds for which an opened session without a run does not make room for others.
const MIN_AGE_TO_EVICT: i64 = 60_000;
const DATABASE: &str = "redoma.db";
const STORAGE: &str = "storage";
const RESERVE: &str = "storage.reserve";

impl Store {
    /// The store in a data folder, made if there is none.
    pub fn open(data_dir: &Path, quota: Quota) -> Result<Self, StoreError> {
        let storage = data_dir.join(STORAGE);
        make_folder(&storage)?;
        let database = data_dir.join(DATABASE);
        // With the right mode from its first moment on.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&database)
            .map_err(|source| StoreError::Files { path: database.clone(), source })?;
        let reserve = Reserve::keep(data_dir.join(RESERVE));
        // Even to be opened it needs some room.
        let metadata = Box::new(reserve.lend(|| Sqlite::open(&database))?);
        let blobs = Box::new(FolderBlobs::open(&storage)?);
        Ok(Self { reserve: Some(reserve), storage: Some(storage), ..Self::with(metadata, blobs, quota) })
    }

    pub fn with(metadata: Box<dyn Metadata>, blobs: Box<dyn Blobs>, quota: Quota) -> Self {
        Self {
            metadata,
            blobs,
            clock: Clock::start(),
            quota,
            reserve: None,
            storage: None,
            in_use: Arc::default(),
            spared: Arc::default(),
            work: Arc::default(),
        }
    }

    /// Removes what a crash has left behind; how many files and sessions. Only by the one server of a data folder, before
    /// it serves.
    pub fn recover(&self) -> Result<usize, StoreError> {
        // To put in order what is there may need some room.
        self.removing(|| self.metadata.recover())?;
        self.blobs.recover(&Known {
            blob: &|blob| self.metadata.knows_blob(blob),
            session: &|id| Ok(self.metadata.session(id)?.is_some()),
        })
    }

    /// Has runs that were acknowledged come into their table. To be called about once in a second.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.metadata.flush()
    }

    pub fn now(&self) -> i64 {
        self.clock.now()
    }

    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// A session that nobody knows of yet. It begins with what is first committed to it.
    pub fn draft_session(&self, new: NewSession) -> Result<Session, StoreError> {
        let now = self.now();
        Ok(Session {
            id: new_session_id()?,
            owner: new.owner,
            name: new.name.map(Name::into_string),
            profile: new.profile,
            resource: new.resource,
            created_at: now,
            used_at: now,
            expires_at: new.retention.millis().map(|ttl| now.saturating_add(ttl.min(LONGEST))),
            bytes: 0,
            files: 0,
        })
    }

    pub fn open_session(&self, new: NewSession) -> Result<Session, StoreError> {
        let session = self.draft_session(new)?;
        self.commit(&session, Outcome { begins: true, ..Outcome::default() })?;
        Ok(session)
    }

    /// Whether an owner may have one more session. Sessions that runs began and that hold nothing go for it, those first that
    /// were not used for longest. Those that `live` names stay; it is called only if there are too many.
    pub fn make_room_for_session(
        &self,
        owner: &Owner,
        live: impl FnOnce() -> HashSet<SessionId>,
    ) -> Result<bool, StoreError> {
        let most = self.quota.owner_sessions;
        if self.metadata.owner_sessions(owner)? < most {
            return Ok(true);
        }
        let (held, live) = ([Arc::clone(&self.in_use), Arc::clone(&self.spared)], live());
        let may = move |id: &SessionId| {
            let has = |all: &Mutex<HashMap<_, _>>| {
                all.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
            };
            !live.contains(id) && !held.iter().any(|all| has(all))
        };
        // Several at a time, so that the next few runs need not ask.
        let count = usize::try_from(most / 8 + 1).unwrap_or(usize::MAX).min(MAX_EVICTED);
        let opened_before = self.now().saturating_sub(MIN_AGE_TO_EVICT);
        for session in self.metadata.evict_sessions(owner, count, opened_before, Box::new(may))? {
            self.blobs.remove_session(&session.owner, &session.id)?;
        }
        Ok(self.metadata.owner_sessions(owner)? < most)
    }

    pub fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        self.metadata.session(id)
    }

    pub fn sessions(&self, query: &SessionQuery) -> Result<Vec<Session>, StoreError> {
        self.metadata.sessions(query)
    }

    pub fn change_session(&self, id: &SessionId, mut change: SessionChange) -> Result<bool, StoreError> {
        change.ttl = change.ttl.map(|ttl| ttl.map(|ttl| ttl.min(LONGEST)));
        self.metadata.change_session(id, change, self.now())
    }

    /// A session was used: its time begins anew.
    pub fn touch_session(&self, id: &SessionId) -> Result<(), StoreError> {
        self.metadata.touch_session(id, self.now())
    }

    /// Keeps a session from being removed.
    pub fn hold(&self, id: &SessionId) -> InUse {
        InUse::new(id, &self.in_use)
    }

    /// Keeps a session from making room for others. Its owner can remove it, and its time can be over.
    pub fn spare(&self, id: &SessionId) -> InUse {
        InUse::new(id, &self.spared)
    }

    /// Removes a session with all its files, unless it is in use.
    pub fn remove_session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        self.removing(|| self.remove_session_if(id, |_| true))
    }

    /// Removes a session whose time is over, unless it has been used since.
    fn remove_expired(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        let now = self.now();
        let is_over = move |session: &Session| session.expires_at.is_some_and(|at| at <= now);
        self.removing(|| self.remove_session_if(id, is_over))
    }

    /// A removal must be possible on a full disk too.
    fn removing<T>(&self, removal: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &self.reserve {
            Some(reserve) => reserve.lend(removal),
            None => removal(),
        }
    }

    fn remove_session_if(
        &self,
        id: &SessionId,
        is_wanted: impl FnOnce(&Session) -> bool + Send + 'static,
    ) -> Result<Option<Session>, StoreError> {
        let Some(session) = self.metadata.session(id)? else { return Ok(None) };
        // On a full disk there is no room for a mark, and all the more reason to go on.
        let mark = self.blobs.mark_session(&session.owner, id).ok();
        let in_use = Arc::clone(&self.in_use);
        let may = move |session: &Session| {
            is_wanted(session)
                && !in_use.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&session.id)
        };
        unmarked(mark, || {
            let removed = self.metadata.remove_session(id, Box::new(may))?;
            if let Some(session) = &removed {
                self.blobs.remove_session(&session.owner, id)?;
            }
            Ok(removed)
        })
    }

    pub fn is_in_use(&self, id: &SessionId) -> bool {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    /// Removes sessions whose time is over. What is in use stays.
    pub fn sweep(&self) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let (now, mut after) = (self.now(), None);
        if let Some(reserve) = &self.reserve {
            reserve.refill();
        }
        loop {
            let expired = self.metadata.expired_sessions(now, after.as_ref(), 100)?;
            for (_, id) in &expired {
                if let Some(session) = self.remove_expired(id)? {
                    swept.sessions += 1;
                    swept.bytes += session.bytes;
                }
            }
            after = expired.into_iter().last();
            if after.is_none() {
                return Ok(swept);
            }
        }
    }

    /// Begins to write a file for a session.
    pub fn begin_file(&self, session: &Session, name: &FileName) -> Result<Incoming, StoreError> {
        self.blobs.begin(BlobPath::new(&session.owner, &session.id, name)?)
    }

    /// Remembers an upload or a run: written files become the current ones of their names, others lose theirs, all at
    /// once and for good.
    pub fn commit(&self, session: &Session, outcome: Outcome) -> Result<Added, StoreError> {
        self.commit_at(&mut self.pace(&session.owner), session, outcome)
    }

    /// For a thread that begins to store many files for an owner.
    pub fn pace(&self, owner: &Owner) -> Pace {
        self.work.pace(owner)
    }

    /// The same as [`Store::commit`], as a part of work that has begun.
    pub fn commit_at(
        &self,
        pace: &mut Pace,
        session: &Session,
        outcome: Outcome,
    ) -> Result<Added, StoreError> {
        let now = self.now();
        let mut written = Vec::with_capacity(outcome.files.len());
        let mut files = Vec::with_capacity(outcome.files.len());
        for (details, file) in outcome.files {
            files.push(NewFile {
                id: new_file_id()?,
                name: details.name,
                size: file.size,
                sha256: file.sha256.clone(),
                content_type: details.content_type,
                origin: details.origin,
                read_only: details.read_only,
                created_at: now,
                execution: details.execution,
                blob: file.blob.clone(),
            });
            written.push(file);
        }
        if !written.is_empty()
            && let Err(error) = self.blobs.place(&written, pace)
        {
            self.withdraw(written, pace);
            return Err(error);
        }
        let ttl = session.expires_at.map(|at| at.saturating_sub(session.used_at));
        let commit = Commit {
            session: session.id.clone(),
            begin: outcome.begins.then(|| Beginning {
                session: session.clone(),
                ttl,
                is_single: outcome.is_single_run,
            }),
            now,
            files,
            gone: outcome.gone,
            execution: outcome.execution,
            all_or_nothing: outcome.all_or_nothing,
        };
        let added = self.metadata.commit(commit, self.quota);
        // What the metadata did not take has no place.
        if added.as_ref().map_or(true, |added| !added.refused.is_empty()) {
            self.withdraw(written, pace);
        } else {
            // Each removes its mark.
            for file in written {
                drop(file);
                pace.step();
            }
        }
        added
    }

    /// Takes those files back that the metadata don't know. Their marks go last, and stay where it can't be done.
    fn withdraw(&self, written: Vec<Written>, pace: &mut Pace) {
        for file in written {
            pace.step();
            match self.metadata.knows_blob(&file.blob) {
                Ok(true) => {}
                Ok(false) if self.blobs.remove(&file.blob).is_ok() => {}
                _ => file.leave_to_recovery(),
            }
        }
    }

    pub fn file(&self, id: &FileId) -> Result<Option<StoredFile>, StoreError> {
        Ok(self.metadata.file(id)?.map(|record| record.file))
    }

    /// The files that programs see, and where they are.
    pub fn current_files(&self, session: &SessionId) -> Result<Vec<(StoredFile, PathBuf)>, StoreError> {
        Ok(self.with_paths(self.metadata.current_files(session)?))
    }

    pub fn all_files(&self, session: &SessionId) -> Result<Vec<StoredFile>, StoreError> {
        Ok(self.metadata.all_files(session)?.into_iter().map(|record| record.file).collect())
    }

    pub fn file_with_path(&self, id: &FileId) -> Result<Option<(StoredFile, PathBuf)>, StoreError> {
        Ok(self.metadata.file(id)?.map(|record| self.with_path(record)))
    }

    fn with_paths(&self, records: Vec<FileRecord>) -> Vec<(StoredFile, PathBuf)> {
        records.into_iter().map(|record| self.with_path(record)).collect()
    }

    fn with_path(&self, record: FileRecord) -> (StoredFile, PathBuf) {
        (record.file, self.blobs.path(&record.blob))
    }

    /// A file's bytes.
    pub fn open_file(&self, id: &FileId) -> Result<Option<(StoredFile, File)>, StoreError> {
        let Some(record) = self.metadata.file(id)? else { return Ok(None) };
        let file = self.blobs.open(&record.blob)?;
        Ok(Some((record.file, file)))
    }

    pub fn remove_file(&self, id: &FileId) -> Result<Option<StoredFile>, StoreError> {
        self.removing(|| {
            let Some(record) = self.metadata.file(id)? else { return Ok(None) };
            let mark = self.blobs.mark_file(&record.blob).ok();
            unmarked(mark, || {
                let Some(record) = self.metadata.remove_file(id)? else { return Ok(None) };
                self.blobs.remove(&record.blob)?;
                Ok(Some(record.file))
            })
        })
    }

    /// How much there is of everything, and of the room for it. Looks at every session, so not for every request.
    pub fn totals(&self) -> Result<Totals, StoreError> {
        let disk =
            self.storage.as_deref().and_then(|folder| rustix::fs::statvfs(folder).ok()).map(|disk| Disk {
                size: disk.f_blocks.saturating_mul(disk.f_frsize),
                free: disk.f_bavail.saturating_mul(disk.f_frsize),
            });
        Ok(Totals { disk, ..self.metadata.totals()? })
    }

    /// Bytes that the owner's quota leaves for files. Records of executions take none of it: they go when files come.
    pub fn room_for_files(&self, owner: &Owner) -> Result<u64, StoreError> {
        Ok(self.quota.owner_bytes.saturating_sub(self.owner_usage(owner)?.file_bytes))
    }

    /// What the quotas leave for further files of a session. Others may store something meanwhile: a commit looks again.
    pub fn room(&self, session: &Session) -> Result<Room, StoreError> {
        let (quota, owner) = (self.quota, self.owner_usage(&session.owner)?);
        let stored = self.session(&session.id)?;
        let session = stored.as_ref().unwrap_or(session);
        let left = |quota: u64, used: u64| quota.saturating_sub(used);
        Ok(Room {
            bytes: left(quota.session_bytes, session.bytes).min(left(quota.owner_bytes, owner.file_bytes)),
            files: left(quota.session_files, session.files).min(left(quota.owner_files, owner.files)),
        })
    }

    /// The server begins to work for an owner.
    pub fn note_activity(&self, owner: &Owner) {
        self.work.note(owner);
    }

    pub fn owner_usage(&self, owner: &Owner) -> Result<OwnerUsage, StoreError> {
        self.metadata.owner_usage(owner)
    }

    pub fn execution(&self, id: &ExecutionId) -> Result<Option<ExecutionRecord>, StoreError> {
        self.metadata.execution(id)
    }

    pub fn executions(&self, session: &SessionId, limit: usize) -> Result<Vec<ExecutionRecord>, StoreError> {
        self.metadata.executions(session, limit)
    }

    /// Makes a key. The secret is known to nobody else from here on.
    pub fn add_key(&self, new: NewKey) -> Result<(KeyRecord, Secret), StoreError> {
        let secret = Secret::generate()?;
        Ok((self.add_key_with(new, &secret)?, secret))
    }

    /// The same with a secret that somebody else chose.
    pub fn add_key_with(&self, new: NewKey, secret: &Secret) -> Result<KeyRecord, StoreError> {
        let record = new.record(secret, self.now())?;
        self.metadata.add_key(record.clone())?;
        Ok(record)
    }

    /// Whose key this is, if anybody's.
    pub fn key(&self, secret: &Secret) -> Result<Option<KeyRecord>, StoreError> {
        Ok(self.metadata.key_by_hash(&secret.hash())?.filter(|record| record.is_of(secret)))
    }

    pub fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.metadata.keys()
    }

    pub fn has_admin(&self) -> Result<bool, StoreError> {
        Ok(self.keys()?.iter().any(|key| key.role == Role::Admin && key.revoked_at.is_none()))
    }

    pub fn revoke_key(&self, id: &KeyId) -> Result<bool, StoreError> {
        self.metadata.revoke_key(id, self.now())
    }

    pub fn note_failed_login(&self, address: String, way: String, reason: String) -> Result<(), StoreError> {
        self.metadata.note_failed_login(FailedLogin { at: self.now(), address, way, reason })
    }

    pub fn failed_logins(&self, limit: usize) -> Result<Vec<FailedLogin>, StoreError> {
        self.metadata.failed_logins(limit)
    }

    /// What is wrong with the store: the database itself, files that it names and that are not as they were stored, and files
    /// that it does not name. `tell` hears how far it is.
    pub fn check(&self, tell: &mut dyn FnMut(usize, usize)) -> Result<Vec<String>, StoreError> {
        let mut wrong = self.metadata.check()?;
        let mut query = SessionQuery { owner: None, after: None, limit: 1000 };
        let mut done = 0;
        loop {
            let page = match self.metadata.sessions(&query) {
                Ok(page) => page,
                Err(error) => {
                    wrong.push(format!("sessions can't be listed: {error}"));
                    break;
                }
            };
            let Some(last) = page.last() else { break };
            query.after = Some((last.created_at, last.id.clone()));
            for session in &page {
                done += 1;
                tell(done, done.max(page.len()));
                match self.metadata.all_files(&session.id) {
                    Ok(records) => wrong.extend(records.iter().filter_map(|record| self.check_file(record))),
                    Err(error) => wrong.push(format!("session {}: {error}", session.id)),
                }
            }
        }
        let strays = self.blobs.strays(&Known {
            blob: &|blob| self.metadata.knows_blob(blob),
            session: &|id| Ok(self.metadata.session(id)?.is_some()),
        });
        let said = |path: &PathBuf| format!("{}: nobody knows this file", path.display());
        match strays {
            Ok(strays) => wrong.extend(strays.iter().map(said)),
            Err(error) => wrong.push(error.to_string()),
        }
        Ok(wrong)
    }

    /// What is wrong with a file, if anything.
    fn check_file(&self, record: &FileRecord) -> Option<String> {
        let id = &record.file.id;
        let found = self.blobs.open(&record.blob).and_then(|file| hash(file, &self.blobs.path(&record.blob)));
        let wrong = match found {
            Ok(found) if found == record.file.sha256 => return None,
            Ok(_) => format!("file {id}: its bytes are not those that were stored"),
            Err(error) => format!("file {id}: {error}"),
        };
        // It may have been removed meanwhile.
        let is_there = self.metadata.file(id).map_or(true, |file| file.is_some());
        is_there.then_some(wrong)
    }
}

/// Does a removal for which there is a mark. The mark goes with it; if it fails, the next start sees what is to be done.
fn unmarked<T>(
    mark: Option<RemovalMark>,
    removal: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let result = removal();
    if let (Err(_), Some(mark)) = (&result, mark) {
        mark.leave_to_recovery();
    }
    result
}

fn hash(mut file: File, path: &Path) -> Result<String, StoreError> {
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash)
        .map_err(|source| StoreError::Files { path: path.to_owned(), source })?;
    Ok(hex(&hash.finalize()))
}

/// What came of an upload or a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Whether the session begins with this.
    pub begins: bool,
    /// Whether a run, a conversation or a Jupyter kernel begins the session, and no caller asked for one: without files and live variables, there is nothing to come
    /// back to.
    pub is_single_run: bool,
    pub files: Vec<(FileDetails, Written)>,
    /// Files that are no longer the current ones of their names.
    pub gone: Vec<FileId>,
    pub execution: Option<NewExecution>,
    /// Whether one file that has no room keeps all others out.
    pub all_or_nothing: bool,
}

/// What is known of a file beside its bytes.
#[derive(Debug, Clone)]
pub struct FileDetails {
    pub name: FileName,
    pub content_type: String,
    pub origin: Origin,
    pub read_only: bool,
    pub execution: Option<ExecutionId>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoma_model::Span;

    const QUOTA: Quota = Quota {
        session_bytes: 1 << 20,
        session_files: 100,
        owner_bytes: 1 << 20,
        owner_files: 100,
        owner_sessions: 1 << 20,
    };

    fn session(store: &Store, retention: Retention) -> Session {
        let owner = Owner { client: "chat".to_owned(), user: None };
        let profile = "default".to_owned();
        store.open_session(NewSession { owner, name: None, profile, resource: None, retention }).unwrap()
    }

    const DAY: i64 = 86_400_000;

    /// The sweeper lists what is over, and only then removes one after the other. A run that ends in between has used its
    /// session, and its artifacts have been acknowledged.
    #[test]
    fn what_was_used_since_it_was_found_to_be_over_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), QUOTA).unwrap();
        let session = session(&store, Retention::For(Span::millis(u64::try_from(DAY).unwrap())));
        store.clock = Clock::at(store.now() + 2 * DAY);
        let over = store.metadata.expired_sessions(store.now(), None, 10).unwrap();
        assert_eq!(over.len(), 1);
        store.touch_session(&session.id).unwrap();
        assert!(store.remove_expired(&over[0].1).unwrap().is_none());
        assert!(store.session(&session.id).unwrap().is_some());
        store.clock = Clock::at(store.now() + 2 * DAY);
        assert!(store.remove_expired(&session.id).unwrap().is_some());
    }

    #[test]
    fn a_sweep_is_exact_to_the_millisecond() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), QUOTA).unwrap();
        let session = session(&store, Retention::For(Span::secs(86_400)));
        session_forever(&store);
        let over = session.expires_at.unwrap();
        // A clock that does not go on while this is looked at would be needed for less than a second.
        store.clock = Clock::at(over - 1000);
        assert_eq!(store.sweep().unwrap(), Swept::default());
        store.clock = Clock::at(over);
        assert_eq!(store.sweep().unwrap().sessions, 1);
        store.clock = Clock::at(i64::MAX);
        assert_eq!(store.sweep().unwrap(), Swept::default());
    }

    fn session_forever(store: &Store) -> Session {
        session(store, Retention::Forever)
    }

    #[test]
    fn whoever_uses_a_session_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), QUOTA).unwrap();
        let ten_days = || session(&store, Retention::For(Span::secs(864_000)));
        let (touched, written, renamed, left) = (ten_days(), ten_days(), ten_days(), ten_days());
        let begun = store.now();
        store.clock = Clock::at(begun + 6 * DAY);
        store.touch_session(&touched.id).unwrap();
        store.commit(&written, Outcome::default()).unwrap();
        let name = SessionChange { name: Some(Some("x".parse().unwrap())), ttl: None };
        assert!(store.change_session(&renamed.id, name).unwrap());
        store.clock = Clock::at(begun + 11 * DAY);
        assert_eq!(store.sweep().unwrap().sessions, 1);
        assert!(store.session(&left.id).unwrap().is_none());
        store.clock = Clock::at(begun + 17 * DAY);
        assert_eq!(store.sweep().unwrap().sessions, 3);
    }

    /// A host whose clock was wrong at one start and right at the next: what was made in the future lives longer, and
    /// nothing goes earlier than it should.
    #[test]
    fn a_clock_that_was_ahead_at_an_earlier_start_removes_nothing_early() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), QUOTA).unwrap();
        let now = store.now();
        store.clock = Clock::at(now + 365 * DAY);
        let session = session(&store, Retention::For(Span::secs(60)));
        store.clock = Clock::at(now);
        assert_eq!(store.sweep().unwrap(), Swept::default());
        // Its next use puts that right.
        store.touch_session(&session.id).unwrap();
        assert!(store.session(&session.id).unwrap().unwrap().expires_at.unwrap() < now + DAY);
    }
}
