//! Whether an audit is as it was written, and if not, where not. Works beside the process that writes.
//!
//! Every byte is looked at: each line's seals, each line's place, each file's number, the head and the note about what was
//! removed. The head is read first, so that a chain that grows meanwhile is longer than it says and never shorter.

use std::io;
use std::path::Path;

use super::flaw::{Flaw, Wrong};
use super::head::{Anchor, Found, Head, Tip, boot};
use super::index::SegmentIndex;
use super::seal::AuditKey;
use super::segment;
use super::walk::{Step, Walk};
use super::{AuditError, readable_key};

/// More are not told: one is enough to know, these to see what happened.
const MOST_FLAWS: usize = 100;
/// How often it is looked again if old segments were removed meanwhile.
const TRIES: usize = 10;

/// How an audit is to be looked at.
#[derive(Default)]
pub struct VerifyOptions<'a> {
    /// The key; without one, that in the folder if it can be read. If there is none at all, only who has it could tell a chain that was made anew from the real one.
    pub key: Option<AuditKey>,
    /// A record that is known from elsewhere to be in it.
    pub head: Option<Tip>,
    /// Told how many of how many bytes have been looked at.
    pub progress: Option<&'a mut dyn FnMut(u64, u64)>,
}

impl std::fmt::Debug for VerifyOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions")
            .field("key", &self.key)
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

/// Nothing is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sound {
    pub records: u64,
    pub segments: u64,
    pub bytes: u64,
    /// The newest record.
    pub head: Tip,
    /// The last record that was removed for its age, if any was.
    pub pruned_to: Option<u64>,
    /// Whether the seals were checked with the key, or the hashes only.
    pub is_keyed: bool,
    /// Bytes at the end that are no record: of one that is being written, or that a crash left.
    pub unfinished_bytes: u64,
    /// Acknowledged records that the machine took with it when it went down, as the next start will write down.
    pub lost_records: u64,
}

/// Why it is not known to be sound.
#[derive(Debug)]
pub enum Unsound {
    Flaws(Vec<Flaw>),
    /// It could not be read.
    Unreadable(AuditError),
}

impl From<AuditError> for Unsound {
    fn from(error: AuditError) -> Self {
        Self::Unreadable(error)
    }
}

/// Looks at all of it.
pub fn verify(folder: &Path, mut options: VerifyOptions<'_>) -> Result<Sound, Unsound> {
    if !folder.is_dir() {
        return Err(AuditError::NoAudit { folder: folder.to_owned() }.into());
    }
    segment::only_files(folder)?;
    options.key = options.key.or_else(|| readable_key(folder));
    for attempt in 1.. {
        let before = Anchor::read(folder, options.key.as_ref())?;
        let result = verify_once(folder, &mut options);
        let is_gone = matches!(&result, Err(Unsound::Unreadable(AuditError::Files { source, .. })) if source.kind() == io::ErrorKind::NotFound);
        let is_same = before == Anchor::read(folder, options.key.as_ref())? && !is_gone;
        if result.is_ok() || is_same || attempt >= TRIES {
            return result;
        }
    }
    unreachable!("the last attempt returns")
}

fn verify_once(folder: &Path, options: &mut VerifyOptions<'_>) -> Result<Sound, Unsound> {
    let mut flaws = Vec::new();
    let head = Head::read(folder, options.key.as_ref())?;
    check_note(&head, "head", &mut flaws);
    let anchor = Anchor::read(folder, options.key.as_ref())?;
    check_note(&anchor, "pruned", &mut flaws);
    let numbers = segment::numbers(folder)?;
    let mut pass = Pass::new(anchor.here().copied(), head.here(), options.head);
    pass.all_bytes = numbers
        .iter()
        .filter_map(|number| segment::path(folder, *number).metadata().ok())
        .map(|about| about.len())
        .sum();
    pass.begin(&numbers, &mut flaws);
    for (position, number) in numbers.iter().enumerate() {
        let (is_last, known) = (position + 1 == numbers.len(), flaws.len());
        if position > 0 && *number != numbers[position - 1] + 1 {
            let (first, last) = (numbers[position - 1] + 1, number - 1);
            flaws.push(Flaw::of("segments", Wrong::MissingSegments { first, last }));
            pass.after = None;
        }
        match pass.segment(folder, *number, is_last, options, &mut flaws) {
            Ok(()) => {}
            Err(source) => return Err(AuditError::files(&segment::path(folder, *number), source).into()),
        }
        // An index of what was changed is another too; that is told already.
        if flaws.len() == known {
            check_index(folder, *number, &mut flaws);
        }
        if flaws.len() > MOST_FLAWS {
            break;
        }
    }
    if flaws.len() <= MOST_FLAWS {
        pass.end(&head, &numbers, &mut flaws);
    }
    if flaws.is_empty() {
        return Ok(pass.sound(numbers.len() as u64, options.key.is_some()));
    }
    flaws.truncate(MOST_FLAWS);
    Err(Unsound::Flaws(flaws))
}

/// An index has no seal, and need not have: it says what the segment says, or it is wrong. One that does not reach the end yet
/// is completed when it is used.
fn check_index(folder: &Path, number: u64, flaws: &mut Vec<Flaw>) {
    let Some(index) = SegmentIndex::load(folder, number) else { return };
    let Ok(real) = SegmentIndex::scan(folder, number) else { return };
    if index.end() == real.end() && index != real || index.end() > real.end() {
        let path = segment::index_path(folder, number);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        flaws.push(Flaw::of(&name, Wrong::OtherIndex));
    }
}

fn check_note<T>(found: &Found<T>, file: &str, flaws: &mut Vec<Flaw>) {
    match found {
        Found::Here(_) | Found::Missing => {}
        Found::Damaged => flaws.push(Flaw::of(file, Wrong::DamagedNote)),
        Found::Forged => flaws.push(Flaw::of(file, Wrong::ForgedNote)),
    }
}

