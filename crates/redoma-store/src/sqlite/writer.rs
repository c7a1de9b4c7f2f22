//! Whoever writes. One at a time has the connection, and does everything that has come in meanwhile, others' changes with
//! its own, in one transaction: however many wait, the disk is waited for once. Each change is whole or not at all, whatever
//! becomes of the others.
//!
//! There is no thread for it: handing a change over and hearing of it are two wake-ups, which whoever asks waits for.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// What nobody has begun yet, in order.
    waiting: Mutex<VecDeque<Job>>,
    connection: Mutex<Connection>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    pub(super) fn new(connection: Connection) -> Self {
        Self { waiting: Mutex::default(), connection: Mutex::new(connection) }
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
                Err(failure) => Ok(Err(failure.error())),
            };
            let failure = match &result {
                Ok(Err(StoreError::Database(error))) => Some(Failure::from(error)),
                _ => None,
            };
            let tell = move |committed: Result<(), &Failure>| {
                let committed = committed.map_err(Failure::error);
                let _ = tell.send(result.map(|result| result.and_then(|value| committed.map(|()| value))));
            };
            Done { tell: Box::new(tell), failure }
        };
        lock(&self.waiting).push_back(Job { durability, work: Box::new(work) });
        let result = loop {
            // Whoever waits here may find it done by the one before.
            let connection = lock(&self.connection);
            match told.try_recv() {
                Ok(result) => break result,
                Err(TryRecvError::Disconnected) => return Err(StoreError::Lost),
                Err(TryRecvError::Empty) => self.do_what_waits(&connection),
            }
        };
        // A panic is its own, whoever has made the change.
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn do_what_waits(&self, connection: &Connection) {
        let mut jobs: VecDeque<_> = {
            let mut waiting = lock(&self.waiting);
            let count = waiting.len().min(BATCH);
            waiting.drain(..count).collect()
        };
        while !jobs.is_empty() {
            together(connection, &mut jobs);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a change, or nothing of it.
fn in_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> std::thread::Result<Result<T, StoreError>> {
    let savepoint = |end: &str| connection.prepare_cached(end)?.execute([]);
    if let Err(error) = savepoint("SAVEPOINT change") {
        return Ok(Err(error.into()));
    }
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| work(connection)));
    let is_done = matches!(result, Ok(Ok(_)));
    // Some failures, such as a full disk, end the whole transaction: then there is nothing to go back to.
    if !is_done && connection.is_autocommit() {
        return result;
    }
    let undone = if is_done { Ok(0) } else { savepoint("ROLLBACK TO change") };
    match undone.and_then(|_| savepoint("RELEASE change")) {
        Ok(_) => result,
        Err(error) => Ok(Err(error.into())),
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
        Writer::new(connection)
    }

    fn add(number: i64) -> impl FnOnce(&Connection) -> Result<(), StoreError> {
        move |connection| {
            connection.execute("INSERT INTO numbers VALUES (?)", [number])?;
            Ok(())
        }
    }

    fn numbers_of(folder: &std::path::Path) -> Vec<i64> {
        let connection = Connection::open(folder.join("db")).unwrap();
        let mut statement = connection.prepare("SELECT number FROM numbers ORDER BY number").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Three changes in one batch, the second of which does this.
    fn around(
        bad: fn(&Connection) -> Result<(), StoreError>,
    ) -> (Vec<std::thread::Result<Result<(), StoreError>>>, Vec<i64>) {
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
            waiting.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        drop(writer);
        (results, numbers_of(folder.path()))
    }

    #[test]
    fn a_change_that_fails_is_undone_alone() {
        let (results, numbers) = around(|connection| {
            connection.execute("INSERT INTO numbers VALUES (2)", [])?;
            connection.execute("INSERT INTO numbers VALUES (1)", [])?;
            Ok(())
        });
        let done: Vec<_> = results.iter().map(|result| result.as_ref().unwrap().is_ok()).collect();
        assert_eq!(done, [true, false, true], "{results:?}");
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
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let done: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(done, [false, false, true], "{results:?}");
        assert!(results[..2].iter().all(|result| result.as_ref().unwrap_err().is_full()), "{results:?}");
        assert_eq!(numbers, [3]);
    }

    #[test]
    fn a_panic_is_its_owners_alone() {
        let (results, numbers) = around(|connection| {
            connection.execute("INSERT INTO numbers VALUES (2)", [])?;
            panic!("as expected")
        });
        assert!(matches!(results[..], [Ok(Ok(())), Err(_), Ok(Ok(()))]), "{results:?}");
        assert_eq!(numbers, [1, 3]);
    }

    #[test]
    fn many_at_once_are_all_told_and_all_done() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let writer = &writer;
                scope.spawn(move || {
                    for number in 0..50 {
                        let durability = if number % 7 == 0 { Durability::Now } else { Durability::Soon };
                        writer.write(durability, add(thread * 50 + number)).unwrap();
                    }
                });
            }
        });
        assert_eq!(numbers_of(folder.path()), (0..800).collect::<Vec<_>>());
    }
}
