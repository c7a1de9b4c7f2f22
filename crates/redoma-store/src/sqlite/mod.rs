//! `SQLite`: one connection that writes, and several that read.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | opening, migrations, who reads |
//! | `writer.rs` | whoever writes: many requests, one trip to the disk |
//! | `journal.rs` | runs on their way into their table |
//! | `sessions.rs`, `files.rs`, `executions.rs`, `keys.rs` | the tables |

mod executions;
mod files;
mod journal;
mod keys;
mod sessions;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::{ExecutionId, FileId, KeyId, Owner, Session, SessionId};
use rusqlite::Connection;

use crate::StoreError;
use crate::blobs::BlobPath;
use crate::key::KeyRecord;
use crate::metadata::{
    Added, Commit, ExecutionRecord, FailedLogin, FileRecord, MayGo, Metadata, OwnerUsage, Quota, Refused,
    SessionChange, SessionQuery, Totals,
};
use journal::{Journal, Noted};
use writer::{Durability, Writer};

/// Each brings the database from one version to the next. Those that have been released are never changed.
const MIGRATIONS: [&str; 4] = [
    include_str!("../../migrations/001-sessions-files-keys.sql"),
    include_str!("../../migrations/002-key-profiles.sql"),
    include_str!("../../migrations/003-executions-in-a-row.sql"),
    include_str!("../../migrations/004-records-in-quotas.sql"),
];

/// How long one process waits for another (the server, `redoma keys`) to have written.
const BUSY: Duration = Duration::from_secs(10);
/// Connections for reading that are kept open. More are opened when more threads read at once, and closed after use: each
/// holds descriptors and a page cache.
const MAX_IDLE_READERS: usize = 8;
/// KiB of pages that a connection for reading may cache, and the one that writes. What is beyond that is in the host's cache.
const READER_CACHE_KIB: i64 = 256;
const WRITER_CACHE_KIB: i64 = 1024;

#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    writer: Writer,
    readers: Mutex<Vec<Connection>>,
    /// Only in the one server of a data folder.
    journal: OnceLock<Arc<Journal>>,
    /// The most bytes that an owner may have: the last quota that a commit came with.
    owner_bytes: AtomicU64,
}

impl Sqlite {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = connect(path, WRITER_CACHE_KIB)?;
        migrate(path, &connection)?;
        let writer = Writer::new(connection);
        Ok(Self {
            path: path.to_owned(),
            writer,
            readers: Mutex::default(),
            journal: OnceLock::new(),
            owner_bytes: AtomicU64::new(u64::MAX),
        })
    }

    /// Puts runs into their table. Those of sessions that are gone meanwhile are gone too.
    fn put(&self, lines: Vec<Noted>) -> Result<(), StoreError> {
        let most = self.owner_bytes.load(Ordering::Relaxed);
        self.write(Durability::Soon, move |connection| {
            for noted in lines {
                let is_new = !executions::is_there(connection, &noted.id)?;
                if is_new && sessions::note_use(connection, &noted.session, noted.ended_at)? {
                    executions::add(connection, &noted, most)?;
                }
            }
            Ok(())
        })
    }

    /// Removes records until an owner is within the quota. Each step is a transaction of its own, so that other writers
    /// have their turn. An error is left to the owner's next commit: what was committed is there already.
    fn make_room(&self, session: &SessionId, quota: Quota) {
        let mut is_over = true;
        while is_over {
            let session = session.clone();
            let step = move |connection: &Connection| {
                executions::make_room(connection, session.as_str(), quota.owner_bytes, None)
            };
            is_over = self.write(Durability::Soon, step).unwrap_or(false);
        }
    }

    /// Writes a run down, to be put into its table later.
    fn note(&self, journal: &Journal, noted: Noted) -> Result<(), StoreError> {
        match journal.note(&noted) {
            Ok(true) => {}
            // It is written down, whatever comes of this.
            Ok(false) => drop(self.flush()),
            Err(_) => self.put(vec![noted])?,
        }
        Ok(())
    }

    /// Before something is read that should have all runs in it. A full disk keeps nobody from reading what is there.
    fn flush_to_read(&self) -> Result<(), StoreError> {
        self.flush().or_else(|error| if error.is_full() { Ok(()) } else { Err(error) })
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = idle.map_or_else(|| connect(&self.path, READER_CACHE_KIB), Ok)?;
        let result = work(&connection);
        let mut idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE_READERS {
            idle.push(connection);
        } else {
            // Closing takes a moment, in which others can have theirs.
            drop(idle);
            drop(connection);
        }
        result
    }

    fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.write(durability, work)
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // What can't be put into its table now is found when the next server starts.
        let _ = self.flush();
    }
}

fn connect(path: &Path, cache_kib: i64) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        use_log(&connection)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        // A negative number is in KiB, a positive one in pages.
        connection.pragma_update(None, "cache_size", -cache_kib)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    };
    let connection = open().map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
    restrict(path)?;
    Ok(connection)
}

