//! Keeping the head and the tail of an output stream.
//!
//! A program that prints without end must not fill our memory, but its first lines say what it is doing and its last
//! lines say how it went: both are kept, and the gap is named with its size.

use std::collections::VecDeque;

use redoma_model::Captured;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// How many times the kept amount a program may print before it is taken for one that never stops.
const FLOOD_FACTOR: u64 = 64;

#[derive(Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_cap: usize,
    tail_cap: usize,
    total: u64,
}

impl Capture {
    /// Keeps `limit` bytes, the last `tail` of them from the end of the stream.
    pub(crate) fn new(limit: u64, tail: u64) -> Self {
        let tail = tail.min(limit);
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_cap: to_usize(limit - tail),
            tail_cap: to_usize(tail),
            total: 0,
        }
    }

    /// Takes what the program wrote. Gives back the part that belongs to the head, which can be passed on at once.
    pub(crate) fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        self.total += bytes.len() as u64;
        let room = self.head_cap - self.head.len();
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        // Of a long piece only its end can stay.
        let rest = &rest[rest.len().saturating_sub(self.tail_cap)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_cap);
        self.tail.drain(..excess);
        self.tail.extend(rest);
        head
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.total > (self.head_cap + self.tail_cap) as u64
    }

    /// Whether so much came that nobody can want the rest, with so many bytes that were not for here.
    pub(crate) fn is_flood(&self, others: u64) -> bool {
        self.total + others > (self.head_cap + self.tail_cap) as u64 * FLOOD_FACTOR
    }

    /// What comes behind the head: the line that names the gap, if there is one, and the tail.
    pub(crate) fn ending(&mut self) -> Vec<u8> {
        let mut ending = Vec::new();
        if self.is_truncated() {
            let kept = self.head.len() + self.tail.len();
            let gap = self.total - kept as u64;
            ending.extend_from_slice(format!("\n[… {gap} bytes left out …]\n").as_bytes());
        }
        ending.extend_from_slice(self.tail.make_contiguous());
        ending
    }

    pub(crate) fn finish(mut self) -> Captured {
        let ending = self.ending();
        let truncated = self.is_truncated();
        let mut bytes = std::mem::take(&mut self.head);
        bytes.extend_from_slice(&ending);
        let valid_utf8 = std::str::from_utf8(&bytes).is_ok();
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        Captured { text, bytes: self.total, truncated, valid_utf8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_kept_whole() {
        let mut capture = Capture::new(10, 5);
        capture.push(b"0123");
        capture.push(b"456789");
        let captured = capture.finish();
        assert_eq!(
            captured,
            Captured { text: "0123456789".into(), bytes: 10, truncated: false, valid_utf8: true }
        );
    }

    #[test]
    fn what_does_not_fit_loses_its_middle_and_says_so() {
        let mut capture = Capture::new(10, 5);
        for piece in ["abcdefg", "hijklmnop", "q", "rstuvwxyz"] {
            capture.push(piece.as_bytes());
        }
        let captured = capture.finish();
        assert_eq!(captured.text, "abcde\n[… 16 bytes left out …]\nvwxyz");
        assert_eq!((captured.bytes, captured.truncated), (26, true));
    }

    #[test]
    fn the_head_is_handed_on_as_it_comes_and_never_more_than_that() {
        let mut capture = Capture::new(6, 2);
        assert_eq!(capture.push(b"abc"), b"abc");
        assert_eq!(capture.push(b"def"), b"d");
        assert_eq!(capture.push(b"ghi"), b"");
        assert_eq!(capture.ending(), "\n[… 3 bytes left out …]\nhi".as_bytes());
    }

    #[test]
    fn malformed_utf8_is_replaced_and_reported() {
        let mut capture = Capture::new(100, 50);
        capture.push(b"ok \xff\xfe end");
        let captured = capture.finish();
        assert_eq!(captured.text, "ok \u{fffd}\u{fffd} end");
        assert!(!captured.valid_utf8);
    }

    #[test]
    fn a_flood_is_told_from_long_output() {
        let mut capture = Capture::new(16, 8);
        capture.push(&[b'x'; 16 * 64]);
        assert!(capture.is_truncated() && !capture.is_flood(0) && capture.is_flood(1));
        capture.push(b"x");
        assert!(capture.is_flood(0));
    }
}
