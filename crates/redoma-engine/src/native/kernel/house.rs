//! A sandbox with kernels in it: nearly always one. A branch is a second one in the same sandbox, from which it can't be taken,
//! and whose limits it shares. Only one of them lives at a time, with the workspace to itself; the others stand still, and
//! their files are where no code gets to.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redoma_jail::cgroup::{Group, Member, hold};
use redoma_jail::kernel::{FIRST_TO_GO, TO_BE_SPARED};
use redoma_jail::{Sandbox, as_user};
use redoma_model::{IsolationReport, Layer, Limits};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::super::nursery::Nursery;
use super::cell::MOST_DRAINED;
use super::orders::{Slow, Wait};
use super::{LONGEST_FRAME, OWN_PROCESSES};
use crate::frames::Splitter;
use crate::identity::Identity;
use crate::pipes::{CHUNK, Pipes, read_piece};

/// Maximum time to wait until stopped or killed processes stand still.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The order is that in which its parts go.
#[derive(Debug)]
pub(super) struct House {
    pub(super) sandbox: Sandbox,
    pub(super) pipes: Pipes,
    pub(super) splitter: Splitter,
    pub(super) nonce: String,
    pub(super) group: Option<Box<dyn Group>>,
    pub(super) identity: Identity,
    pub(super) limits: Limits,
    pub(super) layers: Vec<Layer>,
    pub(super) landlock_abi: Option<u8>,
    pub(super) nursery: Arc<Nursery>,
    /// Who lives.
    pub(super) current: u64,
    /// The processes of those that stand still.
    pub(super) parked: HashMap<u64, Vec<Member>>,
    pub(super) next: u64,
}

impl House {
    pub(super) fn group(&self) -> Option<&dyn Group> {
        self.group.as_deref()
    }

    pub(super) fn isolation(&self) -> IsolationReport {
        IsolationReport {
            engine: "native".to_owned(),
            mode: self.identity.mode().to_owned(),
            layers: self.layers.clone(),
            missing: self.nursery.missing.clone(),
            cgroup_version: self.group().map(Group::version),
            landlock_abi: self.landlock_abi,
            host_uid: self.identity.ids.host_uid,
        }
    }

    /// Whether there is more than one in it.
    pub(super) fn is_shared(&self) -> bool {
        !self.parked.is_empty()
    }

    /// The processes of the one that lives.
    pub(super) fn living(&self) -> Vec<Member> {
        let Some(group) = self.group() else { return Vec::new() };
        hold(group, |pid| self.is_living(pid))
    }

    /// Their numbers, at this moment.
    pub(super) fn living_pids(&self) -> Vec<Pid> {
        let members = self.group().map(Group::members).unwrap_or_default();
        members.into_iter().filter(|pid| self.is_living(*pid)).collect()
    }

    /// Of a process in the group: whether it is neither init nor of one that is parked.
    fn is_living(&self, pid: Pid) -> bool {
        let is_parked = self.parked.values().flatten().any(|member| member.pid() == pid);
        pid != self.sandbox.pid() && !is_parked
    }

    pub(super) fn signal_living(&self, signal: Signal) {
        for member in self.living() {
            member.signal(signal);
        }
    }

    /// Of those that stand still.
    pub(super) fn park(&mut self, id: u64, pid: Pid) {
        let held = self.group().map(|group| hold(group, |member| member == pid)).unwrap_or_default();
        self.parked.insert(id, held);
    }

    /// Stops every process of the one that lives: also those that come while it is done, until no more do.
    pub(super) fn stop_living(&self) -> Vec<Member> {
        let Some(group) = self.group() else { return Vec::new() };
        let _ = group.set_pids(1);
        let deadline = Instant::now() + STOP_TIMEOUT;
        let stopped = loop {
            let living = self.living();
            let moving: Vec<_> = living.iter().filter(|member| !is_stopped(member.pid())).collect();
            if moving.is_empty() || Instant::now() > deadline {
                break living;
            }
            for member in moving {
                member.signal(Signal::STOP);
            }
            std::thread::sleep(Duration::from_micros(100));
        };
        let _ = group.set_pids(self.limits.pids + OWN_PROCESSES + 1);
        stopped
    }

    /// Ends every process of the one that lives, but those of these numbers. A killed process needs the CPU for its end.
    pub(super) fn end_living_but(&self, kept: &[Pid], wait: Wait<'_>) -> Result<(), Slow> {
        let Some(group) = self.group() else { return Ok(()) };
        // From here on nobody can have children: those who are killed stay the last.
        let _ = group.set_pids(1);
        let ended = loop {
            let others: Vec<_> =
                self.living().into_iter().filter(|member| !kept.contains(&member.pid())).collect();
            if others.is_empty() {
                break Ok(());
            }
            for member in others {
                member.signal(Signal::KILL);
            }
            if wait.is_over() {
                break Err(Slow);
            }
            std::thread::sleep(Duration::from_micros(300));
        };
        // And the sandbox's init.
        let _ = group.set_pids(self.limits.pids + OWN_PROCESSES + 1);
        ended
    }

