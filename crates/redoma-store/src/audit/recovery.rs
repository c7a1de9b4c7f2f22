//! What a start does with what it finds.
//!
//! A crash of the service may leave the beginning of a line, never acknowledged: it is cut off, and a record says so. After
//! the machine itself went down, records since the last trip to the disk may be missing: a record says how many. Anything
//! else was not done by a crash. It is left as it is for those who want to look, and the chain begins anew in a segment of
//! its own that says what was wrong.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use redoma_model::{AuditEvent, AuditRecovery};

use super::AuditError;
use super::flaw::{Flaw, Wrong};
use super::head::{Anchor, Found, Head, Tip, boot};
use super::index::{SegmentIndex, Terms};
use super::seal::{AuditKey, Body};
use super::segment;
use super::walk::{Step, Walk};
use super::writer::{Broken, Open, Prepared, Writer, Written};

/// How an audit was found when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundAudit {
    /// There was none.
    New,
    Sound,
    /// As a crash leaves it; put in order.
    Recovered(AuditRecovery),
    /// It is not as it was written: `redoma audit verify` tells where. The chain began anew.
    Broken(String),
}

/// The last segment as far as it is whole.
pub(super) struct Last {
    number: u64,
    tip: Tip,
    records: u64,
    bytes: u64,
    cut_bytes: u64,
    flaw: Option<Flaw>,
    /// Each record's, to look up what the head names; the first is what the header follows.
    tips: Vec<Tip>,
    index: SegmentIndex,
}

/// What is to be done.
pub(super) enum Verdict {
    New,
    GoesOn { last: Box<Last>, lost: u64 },
    Broken { number: u64, seq: u64, why: String, old: Option<Box<Last>> },
}

/// Puts the audit in order and readies it for writing. Whoever calls it holds the lock.
pub(super) fn recover(
    verdict: Verdict,
    writer: &mut Writer,
    written: &mut Vec<Written>,
) -> Result<(FoundAudit, Option<SegmentIndex>), AuditError> {
    match verdict {
        Verdict::New => {
            written.push(writer.begin_segment(None)?);
            Ok((FoundAudit::New, None))
        }
        Verdict::GoesOn { last, lost } => {
            let path = segment::path(&writer.folder, last.number);
            let failed = |source| AuditError::files(&path, source);
            let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
            if last.cut_bytes > 0 {
                file.set_len(last.bytes).and_then(|()| file.sync_all()).map_err(failed)?;
            }
            let (number, bytes, records) = (last.number, last.bytes, last.records);
            writer.open = Some(Open { number, path: path.clone(), file: Arc::new(file), bytes, records });
            writer.tip = last.tip;
            if last.cut_bytes == 0 && lost == 0 {
                return Ok((FoundAudit::Sound, Some(last.index)));
            }
            let recovery = AuditRecovery {
                cut_bytes: last.cut_bytes,
                lost_records: lost,
                note: note(last.cut_bytes, lost),
            };
            let event = AuditEvent::Recovered(recovery.clone());
            writer.write(&[Prepared { body: Body::new(&event)?, terms: Terms::of(&event) }], written)?;
            Ok((FoundAudit::Recovered(recovery), Some(last.index)))
        }
        Verdict::Broken { number, seq, why, old } => {
            written.push(writer.begin_segment(Some(Broken { number, seq, why: why.clone() }))?);
            writer.head.trim()?;
            Ok((FoundAudit::Broken(why), old.map(|last| last.index)))
        }
    }
}

fn note(cut_bytes: u64, lost: u64) -> String {
    match (cut_bytes, lost) {
        (_, 0) => format!("{cut_bytes} bytes of a record that was never acknowledged were cut off"),
        (0, _) => format!("the machine went down before {lost} acknowledged records were on disk"),
        _ => format!(
            "the machine went down: {lost} acknowledged records are lost, and {cut_bytes} bytes were cut off"
        ),
    }
}

