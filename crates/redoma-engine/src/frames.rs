//! What a program says beside its output, within it.
//!
//! A sandbox has no other way out than its pipes, so what is for the supervisor (the value of a script's last line, a call of
//! a tool) comes on standard output too: in lines that begin with a separator and a number made up for the run, and go on
//! with one JSON object. They are taken out before anybody sees the output. A program can know the number and say such
//! things itself; nothing may follow from that but what it could say anyway.

use redoma_model::LimitName;

use crate::meter::Counter;
use crate::supervise::Stop;

/// A frame is at most so long; whoever begins one and goes on floods us.
pub(crate) const LONGEST: usize = 1 << 20;
const SEPARATOR: u8 = 0x1e;

/// Frames that nobody heeded, of all runs of this process.
static REFUSED: Counter = Counter::new();

/// A frame is not heeded: it makes no sense, or speaks for another.
pub(crate) fn note_refused() {
    REFUSED.add_one();
}

pub(crate) fn refused() -> u64 {
    REFUSED.get()
}

/// A piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Output(&'a [u8]),
    /// A frame's JSON.
    Frame(&'a [u8]),
}

/// Takes frames out of a stream.
#[derive(Debug)]
pub(crate) struct Splitter {
    /// What every frame begins with.
    start: Vec<u8>,
    /// What could be the beginning of a frame, or is: the only thing that is held back.
    held: Vec<u8>,
    /// Bytes of frames so far.
    taken: u64,
    /// Whoever begins a longer one floods us.
    longest: usize,
}

impl Splitter {
    pub(crate) fn new(nonce: &str, longest: usize) -> Self {
        let mut start = vec![SEPARATOR];
        start.extend_from_slice(nonce.as_bytes());
        Self { start, held: Vec::new(), taken: 0, longest }
    }

