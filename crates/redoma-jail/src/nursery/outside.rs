//! Asking a nursery for sandboxes: the supervisor's part.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};

use super::message::{self, Answer, Hurry, Request, WarmUp};
use super::{Assignment, SandboxFor, Work};
use crate::cgroup::{Entry, Group};
use crate::kernel::{KernelProcess, Words};
use crate::seccomp::Leave;
use crate::spawn::{Folders, Report, Sandbox, Stdio, receive, send_go, wait_for};
use crate::step::{JailError, Step};

#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// It is there and can't do what it was asked to.
    #[error(transparent)]
    Refused(#[from] JailError),
    /// It is gone, or as good as.
    #[error("the {who} {what}")]
    Lost { who: String, what: String },
}

/// A line to a nursery's keeper or to one of its zygotes. Requests of several threads go one after the other.
#[derive(Debug)]
pub struct Channel {
    who: String,
    /// Gone for good after the first request that was not answered in time: its answer may still come, and must never be
    /// taken for another's.
    line: Mutex<Option<OwnedFd>>,
}

/// What a sandbox is to be made with.
#[derive(Debug)]
pub struct Order<'a> {
    /// The sandbox's uid and gid, in the nursery's own numbers.
    pub id: u32,
    /// What it has beyond others, by its name in the blueprint; the plain one's is empty.
    pub variant: &'a str,
    pub stdio: Stdio<BorrowedFd<'a>>,
    pub hurry: Hurry,
}

/// How long a request may take: it is a clone, or a fork. Anything longer is not coming.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a sandbox may take from one step of its making to the next.
const GROWING: Duration = Duration::from_secs(10);
/// Maximum time until a sandbox has taken a session's limits. Its end is noticed at once; on a busy host it may be slow.
const ASSIGN_TIMEOUT: Duration = Duration::from_mins(1);

impl Channel {
    /// Both ends; the second is for the process that serves it.
    pub fn new(who: &str) -> Result<(Self, OwnedFd), ChannelError> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| ChannelError::Refused(JailError::Talk(errno)))?;
        Ok((Self { who: who.to_owned(), line: Mutex::new(Some(ours)) }, theirs))
    }

    fn lost(&self, what: impl Into<String>) -> ChannelError {
        ChannelError::Lost { who: self.who.clone(), what: what.into() }
    }

    /// Asks, and waits for the answer. With it comes a descriptor.
    fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<OwnedFd, ChannelError> {
        let mut slot = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match slot.as_ref() {
            None => return Err(self.lost("has been given up")),
            Some(line) => self.ask_on(line, request, fds),
        };
        match answer {
            Ok((Answer::Started, fds)) => {
                fds.into_iter().next().ok_or_else(|| self.lost("sent nothing along"))
            }
            Ok((Answer::Failed { step, errno, entry }, _)) => {
                let failure = Answer::failure(step, errno, entry);
                let detail = format!("errno {errno}");
                Err(JailError::Step { step: failure.step, errno: failure.errno, detail }.into())
            }
            Err(error) => {
                *slot = None;
                Err(error)
            }
        }
    }

    fn ask_on(
        &self,
        line: &OwnedFd,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), ChannelError> {
        let lost = |errno: Errno| self.lost(format!("can't be asked: {errno}"));
        message::send(line.as_fd(), request, fds).map_err(lost)?;
        if !is_readable(line.as_fd(), PATIENCE) {
            return Err(self.lost("does not answer"));
        }
        message::receive::<Answer>(line).map_err(lost)?.ok_or_else(|| self.lost("has ended"))
    }

    /// Whether the other end still has somebody at it.
    pub fn is_open(&self) -> bool {
        let slot = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().is_some_and(|line| !is_readable(line.as_fd(), Duration::ZERO))
    }

    /// Begins a sandbox.
    pub fn spawn(&self, order: &Order<'_>) -> Result<Growing, ChannelError> {
        let (talk, inner) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(JailError::Talk)?;
        let request = Request::Spawn { id: order.id, variant: order.variant.to_owned(), hurry: order.hurry };
        let Stdio { stdin, stdout, stderr } = order.stdio;
        let pidfd = self.ask(&request, &[inner.as_fd(), stdin, stdout, stderr])?;
        Ok(Growing { pidfd: Some(pidfd), talk })
    }

    /// Of a keeper: starts the first zygote. It is ready when [`Channel::warm_up`] says so. With it comes its pidfd.
    pub fn start_zygote(&self, who: &str, imports: &[String]) -> Result<(Self, OwnedFd), ChannelError> {
        let (channel, theirs) = Self::new(who)?;
        let request = Request::StartZygote { imports: imports.to_vec() };
        let pidfd = self.ask(&request, &[theirs.as_fd()])?;
        Ok((channel, pidfd))
    }

    /// Of a zygote: makes another one of it, which imports more.
    pub fn branch(&self, who: &str, imports: &[String]) -> Result<(Self, OwnedFd), ChannelError> {
        let (channel, theirs) = Self::new(who)?;
        let request = Request::Branch { imports: imports.to_vec() };
        let pidfd = self.ask(&request, &[theirs.as_fd()])?;
        Ok((channel, pidfd))
    }

    /// Of a new zygote: waits until it has imported what it should.
    pub fn warm_up(&self, patience: Duration) -> Result<WarmUp, ChannelError> {
        let slot = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(line) = slot.as_ref() else { return Err(self.lost("has been given up")) };
        if !is_readable(line.as_fd(), patience) {
            return Err(self.lost(format!("was not ready after {} s", patience.as_secs())));
        }
        match message::receive::<WarmUp>(line) {
            Ok(Some((warm_up, _))) => Ok(warm_up),
            Ok(None) => Err(self.lost("ended while it imported")),
            Err(errno) => Err(self.lost(format!("can't be heard: {errno}"))),
        }
    }
}

