//! A session's kernel: a process that goes on from one cell to the next, and copies of it that wait.
//!
//! Inside, a kernel is told what to do over a *line*. Told to, it makes a copy of itself: a **checkpoint**, which stands
//! still with every variable as it is at that moment, shares all memory that has not changed since, and has a line of its
//! own from the supervisor. Should the kernel die, or its last cells be undone, a checkpoint is woken and is the kernel from
//! then on.
//!
//! A checkpoint is a sibling of the process that it was copied from: a child of the sandbox's init, so that code that waits
//! for its own children never sees it. It is in a process group of its own, can't be examined, and is not in `/proc`. Until
//! it is woken it runs nothing but the few lines below.
//!
//! The code in a kernel's memory is hostile all the same. Lines go one way, into the sandbox: over a socket that one listens to,
//! code could send descriptors, and even throwing one away may take as long as it likes (a socket that lingers). What comes out
//! are short words through a pipe. None of them is believed beyond what it names: a process of this very sandbox.

use std::fs::File;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, set_dumpable_behavior,
};

use crate::sys;

/// The lines of kernels have numbers from here on, out of the way of what code opens.
const FIRST_NUMBER: i32 = 100;
/// How nice one can be.
const LEAST_PRIORITY: i32 = 19;
/// What wakes a checkpoint.
const WAKE: &[u8] = b"wake";

/// Which process this is, after a checkpoint was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// The same as before.
    Original,
    /// The copy, which has been woken just now.
    Woken,
}

/// Inside: where a kernel hears what to do, and answers.
#[derive(Debug)]
pub struct KernelLine {
    line: OwnedFd,
    words: Option<OwnedFd>,
    /// The next checkpoint's line.
    offered: Option<OwnedFd>,
    /// Descriptors that were open when it began.
    own: Vec<i32>,
    /// Checkpoints that may be this process's own children: those made beside other threads.
    children: Vec<Pid>,
}

impl KernelLine {
    pub(crate) fn new(line: OwnedFd) -> Self {
        Self { line: out_of_the_way(line), words: None, offered: None, own: Vec::new(), children: Vec::new() }
    }

    /// Waits for the way to answer, and takes what is open then for its own.
    pub fn begin(&mut self) {
        let mut word = [0u8; 16];
        while let Err(Errno::INTR) = self.receive(&mut word) {}
        self.words = self.offered.take().map(out_of_the_way);
        self.own = open_lines().unwrap_or_default();
    }

