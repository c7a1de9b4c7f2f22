//! The audit: who did what, in an order that nobody can change unnoticed.
//!
//! Records are lines of JSON in numbered files (*segments*), each naming the hash of the one before: `seal.rs` says how. A
//! record is acknowledged when the kernel has it (or the disk, if the settings say so), so that it survives the sudden end
//! of the service. Many threads append at once: whoever comes while another writes leaves a record in a queue, and the next
//! turn writes all of them in one go.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | opening, appending, asking |
//! | `seal.rs` | lines that can't be changed, and the key |
//! | `segment.rs` | the files and their lines |
//! | `head.rs` | how far the chain goes, and where it begins |
//! | `writer.rs` | whoever writes |
//! | `recovery.rs` | what a start does with what it finds |
//! | `keeping.rs` | to the disk every second; old segments go |
//! | `index.rs`, `search.rs` | looking records up |
//! | `watch.rs` | records as they come |
//! | `walk.rs`, `verify.rs`, `flaw.rs` | whether all is as it was written |
//! | `masking.rs` | secrets in code and output |
//! | `csv.rs`, `moment.rs` | records and times as people read them |

pub mod csv;
mod flaw;
mod head;
mod index;
mod keeping;
mod masking;
pub mod moment;
mod recovery;
mod seal;
mod search;
mod segment;
#[cfg(test)]
mod tests;
mod verify;
mod walk;
mod watch;
mod writer;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redoma_model::{AuditEvent, AuditQuery, AuditRecord, AuditSettings, AuditedCode, KeptCode, KeptOutput};
use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::only::OnlyOne;
use crate::random::hex;
use head::HeadFile;
use index::Terms;
use keeping::Keeper;
use seal::Body;
use watch::Watch;
use writer::{Prepared, Writer, Written};

pub use flaw::{Flaw, Wrong};
pub use head::{NotATip, Tip};
pub use masking::mask;
pub use recovery::FoundAudit;
pub use seal::AuditKey;
pub use search::AuditFollower;
pub use verify::{Sound, Unsound, VerifyOptions, verify};
pub use watch::{AuditClosed, AuditNews, AuditSubscription};

/// The audit's folder in a data folder.
pub const FOLDER: &str = "audit";

/// Why something could not be written down, or looked up.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    #[error("{}: {source}", path.display())]
    Files { path: PathBuf, source: Arc<io::Error> },
    #[error("another process writes to the audit in {}; there can be one only", folder.display())]
    Locked { folder: PathBuf },
    #[error("{} is not a key of an audit: 64 hexadecimal digits", path.display())]
    NoKey { path: PathBuf },
    #[error("a record of {bytes} bytes is too long; at most {most} can be kept")]
    TooLong { bytes: usize, most: usize },
    #[error("an event can't be written as JSON: {0}")]
    Unwritable(String),
    #[error("{0}")]
    Random(String),
    #[error("there is no audit in {}", folder.display())]
    NoAudit { folder: PathBuf },
}

impl AuditError {
    fn files(path: &Path, source: io::Error) -> Self {
        Self::Files { path: path.to_owned(), source: Arc::new(source) }
    }

    /// Whether there is no room left on the device.
    pub fn is_full(&self) -> bool {
        let Self::Files { source, .. } = self else { return false };
        matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }
}

/// A record that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub at: i64,
    pub tip: Tip,
}

type Slot = Arc<OnceLock<Result<Appended, AuditError>>>;

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(Prepared, Slot)>,
    /// Somebody is writing what was here before.
    is_busy: bool,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    settings: AuditSettings,
    key: AuditKey,
    queue: Mutex<Queue>,
    turn: Condvar,
    writer: Mutex<Writer>,
    /// To the thread that indexes. Gone when the audit is closed.
    written: Mutex<Option<SyncSender<Written>>>,
    watch: Watch,
    appended: AtomicU64,
    /// What was written before this moment is on disk.
    synced_at: Mutex<Instant>,
    /// For retention.
    clock: Clock,
    /// Held by who removes old segments.
    pruning: Mutex<()>,
}