/// Changes go to a log first, so that whoever reads does not wait. A new database is switched to that by whoever comes first;
/// others who come in that moment are told at once that it is busy, whatever the time for which they would wait.
fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// Nobody else reads who has which files.
fn restrict(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|source| StoreError::Files { path: path.to_owned(), source })
}

fn migrate(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open { path: path.to_owned(), source };
    // Two that start at once do it one after the other, and the second finds it done.
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)
            .map_err(failed)?;
    let found: i64 =
        transaction.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    let done = usize::try_from(found).map_err(|_| StoreError::Invalid(format!("version {found}")))?;
    for migration in &MIGRATIONS[done..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", known).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// A session that was used at this time too, which its row may not say yet.
fn as_used(mut session: Session, used_at: Option<i64>) -> Session {
    if let Some(later) = used_at.map(|at| at - session.used_at).filter(|later| *later > 0) {
        session.expires_at = session.expires_at.map(|end| end.saturating_add(later));
        session.used_at += later;
    }
    session
}

/// The database's numbers are signed. Sizes and counts are far below.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn user_column(owner: &Owner) -> &str {
    owner.user.as_deref().unwrap_or_default()
}

fn owner_from(client: String, user: String) -> Owner {
    Owner { client, user: Some(user).filter(|user| !user.is_empty()) }
}

/// A value that was written by this program and must read back.
fn parse<T: std::str::FromStr>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| StoreError::Invalid(text.to_owned()))
}