    /// Waits for the next message; its length, which is 0 at the end.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        let received =
            rustix::net::recvmsg(&self.line, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.offered = fds.into_iter().next();
            }
        }
        Ok(received)
    }

    /// Whether there is a message.
    pub fn is_wanted(&self) -> bool {
        let mut polled = [PollFd::new(&self.line, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }

    /// Says something, in one line.
    pub fn say(&self, words: &[u8]) -> Result<(), Errno> {
        let pipe = self.words.as_ref().ok_or(Errno::BADF)?;
        let line = [words, b"\n"].concat();
        rustix::io::write(pipe, &line).map(drop)
    }

    /// How many pipes and sockets the code has opened and not closed, beside those that are `known`. A copy would hold them
    /// open too: whoever waits for their other end to be closed would wait for ever.
    pub fn count_foreign(&self, known: &[i32]) -> usize {
        let offered = self.offered.as_ref().map(AsRawFd::as_raw_fd);
        let is_foreign = |fd: &i32| !self.own.contains(fd) && !known.contains(fd) && Some(*fd) != offered;
        open_lines().map_or(usize::MAX, |open| open.iter().filter(|fd| is_foreign(fd)).count())
    }

    /// Makes a checkpoint, on the line that came with the order to.
    pub fn checkpoint(&mut self, number: u64) -> Result<Copied, Errno> {
        let line = self.offered.take().ok_or(Errno::BADF)?;
        // Those that were let go are not to be somebody else's to wait for.
        self.children.retain(|pid| {
            matches!(rustix::process::waitpid(Some(*pid), rustix::process::WaitOptions::NOHANG), Ok(None))
        });
        match sys::fork_beside()? {
            Some(pid) => {
                self.children.push(pid);
                // The copy has a few words to say, and may have to wait for this processor to say them.
                rustix::thread::sched_yield();
                Ok(Copied::Original)
            }
            None => match self.stand_still(line, number) {
                Ok(()) => Ok(Copied::Woken),
                Err(_) => sys::exit_now(0),
            },
        }
    }

    /// In the copy: until it is woken.
    fn stand_still(&mut self, line: OwnedFd, number: u64) -> Result<(), Errno> {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let _ = rustix::process::setpgid(None, None);
        // In place of the original's line, under the same number.
        rustix::io::dup3(&line, &mut self.line, rustix::io::DupFlags::CLOEXEC)?;
        drop(line);
        let mut words = [0u8; 96];
        let length = {
            let mut rest = &mut words[..];
            let pid = rustix::process::getpid().as_raw_nonzero();
            writeln!(rest, "{{\"checkpoint\":{number},\"pid\":{pid}}}").map_err(|_| Errno::NOSPC)?;
            96 - rest.len()
        };
        rustix::io::write(self.words.as_ref().ok_or(Errno::BADF)?, &words[..length])?;
        let mut word = [0u8; WAKE.len()];
        loop {
            match self.receive(&mut word) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(_) if word == WAKE => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        set_dumpable_behavior(DumpableBehavior::Dumpable)
    }
}

/// What a kernel looks at after each cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    pub stdout_is_open: bool,
    pub stderr_is_open: bool,
    pub has_children: bool,
}

impl Looked {
    /// At this process.
    pub fn around() -> Self {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Self {
            stdout_is_open: sys::file_type(1).is_some(),
            stderr_is_open: sys::file_type(2).is_some(),
            has_children: !matches!(rustix::process::waitid(WaitId::All, options), Err(Errno::CHILD)),
        }
    }
}

/// The same descriptor under a high number, if this process may have such numbers.
fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_NUMBER).unwrap_or(fd)
}

/// The numbers of this process's pipes and sockets.
fn open_lines() -> Result<Vec<i32>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    let mut found = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if matches!(sys::file_type(number), Some(FileType::Fifo | FileType::Socket)) {
            found.push(number);
        }
    }
    Ok(found)
}

/// Outside: a kernel's process or one of its checkpoints. Dropping it ends it.
#[derive(Debug)]
pub struct KernelProcess {
    pid: Pid,
    /// Its number inside.
    inner_pid: i32,
    pidfd: Arc<OwnedFd>,
    line: OwnedFd,
    /// Where it is said how willingly it is ended, once that was said.
    oom_score: OnceLock<File>,
}

/// Both ends of a line into a sandbox: ours, and the kernel's. Nothing can be said on it in the other direction.
pub fn new_line() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::shutdown(&ours, Shutdown::Read)?;
    Ok((ours, theirs))
}

impl KernelProcess {
    /// The first: the program's process of a sandbox with this init.
    pub(crate) fn of_program(pid: Pid, init: Pid, line: OwnedFd) -> Result<Self, Errno> {
        rustix::net::shutdown(&line, Shutdown::Read)?;
        Self::new(pid, init, line)
    }

    /// A checkpoint that says that it is there, by its number inside: a child of the sandbox's init, of the process that it was
    /// copied from, or of that one's parent.
    pub fn of_checkpoint(inner_pid: i32, init: Pid, original: &Self, line: OwnedFd) -> Result<Self, Errno> {
        let above = || Status::of(original.pid).and_then(|status| status.parent).filter(|pid| *pid != init);
        let parents = [init, original.pid].into_iter().chain(std::iter::once_with(above).flatten());
        for parent in parents {
            // The newest are last.
            for pid in children_of(parent).into_iter().rev() {
                let is_it = Status::of(pid).is_some_and(|status| status.inner_pid == Some(inner_pid));
                if is_it && pid != original.pid {
                    return Self::new(pid, init, line);
                }
            }
        }
        Err(Errno::SRCH)
    }

