//! The outside of a sandbox: making it, hearing from it, ending it.

use std::ffi::CString;
use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::SANDBOX_ID;
use crate::cgroup::{Entry, Group};
use crate::enter::{self, Failure, Prepared};
use crate::host_uid;
use crate::locks::LockList;
use crate::network::MadeBy;
use crate::plan::{Ids, Plan, Role};
use crate::seccomp::Leave;
use crate::step::{JailError, Step};
use crate::sys::{self, Cloned, Processors, Stack, StringPointers};

/// The three descriptors that the program gets.
#[derive(Debug, Clone, Copy)]
pub struct Stdio<F> {
    pub stdin: F,
    pub stdout: F,
    pub stderr: F,
}

/// What the inside tells the outside, in packets of [`Report::SIZE`] bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Report {
    Failed(Failure),
    /// The root is complete; the workspace comes along, the folder beside it, and the list of locks.
    Ready,
    /// Everything is done that can be before somebody needs this sandbox.
    Waiting,
    /// Init has given up its rights; the line to the program's process comes along.
    Sealed,
    /// The program runs.
    Running,
    /// The program ended; this is its wait status.
    Ended {
        status: i32,
    },
    /// Of a kernel's sandbox: one of init's children ended, by its number inside.
    Gone {
        pid: i32,
        status: i32,
    },
}

impl Report {
    pub(crate) const SIZE: usize = 12;

    pub(crate) fn encode(self, record: &mut [u8; Self::SIZE]) {
        let (tag, step, entry, value) = match self {
            Self::Failed(failure) => (0, failure.step as u8, failure.entry, failure.errno.raw_os_error()),
            Self::Ready => (1, 0, 0, 0),
            Self::Running => (2, 0, 0, 0),
            Self::Ended { status } => (3, 0, 0, status),
            Self::Waiting => (4, 0, 0, 0),
            Self::Sealed => (5, 0, 0, 0),
            Self::Gone { status, .. } => (6, 0, 0, status),
        };
        record[0] = tag;
        record[1] = step;
        record[2..4].copy_from_slice(&entry.to_ne_bytes());
        record[4..8].copy_from_slice(&value.to_ne_bytes());
        if let Self::Gone { pid, .. } = self {
            record[8..12].copy_from_slice(&pid.to_ne_bytes());
        }
    }

    fn decode(record: &[u8; Self::SIZE]) -> Option<Self> {
        let entry = u16::from_ne_bytes([record[2], record[3]]);
        let value = i32::from_ne_bytes([record[4], record[5], record[6], record[7]]);
        let pid = i32::from_ne_bytes([record[8], record[9], record[10], record[11]]);
        Some(match record[0] {
            0 => Self::Failed(Failure {
                step: Step::from_code(record[1])?,
                errno: Errno::from_raw_os_error(if (1..4096).contains(&value) { value } else { libc::EIO }),
                entry,
            }),
            1 => Self::Ready,
            2 => Self::Running,
            3 => Self::Ended { status: value },
            4 => Self::Waiting,
            5 => Self::Sealed,
            6 => Self::Gone { pid, status: value },
            _ => return None,
        })
    }

    /// Inside: tells the supervisor. If it is gone, so is this process in a moment.
    pub(crate) fn send(self, talk: BorrowedFd<'_>) {
        let mut record = [0; Self::SIZE];
        self.encode(&mut record);
        let _ = rustix::net::send(talk, &record, SendFlags::NOSIGNAL);
    }

