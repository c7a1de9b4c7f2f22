//! Watching one sandbox: pass its output on, feed its input, look at the clock, and end it when a limit is reached.
//!
//! One loop around `poll`. The wall clock is the poll's own timeout; CPU time, files and process counts are looked at
//! every [`SAMPLE`]. When the program has ended, by itself or not, the whole sandbox is waited for before the pipes are
//! emptied: nothing inside can then hold them open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redoma_jail::cgroup::{Group, GroupUsage};
use redoma_jail::{Event, JailError, Sandbox, SignalPipe, Weakening};
use redoma_model::{LimitName, Limits, Output};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::aside::Aside;
use crate::capture::{Capture, Stream};
use crate::meter::Phase;
use crate::pipes::{CHUNK, InputBuffer, Pipes, Stdin, pass_on, pass_on_all, read_piece};
use crate::tools::{ToolCall, Tools};
use crate::uncounted;
use crate::wall_clock::WallClock;
use crate::workspace::Room;

/// How often usage is looked at while the program runs.
pub(crate) const SAMPLE: Duration = Duration::from_millis(50);

/// Who is told what the program prints, while it runs.
pub trait Observer {
    fn output(&mut self, stream: Stream, bytes: &[u8]);

    /// The program has called a tool. Whoever has the run's `Answers` is to answer, at any time and from any thread.
    fn tool_call(&mut self, _call: ToolCall) {}

    /// A cell has shown something: a display, its value, an error. Never a stream, which is [`output`](Self::output).
    fn shown(&mut self, _output: &Output) {}

    /// A part of the way is behind it: when that began, and how long it took. They may come in another order than they had.
    fn phase(&mut self, _phase: Phase, _begun: Instant, _time: Duration) {}

    /// Whether output that it was given still waits for somebody who reads it.
    fn is_behind(&self) -> bool {
        false
    }
}

/// Nobody.
impl Observer for () {
    fn output(&mut self, _stream: Stream, _bytes: &[u8]) {}
}

/// Why the supervisor ended the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Limit(LimitName),
    Signal(i32),
    Cancelled,
    /// Nobody answered a call in time.
    ToolWait,
    /// It calls and calls.
    TooManyCalls,
}

/// A connection whose other side can go away.
pub trait Line: AsFd + std::fmt::Debug + Send + Sync {}

impl<T: AsFd + std::fmt::Debug + Send + Sync> Line for T {}

/// How somebody ends a run from outside: at any moment, from any thread.
#[derive(Debug)]
pub struct Cancel {
    event: OwnedFd,
    /// The session's kernel is to end too, with all its variables.
    is_abandoned: AtomicBool,
    /// A connection: when its other side is gone, that is a cancellation too.
    line: Option<Arc<dyn Line>>,
}

impl Cancel {
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, is_abandoned: AtomicBool::new(false), line: None })
    }

    /// For a run that nobody wants any more when this connection is closed by its other side.
    pub fn with_line(line: Arc<dyn Line>) -> io::Result<Self> {
        Ok(Self { line: Some(line), ..Self::new()? })
    }

    /// Ends the run, or keeps it from starting. Cannot be taken back.
    pub fn cancel(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// The same, for a cell whose session's kernel is to end: its variables need not be restored.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        self.cancel();
    }

    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// What is to be waited for: any of it is a cancellation.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let line = self.line.as_deref();
        let line = line.map(|line| PollFd::from_borrowed_fd(line.as_fd(), PollFlags::RDHUP));
        std::iter::once(PollFd::new(&self.event, PollFlags::IN)).chain(line)
    }

    pub fn is_cancelled(&self) -> bool {
        let mut polled: Vec<_> = self.polled().collect();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut polled, Some(&at_once)), Ok(count) if count > 0)
    }
}

/// What may end a run before its time, beside its limits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Interrupt<'a> {
    /// Signals to this process.
    Signals(&'a SignalPipe),
    Cancel(&'a Cancel),
}

impl Interrupt<'_> {
    fn polled(&self) -> Vec<PollFd<'_>> {
        match self {
            Self::Signals(signals) => vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)],
            Self::Cancel(cancel) => cancel.polled().collect(),
        }
    }

    fn take(&self) -> Option<Stop> {
        match self {
            Self::Signals(signals) => signals.take().map(Stop::Signal),
            Self::Cancel(_) => Some(Stop::Cancelled),
        }
    }
}

/// What was seen from start to end.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) event: Event,
    pub(crate) stop: Option<Stop>,
    pub(crate) wall: Duration,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    pub(crate) disk: DiskUse,
    /// What the whole tree used.
    pub(crate) used: GroupUsage,
    /// Always false, but for the attack suite's own build: something was left running.
    pub(crate) abandoned: bool,
    /// The most processes seen, for kernels that do not keep the peak.
    pub(crate) pids_seen: u64,
    /// The value of the script's last line.
    pub(crate) value: Option<String>,
}