    /// What somebody has left in the pipes.
    pub(super) fn drop_output(&mut self) {
        let mut buffer = [0u8; CHUNK];
        for pipe in [&mut self.pipes.stdout, &mut self.pipes.stderr] {
            let mut rounds = MOST_DRAINED / CHUNK;
            while rounds > 0 && read_piece(pipe, &mut buffer).is_some() {
                rounds -= 1;
            }
        }
        self.splitter = Splitter::new(&self.nonce, LONGEST_FRAME);
    }

    /// Lets another one live.
    pub(super) fn switch_to(&mut self, id: u64) -> Result<(), Errno> {
        let living = self.stop_living();
        for member in &living {
            member.set_oom_score(TO_BE_SPARED);
        }
        let (workspace, beside) = (self.sandbox.workspace(), self.sandbox.beside_workspace());
        let moved = as_user(self.identity.ids, || {
            let (own, other) = (place(beside, self.current)?, place(beside, id)?);
            move_all(workspace, own.as_fd())?;
            move_all(other.as_fd(), workspace).inspect_err(|_| {
                let _ = move_all(own.as_fd(), workspace);
            })
        });
        if let Err(errno) = moved {
            for member in &living {
                member.signal(Signal::CONT);
            }
            return Err(errno);
        }
        self.parked.insert(self.current, living);
        self.current = id;
        self.drop_output();
        for member in self.parked.remove(&id).unwrap_or_default() {
            member.set_oom_score(FIRST_TO_GO);
            member.signal(Signal::CONT);
        }
        Ok(())
    }

    /// Somebody leaves for good.
    pub(super) fn leave(&mut self, id: u64) {
        if self.current == id {
            let _ = self.end_living_but(&[], Wait::at_most(STOP_TIMEOUT));
            let empty = |folder| remove_all(folder, 0);
            let _ = as_user(self.identity.ids, || empty(self.sandbox.workspace()));
        } else {
            for member in self.parked.remove(&id).unwrap_or_default() {
                member.signal(Signal::KILL);
            }
            let beside = self.sandbox.beside_workspace();
            let _ = as_user(self.identity.ids, || remove_all(place(beside, id)?.as_fd(), 0));
        }
    }
}

/// Whether a process stands still, or is gone.
fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // Behind its name, which may hold anything.
    stat.rsplit(") ").next().is_none_or(|rest| matches!(rest.chars().next(), None | Some('T' | 'Z' | 'X')))
}

/// The folder for the files of one that stands still.
fn place(beside: BorrowedFd<'_>, id: u64) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = format!("{id}");
    match rustix::fs::mkdirat(beside, &name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    rustix::fs::openat(beside, &name, flags, Mode::empty())
}

fn names(folder: BorrowedFd<'_>) -> Result<Vec<std::ffi::CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if ![c".", c".."].contains(&name.as_c_str()) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Moves everything in a folder to another, or nothing.
fn move_all(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let names = names(from)?;
    for (count, name) in names.iter().enumerate() {
        if let Err(errno) = move_one(from, to, name) {
            for name in &names[..count] {
                let _ = move_one(to, from, name);
            }
            return Err(errno);
        }
    }
    Ok(())
}

/// A folder that may not be written to may not be moved either, by its owner.
fn move_one(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match rustix::fs::renameat(from, name, to, name) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    // Nobody lives at this moment who could put something else in its place.
    rustix::fs::chmodat(from, name, Mode::from_raw_mode(0o700), AtFlags::empty())?;
    let folder = rustix::fs::openat(from, name, flags, Mode::empty())?;
    let moved = rustix::fs::renameat(from, name, to, name);
    let _ = rustix::fs::fchmod(&folder, Mode::from_raw_mode(stat.st_mode & 0o7777));
    moved
}

/// Removes what is in a folder, as far as it is not nested beyond reason.
fn remove_all(folder: BorrowedFd<'_>, depth: usize) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for name in names(folder)? {
        if rustix::fs::unlinkat(folder, &name, AtFlags::empty()).is_ok() || depth > 100 {
            continue;
        }
        if let Ok(below) = rustix::fs::openat(folder, &name, flags, Mode::empty()) {
            let _ = remove_all(below.as_fd(), depth + 1);
            let _ = rustix::fs::unlinkat(folder, &name, AtFlags::REMOVEDIR);
        }
    }
    Ok(())
}