    /// The same, if there is room for it: whoever does not listen is not waited for.
    pub(crate) fn send_if_heard(self, talk: BorrowedFd<'_>) {
        let mut record = [0; Self::SIZE];
        self.encode(&mut record);
        let _ = rustix::net::send(talk, &record, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    pub(crate) fn send_with_fd(self, talk: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        self.send_with_fds(talk, std::slice::from_ref(&fd))
    }

    /// With at most [`MOST_REPORTED`] descriptors.
    pub(crate) fn send_with_fds(self, talk: BorrowedFd<'_>, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut record = [0; Self::SIZE];
        self.encode(&mut record);
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_REPORTED))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::INVAL);
        }
        rustix::net::sendmsg(talk, &[IoSlice::new(&record)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Inside: waits until the supervisor has done its part, and does something with each descriptor that it sends.
    pub(crate) fn wait_for_go(
        talk: BorrowedFd<'_>,
        mut with_each: impl FnMut(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut byte = [0u8; 1];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut byte)];
            match rustix::net::recvmsg(talk, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if received.bytes == 0 {
            return Err(Errno::PIPE);
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    with_each(fd.as_fd())?;
                }
            }
        }
        Ok(())
    }
}

/// At most so many descriptors come with a report.
const MOST_REPORTED: usize = 3;

/// At most so many descriptors come with a go: a cgroup's `tasks` file on each version 1 hierarchy.
const MOST_FDS: usize = 8;