/// The name of a variant, as serde writes it.
fn name_of(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn by_name<T: serde::de::DeserializeOwned>(name: &str) -> Result<T, StoreError> {
    serde_json::from_value(name.into()).map_err(|_| StoreError::Invalid(name.to_owned()))
}

impl Metadata for Sqlite {
    fn recover(&self) -> Result<(), StoreError> {
        if self.journal.get().is_none() {
            let _ = self.journal.set(Arc::new(Journal::open(&self.path)?));
        }
        // On a full disk they wait where they are.
        self.flush_to_read()
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.journal.get().map_or(Ok(()), |journal| journal.empty(|lines| self.put(lines)))
    }

    fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        // Before the row: what leaves the journal is in the row by then.
        let used_at = self.journal.get().and_then(|journal| journal.used_at(id));
        let session = self.read(|connection| sessions::get(connection, id))?;
        Ok(session.map(|session| as_used(session, used_at)))
    }

    fn sessions(&self, query: &SessionQuery) -> Result<Vec<Session>, StoreError> {
        self.flush_to_read()?;
        self.read(|connection| sessions::list(connection, query))
    }

    fn change_session(&self, id: &SessionId, change: SessionChange, now: i64) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write(Durability::Now, move |connection| sessions::change(connection, &id, &change, now))
    }

    fn touch_session(&self, id: &SessionId, now: i64) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(Durability::Soon, move |connection| sessions::touch(connection, &id, now).map(|_| ()))
    }

    fn expired_sessions(
        &self,
        now: i64,
        after: Option<&(i64, SessionId)>,
        limit: usize,
    ) -> Result<Vec<(i64, SessionId)>, StoreError> {
        self.flush_to_read()?;
        self.read(|connection| sessions::expired(connection, now, after, limit))
    }

    fn remove_session(
        &self,
        id: &SessionId,
        may: Box<dyn FnOnce(&Session) -> bool + Send>,
    ) -> Result<Option<Session>, StoreError> {
        let (id, journal) = (id.clone(), self.journal.get().cloned());
        self.write(Durability::Now, move |connection| {
            let used_at = journal.and_then(|journal| journal.used_at(&id));
            let may = |session: &Session| may(&as_used(session.clone(), used_at));
            sessions::remove(connection, &id, may)
        })
    }

    fn commit(&self, mut commit: Commit, quota: Quota) -> Result<Added, StoreError> {
        self.owner_bytes.store(quota.owner_bytes, Ordering::Relaxed);
        // Of a session that is there, and whose files stay as they are.
        let is_run_alone = commit.begin.is_none() && commit.files.is_empty() && commit.gone.is_empty();
        if let Some(journal) = self.journal.get().filter(|_| is_run_alone)
            && let Some(run) = commit.execution.take()
        {
            let added = Added::default();
            let noted = Noted::new(run, commit.session, &added, commit.now);
            return self.note(journal, noted).map(|()| added);
        }
        // Who has been told of a file must find it again, whatever happens. A run alone can be repeated.
        let durability = match (commit.files.is_empty(), commit.gone.is_empty()) {
            (true, true) => Durability::Soon,
            _ => Durability::Now,
        };
        let session = commit.session.clone();
        let (added, is_over) = self.write(durability, move |connection| {
            match &commit.begin {
                Some(beginning) => sessions::add(connection, beginning)?,
                None => {
                    sessions::touch(connection, &commit.session, commit.now)?;
                }
            }
            let session = sessions::get(connection, &commit.session)?.ok_or(StoreError::NoSuchSession)?;
            let added = files::add(connection, &session, commit.files, &commit.gone, quota)?;
            if commit.all_or_nothing
                && let Some(Refused { name, reason, .. }) = added.refused.first()
            {
                return Err(StoreError::NoRoom { name: name.clone(), reason: reason.clone() });
            }
            let is_over = if let Some(execution) = commit.execution {
                let noted = Noted::new(execution, session.id, &added, commit.now);
                executions::add(connection, &noted, quota.owner_bytes)?
            } else if added.files.is_empty() {
                false
            } else {
                executions::make_room(connection, session.id.as_str(), quota.owner_bytes, None)?
            };
            Ok((added, is_over))
        })?;
        if is_over {
            self.make_room(&session, quota);
        }
        Ok(added)
    }

    fn file(&self, id: &FileId) -> Result<Option<FileRecord>, StoreError> {
        self.read(|connection| files::get(connection, id))
    }

    fn current_files(&self, session: &SessionId) -> Result<Vec<FileRecord>, StoreError> {
        self.read(|connection| files::list(connection, session, files::Which::Current))
    }

    fn all_files(&self, session: &SessionId) -> Result<Vec<FileRecord>, StoreError> {
        self.read(|connection| files::list(connection, session, files::Which::All))
    }

    fn remove_file(&self, id: &FileId) -> Result<Option<FileRecord>, StoreError> {
        let id = id.clone();
        self.write(Durability::Now, move |connection| files::remove(connection, &id))
    }

    fn knows_blob(&self, blob: &BlobPath) -> Result<bool, StoreError> {
        self.read(|connection| files::knows_blob(connection, blob))
    }

    fn totals(&self) -> Result<Totals, StoreError> {
        self.read(sessions::totals)
    }

    fn owner_usage(&self, owner: &Owner) -> Result<OwnerUsage, StoreError> {
        self.read(|connection| files::owner_usage(connection, owner))
    }

    fn owner_sessions(&self, owner: &Owner) -> Result<u64, StoreError> {
        self.read(|connection| sessions::count_of(connection, owner))
    }

    fn evict_sessions(
        &self,
        owner: &Owner,
        count: usize,
        opened_before: i64,
        may: MayGo,
    ) -> Result<Vec<Session>, StoreError> {
        let owner = owner.clone();
        self.write(Durability::Soon, move |connection| {
            sessions::evict(connection, &owner, count, opened_before, &may)
        })
    }

    fn execution(&self, id: &ExecutionId) -> Result<Option<ExecutionRecord>, StoreError> {
        self.flush_to_read()?;
        self.read(|connection| executions::get(connection, id))
    }

    fn executions(&self, session: &SessionId, limit: usize) -> Result<Vec<ExecutionRecord>, StoreError> {
        self.flush_to_read()?;
        self.read(|connection| executions::list(connection, session, limit))
    }

    fn add_key(&self, key: KeyRecord) -> Result<(), StoreError> {
        self.write(Durability::Now, move |connection| keys::add(connection, &key))
    }

    fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>, StoreError> {
        self.read(|connection| keys::by_hash(connection, hash))
    }

    fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.read(keys::list)
    }

    fn revoke_key(&self, id: &KeyId, now: i64) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write(Durability::Now, move |connection| keys::revoke(connection, &id, now))
    }

    fn note_failed_login(&self, failed: FailedLogin) -> Result<(), StoreError> {
        self.write(Durability::Soon, move |connection| keys::note_failed_login(connection, &failed))
    }

    fn failed_logins(&self, limit: usize) -> Result<Vec<FailedLogin>, StoreError> {
        self.read(|connection| keys::failed_logins(connection, limit))
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            let mut found = Vec::new();
            let checked = connection.pragma_query(None, "integrity_check", |row| {
                found.push(row.get::<_, String>(0)?);
                Ok(())
            });
            found.retain(|line| line != "ok");
            // What can't even be checked is wrong too.
            found.extend(checked.err().map(|error| error.to_string()));
            match files::wrong_sums(connection) {
                Ok(wrong) => found.extend(wrong),
                Err(error) => found.push(error.to_string()),
            }
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_burst_of_readers_leaves_few_connections_open() {
        const READERS: usize = 3 * MAX_IDLE_READERS;
        let folder = tempfile::tempdir().unwrap();
        let sqlite = Sqlite::open(&folder.path().join("db")).unwrap();
        let all = Barrier::new(READERS);
        std::thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    sqlite.read(|connection| {
                        // Each has a connection of its own while all are here.
                        all.wait();
                        sessions::totals(connection)
                    })
                });
            }
        });
        assert_eq!(sqlite.readers.lock().unwrap().len(), MAX_IDLE_READERS);
    }
}
