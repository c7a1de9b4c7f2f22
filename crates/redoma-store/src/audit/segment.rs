//! The files of the audit: numbered, each beginning with a record that says which it is.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::AuditError;

/// The longest line. One that is longer was not written by an audit.
pub(super) const LONGEST: usize = 4 << 20;

const DIGITS: usize = 12;
const LINES: &str = ".jsonl";
const INDEX: &str = ".index";

pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:0DIGITS$}{LINES}"))
}

pub(super) fn index_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:0DIGITS$}{INDEX}"))
}

/// Makes sure that there is nothing but files: whoever can write to the folder could put a pipe there that never ends, or
/// a link to somewhere else.
pub(super) fn only_files(folder: &Path) -> Result<(), AuditError> {
    for entry in fs::read_dir(folder).map_err(|source| AuditError::files(folder, source))?.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            return Err(AuditError::files(&entry.path(), io::Error::other("this is no file of an audit")));
        }
    }
    Ok(())
}

/// The numbers of all that are there, in order.
pub(super) fn numbers(folder: &Path) -> Result<Vec<u64>, AuditError> {
    let failed = |source| AuditError::files(folder, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(LINES));
        let number =
            number.filter(|digits| digits.len() >= DIGITS && digits.bytes().all(|b| b.is_ascii_digit()));
        found.extend(number.and_then(|digits| digits.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// A line as it is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// With a line end, which is not counted in.
    Whole,
    /// The last one, without a line end.
    Unfinished,
    /// Longer than any that is written.
    TooLong,
}

/// The lines of a file, one at a time, with where they are.
#[derive(Debug)]
pub(super) struct Lines {
    reader: BufReader<File>,
    /// Where the next one begins.
    pub offset: u64,
}

impl Lines {
    pub fn of(file: File, offset: u64) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(1 << 18, file);
        reader.seek(SeekFrom::Start(offset))?;
        Ok(Self { reader, offset })
    }

    /// The next one into `line`; nothing at the end.
    pub fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Line>> {
        line.clear();
        let most = u64::try_from(LONGEST).unwrap_or(u64::MAX) + 1;
        let count = self.reader.by_ref().take(most).read_until(b'\n', line)?;
        if count == 0 {
            return Ok(None);
        }
        self.offset += count as u64;
        if line.last() == Some(&b'\n') {
            line.pop();
            return Ok(Some(Line::Whole));
        }
        if count <= LONGEST {
            return Ok(Some(Line::Unfinished));
        }
        // To where the next one begins, in pieces.
        loop {
            let (skipped, is_end) = {
                let bytes = self.reader.fill_buf()?;
                match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(end) => (end + 1, true),
                    None => (bytes.len(), bytes.is_empty()),
                }
            };
            self.reader.consume(skipped);
            self.offset += skipped as u64;
            if is_end {
                return Ok(Some(Line::TooLong));
            }
        }
    }
}