/// What the sandbox's files take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DiskUse {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) was_full: bool,
    pub(crate) was_out_of_files: bool,
}

impl DiskUse {
    /// Without what was there before the code: inodes of our own, and the files that went in.
    pub(crate) fn leave_out(&mut self, own_inodes: u64, room: Room) {
        self.bytes = self.bytes.saturating_sub(room.bytes);
        self.files = self.files.saturating_sub(own_inodes + room.inodes);
    }

    pub(crate) fn look(&mut self, workspace: BorrowedFd<'_>) {
        let Ok(stat) = rustix::fs::fstatfs(workspace) else { return };
        let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
        self.bytes = self.bytes.max((stat.f_blocks - stat.f_bfree) * block);
        self.files = self.files.max(stat.f_files - stat.f_ffree);
        self.was_full |= stat.f_bfree == 0;
        self.was_out_of_files |= stat.f_ffree == 0;
    }
}

/// When to count a sandbox's record locks: after each [`LOCKS_AFTER`] of CPU time, in which it can take some 100,000.
#[derive(Debug, Default)]
pub(crate) struct LockWatch {
    counted_at: Duration,
}

/// See [`LockWatch`].
const LOCKS_AFTER: Duration = Duration::from_millis(100);

impl LockWatch {
    pub(crate) fn from(cpu: Option<Duration>) -> Self {
        Self { counted_at: cpu.unwrap_or_default() }
    }

    /// Whether it has too many, as far as that is looked at now. `cpu` is what the sandbox has used so far.
    pub(crate) fn has_too_many(&mut self, cpu: Duration, sandbox: &Sandbox) -> bool {
        if cpu.saturating_sub(self.counted_at) < LOCKS_AFTER || Weakening::from_environment().has("locks") {
            return false;
        }
        self.counted_at = cpu;
        sandbox.has_too_many_locks()
    }
}

pub(crate) struct Supervisor<'a> {
    pub(crate) sandbox: &'a mut Sandbox,
    pub(crate) group: Option<&'a dyn Group>,
    pub(crate) limits: &'a Limits,
    pub(crate) interrupt: Interrupt<'a>,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) pipes: Pipes,
    pub(crate) stdin: Stdin,
    /// Bytes of each stream kept from its end, of the bytes that the output limit keeps in all.
    pub(crate) tail: u64,
    /// For a program that speaks in frames.
    pub(crate) aside: Option<Aside>,
}

