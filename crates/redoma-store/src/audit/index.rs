//! Where records can be found: by user, client, session, execution, kind and time.
//!
//! An index is never the truth. It says which *blocks* of a segment (some 64 KiB of lines) may hold what is looked for;
//! what is found is read from the segment. One that is missing or damaged is made again from its segment. That of the
//! newest segment is kept in memory and written to a file of its own when the segment is full.
//!
//! A value is kept as 32 bits of its hash: two that share them cost a look at a block, nothing else. Each block has a list
//! of its own. Most values are ids that one block holds and no other, so that a table from values to blocks would take ten
//! times as much memory: 170 bytes for each run until the segment is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use redoma_model::{AuditEvent, AuditKind, AuditQuery, AuditRecord};

use super::segment::{self, Line, Lines};

const BLOCK: u64 = 64 << 10;
const MAGIC: &[u8; 8] = b"rdmaidx2";

/// The fields that are looked for.
#[derive(Debug, Clone, Copy)]
enum Field {
    Kind = 1,
    User,
    Client,
    Session,
    Execution,
}

/// FNV-1a, folded: quick, and the same on every machine.
fn term(field: Field, value: &str) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ field as u64;
    for byte in value.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let [low, high] = [hash & 0xffff_ffff, hash >> 32];
    u32::try_from(low ^ high).unwrap_or_default()
}

/// What a record can be found by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Terms([Option<u32>; 5]);

impl Terms {
    pub fn of(event: &AuditEvent) -> Self {
        let who = event.who();
        let user = who.and_then(|who| who.user.as_deref());
        let client = who.and_then(|who| who.client.as_deref());
        Self([
            Some(term(Field::Kind, event.kind().name())),
            user.map(|user| term(Field::User, user)),
            client.map(|client| term(Field::Client, client)),
            event.session().map(|session| term(Field::Session, session.as_str())),
            event.execution().map(|execution| term(Field::Execution, execution.as_str())),
        ])
    }
}

/// Lines that are looked at together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    offset: u64,
    end: u64,
    first: u64,
    last: u64,
    earliest: i64,
    latest: i64,
    /// What its lines can be found by, each once.
    terms: Vec<u32>,
}

/// What is known about a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SegmentIndex {
    pub number: u64,
    blocks: Vec<Block>,
}

