//! Nothing is left behind, even when the supervisor is killed with SIGKILL in the middle of a run.
//!
//! Three things make that so. The sandbox itself dies with the supervisor (a parent-death signal), and its mounts and
//! files with it, since they are in memory. The *janitor*, a small process forked before the sandbox, holds the read end
//! of a pipe: when the supervisor is gone without having said goodbye, it removes the cgroups and the run's folder.
//! Should the janitor be killed too, the next run's janitor *sweeps*: it finds what is left by its name, which tells the
//! process that made it, and removes it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
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
        let start = start_time(pid).unwrap_or(0);
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
        namespace == pid_namespace() && start_time(pid) != Some(start)
    }
}

impl Default for OwnerTag {
    fn default() -> Self {
        Self::new()
    }
}

/// When a process started, in clock ticks since boot: with its number, a name that is never given twice.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, in parentheses, may hold anything; fields count from behind the last one.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| std::os::unix::fs::MetadataExt::ino(&meta))
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
    pipe: Option<OwnedFd>,
}

impl Janitor {
    /// Starts one. Must be called while this process has a single thread.
    pub fn start(leftovers: &Leftovers, uid: Option<&HostUid>) -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let mut keep = vec![reader.as_raw_fd()];
        // Its copy of the uid's lock keeps the uid taken until all is removed.
        keep.extend(uid.map(|uid| File::as_raw_fd(uid.lock())));
        keep.sort_unstable();
        match sys::fork()? {
            Some(pid) => Ok(Self { pid, pipe: Some(writer) }),
            None => watch(&reader, &keep, leftovers),
        }
    }
}

impl Janitor {
    /// Says that nothing is left to remove. It can then go while this process still has other things to do.
    pub fn dismiss(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            let _ = rustix::io::write(&pipe, b"done");
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.dismiss();
        while let Err(Errno::INTR) = rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {}
    }
}

/// The janitor's life. It is a fork of a single-threaded process, so ordinary code is fine here.
fn watch(reader: &OwnedFd, keep: &[i32], leftovers: &Leftovers) -> ! {
    // Out of reach of what ends the supervisor: its terminal's signals, its process group, its caller's pipes.
    let _ = rustix::process::setsid();
    let _ = sys::close_all_but(keep);
    for fd in [0, 1, 2] {
        sys::close_number(fd);
    }
    let _ = sys::ignore_polite_signals();
    let _ = rustix::thread::set_name(c"redoma-janitor");
    // Here and not in the supervisor: it costs a run nothing.
    cgroup::sweep(&leftovers.cgroup_parents);
    sweep_folders(&leftovers.run_parent);
    let mut word = [0u8; 4];
    let said_goodbye = loop {
        match rustix::io::read(reader, &mut word) {
            Err(Errno::INTR) => {}
            other => break other.is_ok_and(|count| count > 0),
        }
    };
    if !said_goodbye {
        for folder in &leftovers.cgroup_folders {
            cgroup::remove_folder(folder, Duration::from_secs(30));
        }
        if let Some(folder) = &leftovers.run_folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    sys::exit_now(0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
