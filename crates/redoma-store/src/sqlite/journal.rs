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
const MOST_BYTES: u64 = 256 << 10;
/// So many wait if the table takes none, and of so many bytes; then no more are written down.
const FAR_TOO_MANY: usize = 16 * MOST;
const FAR_TOO_LONG: u64 = 16 * MOST_BYTES;

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
    /// With what a server that died has left, which is to be [put into the table](Self::empty) first.
    pub(super) fn open(database: &Path) -> Result<Self, StoreError> {
        let mut used = HashMap::new();
        let mut pages = Vec::with_capacity(2);
        for path in paths(database) {
            let failed = |source| StoreError::Files { path: path.clone(), source };
            let file = open(&path)?;
            let (lines, length) = read(&file).map_err(failed)?;
            // What was not written to its end.
            file.set_len(length).map_err(failed)?;
            for noted in &lines {
                note_use(&mut used, noted);
            }
            pages.push(Page { file, length, lines });
        }
        let count = AtomicUsize::new(pages.iter().map(|page| page.lines.len()).sum());
        let (Some(other), Some(current)) = (pages.pop(), pages.pop()) else { return Err(StoreError::Lost) };
        let pages = Mutex::new(Pages { current, other, used });
        Ok(Self { pages, emptying: Mutex::default(), count })
    }

    /// Writes a run down. Whether there is room for more; an error if it could not be.
    pub(super) fn note(&self, noted: &Noted) -> std::io::Result<bool> {
        let mut line = serde_json::to_vec(noted)?;
        line.push(b'\n');
        let mut pages = lock(&self.pages);
        let Pages { current, used, .. } = &mut *pages;
        if current.lines.len() >= FAR_TOO_MANY || current.length >= FAR_TOO_LONG {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        if let Err(error) = current.file.write_all_at(&line, current.length) {
            // What is there of it is no line, or the next one is written over it.
            let _ = current.file.set_len(current.length);
            return Err(error);
        }
        current.length += line.len() as u64;
        note_use(used, noted);
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

fn note_use(used: &mut HashMap<SessionId, i64>, noted: &Noted) {
    let at = used.entry(noted.session.clone()).or_insert(noted.ended_at);
    *at = (*at).max(noted.ended_at);
}

/// The lines of a file that can be read, and where the last one ends. One that was not written to its end, or that a dying disk
/// has spoiled, is none.
fn read(file: &File) -> std::io::Result<(Vec<Noted>, u64)> {
    let (mut lines, mut end, mut line) = (Vec::new(), 0, Vec::new());
    let mut reader = BufReader::new(file);
    while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        end += line.len() as u64;
        lines.extend(serde_json::from_slice::<Noted>(&line).ok());
        line.clear();
    }
    Ok((lines, end))
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

        /// Emptied, if this is not full.
        fn open(&self, folder: &Path) -> Journal {
            let journal = Journal::open(&folder.join("db")).unwrap();
            let emptied = journal.empty(|lines| self.put(lines));
            assert_eq!(emptied.is_ok(), !*self.is_full.borrow() || journal.is_empty());
            journal
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
        let mut ids = table.ids.borrow().clone();
        ids.sort();
        assert_eq!(ids, ["a", "b"]);
        assert!(journal.is_empty());
        assert_eq!(sizes(folder.path()), [0, 0]);
    }

    /// What a program prints is in its result.
    #[test]
    fn a_result_can_not_be_taken_for_other_lines() {
        let (folder, table, session) =
            (tempfile::tempdir().unwrap(), Table::default(), new_session_id().unwrap());
        let forged = serde_json::to_string(&noted("forged", &session)).unwrap();
        let journal = table.open(folder.path());
        let result = format!("\n{forged}\n\r\u{2028}{forged}\0\n");
        journal.note(&Noted { result: result.clone(), ..noted("a", &session) }).unwrap();
        drop(journal);
        let left = Journal::open(&folder.path().join("db")).unwrap();
        let lines = left.next_page().map(|(lines, _)| lines).unwrap();
        assert_eq!(lines, [Noted { result, ..noted("a", &session) }]);
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
        // Nor if the next server finds it so, and serves.
        drop(journal);
        let journal = table.open(folder.path());
        assert_eq!(journal.used_at(&session), Some(2));
        journal.note(&noted("d", &session)).unwrap();
        *table.is_full.borrow_mut() = false;
        journal.empty(|lines| table.put(lines)).unwrap();
        let mut ids = table.ids.borrow().clone();
        ids.sort();
        assert_eq!(ids, ["a", "b", "c", "d"]);
        assert_eq!(sizes(folder.path()), [0, 0]);
    }

    #[test]
    fn a_full_page_is_told() {
        let (folder, table, session) =
            (tempfile::tempdir().unwrap(), Table::default(), new_session_id().unwrap());
        let journal = table.open(folder.path());
        let has_room: Vec<_> = (0..MOST).map(|_| journal.note(&noted("a", &session)).unwrap()).collect();
        assert_eq!(has_room.iter().position(|has_room| !has_room), Some(MOST - 1));
        // With a table that takes none, there is an end to it.
        let written = (0..FAR_TOO_MANY).filter(|_| journal.note(&noted("a", &session)).is_ok()).count();
        assert_eq!(MOST + written, FAR_TOO_MANY);
    }
}
