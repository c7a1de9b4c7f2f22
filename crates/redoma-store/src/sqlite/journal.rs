//! Runs that were acknowledged and are not in their table yet. To put one there changes a dozen pages of the database, which
//! takes as long as a short cell; a line at the end of a file is as safe from the end of this process, and hundreds of them go
//! into the table together, a moment later.
//!
//! There are two files. While the lines of one are put into the table, new ones go to the other; a file is emptied when all of
//! it is in the table. Whoever dies in between leaves lines that are in both: what is in the table already is passed over.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redoma_model::SessionId;
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::metadata::{Added, NewExecution};

/// So many wait at most, and of so many bytes: whoever brings one more puts them into the table.
const MOST: usize = 256;
const MOST_BYTES: u64 = 4 << 20;

/// A run, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) id: String,
    pub(super) session: SessionId,
    pub(super) started_at: i64,
    /// When its session was used last.
    pub(super) ended_at: i64,
    pub(super) language: String,
    pub(super) result: String,
}

impl Noted {
    pub(super) fn new(run: NewExecution, session: SessionId, added: &Added, now: i64) -> Self {
        let NewExecution { id, started_at, language, result } = run;
        let id = id.as_str().to_owned();
        Self { id, session, started_at, ended_at: now, language, result: result(added) }
    }
}

/// A file, and its lines that are not in the table.
#[derive(Debug)]
struct Page {
    file: File,
    length: u64,
    lines: Vec<Noted>,
}

impl Page {
    fn new(file: File) -> Self {
        Self { file, length: 0, lines: Vec::new() }
    }
}

#[derive(Debug)]
struct Pages {
    /// Where lines go now.
    current: Page,
    /// Whose lines are put into the table, or are there.
    other: Page,
    /// When sessions were used that have lines in either.
    used: HashMap<SessionId, i64>,
}

