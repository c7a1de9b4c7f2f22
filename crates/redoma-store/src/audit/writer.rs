//! Whoever writes: records into the newest segment, and the head after them.
//!
//! A write that comes back short (a full disk) is taken back, so that the chain ends with a whole record and can go on as
//! soon as there is room. A disk that does not keep what it took (`fdatasync` fails) is believed nothing any more: what it
//! holds then is not known, and everything is refused until the service is started anew and looks.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use redoma_model::{AuditEvent, AuditSync, SegmentHeader};

use super::AuditError;
use super::head::{Head, HeadFile, Tip, sync_folder};
use super::index::Terms;
use super::seal::{AuditKey, Body, Hash, NOTHING, Place};
use super::segment;

/// An event ready to be given its place.
#[derive(Debug)]
pub(super) struct Prepared {
    pub body: Body,
    pub terms: Terms,
}

/// A record, written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub at: i64,
    pub tip: Tip,
    pub terms: Terms,
    /// Bytes of its line, the line end included.
    pub length: u64,
}

/// Records that were written together.
#[derive(Debug)]
pub(super) struct Written {
    pub segment: u64,
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub records: Vec<Placed>,
}

/// The segment that is written to.
#[derive(Debug)]
pub(super) struct Open {
    pub number: u64,
    pub path: PathBuf,
    pub file: Arc<File>,
    pub bytes: u64,
    pub records: u64,
}

#[derive(Debug)]
pub(super) struct Writer {
    pub folder: PathBuf,
    pub key: AuditKey,
    pub sync: AuditSync,
    pub segment_bytes: u64,
    /// None before the first record.
    pub open: Option<Open>,
    pub tip: Tip,
    /// How far it is on disk for certain.
    pub synced: Tip,
    pub head: HeadFile,
    pub boot: String,
    /// Bytes of a failed write may still be there.
    pub is_ragged: bool,
    pub failed: Option<AuditError>,
}

/// By the host's clock: what people compare with other logs.
fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}

impl Writer {
    /// Writes these, in this order: all or none. What was written is added to `written`, headers of new segments included.
    pub fn write(&mut self, batch: &[Prepared], written: &mut Vec<Written>) -> Result<(), AuditError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let is_full = self.open.as_ref().is_none_or(|open| open.bytes >= self.segment_bytes);
        if is_full {
            written.push(self.begin_segment(None)?);
        }
        written.push(self.put(batch)?);
        Ok(())
    }

    /// The next segment, with its header.
    pub fn begin_segment(&mut self, broken: Option<Broken>) -> Result<Written, AuditError> {
        if let Some(open) = &self.open {
            // What has been sealed off is on disk: only the newest segment can lose records to a power cut.
            // Bytes of a write that failed must not stay in a file that nobody writes to any more.
            let ended = if self.is_ragged { open.file.set_len(open.bytes) } else { Ok(()) };
            if let Err(source) = ended.and_then(|()| open.file.sync_data()) {
                let error = AuditError::files(&open.path, source);
                // The next one would say that all is well.
                self.failed = Some(error.clone());
                return Err(error);
            }
            (self.synced, self.is_ragged) = (self.tip, false);
        }
        let before = self.open.take();
        let (tip, synced) = (self.tip, self.synced);
        let result = self.try_to_begin(before.as_ref(), broken);
        if result.is_err() {
            (self.open, self.tip, self.synced) = (before, tip, synced);
        }
        result
    }

    fn try_to_begin(&mut self, before: Option<&Open>, broken: Option<Broken>) -> Result<Written, AuditError> {
        let number = match &broken {
            Some(broken) => broken.number,
            None => before.map_or(1, |before| before.number + 1),
        };
        let header = SegmentHeader {
            format: 1,
            number,
            previous_bytes: before.map_or(0, |before| before.bytes),
            previous_records: before.map_or(0, |before| before.records),
            key: self.key.id().to_owned(),
            broken: broken.as_ref().map(|broken| broken.why.clone()),
        };
        let event = AuditEvent::Segment(header);
        let prepared = Prepared { body: Body::new(&event)?, terms: Terms::of(&event) };
        let path = segment::path(&self.folder, number);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|source| AuditError::files(&path, source))?;
        let file = Arc::new(file);
        self.open = Some(Open { number, path: path.clone(), file: Arc::clone(&file), bytes: 0, records: 0 });
        if let Some(broken) = broken {
            self.tip = Tip { seq: broken.seq, hash: NOTHING };
        }
        let sync = || file.sync_data().and_then(|()| sync_folder(&self.folder));
        let result =
            sync().map_err(|source| AuditError::files(&path, source)).and_then(|()| self.put(&[prepared]));
        let result = result.and_then(|written| self.head.sync().map(|()| written));
        if result.is_err() {
            // Nothing is in it that anybody was told of.
            let _ = fs::remove_file(&path);
        }
        result
    }

    fn put(&mut self, batch: &[Prepared]) -> Result<Written, AuditError> {
        let open = self.open.as_mut().expect("a segment is begun before anything is put into it");
        let failed = |source| AuditError::files(&open.path, source);
        if self.is_ragged {
            open.file.set_len(open.bytes).map_err(failed)?;
            self.is_ragged = false;
        }
        let at = now();
        let mut tip = self.tip;
        let mut bytes = Vec::with_capacity(batch.iter().map(|prepared| prepared.body.len() + 320).sum());
        let mut records = Vec::with_capacity(batch.len());
        for Prepared { body, terms } in batch {
            let start = bytes.len();
            let seq = tip.seq + 1;
            let hash: Hash = body.place(&Place { at, seq, prev: tip.hash }, &self.key, &mut bytes);
            tip = Tip { seq, hash };
            records.push(Placed { at, tip, terms: *terms, length: (bytes.len() - start) as u64 });
        }
        let offset = open.bytes;
        let end = offset + bytes.len() as u64;
        if let Err(source) = open.file.write_all_at(&bytes, offset) {
            self.is_ragged = open.file.set_len(offset).is_err();
            return Err(failed(source));
        }
        let mut synced = self.synced;
        if self.sync == AuditSync::Disk {
            if let Err(source) = open.file.sync_data() {
                let error = AuditError::files(&open.path, source);
                self.failed = Some(error.clone());
                return Err(error);
            }
            synced = tip;
        }
        let head = Head { segment: open.number, offset: end, tip, synced, boot: self.boot.clone() };
        if let Err(error) = self.head.write(&head, &self.key) {
            self.is_ragged = open.file.set_len(offset).is_err();
            return Err(error);
        }
        (self.tip, self.synced) = (tip, synced);
        open.bytes = end;
        open.records += records.len() as u64;
        Ok(Written { segment: open.number, offset, bytes, records })
    }

    /// What is to be synced now, if anything is.
    pub fn unsynced(&self) -> Option<(Arc<File>, Tip)> {
        let open = self.open.as_ref()?;
        (self.synced != self.tip && self.failed.is_none()).then(|| (Arc::clone(&open.file), self.tip))
    }

    /// All up to there is on disk.
    pub fn set_synced(&mut self, tip: Tip) -> Result<(), AuditError> {
        let Some(open) = &self.open else { return Ok(()) };
        if tip.seq <= self.synced.seq {
            return Ok(());
        }
        self.synced = tip;
        let (segment, offset, boot) = (open.number, open.bytes, self.boot.clone());
        self.head.write(&Head { segment, offset, tip: self.tip, synced: tip, boot }, &self.key)
    }
}

/// A segment that does not follow what is before it.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub number: u64,
    /// The highest number of a record that is known to have been there.
    pub seq: u64,
    pub why: String,
}