/// A record that must be there.
struct Milestone {
    tip: Tip,
    file: &'static str,
    is_seen: bool,
}

struct Pass {
    anchor: Option<Anchor>,
    /// What the next record follows, where that is known.
    after: Option<Tip>,
    last: Tip,
    milestones: Vec<Milestone>,
    records: u64,
    bytes: u64,
    all_bytes: u64,
    unfinished: u64,
    lost: u64,
    has_restarted: bool,
}

impl Pass {
    fn new(anchor: Option<Anchor>, head: Option<&Head>, given: Option<Tip>) -> Self {
        let milestone = |tip: Tip, file| Milestone { tip, file, is_seen: tip == Tip::BEGINNING };
        let mut milestones: Vec<_> = given.into_iter().map(|tip| milestone(tip, "--head")).collect();
        let mut has_restarted = false;
        if let Some(head) = head {
            has_restarted = !head.boot.is_empty() && head.boot != boot();
            milestones.push(milestone(head.tip, "head"));
            milestones.push(milestone(head.synced, "head"));
        }
        Self {
            anchor,
            after: None,
            last: Tip::BEGINNING,
            milestones,
            records: 0,
            bytes: 0,
            all_bytes: 0,
            unfinished: 0,
            lost: 0,
            has_restarted,
        }
    }

    /// Where the chain begins.
    fn begin(&mut self, numbers: &[u64], flaws: &mut Vec<Flaw>) {
        let Some(first) = numbers.first() else { return };
        let removed = self.anchor.map_or(0, |anchor| anchor.segment);
        let start = self.anchor.map_or(Tip::BEGINNING, |anchor| anchor.tip);
        self.look_for(start);
        if *first == removed + 1 {
            self.after = Some(start);
        } else if *first > removed + 1 {
            flaws.push(Flaw::of("segments", Wrong::MissingSegments { first: removed + 1, last: first - 1 }));
        }
        // What a crash has left of a removal begins anywhere, and must lead to the anchor.
    }

    fn segment(
        &mut self,
        folder: &Path,
        number: u64,
        is_last: bool,
        options: &mut VerifyOptions<'_>,
        flaws: &mut Vec<Flaw>,
    ) -> io::Result<()> {
        let mut walk = Walk::start(folder, number, self.after, options.key.as_ref())?;
        let before = self.bytes;
        loop {
            match walk.step(flaws)? {
                Step::Record(seen) => {
                    self.look_for(seen.tip);
                    self.last = seen.tip;
                    if walk.records.is_multiple_of(4096)
                        && let Some(progress) = &mut options.progress
                    {
                        progress(before + walk.offset(), self.all_bytes);
                    }
                }
                Step::Skipped => {}
                Step::Unfinished { bytes, .. } if is_last => self.unfinished = bytes,
                Step::Unfinished { offset, .. } => flaws.push(walk.flaw(offset, None, Wrong::Unfinished)),
                Step::End => break,
            }
            if flaws.len() > MOST_FLAWS {
                break;
            }
        }
        // The newest may be about to be given its first record.
        if walk.records == 0 && !is_last {
            flaws.push(Flaw::of(walk.name(), Wrong::NoHeader));
        }
        self.records += walk.records;
        self.bytes = before + walk.offset();
        self.after = walk.tip();
        if let Some(anchor) = self.anchor.filter(|anchor| anchor.segment == number && anchor.tip != self.last)
        {
            flaws.push(Flaw::of("pruned", Wrong::NotAnchored(anchor.tip.seq)));
        }
        Ok(())
    }

    fn look_for(&mut self, tip: Tip) {
        for milestone in &mut self.milestones {
            milestone.is_seen |= milestone.tip == tip;
        }
    }

    /// Whether it goes as far as it did.
    fn end(&mut self, head: &Found<Head>, numbers: &[u64], flaws: &mut Vec<Flaw>) {
        if numbers.is_empty() && (self.anchor.is_some() || head.here().is_some()) {
            flaws.push(Flaw::of("segments", Wrong::Emptied));
            return;
        }
        // Missing is fine before the first record was acknowledged only.
        if *head == Found::Missing && (self.records > 1 || self.last.seq > 1) {
            flaws.push(Flaw::of("head", Wrong::NoHead));
        }
        let first_kept = self.anchor.map_or(0, |anchor| anchor.tip.seq);
        for Milestone { tip, file, is_seen } in &self.milestones {
            let wrong = if *is_seen {
                continue;
            } else if *file == "--head" {
                let is_gone = tip.seq < first_kept || tip.seq > self.last.seq;
                if is_gone { Wrong::NoSuchRecord(tip.seq) } else { Wrong::OtherRecord(tip.seq) }
            } else if tip.seq > self.last.seq {
                let is_synced = head.here().is_some_and(|head| head.synced == *tip);
                if self.has_restarted && !is_synced {
                    self.lost = tip.seq - self.last.seq;
                    continue;
                }
                Wrong::Cut { head: tip.seq, last: self.last.seq }
            } else if tip.seq < first_kept {
                continue;
            } else {
                Wrong::OtherRecord(tip.seq)
            };
            let flaw = Flaw::of(file, wrong);
            if !flaws.contains(&flaw) {
                flaws.push(flaw);
            }
        }
    }

    fn sound(&self, segments: u64, is_keyed: bool) -> Sound {
        Sound {
            records: self.records,
            segments,
            bytes: self.bytes,
            head: self.last,
            pruned_to: self.anchor.map(|anchor| anchor.tip.seq),
            is_keyed,
            unfinished_bytes: self.unfinished,
            lost_records: self.lost,
        }
    }
}