impl Supervisor<'_> {
    /// From the program's start to the sandbox's end.
    pub(crate) fn watch(mut self) -> Result<Watched, JailError> {
        let start = Instant::now();
        let mut clock = WallClock::start(start);
        let output = self.limits.output.0;
        let mut watched = Watched {
            event: Event::Gone,
            stop: None,
            wall: Duration::ZERO,
            stdout: Capture::new(output, self.tail),
            stderr: Capture::new(output, self.tail),
            disk: DiskUse::default(),
            used: GroupUsage::default(),
            abandoned: false,
            pids_seen: 1,
            value: None,
        };
        let mut input = InputBuffer::default();
        let mut breather = Breather::default();
        let mut stands_still = false;
        let mut locks = LockWatch::default();
        let mut next_sample = start + self.until_next_sample(Some(self.limits.cpu_time.0));
        let event = loop {
            let now = Instant::now();
            let left = match self.time_left(&mut clock, now) {
                Ok(left) => left,
                Err(stop) => {
                    watched.stop = Some(stop);
                    break None;
                }
            };
            let timeout = left.min(next_sample.saturating_duration_since(now));
            let ready = self.wait(&input, timeout)?;
            breather.pause_if_busy();
            if ready.talk {
                break Some(self.sandbox.event()?);
            }
            if ready.leave
                && let Some(code) = self.sandbox.leaving(|| self.only_program_is_left())
            {
                stands_still = true;
                break Some(Event::Exited(code));
            }
            if ready.signal
                && let Some(stop) = self.interrupt.take()
            {
                watched.stop = Some(stop);
                break None;
            }
            self.pass_on(&ready, &mut input, &mut watched);
            if watched.stop.is_some() {
                break None;
            }
            if Instant::now() >= next_sample {
                let cpu_left = self.sample(&mut watched);
                if cpu_left.is_some_and(|left| left.is_zero()) {
                    watched.stop = Some(Stop::Limit(LimitName::CpuTime));
                    break None;
                }
                let cpu = cpu_left.map(|left| self.limits.cpu_time.0.saturating_sub(left));
                if locks.has_too_many(cpu.unwrap_or_else(|| start.elapsed()), self.sandbox) {
                    watched.stop = Some(Stop::Limit(LimitName::Nofile));
                    break None;
                }
                if self.holds_too_much(&watched) {
                    watched.stop = Some(Stop::Limit(LimitName::Nofile));
                    break None;
                }
                next_sample = Instant::now() + self.until_next_sample(cpu_left);
            }
        };
        watched.wall = clock.elapsed(Instant::now());
        watched.abandoned = Weakening::from_environment().has("kill") && self.sandbox.abandon();
        if let Some(group) = self.group {
            if watched.stop.is_some() {
                group.kill_all();
            }
            // The program has ended or been killed; what its init still uses is ours. Read while that goes away.
            watched.used = group.usage();
        }
        // Init alone is left, or beside it a program that stands still at its end: what there is to see can be seen already.
        let is_quiet = stands_still || watched.used.pids_current == Some(1);
        if watched.stop.is_some() || !is_quiet {
            self.sandbox.kill_and_wait();
        }
        if watched.stop.is_some() {
            // A run that had to be ended is over when it has ended.
            watched.wall = clock.elapsed(Instant::now());
        }
        watched.event = event.unwrap_or(Event::Gone);
        self.empty_pipes(&mut watched);
        watched.disk.look(self.sandbox.workspace());
        Ok(watched)
    }

    fn tools(&self) -> Option<&Tools> {
        self.aside.as_ref()?.tools.as_ref()
    }

    fn has_tools(&self) -> bool {
        self.tools().is_some()
    }

    /// How long to wait at most, or what has run out. While a call is without an answer it is the patience of whoever
    /// waits for that which counts.
    fn time_left(&self, clock: &mut WallClock, now: Instant) -> Result<Duration, Stop> {
        if let Some(tools) = self.tools() {
            let is_waiting = tools.is_waiting();
            clock.stand_still(is_waiting, now);
            if is_waiting {
                // Answered in this very moment: then the clock is looked at in the next round.
                let left = tools.deadline().map_or(SAMPLE, |end| end.saturating_duration_since(now));
                return if left.is_zero() { Err(Stop::ToolWait) } else { Ok(left) };
            }
        }
        let left = self.limits.wall.0.saturating_sub(clock.elapsed(now));
        if left.is_zero() { Err(Stop::Limit(LimitName::Wall)) } else { Ok(left) }
    }

    /// Passes on what there is of output and input.
    fn pass_on(&mut self, ready: &Ready, input: &mut InputBuffer, watched: &mut Watched) {
        // A few pieces at a time: the clock and the other stream want their turn too.
        for _ in 0..8 {
            let more = ready.stdout && self.pass_on_stdout(watched);
            let more_errors = ready.stderr
                && pass_on(&mut self.pipes.stderr, &mut watched.stderr, Stream::Stderr, self.observer);
            if !more && !more_errors {
                break;
            }
        }
        if let Some(tools) = self.tools().filter(|_| ready.answers) {
            tools.silence_bell();
        }
        match &mut self.aside {
            Some(aside) if aside.tools.is_some() => aside.feed(&mut self.pipes.stdin),
            _ if ready.stdin => input.feed(&mut self.stdin, &mut self.pipes.stdin),
            _ => {}
        }
        if watched.stdout.is_flood(0) || watched.stderr.is_flood(0) {
            watched.stop = watched.stop.or(Some(Stop::Limit(LimitName::Output)));
        }
    }

    /// Everybody who could write is gone: what is in the pipes now is all there will be.
    fn empty_pipes(&mut self, watched: &mut Watched) {
        if let Some(aside) = &mut self.aside {
            aside.end_calls();
        }
        while self.pass_on_stdout(watched) {}
        if let Some(mut aside) = self.aside.take() {
            aside.finish(&mut watched.stdout, self.observer);
            watched.value = aside.value;
        }
        pass_on_all(&mut self.pipes.stderr, &mut watched.stderr, Stream::Stderr, self.observer);
    }

    /// Reads one piece of standard output. Whether there may be more at once.
    fn pass_on_stdout(&mut self, watched: &mut Watched) -> bool {
        let (pipe, capture) = (&mut self.pipes.stdout, &mut watched.stdout);
        let Some(aside) = &mut self.aside else {
            return pass_on(pipe, capture, Stream::Stdout, self.observer);
        };
        let mut buffer = [0u8; CHUNK];
        let Some(bytes) = read_piece(pipe, &mut buffer) else { return false };
        match aside.take(bytes, capture, self.observer) {
            Ok(()) => true,
            Err(stop) => {
                watched.stop = watched.stop.or(Some(stop));
                false
            }
        }
    }

    /// Whether nothing else is in the sandbox than init and one more thread.
    fn only_program_is_left(&self) -> bool {
        self.group.is_some_and(|group| group.pids_current() == Some(2))
    }

    /// Looks at usage; how much CPU time is left.
    fn sample(&mut self, watched: &mut Watched) -> Option<Duration> {
        watched.disk.look(self.sandbox.workspace());
        let group = self.group?;
        if let Some(count) = group.pids_current() {
            watched.pids_seen = watched.pids_seen.max(count.saturating_sub(1));
        }
        Some(self.limits.cpu_time.0.saturating_sub(group.cpu_time()?))
    }

    fn holds_too_much(&self, watched: &Watched) -> bool {
        self.group
            .is_some_and(|group| uncounted::is_too_much(self.sandbox, group, self.limits, watched.pids_seen))
    }

    /// Near its end CPU time can run out on all cores at once: look again when it could be so.
    fn until_next_sample(&self, cpu_left: Option<Duration>) -> Duration {
        let cores = (self.limits.cpus.0 / 1000).max(1);
        cpu_left.map_or(SAMPLE, |left| (left / cores).clamp(Duration::from_millis(2), SAMPLE))
    }

    fn wait(&mut self, input: &InputBuffer, timeout: Duration) -> Result<Ready, JailError> {
        let mut ready = Ready::default();
        let has_lines = self.aside.as_mut().is_some_and(Aside::has_lines);
        let mut polled: Vec<(PollFd<'_>, Source)> = Vec::with_capacity(6);
        polled.push((PollFd::from_borrowed_fd(self.sandbox.talk(), PollFlags::IN), Source::Talk));
        polled.extend(self.interrupt.polled().into_iter().map(|polled| (polled, Source::Signal)));
        if let Some(leave) = self.sandbox.leave() {
            polled.push((PollFd::from_borrowed_fd(leave, PollFlags::IN), Source::Leave));
        }
        if let Some(pipe) = &self.pipes.stdout {
            polled.push((PollFd::new(pipe, PollFlags::IN), Source::Stdout));
        }
        if let Some(pipe) = &self.pipes.stderr {
            polled.push((PollFd::new(pipe, PollFlags::IN), Source::Stderr));
        }
        match (&self.stdin, &self.pipes.stdin) {
            (_, pipe) if self.has_tools() => {
                if let Some(tools) = self.tools() {
                    polled.push((PollFd::from_borrowed_fd(tools.bell(), PollFlags::IN), Source::Answers));
                }
                if let (true, Some(pipe)) = (has_lines, pipe) {
                    polled.push((PollFd::new(pipe, PollFlags::OUT), Source::Stdin));
                }
            }
            (Stdin::From(source), Some(_)) if input.wants_more() => {
                polled.push((PollFd::new(source, PollFlags::IN), Source::Stdin));
            }
            (_, Some(pipe)) => polled.push((PollFd::new(pipe, PollFlags::OUT), Source::Stdin)),
            _ => {}
        }
        let mut fds: Vec<_> = polled.iter().map(|(fd, _)| fd.clone()).collect();
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(JailError::Talk(errno)),
        }
        for (fd, (_, source)) in fds.iter().zip(&polled) {
            // A listener whose processes are gone has nothing to say, and must not be waited for.
            let is_set = match source {
                Source::Leave => fd.revents().contains(PollFlags::IN),
                _ => !fd.revents().is_empty(),
            };
            if is_set {
                ready.set(*source);
            }
        }
        Ok(ready)
    }
}

/// Keeps a program that prints one byte at a time from using our CPU time, which no limit of its counts: after a while
/// each wake-up is given time to become worth it.
#[derive(Debug, Default)]
struct Breather {
    wake_ups: u32,
}

impl Breather {
    const FREE: u32 = 1000;

    fn pause_if_busy(&mut self) {
        self.wake_ups = self.wake_ups.saturating_add(1);
        if self.wake_ups > Self::FREE {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Talk,
    Leave,
    Signal,
    Stdout,
    Stderr,
    Stdin,
    Answers,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one per thing that poll looks at")]
struct Ready {
    talk: bool,
    leave: bool,
    signal: bool,
    stdout: bool,
    stderr: bool,
    stdin: bool,
    answers: bool,
}

impl Ready {
    fn set(&mut self, source: Source) {
        match source {
            Source::Talk => self.talk = true,
            Source::Leave => self.leave = true,
            Source::Signal => self.signal = true,
            Source::Stdout => self.stdout = true,
            Source::Stderr => self.stderr = true,
            Source::Stdin => self.stdin = true,
            Source::Answers => self.answers = true,
        }
    }
}
