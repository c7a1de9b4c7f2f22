//! What a program finds in its workspace: a session's files, and those of other sessions that the request names.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use redoma_model::{Principal, Session, SessionId, StoredFile};
use redoma_store::InUse;

use super::{FileReference, Interpreter, InterpreterError};

/// A session whose files are used has been used itself: its time begins anew, at most so often (milliseconds).
const TOUCH_EVERY: i64 = 3_600_000;

#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub(super) files: Vec<(StoredFile, PathBuf)>,
    /// Names of files that are not there, or not theirs.
    pub(super) missing: Vec<String>,
    /// Nothing of these goes while the program runs.
    _in_use: Vec<InUse>,
}

impl Workspace {
    /// Files of `shown`, which is theirs, and those that are named, which go before. `session` is where it runs.
    pub(super) fn gather(
        interpreter: &Interpreter,
        principal: &Principal,
        session: &Session,
        shown: Option<&SessionId>,
        references: &[FileReference],
    ) -> Result<Self, InterpreterError> {
        let store = &interpreter.store;
        let mut in_use = Vec::new();
        let mut missing = Vec::new();
        let mut files: BTreeMap<String, (StoredFile, PathBuf)> = BTreeMap::new();
        if let Some(shown) = shown {
            in_use.push(store.hold(shown));
            if *shown == session.id {
                interpreter.note_use(session)?;
            } else if let Some(other) = store.session(shown)? {
                interpreter.note_use(&other)?;
            }
            let current = store.current_files(shown)?.into_iter();
            files.extend(current.map(|(file, path)| (file.name.as_str().to_owned(), (file, path))));
        }
        let mut sessions: HashMap<&SessionId, bool> = HashMap::new();
        for reference in references {
            let is_theirs = match sessions.get(&reference.session) {
                Some(is_theirs) if reference.claimed.is_none() => *is_theirs,
                _ => {
                    // Held before it is looked at: from then on it stays.
                    let held = store.hold(&reference.session);
                    let seen = interpreter.session(principal, &reference.session, reference.claimed.as_ref());
                    let is_theirs = match seen {
                        Ok(session) => {
                            in_use.push(held);
                            interpreter.note_use(&session)?;
                            true
                        }
                        Err(InterpreterError::NotFound(_)) => false,
                        Err(error) => return Err(error),
                    };
                    sessions.insert(&reference.session, is_theirs);
                    is_theirs
                }
            };
            let found = if is_theirs { store.file_with_path(&reference.id)? } else { None };
            match found.filter(|(file, _)| file.session == reference.session) {
                Some((mut file, path)) => {
                    file.name = reference.name.clone();
                    files.insert(reference.name.as_str().to_owned(), (file, path));
                }
                None => missing.push(reference.name.as_str().to_owned()),
            }
        }
        missing.extend(remove_those_in_the_way(&mut files));
        let bytes: u64 = files.values().map(|(file, _)| file.size).sum();
        let most = store.quota().session_bytes;
        if bytes > most {
            // They are copied for the program: one file under a thousand names would fill the disk.
            let detail =
                format!("the files for this program have {bytes} bytes in all; at most {most} are possible");
            return Err(InterpreterError::BadRequest(detail));
        }
        Ok(Self { files: files.into_values().collect(), missing, _in_use: in_use })
    }

    /// Bytes of all its files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|(file, _)| file.size).sum()
    }
}

/// A file can't be where another's folder has to be: the names of those that were.
fn remove_those_in_the_way(files: &mut BTreeMap<String, (StoredFile, PathBuf)>) -> Vec<String> {
    let is_folder = |name: &String| {
        let folder = format!("{name}/");
        files.range(folder.clone()..).next().is_some_and(|(other, _)| other.starts_with(&folder))
    };
    let in_the_way: Vec<_> = files.keys().filter(|name| is_folder(name)).cloned().collect();
    for name in &in_the_way {
        files.remove(name);
    }
    in_the_way
}

impl Interpreter {
    fn note_use(&self, session: &Session) -> Result<(), InterpreterError> {
        if self.store.now() - session.used_at > TOUCH_EVERY {
            self.store.touch_session(&session.id)?;
        }
        Ok(())
    }
}