fn is_readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match poll(&mut polled, left.as_ref()) {
            Err(Errno::INTR) => {}
            other => return matches!(other, Ok(count) if count > 0),
        }
    }
}

/// A sandbox that is being built. Dropping it ends it.
#[derive(Debug)]
pub struct Growing {
    pidfd: Option<OwnedFd>,
    talk: OwnedFd,
}

impl Growing {
    /// Lets it enter its cgroup and waits until it waits. Where the limits of its use are known already, it is sealed with
    /// them.
    pub fn finish(
        mut self,
        group: Option<&dyn Group>,
        sealed_with: Option<&Assignment>,
    ) -> Result<WaitingSandbox, JailError> {
        let pidfd = self.pidfd.as_ref().ok_or(JailError::EndedEarly)?;
        let pid = host_pid(pidfd)?;
        // Its ids were mapped before we heard of it.
        let _ = send_go(&self.talk, &[]);
        let tasks = match group.map(Group::entry) {
            Some(Entry::WriteSelf(files)) => files,
            Some(Entry::CloneInto(folder)) => {
                // Whoever made it may not put anybody there; we may.
                admit(folder, pid)?;
                &[]
            }
            None => &[],
        };
        let _ = send_go(&self.talk, tasks);
        let mut folders = None;
        let mut line = None;
        let mut listener = None;
        loop {
            // What was preloaded runs in the copy already, before any code does: it may hang.
            if !is_readable(self.talk.as_fd(), GROWING) {
                return Err(JailError::Talk(Errno::TIMEDOUT));
            }
            let (report, fds) = receive(&self.talk).map_err(JailError::Talk)?.ok_or(JailError::EndedEarly)?;
            let mut fds = fds.into_iter();
            match report {
                Report::Failed(failure) => {
                    let detail = format!("entry {}", failure.entry);
                    return Err(JailError::Step { step: failure.step, errno: failure.errno, detail });
                }
                Report::Ready => folders = Folders::new(fds),
                Report::Waiting => match sealed_with {
                    Some(assignment) => {
                        assignment.send(self.talk.as_fd(), None).map_err(JailError::Talk)?;
                    }
                    None => break,
                },
                Report::Sealed => {
                    line = Some(fds.next().ok_or(JailError::EndedEarly)?);
                    listener = fds.next();
                    break;
                }
                Report::Running | Report::Ended { .. } | Report::Gone { .. } => {
                    return Err(JailError::EndedEarly);
                }
            }
        }
        let folders = folders.ok_or(JailError::EndedEarly)?;
        let talk = rustix::io::fcntl_dupfd_cloexec(&self.talk, 3).map_err(JailError::Talk)?;
        let pidfd = self.pidfd.take().ok_or(JailError::EndedEarly)?;
        let mut sandbox = Sandbox::new(pid, pidfd, talk, folders);
        if let (Some(listener), Some(program)) = (listener, only_child(pid)) {
            sandbox.hear_leave_on(Leave::new(listener, program));
        }
        Ok(WaitingSandbox { sandbox, line })
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            wait_for(pidfd);
        }
    }
}