/// Looks at what is there.
pub(super) fn judge(folder: &Path, key: &AuditKey) -> Result<Verdict, AuditError> {
    let numbers = segment::numbers(folder)?;
    let head = Head::read(folder, Some(key))?;
    let known = match &head {
        Found::Here(head) => Some(head.clone()),
        _ => None,
    };
    let head_segment = known.as_ref().map_or(0, |head| head.segment);
    let number = numbers.last().copied().unwrap_or(0).max(head_segment) + 1;
    let head_seq = known.as_ref().map_or(0, |head| head.tip.seq);
    let Some(mut last) = last_with_records(folder, &numbers, key)? else {
        let is_new = head == Found::Missing && Anchor::read(folder, Some(key))? == Found::Missing;
        if is_new {
            return Ok(Verdict::New);
        }
        let why = Wrong::Emptied.to_string();
        return Ok(Verdict::Broken { number, seq: head_seq, why, old: None });
    };
    let seq = last.tip.seq.max(head_seq);
    let broken = |why: String, last: Last| {
        let old = Some(Box::new(last));
        Verdict::Broken { number, seq, why, old }
    };
    let has_restarted = known.as_ref().is_some_and(|head| !head.boot.is_empty() && head.boot != boot());
    let synced = known.as_ref().map_or(0, |head| head.synced.seq);
    if let Some(flaw) = last.flaw.take() {
        // A power cut may leave holes where nothing was on disk for certain; it changes nothing before.
        if !(has_restarted && last.tip.seq >= synced) {
            return Ok(broken(flaw.to_string(), last));
        }
    }
    let Some(head) = known else {
        // A first start that was killed between its first record and the head.
        let is_first = head == Found::Missing && last.number == 1 && last.records <= 1;
        let wrong = if head == Found::Missing { Wrong::NoHead } else { Wrong::DamagedNote };
        return Ok(if is_first {
            Verdict::GoesOn { last: Box::new(last), lost: 0 }
        } else {
            broken(Flaw::of("head", wrong).to_string(), last)
        });
    };
    let must_reach = if has_restarted { head.synced } else { head.tip };
    if must_reach.seq > last.tip.seq {
        let wrong = Wrong::Cut { head: must_reach.seq, last: last.tip.seq };
        return Ok(broken(wrong.to_string(), last));
    }
    let is_there = |tip: Tip| tip == Tip::BEGINNING || last.tips.contains(&tip);
    let is_older = |tip: Tip| tip.seq < last.tips.first().map_or(0, |first| first.seq);
    let is_beyond = |tip: Tip| tip.seq > last.tip.seq;
    // A head that has not reached the disk for a while may be older than the segment, never anything else.
    for tip in [head.tip, head.synced] {
        let is_fine = is_there(tip) || is_beyond(tip) || (has_restarted && is_older(tip));
        let is_fine = is_fine || (tip == head.synced && is_older(tip));
        if !is_fine {
            return Ok(broken(Wrong::OtherRecord(tip.seq).to_string(), last));
        }
    }
    let missing = head.tip.seq.saturating_sub(last.tip.seq);
    Ok(Verdict::GoesOn { last: Box::new(last), lost: missing })
}

/// The newest segment that has a record. One without any is what a crash leaves of a rotation, and is removed.
fn last_with_records(folder: &Path, numbers: &[u64], key: &AuditKey) -> Result<Option<Last>, AuditError> {
    let mut cut_bytes = 0;
    for (position, number) in numbers.iter().enumerate().rev() {
        let mut last = read_last(folder, *number, key)?;
        last.cut_bytes += cut_bytes;
        let is_remnant = last.records == 0 && last.flaw.is_none();
        if !is_remnant {
            return Ok(Some(last));
        }
        // Only the newest one can be.
        if position + 1 < numbers.len() {
            last.flaw = Some(Flaw::of(&segment::path(folder, *number).to_string_lossy(), Wrong::NoHeader));
            return Ok(Some(last));
        }
        cut_bytes = last.cut_bytes;
        let path = segment::path(folder, *number);
        fs::remove_file(&path).map_err(|source| AuditError::files(&path, source))?;
    }
    Ok(None)
}

fn read_last(folder: &Path, number: u64, key: &AuditKey) -> Result<Last, AuditError> {
    let path = segment::path(folder, number);
    let failed = |source| AuditError::files(&path, source);
    let mut walk = Walk::start(folder, number, None, Some(key)).map_err(failed)?;
    let mut last = Last {
        number,
        tip: Tip::BEGINNING,
        records: 0,
        bytes: 0,
        cut_bytes: 0,
        flaw: None,
        tips: Vec::new(),
        index: SegmentIndex::new(number),
    };
    let mut flaws = Vec::new();
    loop {
        let step = walk.step(&mut flaws).map_err(failed)?;
        // That the chain began anew here was told when it did.
        flaws.retain(|flaw| !matches!(flaw.wrong, Wrong::Broken(_)));
        let seen = match step {
            Step::Record(seen) => Some(seen),
            Step::Unfinished { .. } | Step::Skipped | Step::End => None,
        };
        let Some(seen) = seen.filter(|_| flaws.is_empty()) else {
            last.flaw = flaws.into_iter().next();
            let length = fs::metadata(&path).map_err(failed)?.len();
            last.cut_bytes = length - last.bytes;
            return Ok(last);
        };
        if last.records == 0 {
            last.tips.extend(
                super::seal::Sealed::read(&walk.line)
                    .and_then(|sealed| sealed.place())
                    .map(|place| Tip { seq: place.seq.saturating_sub(1), hash: place.prev }),
            );
        }
        last.tips.push(seen.tip);
        last.index.add_line(&walk.line, seen.offset, seen.end);
        (last.tip, last.bytes) = (seen.tip, seen.end);
        last.records += 1;
    }
}
