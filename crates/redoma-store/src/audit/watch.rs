//! What happens with records after they were acknowledged: they are put into the index and handed to those who watch.
//! What takes longer than a few lookups (somebody watches, a segment is full) is done by a thread of its own, which nobody
//! waits for; the rest by whoever has appended them, since to wake that thread would take longer.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::{AuditQuery, AuditRecord};

use super::index::SegmentIndex;
use super::writer::Written;

/// So many records wait for somebody who watches; what comes then is lost to them.
const WAITING: usize = 4096;
/// How long a search waits for what was appended just before it.
const PATIENCE: Duration = Duration::from_secs(5);

/// What somebody who watches is told.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditNews {
    Record(Arc<AuditRecord>),
    /// They were too slow: so many records went by unseen.
    Missed(u64),
}

/// Records from now on.
#[derive(Debug)]
pub struct AuditSubscription {
    news: Receiver<AuditNews>,
}

impl AuditSubscription {
    /// The next; nothing if none comes in this time. An error if the audit has been closed.
    pub fn next(&self, patience: Duration) -> Result<Option<AuditNews>, AuditClosed> {
        match self.news.recv_timeout(patience) {
            Ok(news) => Ok(Some(news)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(AuditClosed),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit has been closed")]
pub struct AuditClosed;

#[derive(Debug)]
struct Watcher {
    filter: AuditQuery,
    news: SyncSender<AuditNews>,
    missed: u64,
}

impl Watcher {
    /// Whether they are still there.
    fn tell(&mut self, record: &Arc<AuditRecord>) -> bool {
        if !self.filter.matches(record) {
            return true;
        }
        if self.missed > 0 {
            match self.news.try_send(AuditNews::Missed(self.missed)) {
                Ok(()) => self.missed = 0,
                Err(TrySendError::Full(_)) => {
                    self.missed += 1;
                    return true;
                }
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        match self.news.try_send(AuditNews::Record(Arc::clone(record))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.missed += 1,
            Err(TrySendError::Disconnected(_)) => return false,
        }
        true
    }
}

#[derive(Debug, Default)]
struct Known {
    /// Of the newest segment, and of those whose index is not on disk yet.
    live: Vec<Arc<SegmentIndex>>,
    seq: u64,
}

/// Shared by those who search, those who watch and the thread.
#[derive(Debug)]
pub(super) struct Watch {
    folder: PathBuf,
    known: Mutex<Known>,
    grown: Condvar,
    watchers: Mutex<Vec<Watcher>>,
    /// What the thread has still to do. More is added only by whoever writes.
    behind: AtomicUsize,
}

impl Watch {
    pub fn new(folder: PathBuf, live: Option<SegmentIndex>) -> Self {
        let seq = live.as_ref().map_or(0, SegmentIndex::last_seq);
        let known = Known { live: live.into_iter().map(Arc::new).collect(), seq };
        Self {
            folder,
            known: Mutex::new(known),
            grown: Condvar::new(),
            watchers: Mutex::default(),
            behind: AtomicUsize::new(0),
        }
    }

    /// Takes what is written until nobody writes any more.
    pub fn run(&self, written: &Receiver<Written>) {
        for written in written {
            // First, so that what can be found has been told.
            self.tell(&written);
            self.add(&written);
            self.behind.fetch_sub(1, Ordering::Release);
        }
    }

    /// Takes what has just been written, in order. What is left for the thread goes to `later`.
    pub fn take(&self, written: Written, later: impl FnOnce(Written)) {
        let is_next = self.behind.load(Ordering::Acquire) == 0;
        if is_next && self.is_quick(&written) {
            self.add(&written);
        } else {
            self.behind.fetch_add(1, Ordering::Relaxed);
            later(written);
        }
    }

    fn is_quick(&self, written: &Written) -> bool {
        let nobody_watches = self.watchers.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        nobody_watches && known.live.last().is_some_and(|index| index.number == written.segment)
    }

    pub fn add(&self, written: &Written) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.live.last().is_none_or(|index| index.number != written.segment);
        if is_new {
            // What is full is saved, and then found there.
            known.live.retain(|index| index.save(&self.folder).is_err());
            known.live.push(Arc::new(SegmentIndex::new(written.segment)));
        }
        if let Some(index) = known.live.last_mut() {
            let index = Arc::make_mut(index);
            let mut offset = written.offset;
            for record in &written.records {
                let end = offset + record.length;
                index.add(record.tip.seq, record.at, &record.terms, offset, end);
                offset = end;
            }
        }
        known.seq = written.records.last().map_or(known.seq, |record| record.tip.seq);
        self.grown.notify_all();
    }

    fn tell(&self, written: &Written) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if watchers.is_empty() {
            return;
        }
        for line in written.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(record) = serde_json::from_slice::<AuditRecord>(line) else { continue };
            let record = Arc::new(record);
            watchers.retain_mut(|watcher| watcher.tell(&record));
        }
    }

    pub fn subscribe(&self, filter: AuditQuery) -> AuditSubscription {
        let (sender, news) = sync_channel(WAITING);
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.push(Watcher { filter, news: sender, missed: 0 });
        AuditSubscription { news }
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The last record that can be found.
    pub fn indexed(&self) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).seq
    }

    /// Comes back when everything up to this record can be found, with the indexes of the newest segments.
    pub fn up_to(&self, seq: u64) -> Vec<Arc<SegmentIndex>> {
        let deadline = Instant::now() + PATIENCE;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        while known.seq < seq {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            known = self.grown.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        known.live.clone()
    }
}