impl SegmentIndex {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// How much of the segment is known.
    pub fn end(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.end)
    }

    pub fn last_seq(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.last)
    }

    pub fn latest(&self) -> i64 {
        self.blocks.iter().map(|block| block.latest).max().unwrap_or(i64::MIN)
    }

    pub fn add(&mut self, seq: u64, at: i64, terms: &Terms, offset: u64, end: u64) {
        if self.blocks.last().is_none_or(|block| block.end - block.offset >= BLOCK) {
            if let Some(full) = self.blocks.last_mut() {
                full.terms.shrink_to_fit();
            }
            let terms = Vec::new();
            self.blocks.push(Block { offset, end, first: seq, last: seq, earliest: at, latest: at, terms });
        }
        let Some(block) = self.blocks.last_mut() else { return };
        (block.end, block.last) = (end, seq);
        (block.earliest, block.latest) = (block.earliest.min(at), block.latest.max(at));
        for term in terms.0.iter().flatten() {
            if !block.terms.contains(term) {
                block.terms.push(*term);
            }
        }
    }

    /// A line that was read. One that is no record can't be found; `verify` tells about it.
    pub fn add_line(&mut self, line: &[u8], offset: u64, end: u64) {
        if let Ok(record) = serde_json::from_slice::<AuditRecord>(line) {
            self.add(record.seq, record.at, &Terms::of(&record.event), offset, end);
        }
    }

    /// Made anew from the segment.
    pub fn scan(folder: &Path, number: u64) -> io::Result<Self> {
        let mut index = Self::new(number);
        let mut lines = Lines::of(File::open(segment::path(folder, number))?, 0)?;
        let mut line = Vec::new();
        loop {
            let offset = lines.offset;
            match lines.next(&mut line)? {
                Some(Line::Whole) => index.add_line(&line, offset, lines.offset),
                Some(Line::TooLong) => {}
                Some(Line::Unfinished) | None => return Ok(index),
            }
        }
    }

    /// The parts of the segment that may hold what is looked for, in order.
    pub fn candidates(&self, query: &AuditQuery) -> Vec<(u64, u64)> {
        let fields = [
            query.user.as_ref().map(|user| term(Field::User, user)),
            query.client.as_ref().map(|client| term(Field::Client, client)),
            query.session.as_ref().map(|session| term(Field::Session, session.as_str())),
            query.execution.as_ref().map(|execution| term(Field::Execution, execution.as_str())),
        ];
        let wanted: Vec<u32> = fields.into_iter().flatten().collect();
        let kinds: Vec<u32> =
            query.kinds.iter().map(|kind: &AuditKind| term(Field::Kind, kind.name())).collect();
        let is_wanted = |block: &Block| {
            let is_after = query.after.is_none_or(|after| {
                if query.newest_first { block.first < after } else { block.last > after }
            });
            is_after
                && query.since.is_none_or(|since| block.latest >= since)
                && query.until.is_none_or(|until| block.earliest < until)
                && wanted.iter().all(|term| block.terms.contains(term))
                && (kinds.is_empty() || kinds.iter().any(|kind| block.terms.contains(kind)))
        };
        let found = self.blocks.iter().filter(|block| is_wanted(block));
        found.map(|block| (block.offset, block.end)).collect()
    }

    /// Writes it beside its segment. Whether that worked out matters to nobody but the next search.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        let path = segment::index_path(folder, self.number);
        let fresh = path.with_extension("index.new");
        let bytes = self.bytes();
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&bytes)?;
        drop(file);
        fs::rename(&fresh, &path)
    }

    /// The saved one, if it is whole and knows all of its segment.
    pub fn load(folder: &Path, number: u64) -> Option<Self> {
        let bytes = fs::read(segment::index_path(folder, number)).ok()?;
        let index = Self::parse(&bytes).filter(|index| index.number == number)?;
        let length = fs::metadata(segment::path(folder, number)).ok()?.len();
        (index.end() == length).then_some(index)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let number = |out: &mut Vec<u8>, value: u64| out.extend_from_slice(&value.to_le_bytes());
        number(&mut out, self.number);
        number(&mut out, self.blocks.len() as u64);
        for block in &self.blocks {
            for value in [block.offset, block.end, block.first, block.last] {
                number(&mut out, value);
            }
            out.extend_from_slice(&block.earliest.to_le_bytes());
            out.extend_from_slice(&block.latest.to_le_bytes());
            number(&mut out, block.terms.len() as u64);
            out.extend(block.terms.iter().flat_map(|term| term.to_le_bytes()));
        }
        let sum = crc32fast::hash(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
            return None;
        }
        let mut rest = content.strip_prefix(MAGIC)?;
        let number = take(&mut rest)?;
        let count = take(&mut rest)?;
        let mut index = Self::new(number);
        for _ in 0..count {
            let [offset, end, first, last] =
                [take(&mut rest)?, take(&mut rest)?, take(&mut rest)?, take(&mut rest)?];
            let (earliest, latest) = (take(&mut rest)?.cast_signed(), take(&mut rest)?.cast_signed());
            let length = take(&mut rest)?;
            let (terms, after) = rest.split_at_checked(usize::try_from(length.checked_mul(4)?).ok()?)?;
            rest = after;
            let terms = terms.chunks_exact(4).filter_map(|four| four.try_into().ok()).map(u32::from_le_bytes);
            let terms = terms.collect();
            index.blocks.push(Block { offset, end, first, last, earliest, latest, terms });
        }
        Some(index)
    }
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let (eight, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(u64::from_le_bytes(*eight))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> SegmentIndex {
        let mut index = SegmentIndex::new(3);
        for seq in 1..500_u64 {
            let user = term(Field::User, &format!("user-{}", seq % 50));
            let terms = Terms([Some(term(Field::Kind, "admin")), Some(user), None, None, None]);
            index.add(seq, i64::try_from(seq * 10).unwrap(), &terms, seq * 1000, seq * 1000 + 1000);
        }
        index
    }

    #[test]
    fn a_saved_index_is_the_same_or_none() {
        let index = index();
        let bytes = index.bytes();
        assert_eq!(SegmentIndex::parse(&bytes), Some(index));
        for at in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(SegmentIndex::parse(&damaged), None, "byte {at}");
            assert_eq!(SegmentIndex::parse(&bytes[..at]), None, "cut to {at}");
        }
    }

    /// A run leaves two records with ids that nothing else has. Its share of the index of a segment that is being written
    /// must be small: it is held in memory until the segment is full.
    #[test]
    fn a_run_takes_few_bytes_of_the_index() {
        const RUNS: u64 = 40_000;
        let mut index = SegmentIndex::new(1);
        for run in 0..RUNS {
            for (half, kind) in (0..).zip(["execution_started", "execution_ended"]) {
                let (session, execution) = (format!("session-{run}"), format!("execution-{run}"));
                let terms = Terms([
                    Some(term(Field::Kind, kind)),
                    Some(term(Field::User, "ana")),
                    Some(term(Field::Client, "chat")),
                    Some(term(Field::Session, &session)),
                    Some(term(Field::Execution, &execution)),
                ]);
                let seq = run * 2 + half;
                index.add(seq, 0, &terms, seq * 700, seq * 700 + 700);
            }
        }
        let held = |block: &Block| size_of::<Block>() + block.terms.capacity() * size_of::<u32>();
        let bytes: usize = index.blocks.iter().map(held).sum();
        assert!(bytes as u64 / RUNS < 16, "{} bytes for each run", bytes as u64 / RUNS);
        let session = term(Field::Session, "session-12345");
        assert_eq!(index.blocks.iter().filter(|block| block.terms.contains(&session)).count(), 1);
    }

    #[test]
    fn only_blocks_that_may_hold_it_are_looked_at() {
        let index = index();
        let all = index.candidates(&AuditQuery::default());
        assert!(all.len() > 5);
        assert_eq!((all[0].0, all.last().unwrap().1), (1000, 500_000));
        let of = |change: fn(&mut AuditQuery)| {
            let mut query = AuditQuery::default();
            change(&mut query);
            index.candidates(&query)
        };
        assert_eq!(of(|query| query.user = Some("nobody".to_owned())), []);
        assert_eq!(of(|query| query.kinds = vec![AuditKind::FileRead]), []);
        assert_eq!(of(|query| query.since = Some(4990)), [*all.last().unwrap()]);
        assert_eq!(of(|query| query.until = Some(11)), [all[0]]);
        assert_eq!(of(|query| query.after = Some(498)), [*all.last().unwrap()]);
        assert!(of(|query| query.user = Some("user-7".to_owned())).len() > 5);
    }
}
