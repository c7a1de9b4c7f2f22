//! Watching one cell: as with any program, but that its end is something it says, and its process goes on.

use std::time::{Duration, Instant};

use redoma_jail::cgroup::{Group, GroupUsage};
use redoma_jail::{Event, JailError, Sandbox};
use redoma_model::{Bundle, LimitName, Limits, Output};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Deserialize;

use super::interrupts::Interrupts;
use super::lineage::Lineage;
use super::repeats::Repeatable;
use crate::capture::{Capture, Stream};
use crate::frames::{Piece, Splitter, note_refused};
use crate::kernel::KernelHandle as _;
use crate::pipes::{CHUNK, Pipes, pass_on, read_piece};
use crate::request::RunError;
use crate::supervise::{Cancel, DiskUse, LockWatch, Observer, SAMPLE, Stop, Watched};
use crate::uncounted;

/// Code up to this length comes in one message, with what is said about it; more in pieces of it.
const ONE_MESSAGE: usize = 48 << 10;
/// How long a cell that was cancelled may take to end by itself, with its variables. Longer than what the kernel gives to
/// bash and Node (`PATIENCE` in `redoma_shell.py` and `redoma_node.py`), or they would be ended with it.
const GRACE: Duration = Duration::from_secs(2);
/// How long it may take to hear how a process has ended that is dead already.
const OBITUARY: Duration = Duration::from_secs(1);
/// What a cell shows is at most so much, in all.
const MOST_SHOWN: usize = 48 << 20;
const MOST_OUTPUTS: usize = 2000;
const MOST_NOTES: usize = 20;
/// What a pipe can hold, at most.
pub(super) const MOST_DRAINED: usize = 1 << 20;
/// How much all that is no text may take when it is read: as many numbers, or a thirtieth of it objects.
const MOST_NODES: usize = 400_000;

pub(super) struct Watching<'a> {
    pub(super) sandbox: &'a Sandbox,
    pub(super) lineage: &'a mut Lineage,
    pub(super) pipes: &'a mut Pipes,
    pub(super) splitter: &'a mut Splitter,
    pub(super) group: Option<&'a dyn Group>,
    pub(super) before: GroupUsage,
    pub(super) limits: &'a Limits,
    pub(super) cancel: &'a Cancel,
    pub(super) interrupts: &'a Interrupts,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) live: bool,
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellEnding {
    /// It said so.
    Done { exit_code: i32 },
    /// Its process is gone, or has to go.
    Died,
}

pub(super) struct Seen {
    pub(super) watched: Watched,
    pub(super) ending: CellEnding,
    pub(super) notes: Vec<String>,
}

/// A frame of a kernel's.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Display {
        data: Bundle,
        #[serde(default)]
        metadata: Bundle,
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        update: bool,
    },
    Result {
        data: Bundle,
        #[serde(default)]
        metadata: Bundle,
    },
    Error {
        name: String,
        value: String,
        traceback: Vec<String>,
    },
    Clear {
        #[serde(default)]
        wait: bool,
    },
    /// Python has heard an interrupt.
    Interrupted {},
    Done(Done),
}

#[derive(Debug, Deserialize)]
struct Done {
    number: u64,
    status: String,
    #[serde(default)]
    exit_code: Option<i32>,
    /// It would do the same if it were run again from where it began.
    #[serde(default)]
    repeatable: bool,
    #[serde(default)]
    notes: Vec<String>,
}

impl Done {
    fn exit_code(&self) -> i32 {
        self.exit_code.unwrap_or(i32::from(self.status != "ok")) & 0xff
    }
}

