//! What was used, over a restart: a small file, written every few seconds if something changed, and at the end. Always whole: a
//! new one takes the old one's place. After a `kill -9` the last seconds are missing, which nobody can make use of; a file that can't
//! be read is begun anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Books;
use super::ledger::{Saved, VERSION};

const EVERY: Duration = Duration::from_secs(3);
/// A file that is longer is not one of ours.
const LONGEST: u64 = 256 << 20;

/// What the file holds, if it can be read.
pub(super) fn read(path: &Path) -> Option<Saved> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "what was used today can't be read; it begins anew");
            return None;
        }
    }
    match serde_json::from_slice::<Saved>(&bytes) {
        Ok(saved) if saved.version == VERSION => Some(saved),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "what was used today is damaged; it begins anew");
            None
        }
    }
}

fn write(path: &Path, saved: &Saved) -> io::Result<()> {
    let new = path.with_extension("new");
    let bytes = serde_json::to_vec(saved)?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    // Else a power cut could leave a file of the right name with nothing in it.
    file.sync_data()?;
    fs::rename(&new, path)
}

/// The thread that writes.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Closed when it is to end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn start(path: PathBuf, books: Arc<Books>) -> Option<Self> {
        let (stop, stopped) = channel();
        let work = move || {
            loop {
                let is_over = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                if books.has_changed.swap(false, Ordering::Relaxed) {
                    let saved = books.lock().save(books.now());
                    if let Err(error) = write(&path, &saved) {
                        books.has_changed.store(true, Ordering::Relaxed);
                        tracing::warn!(path = %path.display(), %error, "what was used today can't be kept");
                    }
                }
                if is_over {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("rates".to_owned()).spawn(work);
        match thread {
            Ok(thread) => Some(Self { stop: Some(stop), thread: Some(thread) }),
            Err(error) => {
                tracing::warn!(%error, "what is used will be forgotten when the server ends");
                None
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