    /// The number may be somebody else's by now, if its process has ended: so it is looked at where it is, with a hold on it. Who
    /// descends from the sandbox's init is of that sandbox.
    fn new(pid: Pid, init: Pid, line: OwnedFd) -> Result<Self, Errno> {
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let status = Status::of(pid).ok_or(Errno::SRCH)?;
        let inner_pid = status.inner_pid.ok_or(Errno::SRCH)?;
        if status.parent != Some(init) && !descends_from(pid, init) {
            return Err(Errno::SRCH);
        }
        Ok(Self { pid, inner_pid, pidfd: Arc::new(pidfd), line, oom_score: OnceLock::new() })
    }

    pub fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// The host's number for it.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub fn inner_pid(&self) -> i32 {
        self.inner_pid
    }

    /// Tells it something.
    pub fn tell(&self, bytes: &[u8]) -> Result<(), Errno> {
        rustix::net::send(&self.line, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
    }

    /// The same, with something for it to keep.
    pub fn tell_with(&self, bytes: &[u8], fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.line, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
    }

    /// Of a checkpoint: lets it go on.
    pub fn wake(&self) -> Result<(), Errno> {
        // Code may have stopped whatever it found.
        self.signal(Signal::CONT);
        self.tell(WAKE)
    }

    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// For those who want to know when it has ended, and who outlive this.
    pub fn shared_pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }

    pub fn is_alive(&self) -> bool {
        is_alive(self.pidfd.as_fd())
    }

    /// Whether the process has read every message that was sent to it.
    pub fn has_read_all(&self) -> bool {
        sys::unread_bytes(self.line.as_fd()).is_ok_and(|bytes| bytes == 0)
    }

    /// The CPU time of its first thread, which is the one that reads messages.
    pub fn first_thread_cpu(&self) -> Option<Duration> {
        let cpu = first_thread_cpu(self.pid);
        self.is_alive().then_some(cpu)?
    }

    /// Of one that is about to end: what that takes is to be done when there is nothing better to do.
    pub fn step_back(&self) {
        if self.is_alive() {
            let _ = rustix::process::setpriority_process(Some(self.pid), LEAST_PRIORITY);
        }
    }

    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
    }

    /// It is not to be the first to go when memory runs out.
    pub fn spare(&self) {
        set_oom_score(self.pid, self.pidfd.as_fd(), TO_BE_SPARED);
    }

    /// How willingly it is ended when memory runs out.
    pub fn set_oom_score(&self, score: u16) {
        if self.oom_score.get().is_none()
            && let Some(file) = open_oom_score(self.pid, self.pidfd.as_fd())
        {
            let _ = self.oom_score.set(file);
        }
        if let Some(file) = self.oom_score.get() {
            let _ = file.write_at(score.to_string().as_bytes(), 0);
        }
    }
}

/// Who is ended first when memory runs out: the process in which cells run, and what it starts.
pub const FIRST_TO_GO: u16 = 1000;
/// Not its checkpoints, which have what it has when they are made.
pub const TO_BE_SPARED: u16 = 300;

/// Whether a process has not ended.
pub fn is_alive(pidfd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

/// Ends a process.
pub fn end(pidfd: BorrowedFd<'_>) {
    let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
}

/// How willingly a process is ended when memory runs out.
pub(crate) fn set_oom_score(pid: Pid, pidfd: BorrowedFd<'_>, score: u16) {
    if let Some(file) = open_oom_score(pid, pidfd) {
        let _ = file.write_at(score.to_string().as_bytes(), 0);
    }
}

/// Where that is said of this process.
fn open_oom_score(pid: Pid, pidfd: BorrowedFd<'_>) -> Option<File> {
    let file =
        File::options().write(true).open(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero())).ok()?;
    // It was still there after the file was opened, so that the file is its own.
    is_alive(pidfd).then_some(file)
}

impl Drop for KernelProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Outside: what a kernel's processes say, line by line.
#[derive(Debug)]
pub struct Words {
    pipe: OwnedFd,
    unread: Vec<u8>,
}

/// A line of words is at most so long; what is longer is dropped.
const LONGEST_WORDS: usize = 4096;
/// Maximum capacity of a pipe that a process without privileges can set (`/proc/sys/fs/pipe-max-size`).
const MAX_PIPE_BYTES: usize = 1 << 20;