impl Watching<'_> {
    pub(super) fn watch(mut self, language: &str, code: &[u8], number: u64) -> Result<Seen, RunError> {
        let start = Instant::now();
        let output = self.limits.output.0;
        let tail = if self.live { (output / 2).min(4096) } else { output / 2 };
        let mut seen = Seen {
            watched: Watched {
                event: Event::Gone,
                stop: None,
                wall: Duration::ZERO,
                stdout: Capture::new(output, tail),
                stderr: Capture::new(output, tail),
                disk: DiskUse::default(),
                used: GroupUsage::default(),
                abandoned: false,
                pids_seen: 1,
                value: None,
            },
            ending: CellEnding::Died,
            notes: Vec::new(),
        };
        let mut shown = Shown { taken: self.splitter.taken(), ..Shown::default() };
        let mut deadline = start + self.limits.wall.0;
        let mut next_sample = start + SAMPLE;
        let mut locks = LockWatch::from(self.before.cpu);
        let told = self.tell(language, code, number, deadline);
        self.lineage.prepare_line();
        loop {
            let now = Instant::now();
            if now >= deadline {
                seen.watched.stop = seen.watched.stop.or(Some(Stop::Limit(LimitName::Wall)));
                break;
            }
            if !told {
                break;
            }
            let ready = self.wait(deadline.min(next_sample) - now, seen.watched.stop.is_none())?;
            if ready.cancelled && seen.watched.stop.is_none() {
                // It may stop by itself and keep what it has.
                self.interrupts.interrupt();
                seen.watched.stop = Some(Stop::Cancelled);
                deadline = deadline.min(Instant::now() + GRACE);
            }
            if ready.stderr {
                pass_on(&mut self.pipes.stderr, &mut seen.watched.stderr, Stream::Stderr, self.observer);
                if seen.watched.stderr.is_flood(0) {
                    seen.watched.stop = seen.watched.stop.or(Some(Stop::Limit(LimitName::Output)));
                }
            }
            if ready.stdout
                && let Some(done) = self.read(&mut seen, &mut shown, number)
            {
                seen.ending = CellEnding::Done { exit_code: done.exit_code() };
                let repeatable =
                    if done.repeatable { Repeatable::new(number, code, start.elapsed()) } else { None };
                self.lineage.note_cell(repeatable);
                // Made while the answer is put together.
                self.lineage.ask_for_checkpoint();
                seen.notes.extend(done.notes.into_iter().take(MOST_NOTES));
                break;
            }
            if ready.ended && self.has_ended(&mut seen) {
                break;
            }
            if matches!(seen.watched.stop, Some(Stop::Limit(_))) {
                break;
            }
            if Instant::now() >= next_sample {
                next_sample = Instant::now() + SAMPLE;
                self.interrupts.repeat();
                if let Some(limit) = self.exceeded_limit(&mut seen.watched, &mut locks, start) {
                    seen.watched.stop = Some(Stop::Limit(limit));
                    break;
                }
            }
        }
        seen.watched.wall = start.elapsed();
        // What is in the pipes now, and not what somebody goes on to write.
        let mut rounds = MOST_DRAINED / CHUNK;
        while seen.ending == CellEnding::Died && rounds > 0 && self.has_more() {
            self.read(&mut seen, &mut shown, u64::MAX);
            rounds = rounds.saturating_sub(8);
        }
        let mut rounds = MOST_DRAINED / CHUNK;
        while rounds > 0
            && pass_on(&mut self.pipes.stderr, &mut seen.watched.stderr, Stream::Stderr, self.observer)
        {
            rounds -= 1;
        }
        seen.watched.disk.look(self.sandbox.workspace());
        if shown.dropped > 0 {
            seen.notes.push(format!("{} outputs were left out: there were too many", shown.dropped));
        }
        Ok(seen)
    }

    /// Tells the kernel what to run; whether it took it.
    fn tell(&self, language: &str, code: &[u8], number: u64, deadline: Instant) -> bool {
        // What V8 takes for itself comes on top of its heap.
        let node_memory = ((self.limits.memory.0 / 2) >> 20).max(32);
        let (first, rest) = code.split_at(code.len().min(ONE_MESSAGE));
        let order = format!("cell {number} {language} {} {node_memory}\n", code.len());
        let mut messages = vec![[order.as_bytes(), first].concat()];
        messages.extend(rest.chunks(ONE_MESSAGE).map(<[u8]>::to_vec));
        messages.iter().all(|message| self.send(message, deadline))
    }

    fn send(&self, message: &[u8], deadline: Instant) -> bool {
        let head = self.lineage.head();
        loop {
            match head.tell(message) {
                Ok(()) => return true,
                Err(Errno::AGAIN) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let timeout = Timespec::try_from(left).ok();
                    let mut polled = [PollFd::from_borrowed_fd(head.line(), PollFlags::OUT)];
                    if !matches!(poll(&mut polled, timeout.as_ref()), Ok(1)) {
                        return false;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Reads what there is of standard output, a few pieces at a time; the cell's end, if it was in there.
    fn read(&mut self, seen: &mut Seen, shown: &mut Shown, number: u64) -> Option<Done> {
        let mut buffer = [0u8; CHUNK];
        let mut done = None;
        let interrupts = self.interrupts;
        for _ in 0..8 {
            let Some(bytes) = read_piece(&mut self.pipes.stdout, &mut buffer) else { break };
            let (capture, observer) = (&mut seen.watched.stdout, &mut *self.observer);
            let taken = self.splitter.push(bytes, |piece| match piece {
                Piece::Output(bytes) => {
                    let head = capture.push(bytes);
                    if !head.is_empty() {
                        observer.output(Stream::Stdout, head);
                    }
                }
                Piece::Frame(bytes) => match shown.read(bytes) {
                    Some(Content::Done(said)) if said.number == number => done = Some(said),
                    // Of another cell, or of code that says whatever it likes.
                    Some(Content::Done(_)) | None => note_refused(),
                    Some(Content::Interrupted {}) => interrupts.note_heard(),
                    Some(content) => shown.show(content, bytes.len(), observer),
                },
            });
            let is_flood = capture.is_flood(shown.since(self.splitter.taken()));
            if taken.is_err() || is_flood {
                seen.watched.stop = seen.watched.stop.or(Some(Stop::Limit(LimitName::Output)));
                break;
            }
            if done.is_some() {
                break;
            }
        }
        done
    }

    /// Of a dead process: whether there is more in its pipe.
    fn has_more(&self) -> bool {
        let Some(pipe) = &self.pipes.stdout else { return false };
        let mut polled = [PollFd::new(pipe, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut polled, Some(&at_once)), Ok(1)) && polled[0].revents().contains(PollFlags::IN)
    }

    /// Whether the head has ended, and how.
    fn has_ended(&mut self, seen: &mut Seen) -> bool {
        let head = self.lineage.head().inner_pid();
        let is_dead = !self.lineage.head().is_alive();
        // Its parent, who tells how it ended, is told of that a moment later than we are.
        let deadline = Instant::now() + if is_dead { OBITUARY } else { Duration::ZERO };
        loop {
            match self.sandbox.ended_child(deadline.saturating_duration_since(Instant::now())) {
                Ok(Some((pid, event))) => {
                    self.lineage.note_end(pid);
                    if pid == head {
                        seen.watched.event = event;
                        return true;
                    }
                }
                Ok(None) => return is_dead,
                Err(_) => return true,
            }
        }
    }

    /// Looks at usage; the limit that the cell has gone beyond.
    fn exceeded_limit(
        &self,
        watched: &mut Watched,
        locks: &mut LockWatch,
        start: Instant,
    ) -> Option<LimitName> {
        watched.disk.look(self.sandbox.workspace());
        if let Some(count) = self.group.and_then(Group::pids_current) {
            watched.pids_seen = watched.pids_seen.max(count.saturating_sub(1));
        }
        let cpu = self.group.and_then(Group::cpu_time);
        let used = cpu.map(|now| now.saturating_sub(self.before.cpu.unwrap_or_default()));
        if used.is_some_and(|used| used >= self.limits.cpu_time.0) {
            return Some(LimitName::CpuTime);
        }
        let holds_too_much =
            |group| uncounted::is_too_much(self.sandbox, group, self.limits, watched.pids_seen);
        let is_too_much = locks.has_too_many(cpu.unwrap_or_else(|| start.elapsed()), self.sandbox)
            || self.group.is_some_and(holds_too_much);
        is_too_much.then_some(LimitName::Nofile)
    }

    fn wait(&self, timeout: Duration, can_be_cancelled: bool) -> Result<Ready, RunError> {
        let head = self.lineage.head();
        let mut polled = vec![
            PollFd::from_borrowed_fd(self.sandbox.talk(), PollFlags::IN),
            PollFd::from_borrowed_fd(head.pidfd(), PollFlags::IN),
        ];
        let pipes = [&self.pipes.stdout, &self.pipes.stderr];
        polled.extend(pipes.into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        if can_be_cancelled {
            polled.extend(self.cancel.polled());
        }
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(JailError::Talk(errno).into()),
        }
        let mut is_ready = polled.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || is_ready.next().unwrap_or(false);
        let ended = [next(), next()].contains(&true);
        let stdout = self.pipes.stdout.is_some() && next();
        let stderr = self.pipes.stderr.is_some() && next();
        let cancelled = is_ready.any(|is_ready| is_ready);
        Ok(Ready { ended, cancelled, stdout, stderr })
    }
}

#[expect(clippy::struct_excessive_bools, reason = "one for each source that is waited for")]
struct Ready {
    /// Somebody inside may have ended.
    ended: bool,
    cancelled: bool,
    stdout: bool,
    stderr: bool,
}

/// How much a cell has shown.
#[derive(Debug, Default)]
struct Shown {
    count: usize,
    bytes: usize,
    dropped: usize,
    nodes: usize,
    /// Bytes of frames before this cell.
    taken: u64,
}

impl Shown {
    /// Bytes of frames that nobody was shown: pictures are not a flood.
    fn since(&self, taken: u64) -> u64 {
        taken.saturating_sub(self.taken).saturating_sub(self.bytes as u64)
    }

    /// Reads a frame, unless what it would become takes far more memory than it does: an empty object has a hundred times its length.
    fn read(&mut self, frame: &[u8]) -> Option<Content> {
        let mut is_text = false;
        let mut is_escaped = false;
        let mut nodes = 0;
        for byte in frame {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = is_text,
                b'"' => is_text = !is_text,
                b',' | b'[' if !is_text => nodes += 1,
                b'{' if !is_text => nodes += 30,
                _ => {}
            }
        }
        if self.nodes + nodes > MOST_NODES {
            self.dropped += 1;
            return None;
        }
        self.nodes += nodes;
        serde_json::from_slice(frame).ok()
    }

    fn show(&mut self, content: Content, length: usize, observer: &mut dyn Observer) {
        if self.count >= MOST_OUTPUTS || self.bytes + length > MOST_SHOWN {
            self.dropped += 1;
            return;
        }
        self.count += 1;
        self.bytes += length;
        let output = match content {
            Content::Display { data, metadata, id, update } => Output::Display { data, metadata, id, update },
            Content::Result { data, metadata } => Output::Result { data, metadata },
            Content::Error { name, value, traceback } => Output::Error { name, value, traceback },
            Content::Clear { wait } => Output::Clear { wait },
            Content::Interrupted {} | Content::Done(_) => return,
        };
        observer.shown(&output);
    }
}
