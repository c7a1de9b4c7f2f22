//! Nothing is left behind, even when the supervisor is killed with SIGKILL in the middle of a run.
//!
//! Three things make that so. The sandbox itself dies with the supervisor (a parent-death signal), and its mounts and
//! files with it, since they are in memory. The *janitor*, a small process forked before anything is made on the host,
//! holds one end of a socket: when the supervisor is gone without having said goodbye, it removes the cgroups and the
//! run's folder. Should the janitor be killed too, one of the next runs' janitors *sweeps*: it finds what is left by its
//! name, which tells the process that made it, and removes it.

use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};

use crate::cgroup;
use crate::host_uid::HostUids;
use crate::sys;

/// A name for what one run makes on the host; tells which process made it, so that others can see if it still lives.
///
/// The name ends with a number that is taken until the last clone is dropped; the next tag then takes it again. The
/// kernel keeps an entry in its directory cache for each name that was ever removed, and frees it only when memory runs
/// short: with names that come again there are as many entries as there were sandboxes at one time, not one for each
/// run.
#[derive(Debug, Clone)]
pub struct OwnerTag(Arc<Numbered>);

#[derive(Debug)]
struct Numbered {
    name: String,
    number: u32,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        FREE_NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// Numbers of tags that are gone with everything that had their names.
static FREE_NUMBERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

impl OwnerTag {
    const PREFIX: &'static str = "redoma-run";

    /// A new tag of this process's.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let free = FREE_NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let number = free.unwrap_or_else(|| COUNT.fetch_add(1, Ordering::Relaxed));
        Self(Arc::new(Numbered { name: format!("{}{number}", Self::family()), number }))
    }

    /// Never gives the number to another tag: something of this name could not be removed.
    pub fn keep_number(&self) {
        std::mem::forget(self.clone());
    }

