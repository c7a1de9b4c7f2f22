//! Waiting for a kernel process to do what it was told between two cells: wake up, make a checkpoint, run a cell again.
//!
//! Time on the wall decides nothing here. On a busy host a process may get no CPU for a minute, and if the server gave it up, the
//! session would lose a cell that its caller has seen succeed. A wait ends in one of four ways:
//!
//! - The process answers.
//! - It ends. Only this makes it dead.
//! - It shows by its own doing that no answer will come: it uses [`MAX_ORDER_CPU`] of CPU time, says [`MAX_STRAY_LINES`] things
//!   that it was not asked for, or reads a later message without having answered the earlier one. The last is no proof for a
//!   checkpoint, which its copy answers.
//! - The caller's [`Wait`] is over. The order stays open, nothing is undone, and the next request waits on.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redoma_jail::kernel::{KernelProcess, Words};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use serde::Deserialize;

use crate::supervise::Cancel;

/// Maximum time that a request waits for a kernel process that is alive; as long as it waits for a turn.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// CPU time within which a process that is not stuck has followed an order.
const MAX_ORDER_CPU: Duration = Duration::from_secs(10);
/// Lines that answer no open order. An honest kernel says none.
const MAX_STRAY_LINES: usize = 1000;
/// Interval at which a late process is examined.
const LOOK: Duration = Duration::from_millis(100);
/// Time after which a late process gets a second message that needs no answer.
const PROBE_AFTER: Duration = Duration::from_secs(2);
const PROBE: &[u8] = b"probe";

/// How long a caller waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait<'a> {
    deadline: Instant,
    given_up: GivenUp<'a>,
}

#[derive(Debug, Clone, Copy)]
enum GivenUp<'a> {
    Never,
    /// When the caller cancels its cell, or leaves.
    Cancelled(&'a Cancel),
    /// Only when the session's kernel is to end: a cancelled cell still wants its variables back.
    Abandoned(&'a Cancel),
}

impl<'a> Wait<'a> {
    pub(super) fn at_most(timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout, given_up: GivenUp::Never }
    }

    pub(super) fn until_cancelled(cancel: &'a Cancel) -> Self {
        Self { given_up: GivenUp::Cancelled(cancel), ..Self::at_most(ANSWER_TIMEOUT) }
    }

    pub(super) fn until_abandoned(cancel: &'a Cancel) -> Self {
        Self { given_up: GivenUp::Abandoned(cancel), ..Self::at_most(ANSWER_TIMEOUT) }
    }

    pub(super) fn is_over(&self) -> bool {
        let is_given_up = match self.given_up {
            GivenUp::Never => false,
            GivenUp::Cancelled(cancel) => cancel.is_cancelled(),
            GivenUp::Abandoned(cancel) => cancel.is_abandoned(),
        };
        is_given_up || Instant::now() >= self.deadline
    }
}

/// The wait is over, and the process is still alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slow;

/// A line that a kernel process says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) awake: Option<u64>,
    /// A checkpoint, by the one that it is, and its number inside.
    pub(super) checkpoint: Option<u64>,
    pub(super) pid: i32,
    /// The checkpoint that it could not make.
    pub(super) none: Option<u64>,
    /// The number of open pipes and sockets that kept it from it.
    pub(super) foreign: u64,
    /// This cell was run again.
    pub(super) again: Option<u64>,
    /// As well as the first time.
    pub(super) fine: bool,
    pub(super) tidied: bool,
}

impl Answer {
    pub(super) fn parse(line: &[u8]) -> Self {
        serde_json::from_slice(line).unwrap_or_default()
    }
}

/// The end of a wait.
#[derive(Debug)]
pub(super) enum Heard {
    Answer(Answer),
    /// The process has ended, or has closed its way to answer.
    Ended,
    /// It is stuck in its own code, or floods the server.
    Stuck,
    /// It has gone on to a later message without an answer.
    Skipped,
}

impl Heard {
    /// Of a process that was woken: whether it serves. It reads later messages only then.
    pub(super) fn is_awake(&self) -> bool {
        match self {
            Self::Answer(answer) => answer.awake.is_some(),
            Self::Skipped => true,
            Self::Ended | Self::Stuck => false,
        }
    }
}

/// An order that a process has not answered yet. It outlives the request that gave it.
#[derive(Debug)]
pub(super) struct Order {
    given: Instant,
    /// CPU time that the process had used when it was first found to be late.
    cpu: Option<Duration>,
    has_probed: bool,
    stray_lines: usize,
}

impl Order {
    pub(super) fn new() -> Self {
        Self { given: Instant::now(), cpu: None, has_probed: false, stray_lines: 0 }
    }

    /// Another order to the same process. The CPU time of all of them together is limited.
    pub(super) fn begin_next(&mut self) {
        *self = Self { cpu: self.cpu, ..Self::new() };
    }

    /// The next line that the process, or one that it made, says.
    pub(super) fn hear(
        &mut self,
        process: &KernelProcess,
        words: &Mutex<Words>,
        wait: Wait<'_>,
    ) -> Result<Heard, Slow> {
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next_look = Instant::now() + LOOK;
        loop {
            if let Some(line) = words.next_line() {
                self.stray_lines += 1;
                if self.stray_lines > MAX_STRAY_LINES {
                    return Ok(Heard::Stuck);
                }
                return Ok(Heard::Answer(Answer::parse(&line)));
            }
            if wait.is_over() {
                return Err(Slow);
            }
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                if let Some(found) = self.examine(process) {
                    // Between the last read and now it may have answered.
                    match words.next_line() {
                        Some(line) => return Ok(Heard::Answer(Answer::parse(&line))),
                        None => return Ok(found),
                    }
                }
            }
            let until = wait.deadline.min(next_look);
            let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
            let mut polled = [
                PollFd::from_borrowed_fd(words.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(process.pidfd(), PollFlags::IN),
            ];
            match poll(&mut polled, timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if polled[0].revents().contains(PollFlags::IN) => {}
                Ok(_) | Err(_) => return Ok(Heard::Ended),
            }
        }
    }

    /// Examines a process that is late.
    fn examine(&mut self, process: &KernelProcess) -> Option<Heard> {
        if let Some(now) = process.first_thread_cpu()
            && now.saturating_sub(*self.cpu.get_or_insert(now)) >= MAX_ORDER_CPU
        {
            return Some(Heard::Stuck);
        }
        if self.given.elapsed() < PROBE_AFTER {
            return None;
        }
        if self.has_probed {
            return process.has_read_all().then_some(Heard::Skipped);
        }
        // The code may have stopped its own process.
        process.signal(Signal::CONT);
        match process.tell(PROBE) {
            Ok(()) => self.has_probed = true,
            Err(errno) if has_hung_up(errno) => return Some(Heard::Stuck),
            // It does not read: it may have no CPU, or the host no memory.
            Err(_) => {}
        }
        None
    }
}

/// Whether this answer to a message means that the process has closed its end.
pub(super) fn has_hung_up(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::BADF)
}