/// Outside: tells the sandbox to go on, with these descriptors.
pub(crate) fn send_go(talk: &OwnedFd, fds: &[OwnedFd]) -> Result<(), Errno> {
    let mut borrowed = [talk.as_fd(); MOST_FDS];
    let count = fds.len().min(MOST_FDS);
    for (slot, fd) in borrowed.iter_mut().zip(fds) {
        *slot = fd.as_fd();
    }
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if count > 0 {
        control.push(SendAncillaryMessage::ScmRights(&borrowed[..count]));
    }
    rustix::net::sendmsg(talk, &[IoSlice::new(b"g")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What a supervisor hears from a live sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The program left with this code.
    Exited(i32),
    /// A signal ended the program.
    Signaled(i32),
    /// The whole sandbox is gone without a word: killed from outside, or by the kernel for want of memory.
    Gone,
}

impl Event {
    fn from_status(status: i32) -> Self {
        let signal = status & 0x7f;
        if signal == 0 { Self::Exited((status >> 8) & 0xff) } else { Self::Signaled(signal) }
    }
}

/// A live sandbox. Dropping it kills everything inside and waits until it is gone.
#[derive(Debug)]
pub struct Sandbox {
    pid: Pid,
    pidfd: OwnedFd,
    talk: OwnedFd,
    folders: Folders,
    reaped: bool,
    /// Where the program's process itself tells that it can't become the program, if not through init.
    failures: Option<OwnedFd>,
    leave: Option<Leave>,
}

/// What a sandbox's files are in.
#[derive(Debug)]
pub(crate) struct Folders {
    workspace: OwnedFd,
    beside: OwnedFd,
    locks: LockList,
}

impl Folders {
    /// As they come with a report.
    pub(crate) fn new(fds: impl IntoIterator<Item = OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        Some(Self { workspace: fds.next()?, beside: fds.next()?, locks: LockList::new(fds.next()?) })
    }
}

/// A sandbox whose file system is being built, while the supervisor makes its cgroup. Dropping it ends it.
#[derive(Debug)]
pub struct Starting<'a> {
    plan: &'a Plan,
    pid: Pid,
    pidfd: Option<OwnedFd>,
    talk: OwnedFd,
    /// As soon as they have come.
    folders: Option<Folders>,
}

impl<'a> Starting<'a> {
    /// Clones the sandbox's first process, which begins at once. `into` is its cgroup, where that exists already and the
    /// process can be born in it (version 2).
    pub fn begin(
        plan: &'a Plan,
        stdio: Stdio<BorrowedFd<'_>>,
        into: Option<BorrowedFd<'_>>,
    ) -> Result<Self, JailError> {
        let (talk, inner_talk) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(JailError::Talk)?;
        let stdio = Stdio {
            stdin: stdio.stdin.as_raw_fd(),
            stdout: stdio.stdout.as_raw_fd(),
            stderr: stdio.stderr.as_raw_fd(),
        };
        // Of a nursery nobody waits for the start, and what is said of a process's processors stays with all that it makes.
        let processors = match plan.role {
            Role::Code => Processors::of_this_process(),
            Role::Nursery => None,
        };
        let prepared = Prepared {
            plan,
            argv: StringPointers::new(plan.program.argv.iter().map(CString::as_c_str)),
            envp: StringPointers::new(plan.program.env.iter().map(CString::as_c_str)),
            stdio,
            talk: inner_talk.as_raw_fd(),
            keep: Prepared::keep_list(stdio, &[&inner_talk]),
            stack: Some(Stack::new()),
            footprint: None,
            network: match plan.role {
                Role::Code => MadeBy::Another(processors),
                Role::Nursery => MadeBy::This,
            },
        };
        let cloned = sys::clone_into(enter::namespaces(plan), into).map_err(|errno| JailError::Step {
            step: Step::Clone,
            errno,
            detail: "clone3".to_owned(),
        })?;
        let (pid, pidfd) = match cloned {
            Cloned::Child => enter::run(&prepared),
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        };
        drop(inner_talk);
        // From here on an early return kills and reaps the child through Drop.
        let starting = Self { plan, pid, pidfd: Some(pidfd), talk, folders: None };
        // Elsewhere it begins at once: there is enough to do here meanwhile. That it may come back is said as soon as it is gone.
        if let Some(processors) = processors {
            processors.without_this().give_to(pid);
        }
        write_id_maps(pid, plan.ids, plan.role)?;
        if let Some(processors) = processors {
            processors.give_to(pid);
        }
        // If it has failed meanwhile, its report says more than the broken pipe.
        let _ = send_go(&starting.talk, &[]);
        Ok(starting)
    }

    /// Waits for the folder that will be the workspace, to put files there before the program starts.
    pub fn workspace(&mut self) -> Result<BorrowedFd<'_>, JailError> {
        if self.folders.is_none() {
            let (report, fds) = receive(&self.talk).map_err(JailError::Talk)?.ok_or(JailError::EndedEarly)?;
            self.folders = match report {
                Report::Failed(failure) => return Err(explain(self.plan, failure)),
                Report::Ready => Folders::new(fds),
                _ => None,
            };
        }
        self.folders.as_ref().map(|folders| folders.workspace.as_fd()).ok_or(JailError::EndedEarly)
    }

    /// Lets the sandbox enter its cgroup and start the program. On return the program runs, under every limit.
    pub fn finish(mut self, group: Option<&dyn Group>) -> Result<Sandbox, JailError> {
        let tasks = match group.map(Group::entry) {
            Some(Entry::WriteSelf(files)) => files,
            Some(Entry::CloneInto(_)) | None => &[],
        };
        // If it has failed meanwhile, its report says more than the broken pipe.
        let _ = send_go(&self.talk, tasks);
        let mut folders = self.folders.take();
        loop {
            let (report, fds) = receive(&self.talk).map_err(JailError::Talk)?.ok_or(JailError::EndedEarly)?;
            match report {
                Report::Failed(failure) => return Err(explain(self.plan, failure)),
                Report::Ready => folders = Folders::new(fds),
                Report::Running => break,
                Report::Waiting | Report::Sealed | Report::Ended { .. } | Report::Gone { .. } => {
                    return Err(JailError::EndedEarly);
                }
            }
        }
        let folders = folders.ok_or(JailError::EndedEarly)?;
        let talk = rustix::io::fcntl_dupfd_cloexec(&self.talk, 3).map_err(JailError::Talk)?;
        let pidfd = self.pidfd.take().ok_or(JailError::EndedEarly)?;
        Ok(Sandbox::new(self.pid, pidfd, talk, folders))
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            wait_for(pidfd);
        }
    }
}

impl Sandbox {
    pub(crate) fn new(pid: Pid, pidfd: OwnedFd, talk: OwnedFd, folders: Folders) -> Self {
        Self { pid, pidfd, talk, folders, reaped: false, failures: None, leave: None }
    }

    pub(crate) fn hear_failures_on(&mut self, line: OwnedFd) {
        self.failures = Some(line);
    }

    pub(crate) fn hear_leave_on(&mut self, leave: Leave) {
        self.leave = Some(leave);
    }