    /// Bytes of the stream that nobody will see as output.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a part of the stream; hands it on in pieces, in order.
    pub(crate) fn push(&mut self, bytes: &[u8], mut hand_on: impl FnMut(Piece<'_>)) -> Result<(), Stop> {
        let mut joined = Vec::new();
        let mut rest = bytes;
        if self.is_in_frame() {
            // Only what is new is looked at: it may come byte by byte.
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (more, behind) = end.map_or((rest, &[][..]), |end| (&rest[..end], &rest[end + 1..]));
            self.held.extend_from_slice(more);
            if self.held.len() > self.longest {
                return Err(Stop::Limit(LimitName::Output));
            }
            if end.is_none() {
                return Ok(());
            }
            let frame = std::mem::take(&mut self.held);
            self.taken += frame.len() as u64 + 1;
            hand_on(Piece::Frame(frame.get(self.start.len()..).unwrap_or_default()));
            rest = behind;
        } else if !self.held.is_empty() {
            joined.append(&mut self.held);
            joined.extend_from_slice(rest);
            rest = &joined;
        }
        // Where to look on for a separator, in `rest`.
        let mut from = 0;
        while let Some(at) = rest[from..].iter().position(|byte| *byte == SEPARATOR).map(|at| from + at) {
            let (before, candidate) = rest.split_at(at);
            if let Some(frame) = candidate.strip_prefix(self.start.as_slice()) {
                hand_on_output(before, &mut hand_on);
                let Some(end) = frame.iter().position(|byte| *byte == b'\n') else {
                    if candidate.len() > self.longest {
                        return Err(Stop::Limit(LimitName::Output));
                    }
                    self.held = candidate.to_vec();
                    return Ok(());
                };
                self.taken += (self.start.len() + end + 1) as u64;
                hand_on(Piece::Frame(&frame[..end]));
                rest = &frame[end + 1..];
                from = 0;
            } else if self.start.starts_with(candidate) {
                hand_on_output(before, &mut hand_on);
                self.held = candidate.to_vec();
                return Ok(());
            } else {
                from = at + 1;
            }
        }
        hand_on_output(rest, &mut hand_on);
        Ok(())
    }

    fn is_in_frame(&self) -> bool {
        self.held.len() >= self.start.len()
    }

    /// At the stream's end: what only looked like a beginning was output. A frame without an end is none.
    pub(crate) fn finish(&mut self, mut hand_on: impl FnMut(Piece<'_>)) {
        if !self.is_in_frame() {
            hand_on_output(&self.held, &mut hand_on);
        }
        self.held.clear();
    }
}

fn hand_on_output(bytes: &[u8], hand_on: &mut impl FnMut(Piece<'_>)) {
    if !bytes.is_empty() {
        hand_on(Piece::Output(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "0123456789abcdef0123456789abcdef";

    /// Output and frames of a stream that comes in these parts.
    fn split(parts: &[&[u8]]) -> (String, Vec<String>) {
        let (mut output, mut frames) = (Vec::new(), Vec::new());
        let mut sort = |piece: Piece<'_>| match piece {
            Piece::Output(bytes) => output.extend_from_slice(bytes),
            Piece::Frame(bytes) => frames.push(String::from_utf8(bytes.to_vec()).unwrap()),
        };
        let mut splitter = Splitter::new(NONCE, LONGEST);
        for part in parts {
            splitter.push(part, &mut sort).unwrap();
        }
        splitter.finish(&mut sort);
        (String::from_utf8(output).unwrap(), frames)
    }

    fn stream() -> Vec<u8> {
        format!(
            "one\n\x1e{NONCE}{{\"a\":1}}\ntwo \x1e no \x1e{}x\x1e\x1e{NONCE}{{}}\n\x1e{NONCE}\nend\x1e0",
            &NONCE[..9]
        )
        .into_bytes()
    }

    #[test]
    fn frames_are_taken_out_and_everything_else_stays() {
        let (output, frames) = split(&[&stream()]);
        assert_eq!(output, format!("one\ntwo \x1e no \x1e{}x\x1eend\x1e0", &NONCE[..9]));
        assert_eq!(frames, ["{\"a\":1}", "{}", ""]);
    }

    #[test]
    fn it_does_not_matter_how_the_stream_is_cut() {
        let (stream, whole) = (stream(), split(&[&stream()]));
        for at in 0..stream.len() {
            let (first, second) = stream.split_at(at);
            assert_eq!(split(&[first, second]), whole, "cut at {at}");
        }
        let bytes: Vec<_> = stream.chunks(1).collect();
        assert_eq!(split(&bytes), whole);
    }

    #[test]
    fn only_what_may_become_a_frame_is_held_back() {
        let mut splitter = Splitter::new(NONCE, LONGEST);
        let mut seen = Vec::new();
        let mut push = |bytes: &[u8]| {
            splitter.push(bytes, |piece| seen.push(format!("{piece:?}"))).unwrap();
            std::mem::take(&mut seen)
        };
        assert_eq!(push(b"ab\x1e01").len(), 1);
        assert_eq!(push(b"2").len(), 0);
        assert_eq!(push(b"x").len(), 1);
    }

    #[test]
    fn a_frame_without_end_is_not_output_and_one_that_is_too_long_ends_the_run() {
        let begun = format!("a\x1e{NONCE}{{");
        assert_eq!(split(&[begun.as_bytes()]), ("a".to_owned(), Vec::new()));
        let mut splitter = Splitter::new(NONCE, LONGEST);
        splitter.push(begun.as_bytes(), |_| {}).unwrap();
        let mut ended = Ok(());
        let mut pushed = 0;
        while ended.is_ok() && pushed < 2 * LONGEST {
            ended = splitter.push(&[b'x'; 16 << 10], |_| {});
            pushed += 16 << 10;
        }
        assert_eq!(ended, Err(Stop::Limit(LimitName::Output)));
        assert!(pushed <= LONGEST + (32 << 10));
    }
}
