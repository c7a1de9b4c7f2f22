//! What can be wrong with an audit, and where.

use std::fmt;

use serde::{Serialize, Serializer};

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("this is no line of an audit")]
    NotARecord,
    #[error("the last line has no end")]
    Unfinished,
    #[error("the line was changed after it was written: its hash is another")]
    Edited,
    #[error("the line was made without the audit's key")]
    Forged,
    #[error("records {first} to {last} are missing before this one", last = .next - 1)]
    Missing { first: u64, next: u64 },
    #[error(
        "record {found} stands where {expected} should: lines were inserted, repeated or put in another order"
    )]
    OutOfOrder { expected: u64, found: u64 },
    #[error("the line does not follow the one before it: the hash that it names is another")]
    NotFollowing,
    #[error("the file does not begin with the record that says which it is")]
    NoHeader,
    #[error("the file says that it is number {0}")]
    OtherNumber(u64),
    #[error("a file's first record stands in the middle of this one")]
    HeaderInside,
    #[error("the server could not go on from what it found when it started, and began anew: {0}")]
    Broken(String),
    #[error("the files {first} to {last} are missing")]
    MissingSegments { first: u64, last: u64 },
    #[error("the file that says how far the audit goes is missing")]
    NoHead,
    #[error("the file was changed after it was written")]
    DamagedNote,
    #[error("the file was made without the audit's key")]
    ForgedNote,
    #[error("the audit was cut: it went to record {head} and ends with {last}")]
    Cut { head: u64, last: u64 },
    #[error("record {0} is not the one that was written there: its hash is another")]
    OtherRecord(u64),
    #[error("record {0} is not there")]
    NoSuchRecord(u64),
    #[error("what was removed for its age ends with record {0}, and the audit does not go on from there")]
    NotAnchored(u64),
    #[error("the records are sealed with the key {0}, and this is another")]
    OtherKey(String),
    #[error(
        "what records are looked up by is not what the file holds: some may not be found; remove it, and it is made anew"
    )]
    OtherIndex,
    #[error("there are no records at all, and there were")]
    Emptied,
}

/// Something that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The file's name.
    pub file: String,
    /// From 1.
    pub line: Option<u64>,
    /// Where the line begins.
    pub offset: Option<u64>,
    pub seq: Option<u64>,
    pub wrong: Wrong,
}

impl Flaw {
    pub(super) fn of(file: &str, wrong: Wrong) -> Self {
        Self { file: file.to_owned(), line: None, offset: None, seq: None, wrong }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        if let Some(seq) = self.seq {
            write!(f, ", record {seq}")?;
        }
        write!(f, ": {}", self.wrong)
    }
}

impl Serialize for Flaw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("Flaw", 5)?;
        out.serialize_field("file", &self.file)?;
        out.serialize_field("line", &self.line)?;
        out.serialize_field("offset", &self.offset)?;
        out.serialize_field("seq", &self.seq)?;
        out.serialize_field("what", &self.wrong.to_string())?;
        out.end()
    }
}
