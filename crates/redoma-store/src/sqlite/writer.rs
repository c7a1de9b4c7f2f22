//! Whoever writes. All changes go through one thread, which does everything that has come in meanwhile in one transaction:
//! however many wait, the disk is waited for once. Each change is whole or not at all, whatever becomes of the others.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::StoreError;

/// Whether a change that was acknowledged must survive the end of the machine, or of this process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    Soon,
    Now,
}

/// So many changes are done together at most.
const BATCH: usize = 128;

/// A change: done first, then told whether it has been committed.
struct Job {
    durability: Durability,
    work: Box<Work>,
}

/// Does the change, or hears why it can't be.
type Work = dyn FnOnce(Result<&Connection, &Failure>) -> Done + Send;

/// A change that has been made, but not yet committed.
struct Done {
    tell: Tell,
    failure: Option<Failure>,
}

/// Tells whoever waits, once it is known whether the whole has been committed.
type Tell = Box<dyn FnOnce(Result<(), &Failure>) + Send>;

/// Why something could not be committed, for all whom it concerns.
#[derive(Debug, Clone)]
struct Failure {
    code: rusqlite::ffi::Error,
    message: Option<String>,
}

impl From<&rusqlite::Error> for Failure {
    fn from(error: &rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::SqliteFailure(code, message) => Self { code: *code, message: message.clone() },
            other => Self {
                code: rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR),
                message: Some(other.to_string()),
            },
        }
    }
}

impl Failure {
    fn error(&self) -> StoreError {
        rusqlite::Error::SqliteFailure(self.code, self.message.clone()).into()
    }
}

pub(super) struct Writer {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self, StoreError> {
        let (jobs, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || serve(&connection, &inbox))
            .map_err(|source| StoreError::Files { path: "a thread".into(), source })?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Some(thread) })
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = sync_channel(1);
        let work = move |connection: Result<&Connection, &Failure>| -> Done {
            let result = match connection {
                Ok(connection) => in_savepoint(connection, work),
                Err(failure) => Err(failure.error()),
            };
            let failure = match &result {
                Err(StoreError::Database(error)) => Some(Failure::from(error)),
                _ => None,
            };
            let tell = move |committed: Result<(), &Failure>| {
                let committed = committed.map_err(Failure::error);
                let _ = tell.send(result.and_then(|value| committed.map(|()| value)));
            };
            Done { tell: Box::new(tell), failure }
        };
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let jobs = jobs.ok_or(StoreError::Closed)?;
        jobs.send(Job { durability, work: Box::new(work) }).map_err(|_| StoreError::Closed)?;
        told.recv().map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn in_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.prepare_cached("SAVEPOINT change")?.execute([])?;
    let result = work(connection);
    if result.is_err() {
        // Some failures, such as a full disk, end the whole transaction: then there is nothing to go back to.
        if connection.is_autocommit() {
            return result;
        }
        connection.prepare_cached("ROLLBACK TO change")?.execute([])?;
    }
    connection.prepare_cached("RELEASE change")?.execute([])?;
    result
}

fn serve(connection: &Connection, inbox: &Receiver<Job>) {
    while let Ok(first) = inbox.recv() {
        let mut jobs = VecDeque::from([first]);
        while jobs.len() < BATCH
            && let Ok(next) = inbox.try_recv()
        {
            jobs.push_back(next);
        }
        while !jobs.is_empty() {
            together(connection, &mut jobs);
        }
    }
}

/// Does changes in one transaction: all of them, or those up to one that ends it.
fn together(connection: &Connection, jobs: &mut VecDeque<Job>) {
    let durability = jobs.iter().map(|job| job.durability).max().unwrap_or(Durability::Now);
    if let Err(error) = begin(connection, durability) {
        let failure = Failure::from(&error);
        for job in jobs.drain(..) {
            ((job.work)(Err(&failure)).tell)(Err(&failure));
        }
        return;
    }
    let mut told: Vec<Tell> = Vec::with_capacity(jobs.len());
    let mut ended = None;
    while let Some(job) = jobs.pop_front() {
        let Done { tell, failure } = (job.work)(Ok(connection));
        told.push(tell);
        if connection.is_autocommit() {
            ended = failure;
            break;
        }
    }
    let committed =
        connection.execute_batch("COMMIT").map_err(|error| ended.unwrap_or(Failure::from(&error)));
    if committed.is_err() && !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    for tell in told {
        tell(committed.as_ref().copied());
    }
}

fn begin(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    let synchronous = match durability {
        Durability::Soon => "normal",
        Durability::Now => "full",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.execute_batch("BEGIN IMMEDIATE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    fn writer(folder: &std::path::Path) -> Writer {
        let connection = Connection::open(folder.join("db")).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = wal; CREATE TABLE numbers (number INTEGER UNIQUE)")
            .unwrap();
        Writer::start(connection).unwrap()
    }

    fn add(number: i64) -> impl FnOnce(&Connection) -> Result<(), StoreError> {
        move |connection| {
            connection.execute("INSERT INTO numbers VALUES (?)", [number])?;
            Ok(())
        }
    }

    fn numbers(folder: &std::path::Path) -> Vec<i64> {
        let connection = Connection::open(folder.join("db")).unwrap();
        let mut statement = connection.prepare("SELECT number FROM numbers ORDER BY number").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Three changes in one batch, the second of which does this.
    fn around(bad: fn(&Connection) -> Result<(), StoreError>) -> (Vec<Result<(), StoreError>>, Vec<i64>) {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        let (held, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let results = std::thread::scope(|scope| {
            let (begun, goes) = (Arc::clone(&held), Arc::clone(&go));
            // While this one is at work, the others come together.
            let first = scope.spawn(|| {
                writer.write(Durability::Soon, move |_| {
                    begun.wait();
                    goes.wait();
                    Ok(())
                })
            });
            held.wait();
            let mut waiting = Vec::new();
            let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
            waiting.push(scope.spawn(|| writer.write(Durability::Soon, add(1))));
            pause();
            waiting.push(scope.spawn(|| writer.write(Durability::Now, bad)));
            pause();
            waiting.push(scope.spawn(|| writer.write(Durability::Soon, add(3))));
            pause();
            go.wait();
            first.join().unwrap().unwrap();
            waiting.into_iter().map(|one| one.join().unwrap()).collect()
        });
        drop(writer);
        (results, numbers(folder.path()))
    }

    #[test]
    fn a_change_that_fails_is_undone_alone() {
        let (results, numbers) = around(|connection| {
            connection.execute("INSERT INTO numbers VALUES (2)", [])?;
            connection.execute("INSERT INTO numbers VALUES (1)", [])?;
            Ok(())
        });
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true], "{results:?}");
        assert_eq!(numbers, [1, 3]);
    }

    /// As a full disk does. Nobody is told that something was committed that was not, or the other way round.
    #[test]
    fn a_change_that_ends_the_transaction_takes_those_before_it_along() {
        let (results, numbers) = around(|connection| {
            connection.execute_batch("ROLLBACK")?;
            let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
            Err(rusqlite::Error::SqliteFailure(full, None).into())
        });
        assert_eq!(
            results.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [false, false, true],
            "{results:?}"
        );
        assert!(results[..2].iter().all(|result| result.as_ref().unwrap_err().is_full()), "{results:?}");
        assert_eq!(numbers, [3]);
    }

    #[test]
    fn after_the_end_nothing_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        writer.write(Durability::Now, add(1)).unwrap();
        writer.jobs.lock().unwrap().take();
        assert!(matches!(writer.write(Durability::Now, add(2)), Err(StoreError::Closed)));
    }
}