    /// Readable when [`Sandbox::leaving`] may have something to say.
    pub fn leave(&self) -> Option<BorrowedFd<'_>> {
        self.leave.as_ref().map(Leave::as_fd)
    }

    /// The exit code of a program that takes its leave, if `is_alone` says that nothing but it and init is left. It then
    /// stands still until the sandbox is killed. Otherwise it goes on to its end, which is an [event](Sandbox::event).
    pub fn leaving(&self, is_alone: impl FnOnce() -> bool) -> Option<i32> {
        let leave = self.leave.as_ref()?;
        let leaving = leave.hear()?;
        if leaving.is_program() && is_alone() {
            return Some(leaving.code);
        }
        leave.let_go(&leaving);
        None
    }

    /// A failure that the program's process told by itself.
    fn failure(&self) -> Option<Failure> {
        let mut record = [0u8; Report::SIZE];
        let (_, length) =
            rustix::net::recv(self.failures.as_ref()?, &mut record, RecvFlags::DONTWAIT).ok()?;
        match (length == Report::SIZE).then(|| Report::decode(&record))? {
            Some(Report::Failed(failure)) => Some(failure),
            _ => None,
        }
    }

    /// Readable when [`Sandbox::event`] has something to say.
    pub fn talk(&self) -> BorrowedFd<'_> {
        self.talk.as_fd()
    }

    /// The folder with what the code made or changed. Stays valid after the sandbox has ended.
    pub fn workspace(&self) -> BorrowedFd<'_> {
        self.folders.workspace.as_fd()
    }

    /// Whether it holds more record locks than a sandbox may.
    pub fn has_too_many_locks(&self) -> bool {
        self.folders.locks.is_too_long()
    }

    /// A folder on the same file system that no code gets to.
    pub fn beside_workspace(&self) -> BorrowedFd<'_> {
        self.folders.beside.as_fd()
    }

    /// The host's number for the sandbox's init.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the next event.
    pub fn event(&self) -> Result<Event, JailError> {
        Ok(match receive(&self.talk).map_err(JailError::Talk)? {
            Some((Report::Ended { status }, _)) => {
                if let Some(failure) = self.failure() {
                    return Err(could_not_start(failure));
                }
                Event::from_status(status)
            }
            // One that was made ahead tells only now that its program can't be started.
            Some((Report::Failed(failure), _)) => return Err(could_not_start(failure)),
            _ => Event::Gone,
        })
    }

    /// Of one that seals itself: the line to its program's process. Whoever wants to be heard taking leave is not.
    pub(crate) fn sealed_line(&self) -> Result<Option<OwnedFd>, JailError> {
        match receive(&self.talk).map_err(JailError::Talk)? {
            Some((Report::Sealed, fds)) => Ok(fds.into_iter().next()),
            Some((Report::Failed(failure), _)) => Err(could_not_start(failure)),
            _ => Ok(None),
        }
    }

    /// Of one that waits: hears that it has done what it was told, and waits again.
    pub(crate) fn waits_again(&self) -> Result<(), JailError> {
        match receive(&self.talk).map_err(JailError::Talk)? {
            Some((Report::Waiting, _)) => Ok(()),
            Some((Report::Failed(failure), _)) => Err(could_not_start(failure)),
            _ => Err(JailError::EndedEarly),
        }
    }

    /// Of a kernel's sandbox: what its init has to say, if anything in so long. The number inside of a process that ended,
    /// and how.
    pub fn ended_child(&self, patience: Duration) -> Result<Option<(i32, Event)>, JailError> {
        let mut polled = [PollFd::new(&self.talk, PollFlags::IN)];
        let patience = rustix::event::Timespec::try_from(patience).ok();
        if !matches!(poll(&mut polled, patience.as_ref()), Ok(1)) {
            return Ok(None);
        }
        match receive(&self.talk).map_err(JailError::Talk)? {
            Some((Report::Gone { pid, status }, _)) => Ok(Some((pid, Event::from_status(status)))),
            Some(_) => Ok(None),
            None => Err(JailError::EndedEarly),
        }
    }

    /// In the attack suite's own build: does not kill what the program left running, to see that this would be noticed.
    /// Whether anything was left.
    pub fn abandon(&mut self) -> bool {
        for _ in 0..50 {
            let ended = rustix::process::waitid(
                WaitId::PidFd(self.pidfd.as_fd()),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            );
            if matches!(ended, Ok(Some(_))) {
                self.reaped = true;
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.reaped = true;
        true
    }

    /// Kills everything inside and waits until it is gone: the kernel ends a PID namespace with its init, and reports
    /// init's end only after all others'.
    pub fn kill_and_wait(&mut self) {
        if !self.reaped {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
            wait_for(&self.pidfd);
            self.reaped = true;
        }
    }

    /// Ends it without waiting for its end, for who is about to end as well.
    pub fn leave_to_its_end(&mut self) {
        if !self.reaped {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
            self.reaped = true;
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill_and_wait();
    }
}

/// Waits until a process has ended. One that is not our child is reaped by its parent, and can still be waited for.
pub(crate) fn wait_for(pidfd: &OwnedFd) {
    loop {
        match rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            Err(Errno::CHILD) => break,
            _ => return,
        }
    }
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    while let Err(Errno::INTR) = poll(&mut polled, None) {}
}

/// One packet and the descriptors that came with it; `None` when the other end is closed.
pub(crate) fn receive(talk: &OwnedFd) -> Result<Option<(Report, Vec<OwnedFd>)>, Errno> {
    let mut record = [0u8; Report::SIZE];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_REPORTED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut record)];
        match rustix::net::recvmsg(talk, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    let fds = fds.collect();
    Ok(Report::decode(&record).map(|report| (report, fds)))
}

