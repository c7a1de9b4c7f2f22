//! A file that one process at a time holds: two servers on one folder would each undo what the other does.
//!
//! The lock is the process's own (`fcntl`), not the open file's (`flock`): a server makes sandboxes out of copies of
//! itself, which have its open files until they close them, and would hold such a lock for a moment longer than a
//! killed server lives. The next one would be refused.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

/// Held until it is dropped, or the process ends in whichever way.
#[derive(Debug)]
pub struct OnlyOne {
    file: Option<File>,
    path: PathBuf,
}

/// What this process holds. The kernel would let it take the same file twice, and let go of it with the first that is
/// closed.
static HELD: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<HashSet<PathBuf>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OnlyOne {
    /// Makes the file if it isn't there. `None`: somebody else holds it.
    pub fn hold(path: &Path) -> io::Result<Option<Self>> {
        // By its real name: through another one, a second opening would look like another file's.
        let folder = path.parent().unwrap_or(Path::new(".")).canonicalize()?;
        let path = folder.join(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        let mut held = held();
        let held = held.get_or_insert_default();
        if held.contains(&path) {
            return Ok(None);
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                held.insert(path.clone());
                Ok(Some(Self { file: Some(file), path }))
            }
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for OnlyOne {
    fn drop(&mut self) {
        let mut held = held();
        self.file = None;
        held.get_or_insert_default().remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn nobody_else_has_it_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mine = OnlyOne::hold(&path).unwrap();
        assert!(mine.is_some());
        assert!(OnlyOne::hold(&path).unwrap().is_none());
        let other_name = folder.path().join("../").join(folder.path().file_name().unwrap()).join("lock");
        assert!(OnlyOne::hold(&other_name).unwrap().is_none());
        drop(mine);
        assert!(OnlyOne::hold(&path).unwrap().is_some());
    }

    #[test]
    fn another_process_does_not_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _mine = OnlyOne::hold(&path).unwrap().unwrap();
        let tries = "import fcntl, sys\ntry: fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
                     except OSError: sys.exit(7)";
        let status = Command::new("python3").args(["-c", tries]).arg(&path).status().unwrap();
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn a_process_that_has_the_file_open_does_not_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mine = OnlyOne::hold(&path).unwrap().unwrap();
        let copy = mine.file.as_ref().unwrap().try_clone().unwrap();
        let mut other = Command::new("sleep").arg("60").stdin(Stdio::from(copy)).spawn().unwrap();
        drop(mine);
        let again = OnlyOne::hold(&path);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(again.unwrap().is_some());
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(OnlyOne::hold(Path::new("/nonexistent/lock")).is_err());
    }
}