#[derive(Debug)]
pub(super) struct Journal {
    pages: Mutex<Pages>,
    /// Held by whoever puts lines into the table.
    emptying: Mutex<()>,
    /// How many lines are not in the table: for those who only want to know whether there are any.
    count: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Beside the database.
fn paths(database: &Path) -> [PathBuf; 2] {
    ["runs0", "runs1"].map(|name| {
        let mut path = database.as_os_str().to_owned();
        path.push("-");
        path.push(name);
        path.into()
    })
}

fn open(path: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(|source| StoreError::Files { path: path.to_owned(), source })
}

impl Journal {
    /// With what a server that died has left, which is put into the table first.
    pub(super) fn open(
        database: &Path,
        put: impl Fn(Vec<Noted>) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        let paths = paths(database);
        let files = [open(&paths[0])?, open(&paths[1])?];
        for (file, path) in files.iter().zip(&paths) {
            let failed = |source| StoreError::Files { path: path.clone(), source };
            let left = read(file).map_err(failed)?;
            if !left.is_empty() {
                put(left)?;
            }
            file.set_len(0).map_err(failed)?;
        }
        let [current, other] = files.map(Page::new);
        let pages = Mutex::new(Pages { current, other, used: HashMap::new() });
        Ok(Self { pages, emptying: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// Writes a run down. Whether there is room for more; an error if it could not be.
    pub(super) fn note(&self, noted: &Noted) -> std::io::Result<bool> {
        let mut line = serde_json::to_vec(noted)?;
        line.push(b'\n');
        let mut pages = lock(&self.pages);
        let Pages { current, used, .. } = &mut *pages;
        if let Err(error) = current.file.write_all_at(&line, current.length) {
            // What is there of it is no line, or the next one is written over it.
            let _ = current.file.set_len(current.length);
            return Err(error);
        }
        current.length += line.len() as u64;
        used.insert(noted.session.clone(), noted.ended_at);
        current.lines.push(noted.clone());
        self.count.fetch_add(1, Ordering::Release);
        Ok(current.lines.len() < MOST && current.length < MOST_BYTES)
    }

    /// When a session was used last, if that is not in its table yet.
    pub(super) fn used_at(&self, session: &SessionId) -> Option<i64> {
        if self.is_empty() {
            return None;
        }
        lock(&self.pages).used.get(session).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Has everything that was noted before put into the table.
    pub(super) fn empty(&self, put: impl Fn(Vec<Noted>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        if self.is_empty() {
            return Ok(());
        }
        let _emptying = lock(&self.emptying);
        // Once more, if the first time was for lines that had been left.
        while let Some((lines, is_last)) = self.next_page() {
            let count = lines.len();
            put(lines)?;
            self.count.fetch_sub(count, Ordering::Release);
            let mut pages = lock(&self.pages);
            let Pages { current, other, used } = &mut *pages;
            // A file that can't be emptied has lines that are passed over the next time.
            let _ = other.file.set_len(0);
            (other.lines, other.length) = (Vec::new(), 0);
            used.retain(|session, _| current.lines.iter().any(|noted| noted.session == *session));
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Lines for the table, and whether they are all that there were. New ones go elsewhere from here on.
    fn next_page(&self) -> Option<(Vec<Noted>, bool)> {
        let mut pages = lock(&self.pages);
        let Pages { current, other, .. } = &mut *pages;
        let is_left = !other.lines.is_empty();
        if !is_left {
            std::mem::swap(current, other);
        }
        (!other.lines.is_empty()).then(|| (other.lines.clone(), !is_left))
    }
}

/// The lines of a file that can be read. One that was not written to its end, or that a dying disk has spoiled, is none.
fn read(file: &File) -> std::io::Result<Vec<Noted>> {
    let mut lines = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        lines.extend(serde_json::from_slice::<Noted>(&line?).ok());
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::random::new_session_id;

    fn noted(id: &str, session: &SessionId) -> Noted {
        Noted {
            id: id.to_owned(),
            session: session.clone(),
            started_at: 1,
            ended_at: 2,
            language: "py".to_owned(),
            result: "{\"a\":\"\u{e9}\\n\"}".to_owned(),
        }
    }

    /// A table that can be full.
    #[derive(Default)]
    struct Table {
        ids: RefCell<Vec<String>>,
        is_full: RefCell<bool>,
    }

    impl Table {
        fn put(&self, lines: Vec<Noted>) -> Result<(), StoreError> {
            if *self.is_full.borrow() {
                let (path, source) = (PathBuf::new(), std::io::ErrorKind::StorageFull.into());
                return Err(StoreError::Files { path, source });
            }
            self.ids.borrow_mut().extend(lines.into_iter().map(|noted| noted.id));
            Ok(())
        }

        fn open(&self, folder: &Path) -> Journal {
            Journal::open(&folder.join("db"), |lines| self.put(lines)).unwrap()
        }
    }

    fn sizes(folder: &Path) -> Vec<u64> {
        paths(&folder.join("db")).iter().map(|path| std::fs::metadata(path).unwrap().len()).collect()
    }

    #[test]
    fn what_was_noted_comes_into_the_table_once() {
        let (folder, table, session) =
            (tempfile::tempdir().unwrap(), Table::default(), new_session_id().unwrap());
        let journal = table.open(folder.path());
        for id in ["a", "b"] {
            journal.note(&noted(id, &session)).unwrap();
        }
        assert_eq!(journal.used_at(&session), Some(2));
        journal.empty(|lines| table.put(lines)).unwrap();
        journal.note(&noted("c", &session)).unwrap();
        journal.empty(|lines| table.put(lines)).unwrap();
        assert!(journal.is_empty() && journal.used_at(&session).is_none());
        assert_eq!(*table.ids.borrow(), ["a", "b", "c"]);
        assert_eq!(sizes(folder.path()), [0, 0]);
    }

    #[test]
    fn what_a_killed_server_leaves_is_found() {
        let (folder, table, session) =
            (tempfile::tempdir().unwrap(), Table::default(), new_session_id().unwrap());
        let journal = table.open(folder.path());
        journal.note(&noted("a", &session)).unwrap();
        // Died while this one was put into the table, and another came.
        let _ = journal.empty(|_| {
            journal.note(&noted("b", &session)).unwrap();
            std::fs::copy(folder.path().join("db-runs0"), folder.path().join("copy")).unwrap();
            Ok(())
        });
        std::fs::rename(folder.path().join("copy"), folder.path().join("db-runs0")).unwrap();
        // And the next line was not written to its end.
        let second = folder.path().join("db-runs1");
        let mut bytes = std::fs::read(&second).unwrap();
        bytes.extend(b"{\"id\":\"c\",\"ses");
        std::fs::write(&second, bytes).unwrap();
        drop(journal);
        let journal = table.open(folder.path());
        assert_eq!(*table.ids.borrow(), ["a", "b"]);
        assert!(journal.is_empty());
        assert_eq!(sizes(folder.path()), [0, 0]);
    }

    #[test]
    fn nothing_is_lost_while_the_table_is_full() {
        let (folder, table, session) =
            (tempfile::tempdir().unwrap(), Table::default(), new_session_id().unwrap());
        let journal = table.open(folder.path());
        journal.note(&noted("a", &session)).unwrap();
        *table.is_full.borrow_mut() = true;
        for id in ["b", "c"] {
            let failed = journal.empty(|lines| {
                // Somebody else does not wait for it.
                journal.note(&noted(id, &session)).unwrap();
                table.put(lines)
            });
            assert!(failed.unwrap_err().is_full());
        }
        assert_eq!(journal.used_at(&session), Some(2));
        *table.is_full.borrow_mut() = false;
        // Whether it is this server that goes on, or the next.
        let mut copy = Vec::new();
        for path in paths(&folder.path().join("db")) {
            copy.extend(read(&File::open(path).unwrap()).unwrap().into_iter().map(|noted| noted.id));
        }
        assert_eq!(copy, ["a", "b", "c"]);
        journal.empty(|lines| table.put(lines)).unwrap();
        assert_eq!(*table.ids.borrow(), ["a", "b", "c"]);
        assert_eq!(sizes(folder.path()), [0, 0]);
    }

    #[test]
    fn a_full_page_is_told() {
        let (folder, table, session) =
            (tempfile::tempdir().unwrap(), Table::default(), new_session_id().unwrap());
        let journal = table.open(folder.path());
        let has_room: Vec<_> = (0..MOST).map(|_| journal.note(&noted("a", &session)).unwrap()).collect();
        assert_eq!(has_room.iter().position(|has_room| !has_room), Some(MOST - 1));
    }
}