/// Puts a process into a version 2 group.
fn admit(folder: BorrowedFd<'_>, pid: Pid) -> Result<(), JailError> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::openat(folder, "cgroup.procs", flags, rustix::fs::Mode::empty())
        .and_then(|file| rustix::io::write(&file, pid.as_raw_nonzero().to_string().as_bytes()))
        .map(drop)
        .map_err(|errno| JailError::Step { step: Step::JoinCgroup, errno, detail: "cgroup.procs".to_owned() })
}

/// The number that a process has here, whatever it is called in its own namespace.
fn host_pid(pidfd: &OwnedFd) -> Result<Pid, JailError> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    // A process that has ended has the number -1.
    number.filter(|number| *number > 0).and_then(Pid::from_raw).ok_or(JailError::EndedEarly)
}

/// The one child of a sandbox's init: the program's process.
fn only_child(init: Pid) -> Option<Pid> {
    let init = init.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).ok()?;
    let mut children = children.split_whitespace();
    let child = children.next()?.parse().ok()?;
    children.next().is_none().then(|| Pid::from_raw(child))?
}

/// A sandbox behind all its walls, with nobody in it. Dropping it ends it.
#[derive(Debug)]
pub struct WaitingSandbox {
    sandbox: Sandbox,
    /// The line to the program's process, if it is sealed.
    line: Option<OwnedFd>,
}

impl WaitingSandbox {
    /// Whether it still waits.
    pub fn is_alive(&self) -> bool {
        let says_nothing = |fd| !is_readable(fd, Duration::ZERO);
        says_nothing(self.sandbox.talk()) && self.line.as_ref().is_none_or(|line| says_nothing(line.as_fd()))
    }

    /// The host's number for its init.
    pub fn pid(&self) -> Pid {
        self.sandbox.pid()
    }

    /// Lets it begin as a kernel. Not one that is sealed already.
    pub fn assign_kernel(
        self,
        assignment: &Assignment,
        payload: &[u8],
    ) -> Result<(Sandbox, KernelProcess, Words), JailError> {
        let Self { sandbox, line } = self;
        if line.is_some() {
            return Err(JailError::Talk(Errno::INVAL));
        }
        assignment.send(sandbox.talk(), None).map_err(JailError::Talk)?;
        if !is_readable(sandbox.talk(), ASSIGN_TIMEOUT) {
            return Err(JailError::Talk(Errno::TIMEDOUT));
        }
        let Some(line) = sandbox.sealed_line()? else { return Err(JailError::EndedEarly) };
        let program = only_child(sandbox.pid()).ok_or(JailError::EndedEarly)?;
        let process = KernelProcess::of_program(program, sandbox.pid(), line).map_err(JailError::Talk)?;
        let work = Work { name: "", code: b"", payload, reader: super::Reader::Jail };
        work.send(process.line()).map_err(JailError::Talk)?;
        let (words, theirs) = Words::new().map_err(JailError::Talk)?;
        process.tell_with(b"words", theirs.as_fd()).map_err(JailError::Talk)?;
        Ok((sandbox, process, words))
    }

    /// Makes room for files, and gives the folder that will be the workspace, to put them there. Not of one that is sealed
    /// already: it has its limits.
    pub fn make_room(&self, assignment: &Assignment) -> Result<BorrowedFd<'_>, JailError> {
        if self.line.is_some() {
            return Err(JailError::Talk(Errno::INVAL));
        }
        let assignment = Assignment { kind: SandboxFor::Files, ..*assignment };
        assignment.send(self.sandbox.talk(), None).map_err(JailError::Talk)?;
        if !is_readable(self.sandbox.talk(), GROWING) {
            return Err(JailError::Talk(Errno::TIMEDOUT));
        }
        self.sandbox.waits_again()?;
        Ok(self.sandbox.workspace())
    }

    /// Lets it begin. A sealed one has its limits already.
    pub fn assign(self, assignment: &Assignment, work: &Work<'_>) -> Result<Sandbox, JailError> {
        let Self { mut sandbox, line } = self;
        let sent = match line {
            None => assignment.send(sandbox.talk(), Some(work)),
            Some(line) => {
                let sent = work.send(line.as_fd());
                sandbox.hear_failures_on(line);
                sent
            }
        };
        sent.map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET => JailError::EndedEarly,
            other => JailError::Talk(other),
        })?;
        Ok(sandbox)
    }
}
