//! Going through a segment line by line, looking at every byte. What starts the server does this with the last segment,
//! `verify` with all.

use std::fs::File;
use std::io;
use std::path::Path;

use redoma_model::{AuditEvent, SegmentHeader};

use super::flaw::{Flaw, Wrong};
use super::head::Tip;
use super::seal::{AuditKey, NOTHING, Sealed, Seals};
use super::segment::{self, Line, Lines};

const HEADER: &[u8] = b"{\"kind\":\"segment\",";

/// A line that is a record, with flaws or without.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub tip: Tip,
    /// Where it begins, and where the next does.
    pub offset: u64,
    pub end: u64,
}

/// What a step came to.
#[derive(Debug)]
pub(super) enum Step {
    Record(Seen),
    /// Bytes at the end that are no line.
    Unfinished {
        offset: u64,
        bytes: u64,
    },
    /// A line that nothing can be said about; its flaw has been told.
    Skipped,
    End,
}

#[derive(Debug)]
pub(super) struct Walk<'a> {
    lines: Lines,
    pub line: Vec<u8>,
    name: String,
    number: u64,
    key: Option<&'a AuditKey>,
    /// What the next record follows; unknown after what can't be read.
    after: Option<Tip>,
    at_line: u64,
    pub header: Option<SegmentHeader>,
    pub records: u64,
}

impl<'a> Walk<'a> {
    pub fn start(
        folder: &Path,
        number: u64,
        after: Option<Tip>,
        key: Option<&'a AuditKey>,
    ) -> io::Result<Self> {
        let path = segment::path(folder, number);
        Ok(Self {
            lines: Lines::of(File::open(&path)?, 0)?,
            line: Vec::new(),
            name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            number,
            key,
            after,
            at_line: 0,
            header: None,
            records: 0,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The last record that could be read.
    pub fn tip(&self) -> Option<Tip> {
        self.after
    }

    pub fn offset(&self) -> u64 {
        self.lines.offset
    }

    /// Looks at the next line. All that is wrong with it is added to `flaws`.
    pub fn step(&mut self, flaws: &mut Vec<Flaw>) -> io::Result<Step> {
        let offset = self.lines.offset;
        let Some(line) = self.lines.next(&mut self.line)? else { return Ok(Step::End) };
        self.at_line += 1;
        match line {
            Line::Whole => {}
            Line::Unfinished => {
                return Ok(Step::Unfinished { offset, bytes: self.lines.offset - offset });
            }
            Line::TooLong => {
                flaws.push(self.flaw(offset, None, Wrong::NotARecord));
                self.after = None;
                return Ok(Step::Skipped);
            }
        }
        let mut found = Vec::new();
        let seen = self.look(offset, &mut found);
        flaws.extend(found.into_iter().map(|(seq, wrong)| self.flaw(offset, seq, wrong)));
        Ok(seen.map_or(Step::Skipped, Step::Record))
    }

    fn look(&mut self, offset: u64, found: &mut Vec<(Option<u64>, Wrong)>) -> Option<Seen> {
        let sealed = Sealed::read(&self.line);
        let Some((sealed, place)) = sealed.and_then(|sealed| Some((sealed, sealed.place()?))) else {
            found.push((None, Wrong::NotARecord));
            // What comes next can't be compared with what was here.
            self.after = None;
            return None;
        };
        let seq = Some(place.seq);
        let header = if sealed.body.starts_with(HEADER) { header(&sealed) } else { None };
        let seals = sealed.seals(self.key);
        let broken = header.as_ref().and_then(|header| header.broken.clone());
        match seals {
            Seals::Whole => {}
            Seals::Edited => found.push((seq, Wrong::Edited)),
            Seals::Forged => {
                match header.as_ref().zip(self.key).filter(|(header, key)| header.key != key.id()) {
                    Some((header, _)) => found.push((seq, Wrong::OtherKey(header.key.clone()))),
                    None => found.push((seq, Wrong::Forged)),
                }
            }
        }
        match &header {
            Some(_) if self.at_line > 1 => found.push((seq, Wrong::HeaderInside)),
            Some(header) if header.number != self.number => {
                found.push((seq, Wrong::OtherNumber(header.number)));
            }
            None if self.at_line == 1 => found.push((seq, Wrong::NoHeader)),
            _ => {}
        }
        match self.after {
            _ if broken.is_some() && place.prev == NOTHING => {
                found.push((seq, Wrong::Broken(broken.unwrap_or_default())));
            }
            Some(after) if place.seq != after.seq + 1 => found.push((
                seq,
                if place.seq > after.seq + 1 {
                    Wrong::Missing { first: after.seq + 1, next: place.seq }
                } else {
                    Wrong::OutOfOrder { expected: after.seq + 1, found: place.seq }
                },
            )),
            Some(after) if place.prev != after.hash => found.push((seq, Wrong::NotFollowing)),
            _ => {}
        }
        let tip = Tip { seq: place.seq, hash: sealed.hash };
        self.after = Some(tip);
        self.header = self.header.take().or(header);
        self.records += 1;
        Some(Seen { tip, offset, end: self.lines.offset })
    }

    pub fn flaw(&self, offset: u64, seq: Option<u64>, wrong: Wrong) -> Flaw {
        Flaw { file: self.name.clone(), line: Some(self.at_line), offset: Some(offset), seq, wrong }
    }
}

fn header(sealed: &Sealed<'_>) -> Option<SegmentHeader> {
    match sealed.says::<AuditEvent>() {
        Some(AuditEvent::Segment(header)) => Some(header),
        _ => None,
    }
}