/// The audit of a data folder, open for writing. Dropping it brings everything to the disk.
#[derive(Debug)]
pub struct Audit {
    shared: Arc<Shared>,
    found: FoundAudit,
    indexer: Option<JoinHandle<()>>,
    keeper: Option<Keeper>,
    _lock: OnlyOne,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Audit {
    /// The audit in this folder, made if there is none. What a crash left is put in order; whatever else is wrong stays as
    /// it is, and [`Audit::found`] tells.
    pub fn open(folder: &Path, settings: AuditSettings) -> Result<Self, AuditError> {
        let failed = |source| AuditError::files(folder, source);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let only_one = only_one(folder)?;
        let key = match AuditKey::read(&AuditKey::file(folder))? {
            Some(key) => key,
            None => AuditKey::make(folder)?,
        };
        keeping::finish_pruning(folder, &key)?;
        // Before there is a head to write to.
        let verdict = recovery::judge(folder, &key)?;
        let mut writer = Writer {
            folder: folder.to_owned(),
            key: key.clone(),
            sync: settings.sync,
            segment_bytes: settings.segment.0.max(1),
            open: None,
            tip: Tip::BEGINNING,
            synced: Tip::BEGINNING,
            head: HeadFile::open(folder)?,
            boot: head::boot(),
            is_ragged: false,
            failed: None,
        };
        let mut first = Vec::new();
        let (found, index) = recovery::recover(verdict, &mut writer, &mut first)?;
        let watch = Watch::new(folder.to_owned(), index);
        for written in &first {
            watch.add(written);
        }
        let (sender, receiver) = sync_channel(MAX_BEHIND);
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            settings,
            key,
            queue: Mutex::default(),
            turn: Condvar::new(),
            appended: AtomicU64::new(writer.tip.seq),
            synced_at: Mutex::new(Instant::now()),
            writer: Mutex::new(writer),
            written: Mutex::new(Some(sender)),
            watch,
            clock: Clock::start(),
            pruning: Mutex::default(),
        });
        let indexing = Arc::clone(&shared);
        let indexer = std::thread::Builder::new()
            .name("audit index".to_owned())
            .spawn(move || indexing.watch.run(&receiver))
            .map_err(failed)?;
        let keeper = Keeper::start(&shared).map_err(failed)?;
        Ok(Self { shared, found, indexer: Some(indexer), keeper: Some(keeper), _lock: only_one })
    }

    /// How it was found when it was opened. Whoever opens it logs that.
    pub fn found(&self) -> &FoundAudit {
        &self.found
    }

    pub fn settings(&self) -> &AuditSettings {
        &self.shared.settings
    }

    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Writes it down. When this comes back, the record survives what the settings say that it survives; an error means that
    /// it may not be there, and that whatever it is about must not happen.
    pub fn append(&self, event: &AuditEvent) -> Result<Appended, AuditError> {
        self.shared.append(event)
    }

    /// A program as the settings want it kept.
    pub fn code(&self, text: &str) -> AuditedCode {
        let settings = &self.shared.settings;
        let sha256 = hex(&Sha256::digest(text.as_bytes()));
        let (kept, cut) = match settings.code {
            KeptCode::Hash => (None, false),
            KeptCode::Text => {
                let most = usize::try_from(settings.code_limit.0).unwrap_or(usize::MAX).min(MOST_TEXT);
                let (text, cut) = masking::mask_and_cut(text, most, settings.mask);
                (Some(text), cut)
            }
        };
        AuditedCode { sha256, bytes: text.len() as u64, text: kept, cut }
    }

    /// Output as the settings want it kept, if they do.
    pub fn output(&self, text: &str) -> Option<String> {
        let settings = &self.shared.settings;
        let most = usize::try_from(settings.output_limit.0).unwrap_or(usize::MAX).min(MOST_TEXT);
        let is_kept = settings.output == KeptOutput::Text && !text.is_empty();
        is_kept.then(|| masking::mask_and_cut(text, most, settings.mask).0)
    }

    /// The records that match, those that were appended just before included.
    pub fn query(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, AuditError> {
        let live = self.shared.watch.up_to(self.shared.appended.load(Ordering::Acquire));
        let of = |number| live.iter().find(|index| index.number == number).cloned();
        search::query(&self.shared.folder, query, of)
    }

    /// Records from now on that match. Whoever is too slow loses some and is told how many.
    pub fn subscribe(&self, filter: AuditQuery) -> AuditSubscription {
        self.shared.watch.subscribe(filter)
    }

    /// How many records can't be found yet.
    pub fn lag(&self) -> u64 {
        self.shared.appended.load(Ordering::Acquire).saturating_sub(self.shared.watch.indexed())
    }

    /// How old the oldest record may be that is not yet on disk.
    pub fn unsynced_for(&self) -> Duration {
        let is_behind = lock(&self.shared.writer).unsynced().is_some();
        if is_behind { lock(&self.shared.synced_at).elapsed() } else { Duration::ZERO }
    }

    /// The newest record: what to write down elsewhere, to compare with later.
    pub fn head(&self) -> Tip {
        lock(&self.shared.writer).tip
    }

    /// Whether all is as it was written. Takes as long as there is to read.
    pub fn verify(&self, options: VerifyOptions<'_>) -> Result<Sound, Unsound> {
        verify(&self.shared.folder, VerifyOptions { key: Some(self.shared.key.clone()), ..options })
    }

    /// Removes segments that are older than the settings say. Also done by itself, every hour.
    pub fn prune(&self) -> Result<u64, AuditError> {
        keeping::prune(&self.shared)
    }
}

