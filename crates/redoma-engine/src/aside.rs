//! What a run that asked for it hears from its program beside the output, and says to it.

use std::os::fd::OwnedFd;

use redoma_model::LimitName;
use rustix::io::Errno;
use serde::Deserialize;

use crate::capture::{Capture, Stream};
use crate::frames::{LONGEST, Piece, Splitter, note_refused};
use crate::supervise::{Observer, Stop};
use crate::tools::{Heard, Said, Tools};

/// Nobody reads more of a value.
const LONGEST_VALUE: usize = 64 << 10;

/// The supervisor's side of a program that speaks in frames.
#[derive(Debug)]
pub(crate) struct Aside {
    splitter: Splitter,
    pub(crate) tools: Option<Tools>,
    /// The value of the script's last line: the last that was said.
    pub(crate) value: Option<String>,
    outgoing: Outgoing,
}

/// A line on its way in.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    taken: usize,
}

/// A frame's content; what has another is dropped.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Value(String),
    Call(Said),
}

impl Aside {
    pub(crate) fn new(nonce: &str, tools: Option<Tools>) -> Self {
        Self { splitter: Splitter::new(nonce, LONGEST), tools, value: None, outgoing: Outgoing::default() }
    }

    /// Takes a part of standard output: captures what is output, and heeds the rest.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        capture: &mut Capture,
        observer: &mut dyn Observer,
    ) -> Result<(), Stop> {
        let Self { splitter, tools, value, .. } = self;
        let mut heeded = Ok(());
        splitter.push(bytes, |piece| match piece {
            Piece::Output(bytes) => show(bytes, capture, observer),
            Piece::Frame(bytes) => match serde_json::from_slice(bytes) {
                Ok(Content::Value(text)) => *value = Some(shortened(text)),
                Ok(Content::Call(said)) => match tools.as_ref().map(|tools| tools.hear(said)) {
                    Some(Heard::Call(call)) => observer.tool_call(call),
                    Some(Heard::TooMany) => heeded = Err(Stop::TooManyCalls),
                    Some(Heard::Nothing) | None => {}
                },
                Err(_) => note_refused(),
            },
        })?;
        heeded?;
        if capture.is_flood(splitter.taken()) {
            return Err(Stop::Limit(LimitName::Output));
        }
        Ok(())
    }

    /// From here on nobody hears calls: the program has ended.
    pub(crate) fn end_calls(&mut self) {
        self.tools = None;
    }

    /// At the output's end.
    pub(crate) fn finish(&mut self, capture: &mut Capture, observer: &mut dyn Observer) {
        self.splitter.finish(|piece| {
            if let Piece::Output(bytes) = piece {
                show(bytes, capture, observer);
            }
        });
    }

    /// Whether there is anything to be said to the program.
    pub(crate) fn has_lines(&mut self) -> bool {
        if self.outgoing.taken == self.outgoing.bytes.len() {
            let next = self.tools.as_ref().and_then(Tools::next_line);
            self.outgoing = Outgoing { bytes: next.unwrap_or_default(), taken: 0 };
        }
        !self.outgoing.bytes.is_empty()
    }

    /// Says as much as the program takes at once. A pipe that nobody reads any more is closed.
    pub(crate) fn feed(&mut self, pipe: &mut Option<OwnedFd>) {
        while self.has_lines()
            && let Some(fd) = &*pipe
        {
            match rustix::io::write(fd, &self.outgoing.bytes[self.outgoing.taken..]) {
                Ok(count) => self.outgoing.taken += count,
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => *pipe = None,
            }
        }
    }
}

/// Honest ones are as short already.
fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST_VALUE));
    text
}

fn show(bytes: &[u8], capture: &mut Capture, observer: &mut dyn Observer) {
    let head = capture.push(bytes);
    if !head.is_empty() {
        observer.output(Stream::Stdout, head);
    }
}
