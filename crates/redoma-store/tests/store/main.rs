//! The store's promises, kept by the real database and a real folder.
//!
//! | file | subject |
//! |---|---|
//! | `versions.rs` | a file is never changed: a new one of its name is another version |
//! | `quotas.rs` | no more than may be stored |
//! | `commits.rs` | whole or not at all |
//! | `retention.rs` | what goes, when, and what stays |
//! | `recovery.rs` | what a crash leaves, at each stage |
//! | `layout.rs` | where files are, and who can read them |
//! | `opening.rs` | migrations, and databases that are not as they should be |
//! | `full_disk.rs` | no room |
//! | `keys.rs` | secrets that are nowhere |

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod commits;
mod full_disk;
mod keys;
mod layout;
mod opening;
mod quotas;
mod recovery;
mod retention;
mod versions;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use redoma_model::{FileName, Origin, Owner, Retention, Session, StoredFile};
use redoma_store::{
    Added, FileDetails, NewExecution, NewSession, Outcome, Quota, Store, StoreError, Written,
};

const PLENTY: Quota = Quota {
    session_bytes: 1 << 30,
    session_files: 1 << 20,
    owner_bytes: 1 << 40,
    owner_files: 1 << 20,
    owner_sessions: 1 << 20,
};

fn open(folder: &Path) -> Store {
    Store::open(folder, PLENTY).unwrap()
}

fn owner(user: &str) -> Owner {
    Owner { client: "chat".to_owned(), user: Some(user.to_owned()) }
}

fn new_session(owner: Owner, retention: Retention) -> NewSession {
    NewSession { owner, name: None, profile: "default".to_owned(), resource: None, retention }
}

fn session_of(store: &Store, user: &str) -> Session {
    store.open_session(new_session(owner(user), Retention::Forever)).unwrap()
}

fn name(text: &str) -> FileName {
    text.parse().unwrap()
}

fn write(store: &Store, session: &Session, file: &str, bytes: &[u8]) -> (FileDetails, Written) {
    let mut incoming = store.begin_file(session, &name(file)).unwrap();
    incoming.write_all(bytes).unwrap();
    let details = FileDetails {
        name: name(file),
        content_type: "application/octet-stream".to_owned(),
        origin: Origin::Upload,
        read_only: false,
        execution: None,
    };
    (details, incoming.finish())
}

/// Commits files of these names and contents.
fn put_all(store: &Store, session: &Session, files: &[(&str, &[u8])]) -> Result<Added, StoreError> {
    let files = files.iter().map(|(file, bytes)| write(store, session, file, bytes)).collect();
    store.commit(session, Outcome { files, ..Outcome::default() })
}

fn put(store: &Store, session: &Session, file: &str, bytes: &[u8]) -> StoredFile {
    let added = put_all(store, session, &[(file, bytes)]).unwrap();
    added.files.into_iter().next().expect("there is room")
}

fn content(store: &Store, file: &StoredFile) -> Vec<u8> {
    let (_, mut opened) = store.open_file(&file.id).unwrap().expect("it is known");
    let mut bytes = Vec::new();
    opened.read_to_end(&mut bytes).unwrap();
    bytes
}

/// What is wrong with the store.
fn wrong(store: &Store) -> Vec<String> {
    store.check(&mut |_, _| {}).unwrap()
}

/// All files and folders below storage, relative to it, without the folders that are always there.
fn stored(folder: &Path) -> Vec<PathBuf> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(root).unwrap().to_owned());
            if path.symlink_metadata().unwrap().is_dir() {
                walk(root, &path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(&folder.join("storage"), &folder.join("storage"), &mut found);
    let is_ours = |path: &PathBuf| path.starts_with(".incoming") && path.components().count() == 2;
    found.retain(|path| !is_ours(path) || !folder.join("storage").join(path).is_dir());
    found.sort();
    found
}

/// Those of them that are files, without the marks.
fn blobs(folder: &Path) -> Vec<PathBuf> {
    let is_blob = |path: &PathBuf| path.components().count() == 3 && !path.starts_with(".incoming");
    stored(folder).into_iter().filter(is_blob).collect()
}

/// One of the folders that files are written into.
fn incoming(folder: &Path) -> PathBuf {
    folder.join("storage/.incoming/00")
}

/// How many entries there are in all of these folders, and in the one above them.
fn marks(folder: &Path) -> usize {
    let entries = |folder: &Path| std::fs::read_dir(folder).unwrap().flatten().collect::<Vec<_>>();
    let all = entries(&folder.join("storage/.incoming"));
    let (folders, files): (Vec<_>, Vec<_>) = all.into_iter().partition(|entry| entry.path().is_dir());
    files.len() + folders.iter().map(|entry| entries(&entry.path()).len()).sum::<usize>()
}