impl Words {
    /// With the end that is for the kernel.
    pub fn new() -> Result<(Self, OwnedFd), Errno> {
        let (pipe, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok((Self { pipe, unread: Vec::new() }, theirs))
    }

    /// Readable when there may be [something](Self::next_line).
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Drops everything that the pipe holds now.
    pub fn clear(&mut self) {
        self.unread.clear();
        let mut buffer = [0u8; 4096];
        let mut left = MAX_PIPE_BYTES;
        while left > 0 {
            match rustix::io::read(&self.pipe, &mut buffer) {
                Ok(count) if count > 0 => left = left.saturating_sub(count),
                _ => return,
            }
        }
    }

    /// The next line, if there is one. A line that is too long comes as an empty one.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line = self.unread.drain(..=end).take(end).collect();
                return Some(line);
            }
            if self.unread.len() > LONGEST_WORDS {
                // Returns here, so that a writer that never ends its line does not keep the caller in this loop.
                self.unread.clear();
                return Some(Vec::new());
            }
            let mut buffer = [0u8; 1024];
            match rustix::io::read(&self.pipe, &mut buffer) {
                Ok(count) if count > 0 => self.unread.extend_from_slice(buffer.get(..count)?),
                _ => return None,
            }
        }
    }
}

/// The CPU time of a process's first thread.
pub fn first_thread_cpu(pid: Pid) -> Option<Duration> {
    let pid = pid.as_raw_nonzero();
    cpu_time(&std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).ok()?)
}

/// User and system time from a line of `/proc/PID/stat`. The name in it can be anything.
fn cpu_time(line: &str) -> Option<Duration> {
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some(Duration::from_millis((user + system) * 1000 / TICKS_PER_SECOND))
}

/// Unit of times in `/proc`: `USER_HZ`, which Linux has fixed at this value on x86-64 and arm64.
const TICKS_PER_SECOND: u64 = 100;

/// What the kernel tells of a process.
#[derive(Debug, Clone, Copy)]
struct Status {
    parent: Option<Pid>,
    /// Its number in the innermost namespace.
    inner_pid: Option<i32>,
}

impl Status {
    fn of(pid: Pid) -> Option<Self> {
        let mut buffer = [0u8; 4096];
        let file = File::open(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
        let length = rustix::io::read(&file, &mut buffer).ok()?;
        let text = String::from_utf8_lossy(buffer.get(..length)?);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(Self {
            parent: field("PPid:")?.parse().ok().and_then(Pid::from_raw),
            inner_pid: field("NSpid:")?.split_whitespace().last()?.parse().ok(),
        })
    }
}

fn children_of(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|number| number.parse().ok()).filter_map(Pid::from_raw).collect()
}

fn descends_from(pid: Pid, ancestor: Pid) -> bool {
    std::iter::successors(Some(pid), |pid| Status::of(*pid)?.parent)
        .take(MOST_ANCESTORS)
        .any(|pid| pid == ancestor)
}

/// Processes that code can nest in each other before nobody believes it any more.
const MOST_ANCESTORS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_pipes_and_sockets_are_found() {
        let before = open_lines().unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let after = open_lines().unwrap();
        assert_eq!(after.len(), before.len() + 2);
        assert!(after.contains(&reader.as_raw_fd()));
    }

    #[test]
    fn a_line_without_an_end_does_not_keep_its_reader() {
        let (mut words, theirs) = Words::new().unwrap();
        rustix::io::write(&theirs, &[b'x'; 5000]).unwrap();
        assert_eq!(words.next_line(), Some(Vec::new()));
        rustix::io::write(&theirs, b"\n{}\n").unwrap();
        words.clear();
        assert_eq!(words.next_line(), None);
    }

    #[test]
    fn cpu_time_is_read_whatever_the_name_of_the_process_is() {
        let fields = "R 1 12 12 0 -1 4194304 9 8 7 6 150 50 3 2 20";
        let expected = Some(Duration::from_secs(2));
        assert_eq!(cpu_time(&format!("12 (a) S 1 (b) S) {fields}")), expected);
        assert_eq!(cpu_time("12 (python3) S 1 12 12 0 -1"), None);
        assert_eq!(cpu_time("12 (python3"), None);
    }
}
