//! Nothing is left behind, even when the supervisor is killed with SIGKILL in the middle of a run.
//!
//! Three things make that so. The sandbox itself dies with the supervisor (a parent-death signal), and its mounts and
//! files with it, since they are in memory. The *janitor*, a small process forked before anything is made, holds one end
//! of a socket: when the supervisor is gone without having said goodbye, it removes the cgroups and the run's folder.
//! Should the janitor be killed too, one of the next runs' janitors *sweeps*: it finds what is left by its name, which
//! tells the process that made it, and removes it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, WaitOptions};

use crate::cgroup;
use crate::host_uid::HostUid;
use crate::sys;

/// A name for what one run makes on the host; tells which process made it, so that others can see if it still lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerTag(String);

impl OwnerTag {
    const PREFIX: &'static str = "redoma-run";

    /// A new tag of this process's.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let start = start_time(pid).unwrap_or_default();
        Self(format!("{}-{}-{pid}-{start}-{count}", Self::PREFIX, pid_namespace()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` is a tag whose process is dead. Other names, and tags from other PID namespaces (a container's
    /// numbers mean nothing here), are not.
    pub fn is_stale(name: &str) -> bool {
        let Some(rest) = name.strip_prefix(Self::PREFIX) else { return false };
        let numbers: Vec<u64> = rest.split('-').skip(1).filter_map(|part| part.parse().ok()).collect();
        let [namespace, pid, start, _count] = numbers[..] else { return false };
        let Ok(pid) = u32::try_from(pid) else { return false };
        namespace == pid_namespace() && is_dead(pid, start)
    }
}

impl Default for OwnerTag {
    fn default() -> Self {
        Self::new()
    }
}

/// When a process started, in clock ticks since boot: with its number, a name that is never given twice.
fn start_time(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command, in parentheses, may hold anything; fields count from behind the last one.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    let ticks = fields.and_then(|mut fields| fields.nth(19)?.parse().ok());
    ticks.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Only what is surely dead is: not one that can't be looked at.
fn is_dead(pid: u32, start: u64) -> bool {
    match start_time(pid) {
        Ok(now) => now != start,
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(&error) == Some(Errno::SRCH)
        }
    }
}

/// Which numbers are meant: those of this PID namespace, since this boot of this machine. A data folder may be shared.
fn pid_namespace() -> u64 {
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = boot.bytes().filter_map(|byte| char::from(byte).to_digit(16)).take(8);
    (digits.fold(0u64, |sum, digit| sum << 4 | u64::from(digit)) << 32) ^ namespace
}

/// Removes folders of runs whose makers are dead.
fn sweep_folders(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(OwnerTag::is_stale) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// What is to be removed if this process can't do it itself, and where others may have left something.
#[derive(Debug, Default)]
pub struct Leftovers {
    pub cgroup_folders: Vec<PathBuf>,
    pub run_folder: Option<PathBuf>,
    /// Folders with the groups and the files of all runs, to be swept of those whose makers are dead.
    pub cgroup_parents: Vec<PathBuf>,
    pub run_parent: PathBuf,
}

/// The other process. Dropping this tells it that everything is in order and waits for its end.
#[derive(Debug)]
pub struct Janitor {
    pid: Pid,
    socket: Option<OwnedFd>,
}

impl Janitor {
    /// Starts one. Must be called while this process has a single thread; best as early as possible, while it is small
    /// and quick to copy.
    pub fn start() -> io::Result<Self> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        match sys::fork()? {
            Some(pid) => Ok(Self { pid, socket: Some(ours) }),
            None => watch(&theirs),
        }
    }

    /// Says what is going to be made. `uid` stays taken until that is removed again.
    pub fn expect(&self, leftovers: &Leftovers, uid: Option<&HostUid>) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let lock = uid.map(|uid| [uid.lock().as_fd()]);
        if let Some(lock) = &lock {
            control.push(SendAncillaryMessage::ScmRights(lock));
        }
        let message = leftovers.encode();
        rustix::net::sendmsg(socket, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Says that nothing is left to remove. It can then go while this process still has other things to do.
    pub fn dismiss(&mut self) {
        if let Some(socket) = self.socket.take() {
            let _ = rustix::net::send(&socket, DISMISSED, SendFlags::NOSIGNAL);
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.dismiss();
        while let Err(Errno::INTR) = rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {}
    }
}

const DISMISSED: &[u8] = b"done";

impl Leftovers {
    /// Paths with a letter before and a NUL byte behind each, which no path has.
    fn encode(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(1024);
        let mut add = |kind: u8, path: &Path| {
            message.push(kind);
            message.extend_from_slice(path.as_os_str().as_bytes());
            message.push(0);
        };
        self.cgroup_folders.iter().for_each(|path| add(b'g', path));
        self.cgroup_parents.iter().for_each(|path| add(b'p', path));
        self.run_folder.iter().for_each(|path| add(b'r', path));
        add(b'f', &self.run_parent);
        message
    }

    fn decode(message: &[u8]) -> Self {
        let mut leftovers = Self::default();
        for entry in message.split(|byte| *byte == 0) {
            let Some((kind, path)) = entry.split_first() else { continue };
            let path = PathBuf::from(OsStr::from_bytes(path));
            match kind {
                b'g' => leftovers.cgroup_folders.push(path),
                b'p' => leftovers.cgroup_parents.push(path),
                b'r' => leftovers.run_folder = Some(path),
                _ => leftovers.run_parent = path,
            }
        }
        leftovers
    }
}

/// The janitor's life. It is a fork of a single-threaded process, so ordinary code is fine here.
fn watch(socket: &OwnedFd) -> ! {
    // Out of reach of what ends the supervisor: its terminal's signals, its process group, its caller's pipes.
    let _ = rustix::process::setsid();
    let _ = sys::close_all_but(&[socket.as_raw_fd()]);
    for fd in [0, 1, 2] {
        sys::close_number(fd);
    }
    let _ = sys::ignore_polite_signals();
    let _ = rustix::thread::set_name(c"redoma-janitor");
    let mut leftovers = Leftovers::default();
    let mut locks = Vec::new();
    while let Some(message) = receive(socket, &mut locks) {
        if message == DISMISSED {
            sys::exit_now(0)
        }
        leftovers = Leftovers::decode(&message);
        // What a killed janitor left is rare and in nobody's way: one run in eight looks for it.
        if std::process::id().is_multiple_of(8) {
            cgroup::sweep(&leftovers.cgroup_parents);
            sweep_folders(&leftovers.run_parent);
        }
    }
    // The supervisor is gone without a word.
    for folder in &leftovers.cgroup_folders {
        cgroup::remove_folder(folder, Duration::from_secs(30));
    }
    if let Some(folder) = &leftovers.run_folder {
        let _ = std::fs::remove_dir_all(folder);
    }
    sys::exit_now(0)
}

/// The next message; `None` when the other end is closed.
fn receive(socket: &OwnedFd, locks: &mut Vec<OwnedFd>) -> Option<Vec<u8>> {
    let mut buffer = vec![0u8; 64 << 10];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.ok()?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            locks.extend(fds);
        }
    }
    buffer.truncate(received.bytes);
    (!buffer.is_empty()).then_some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_arrives_as_it_was_said() {
        let leftovers = Leftovers {
            cgroup_folders: vec!["/a b".into(), "/c\n".into()],
            run_folder: Some("/run".into()),
            cgroup_parents: vec!["/p".into()],
            run_parent: "/data/run".into(),
        };
        let arrived = Leftovers::decode(&leftovers.encode());
        assert_eq!(format!("{arrived:?}"), format!("{leftovers:?}"));
    }

    #[test]
    fn a_tag_is_stale_only_when_its_process_is_gone() {
        let mine = OwnerTag::new();
        assert!(!OwnerTag::is_stale(mine.as_str()));
        let namespace = pid_namespace();
        let pid = std::process::id();
        assert!(OwnerTag::is_stale(&format!("redoma-run-{namespace}-{pid}-1-0")), "same pid, other start");
        assert!(!OwnerTag::is_stale(&format!("redoma-run-1-{pid}-1-0")), "another namespace's");
        for other in ["redoma-run", "redoma-run-x-y-z-0", "redoma-0", "system.slice", "redoma-run-1-2-3"] {
            assert!(!OwnerTag::is_stale(other), "{other}");
        }
    }
}
