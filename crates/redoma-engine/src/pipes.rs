//! The pipes between the supervisor and a program: what it prints, and what it is given to read. Nothing here waits.

use std::io;
use std::os::fd::OwnedFd;

use redoma_jail::{Stdio, above_stdio};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::capture::{Capture, Stream};
use crate::supervise::Observer;

pub(crate) const CHUNK: usize = 16 << 10;

/// Where the program's standard input comes from.
#[derive(Debug, Default)]
pub enum Stdin {
    #[default]
    Empty,
    /// Passed on as it comes.
    From(OwnedFd),
}

/// The supervisor's ends of the program's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

impl Pipes {
    /// Both sides; the program's is to be dropped once it has started.
    pub(crate) fn new() -> io::Result<(Self, Stdio<OwnedFd>)> {
        let pipe = || -> Result<(OwnedFd, OwnedFd), Errno> {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok((above_stdio(reader)?, above_stdio(writer)?))
        };
        let (theirs_in, ours_in) = pipe()?;
        let (ours_out, theirs_out) = pipe()?;
        let (ours_err, theirs_err) = pipe()?;
        for ours in [&ours_in, &ours_out, &ours_err] {
            rustix::io::ioctl_fionbio(ours, true)?;
        }
        let ours = Self { stdin: Some(ours_in), stdout: Some(ours_out), stderr: Some(ours_err) };
        Ok((ours, Stdio { stdin: theirs_in, stdout: theirs_out, stderr: theirs_err }))
    }

    /// Says where input will come from. An empty input is one whose other end is closed.
    pub(crate) fn expect(&mut self, stdin: &Stdin) {
        if matches!(stdin, Stdin::Empty) {
            self.stdin = None;
        }
    }
}

/// Reads one piece of output; closes the pipe at its end. Whether there may be more at once.
pub(crate) fn pass_on(
    pipe: &mut Option<OwnedFd>,
    capture: &mut Capture,
    stream: Stream,
    observer: &mut dyn Observer,
) -> bool {
    let mut buffer = [0u8; CHUNK];
    let Some(bytes) = read_piece(pipe, &mut buffer) else { return false };
    let head = capture.push(bytes);
    if !head.is_empty() {
        observer.output(stream, head);
    }
    true
}

/// What is in a pipe now, if anything is. At its end it is closed.
pub(crate) fn read_piece<'a>(pipe: &mut Option<OwnedFd>, buffer: &'a mut [u8; CHUNK]) -> Option<&'a [u8]> {
    match rustix::io::read(pipe.as_ref()?, &mut buffer[..]) {
        Err(Errno::AGAIN | Errno::INTR) => None,
        Ok(0) | Err(_) => {
            *pipe = None;
            None
        }
        Ok(count) => buffer.get(..count),
    }
}

pub(crate) fn pass_on_all(
    pipe: &mut Option<OwnedFd>,
    capture: &mut Capture,
    stream: Stream,
    observer: &mut dyn Observer,
) {
    while pass_on(pipe, capture, stream, observer) {}
}

/// Reads what is there. Others may read the same pipe, so that being readable a moment ago promises nothing.
fn read_without_waiting(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let here = u64::MAX; // not at an offset, but wherever reading goes on
    match rustix::io::preadv2(fd, &mut [IoSliceMut::new(buffer)], here, ReadWriteFlags::NOWAIT) {
        // Not every kind of file can: those that can't (plain files) don't make one wait.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => rustix::io::read(fd, buffer),
        other => other,
    }
}

/// What was read from our input and not yet taken by the program.
#[derive(Debug, Default)]
pub(crate) struct InputBuffer {
    bytes: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl InputBuffer {
    pub(crate) fn wants_more(&self) -> bool {
        self.taken == self.bytes.len() && !self.ended
    }

    /// Moves some input on. Closes the program's end when ours has ended or nobody reads it.
    pub(crate) fn feed(&mut self, source: &mut Stdin, pipe: &mut Option<OwnedFd>) {
        if self.wants_more()
            && let Stdin::From(fd) = source
        {
            self.bytes.resize(CHUNK, 0);
            match read_without_waiting(fd, &mut self.bytes) {
                Ok(count) => self.bytes.truncate(count),
                Err(Errno::AGAIN | Errno::INTR) => {
                    self.bytes.clear();
                    self.taken = 0;
                    return;
                }
                Err(_) => self.bytes.clear(),
            }
            self.taken = 0;
            self.ended = self.bytes.is_empty();
        }
        let Some(fd) = pipe else { return };
        match rustix::io::write(&*fd, &self.bytes[self.taken..]) {
            Ok(count) => self.taken += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.ended = true,
        }
        if self.ended {
            *pipe = None;
        }
    }
}
