//! Looking records up, in the process that writes them or beside it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redoma_model::{AuditQuery, AuditRecord};

use super::AuditError;
use super::index::SegmentIndex;
use super::segment::{self, Line, Lines};

/// The records that match. `live` knows the newest segments, if this is the process that writes them.
pub(super) fn query(
    folder: &Path,
    query: &AuditQuery,
    live: impl Fn(u64) -> Option<Arc<SegmentIndex>>,
) -> Result<Vec<AuditRecord>, AuditError> {
    let mut numbers = segment::numbers(folder)?;
    if query.newest_first {
        numbers.reverse();
    }
    let mut found = Vec::new();
    for number in numbers {
        if found.len() >= query.limit {
            break;
        }
        let index = live(number).or_else(|| SegmentIndex::load(folder, number).map(Arc::new));
        let result = match index {
            Some(index) => by_index(folder, &index, query, &mut found),
            None => by_reading(folder, number, query, &mut found),
        };
        match result {
            // Removed for its age in this moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|source| AuditError::files(&segment::path(folder, number), source))?,
        }
    }
    Ok(found)
}

fn by_index(
    folder: &Path,
    index: &SegmentIndex,
    query: &AuditQuery,
    found: &mut Vec<AuditRecord>,
) -> io::Result<()> {
    let mut parts = index.candidates(query);
    if parts.is_empty() {
        return Ok(());
    }
    let file = File::open(segment::path(folder, index.number))?;
    if query.newest_first {
        parts.reverse();
    }
    let mut bytes = Vec::new();
    for (start, end) in parts {
        bytes.resize(usize::try_from(end - start).unwrap_or_default(), 0);
        file.read_exact_at(&mut bytes, start)?;
        if take_lines(&bytes, query, found) {
            return Ok(());
        }
    }
    Ok(())
}

/// A segment that nobody knows anything about: all of it, in pieces that end with a line.
fn by_reading(
    folder: &Path,
    number: u64,
    query: &AuditQuery,
    found: &mut Vec<AuditRecord>,
) -> io::Result<()> {
    const PIECE: usize = 256 << 10;
    let file = File::open(segment::path(folder, number))?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if query.newest_first {
        // From the end: most who ask want the newest few.
        let mut end = length;
        let mut piece = PIECE as u64;
        while end > 0 {
            let start = end.saturating_sub(piece);
            bytes.resize(usize::try_from(end - start).unwrap_or_default(), 0);
            file.read_exact_at(&mut bytes, start)?;
            let first =
                if start == 0 { Some(0) } else { bytes.iter().position(|b| *b == b'\n').map(|at| at + 1) };
            match first {
                Some(first) if first < bytes.len() => {
                    if take_lines(&bytes[first..], query, found) {
                        return Ok(());
                    }
                    end = start + first as u64;
                    piece = PIECE as u64;
                }
                // No line begins here: a longer piece.
                _ => piece *= 2,
            }
        }
        return Ok(());
    }
    let mut lines = Lines::of(file, 0)?;
    while let Some(line) = lines.next(&mut bytes)? {
        if line == Line::Whole && take_lines(&bytes, query, found) {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether there are enough now. What is no record is passed over: `verify` tells about it.
fn take_lines(bytes: &[u8], query: &AuditQuery, found: &mut Vec<AuditRecord>) -> bool {
    let mut take = |line: &[u8]| {
        if found.len() < query.limit {
            let record = serde_json::from_slice::<AuditRecord>(line).ok();
            found.extend(record.filter(|record| query.matches(record)));
        }
        found.len() >= query.limit
    };
    let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    if query.newest_first { lines.rev().any(take) } else { lines.any(&mut take) }
}

/// Records as they come, for a process beside the one that writes.
#[derive(Debug)]
pub struct AuditFollower {
    folder: PathBuf,
    number: u64,
    offset: u64,
}

impl AuditFollower {
    /// Everything after this record.
    pub fn after(folder: &Path, seq: u64) -> Result<Self, AuditError> {
        let mut follower = Self { folder: folder.to_owned(), number: 0, offset: 0 };
        for number in segment::numbers(folder)?.into_iter().rev() {
            follower.number = number;
            let first = AuditQuery { limit: 1, ..AuditQuery::default() };
            let mut found = Vec::new();
            let path = segment::path(folder, number);
            by_reading(folder, number, &first, &mut found)
                .map_err(|source| AuditError::files(&path, source))?;
            if found.first().is_some_and(|record| record.seq <= seq) {
                break;
            }
        }
        let _ = follower.next_after(seq)?;
        Ok(follower)
    }

    /// What has come since.
    pub fn new_records(&mut self) -> Result<Vec<AuditRecord>, AuditError> {
        self.next_after(0)
    }

    fn next_after(&mut self, seq: u64) -> Result<Vec<AuditRecord>, AuditError> {
        const MOST: usize = 10_000;
        let mut found = Vec::new();
        loop {
            // Looked at before the lines: whoever begins a new one has finished this one.
            let following = segment::numbers(&self.folder)?.into_iter().find(|number| *number > self.number);
            let path = segment::path(&self.folder, self.number);
            match self.read(&mut found, seq, MOST) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(|source| AuditError::files(&path, source))?,
            }
            match following {
                Some(number) if found.len() < MOST && seq == 0 => (self.number, self.offset) = (number, 0),
                _ => return Ok(found),
            }
        }
    }

    fn read(&mut self, found: &mut Vec<AuditRecord>, seq: u64, most: usize) -> io::Result<()> {
        let mut lines = Lines::of(File::open(segment::path(&self.folder, self.number))?, self.offset)?;
        let mut line = Vec::new();
        while found.len() < most {
            match lines.next(&mut line)? {
                Some(Line::Whole) => {
                    let record = serde_json::from_slice::<AuditRecord>(&line).ok();
                    if seq > 0 && record.as_ref().is_some_and(|record| record.seq > seq) {
                        return Ok(());
                    }
                    self.offset = lines.offset;
                    found.extend(record.filter(|_| seq == 0));
                }
                Some(Line::TooLong) => self.offset = lines.offset,
                Some(Line::Unfinished) | None => return Ok(()),
            }
        }
        Ok(())
    }
}
