//! What is done about the audit in the background: what the kernel has goes to the disk every second, and segments whose
//! time is over go.
//!
//! Before segments are removed, a sealed note (`pruned`) says up to where, so that `verify` takes that for the beginning,
//! and nothing else. They go oldest first; what a crash leaves of that is finished by the next start.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redoma_model::AuditEvent;

use super::head::{Anchor, Found};
use super::index::SegmentIndex;
use super::seal::{AuditKey, Sealed};
use super::segment::{self, Line, Lines};
use super::{AuditError, Shared, Tip, lock, remove_index};

const SYNC: Duration = Duration::from_secs(1);
const PRUNE: Duration = Duration::from_hours(1);

/// The thread that does it.
#[derive(Debug)]
pub(super) struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let shared = Arc::clone(shared);
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("audit keeper".to_owned()).spawn(move || {
            let mut pruned = None::<Instant>;
            loop {
                if pruned.is_none_or(|pruned| pruned.elapsed() >= PRUNE) {
                    pruned = Some(Instant::now());
                    // Tried again in an hour.
                    let _ = prune(&shared);
                }
                let is_over = stopped.recv_timeout(SYNC) != Err(RecvTimeoutError::Timeout);
                sync(&shared);
                if is_over {
                    return;
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Nobody waits for this but a head that says how much is on disk.
fn sync(shared: &Shared) {
    let begun = Instant::now();
    let unsynced = lock(&shared.writer).unsynced();
    let Some((file, tip)) = unsynced else {
        *lock(&shared.synced_at) = begun;
        return;
    };
    let result = file.sync_data();
    let mut writer = lock(&shared.writer);
    match result {
        Ok(()) => {
            // A head that can't be written keeps the next record from being, and that is told.
            let _ = writer.set_synced(tip);
            *lock(&shared.synced_at) = begun;
        }
        Err(source) => writer.failed = Some(AuditError::files(&shared.folder, source)),
    }
}

/// Removes segments whose newest record is too old; how many.
pub(super) fn prune(shared: &Shared) -> Result<u64, AuditError> {
    let Some(ttl) = shared.settings.retention.millis() else { return Ok(0) };
    let _one_at_a_time = lock(&shared.pruning);
    let oldest = shared.clock.now().saturating_sub(ttl);
    let folder = &shared.folder;
    let current = lock(&shared.writer).open.as_ref().map_or(0, |open| open.number);
    let mut anchor = None;
    for number in segment::numbers(folder)?.into_iter().filter(|number| *number < current) {
        let failed = |source| AuditError::files(&segment::path(folder, number), source);
        let index = SegmentIndex::load(folder, number);
        let index = index.map_or_else(|| SegmentIndex::scan(folder, number), Ok).map_err(failed)?;
        if index.latest() >= oldest {
            break;
        }
        match last_tip(folder, number, &shared.key).map_err(failed)? {
            // By the records themselves: an index has no seal.
            Some((_, newest)) if newest >= oldest => break,
            Some((tip, _)) => anchor = Some(Anchor { segment: number, tip }),
            // It does not verify: whoever looks into that needs it.
            None => break,
        }
    }
    let Some(anchor) = anchor else { return Ok(0) };
    shared.append(&AuditEvent::Pruned(anchor.pruning()))?;
    anchor.write(folder, &shared.key)?;
    remove_up_to(folder, anchor.segment)
}

/// What a crash has left of a removal.
pub(super) fn finish_pruning(folder: &Path, key: &AuditKey) -> Result<(), AuditError> {
    if let Found::Here(anchor) = Anchor::read(folder, Some(key))? {
        remove_up_to(folder, anchor.segment)?;
    }
    Ok(())
}

fn remove_up_to(folder: &Path, last: u64) -> Result<u64, AuditError> {
    let mut removed = 0;
    for number in segment::numbers(folder)?.into_iter().filter(|number| *number <= last) {
        let path = segment::path(folder, number);
        fs::remove_file(&path).map_err(|source| AuditError::files(&path, source))?;
        remove_index(folder, number);
        removed += 1;
    }
    Ok(removed)
}

/// The last record of a segment and the newest time in it, if all its lines are whole.
fn last_tip(folder: &Path, number: u64, key: &AuditKey) -> io::Result<Option<(Tip, i64)>> {
    let mut lines = Lines::of(fs::File::open(segment::path(folder, number))?, 0)?;
    let (mut line, mut tip, mut newest) = (Vec::new(), None, i64::MIN);
    while let Some(kind) = lines.next(&mut line)? {
        let sealed = Sealed::read(&line).filter(|_| kind == Line::Whole);
        tip = sealed.and_then(|sealed| {
            let is_whole = sealed.seals(Some(key)) == super::seal::Seals::Whole;
            let place = sealed.place().filter(|_| is_whole)?;
            newest = newest.max(place.at);
            Some(Tip { seq: place.seq, hash: sealed.hash })
        });
        if tip.is_none() {
            return Ok(None);
        }
    }
    Ok(tip.map(|tip| (tip, newest)))
}