/// Records in a folder that another process may be writing to.
pub fn query_folder(folder: &Path, query: &AuditQuery) -> Result<Vec<AuditRecord>, AuditError> {
    if !folder.is_dir() {
        return Err(AuditError::NoAudit { folder: folder.to_owned() });
    }
    segment::only_files(folder)?;
    search::query(folder, query, |_| None)
}

/// A record's line, exactly as it is in the audit.
pub fn as_written(record: &AuditRecord) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

/// Batches of records that wait for the thread that indexes. Whoever appends more waits for it.
const MAX_BEHIND: usize = 1024;
/// So much text fits into a record, however it is escaped.
const MOST_TEXT: usize = segment::LONGEST / 20;

impl Shared {
    fn append(&self, event: &AuditEvent) -> Result<Appended, AuditError> {
        let prepared = Prepared { body: Body::new(event)?, terms: Terms::of(event) };
        let (bytes, most) = (prepared.body.len(), segment::LONGEST - 1024);
        if bytes > most {
            return Err(AuditError::TooLong { bytes, most });
        }
        let slot = Slot::default();
        let mut queue = lock(&self.queue);
        queue.waiting.push((prepared, Arc::clone(&slot)));
        loop {
            if let Some(result) = slot.get() {
                return result.clone();
            }
            if queue.is_busy {
                queue = self.turn.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.is_busy = true;
            let batch = std::mem::take(&mut queue.waiting);
            drop(queue);
            self.write(batch);
            queue = lock(&self.queue);
            queue.is_busy = false;
            self.turn.notify_all();
        }
    }

    /// Writes what has gathered, and tells each who waits.
    fn write(&self, batch: Vec<(Prepared, Slot)>) {
        let (prepared, slots): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let mut writer = lock(&self.writer);
        match self.write_some(&mut writer, &prepared) {
            Ok(appended) => {
                for (slot, appended) in slots.iter().zip(appended) {
                    let _ = slot.set(Ok(appended));
                }
            }
            Err(error) if slots.len() == 1 => {
                let _ = slots[0].set(Err(error));
            }
            // One that is too long for what is left must not keep the others out.
            Err(_) => {
                for (prepared, slot) in prepared.into_iter().zip(slots) {
                    let result = self.write_some(&mut writer, &[prepared]);
                    let _ = slot.set(result.map(|appended| appended[0]));
                }
            }
        }
    }

    fn write_some(&self, writer: &mut Writer, batch: &[Prepared]) -> Result<Vec<Appended>, AuditError> {
        let mut written = Vec::with_capacity(2);
        let result = writer.write(batch, &mut written);
        let records = written.last().map(|written| &written.records[..]).unwrap_or_default();
        let appended = records.iter().map(|record| Appended { at: record.at, tip: record.tip }).collect();
        self.appended.store(writer.tip.seq, Ordering::Release);
        if let Some(sender) = &*lock(&self.written) {
            for written in written {
                // It ends after this does.
                self.watch.take(written, |written| drop(sender.send(written)));
            }
        }
        result.map(|()| appended)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        drop(self.keeper.take());
        *lock(&self.shared.written) = None;
        if let Some(indexer) = self.indexer.take() {
            let _ = indexer.join();
        }
        self.shared.watch.close();
    }
}

/// Two writers would each continue the chain from the same record.
fn only_one(folder: &Path) -> Result<OnlyOne, AuditError> {
    let path = folder.join("lock");
    let held = OnlyOne::hold(&path).map_err(|source| AuditError::files(&path, source))?;
    held.ok_or_else(|| AuditError::Locked { folder: folder.to_owned() })
}

/// The key in the folder, if whoever asks may read it.
fn readable_key(folder: &Path) -> Option<AuditKey> {
    AuditKey::read(&AuditKey::file(folder)).ok().flatten()
}

/// Removes the index of a segment that is gone.
fn remove_index(folder: &Path, number: u64) {
    let _ = fs::remove_file(segment::index_path(folder, number));
}