/// Uid and gid 1000 inside are this sandbox's ids outside, and nothing else exists there. A nursery has the ids that its
/// sandboxes will get besides, each under its own number.
pub(crate) fn write_id_maps(pid: Pid, ids: Ids, role: Role) -> Result<(), JailError> {
    let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let write = |file: &str, content: String| {
        std::fs::write(folder.join(file), content).map_err(|error| JailError::Step {
            step: Step::MapIds,
            errno: Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)),
            detail: file.to_owned(),
        })
    };
    if !ids.by_root {
        // The kernel's condition for letting a plain user map a gid.
        write("setgroups", "deny".to_owned())?;
    }
    let with_children = role == Role::Nursery && ids.by_root;
    write("uid_map", id_map(ids.host_uid, with_children))?;
    write("gid_map", id_map(ids.host_gid, with_children))
}

/// The lines of a map; a number may be in one of them only.
fn id_map(own: u32, with_children: bool) -> String {
    let mut map = format!("{SANDBOX_ID} {own} 1\n");
    if with_children {
        let (first, count) = host_uid::RANGE;
        let end = first + count;
        for (from, to) in [(first, own.min(end)), ((own + 1).max(first), end)] {
            if from < to {
                let _ = writeln!(map, "{from} {from} {}", to - from);
            }
        }
    }
    map
}

fn explain(plan: &Plan, failure: Failure) -> JailError {
    let detail = match (failure.step, plan.tree.get(usize::from(failure.entry))) {
        (Step::Exec, _) => plan.program.path.to_string_lossy().into_owned(),
        (_, Some(entry)) => entry.label(),
        (_, None) => format!("errno {}", failure.errno.raw_os_error()),
    };
    JailError::Step { step: failure.step, errno: failure.errno, detail }
}

fn could_not_start(failure: Failure) -> JailError {
    let detail = format!("errno {}", failure.errno.raw_os_error());
    JailError::Step { step: failure.step, errno: failure.errno, detail }
}

/// Moves a descriptor out of the way of 0, 1 and 2, which the program's own will take.
pub fn above_stdio(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    const FIRST: RawFd = 3;
    if fd.as_raw_fd() >= FIRST { Ok(fd) } else { rustix::io::fcntl_dupfd_cloexec(&fd, FIRST) }
}