    /// What the names of all tags of this process begin with.
    fn family() -> &'static str {
        static FAMILY: OnceLock<String> = OnceLock::new();
        FAMILY.get_or_init(|| {
            let pid = std::process::id();
            let start = start_time(pid).unwrap_or_default();
            format!("{}-{}-{pid}-{start}-", Self::PREFIX, pid_namespace())
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0.name
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
    let stat = read_line(&format!("/proc/{pid}/stat"))?;
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
    static KNOWN: OnceLock<u64> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let boot = read_line("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits = boot.bytes().filter_map(|byte| char::from(byte).to_digit(16)).take(8);
        let namespace = own_pid_namespace().unwrap_or(0);
        (digits.fold(0u64, |sum, digit| sum << 4 | u64::from(digit)) << 32) ^ namespace
    })
}

/// The number of the PID namespace itself.
fn own_pid_namespace() -> Option<u64> {
    static KNOWN: OnceLock<Option<u64>> = OnceLock::new();
    *KNOWN.get_or_init(|| std::fs::metadata("/proc/self/ns/pid").ok().map(|meta| meta.ino()))
}

/// A short file of the kernel's, at once: the standard library feels its way with many small reads.
fn read_line(path: &str) -> io::Result<String> {
    let mut buffer = [0u8; 1024];
    let length = std::fs::File::open(path)?.read(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Removes folders of runs by their names.
fn sweep_folders(parent: &Path, is_left: impl Fn(&str) -> bool) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(&is_left) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// What is to be removed if this process can't do it itself, and where others may have left something.
#[derive(Debug)]
pub enum Made {
    /// One run's, by name.
    OneRun { cgroup_folders: Vec<PathBuf> },
    /// Everything of this process's, for one that makes many runs.
    AllOfThisProcess,
}

/// See [`Janitor`].
#[derive(Debug)]
pub struct Leftovers {
    pub made: Made,
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
    /// Starts one, which knows what is going to be made. What `uids` has given out stays taken until that is removed
    /// again. Must be called while this process has a single thread.
    pub fn start(leftovers: &Leftovers, uids: Option<&HostUids>) -> io::Result<Self> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut keep = vec![theirs.as_raw_fd()];
        keep.extend(uids.map(|uids| uids.lock().as_raw_fd()));
        keep.sort_unstable();
        // Told by this process: the janitor has a number of its own.
        let family = OwnerTag::family();
        match sys::fork()? {
            Some(pid) => Ok(Self { pid, socket: Some(ours) }),
            None => watch(&theirs, &keep, leftovers, family),
        }
    }

    /// Whether it would live on after this process: in a container everything ends with the first process there, which may be
    /// this one, or one that ends with it.
    pub fn outlives_us() -> bool {
        /// The first PID namespace's, on every Linux.
        const FIRST: u64 = 0xEFFF_FFFC;
        own_pid_namespace() == Some(FIRST)
    }

    /// Leaves it to the janitor to remove what was made, while this process goes on with other things or ends. Nobody waits
    /// for it any more.
    pub fn hand_over(mut self) {
        // As if this process had been killed.
        self.socket = None;
        std::mem::forget(self);
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

/// The janitor's life. It is a fork of a single-threaded process, so ordinary code is fine here.
fn watch(socket: &OwnedFd, keep: &[i32], leftovers: &Leftovers, family: &str) -> ! {
    // Out of reach of what ends the supervisor: its terminal's signals, its process group, its caller's pipes.
    let _ = rustix::process::setsid();
    let _ = sys::close_all_but(keep);
    for fd in [0, 1, 2] {
        sys::close_number(fd);
    }
    let _ = sys::ignore_polite_signals();
    let _ = rustix::thread::set_name(c"redoma-janitor");
    // One that makes many runs looks first. Who makes one has its own to remove before that of others.
    let looks_first = matches!(leftovers.made, Made::AllOfThisProcess);
    if looks_first {
        sweep_now_and_then(leftovers);
    }
    let mut word = [0u8; 4];
    let said_goodbye = loop {
        match rustix::io::read(socket, &mut word) {
            Err(Errno::INTR) => {}
            other => break other.is_ok_and(|count| count > 0),
        }
    };
    if !said_goodbye {
        remove(leftovers, family);
    }
    if !looks_first {
        sweep_now_and_then(leftovers);
    }
    sys::exit_now(0)
}

/// What a killed janitor left is rare and in nobody's way: one run in eight looks for it. By chance: where each run takes as many
/// process ids as the one before, their numbers would never come to it.
fn sweep_now_and_then(leftovers: &Leftovers) {
    let mut dice = [0u8];
    let _ = rustix::rand::getrandom(&mut dice, rustix::rand::GetRandomFlags::NONBLOCK);
    if dice[0].is_multiple_of(8) {
        cgroup::sweep(&leftovers.cgroup_parents, OwnerTag::is_stale, Duration::from_millis(100));
        sweep_folders(&leftovers.run_parent, OwnerTag::is_stale);
    }
}

/// Does what the supervisor no longer can.
fn remove(leftovers: &Leftovers, family: &str) {
    let patience = Duration::from_secs(30);
    match &leftovers.made {
        Made::OneRun { cgroup_folders } => {
            for folder in cgroup_folders {
                cgroup::empty_and_remove_folder(folder, patience);
            }
        }
        Made::AllOfThisProcess => {
            let is_left = |name: &str| name.starts_with(family);
            cgroup::sweep(&leftovers.cgroup_parents, is_left, patience);
            sweep_folders(&leftovers.run_parent, is_left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_again_when_all_that_had_it_is_gone() {
        let first = OwnerTag::new();
        let name = first.as_str().to_owned();
        let clone = first.clone();
        drop(first);
        assert_ne!(OwnerTag::new().as_str(), name, "a clone still has it");
        drop(clone);
        // Other tests of this process take and give back numbers, too.
        let taken: Vec<_> = (0..1000).map(|_| OwnerTag::new()).collect();
        assert!(taken.iter().any(|tag| tag.as_str() == name));
        let kept = OwnerTag::new();
        kept.keep_number();
        let name = kept.as_str().to_owned();
        drop((kept, taken));
        let taken: Vec<_> = (0..2000).map(|_| OwnerTag::new()).collect();
        assert!(taken.iter().all(|tag| tag.as_str() != name), "it was kept");
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
