//! Limits for a whole process tree: memory, swap, processes, CPU and reads from disk.
//!
//! Both kinds of control groups are in the field, and some hosts (this project's build machine among them) still have
//! their controllers on version 1. [`Hierarchy::find`] looks for a place in which this process may make groups with all
//! controllers that a sandbox needs; if there is none it says why, and the caller decides (by default: no run).
//!
//! A group is entered by the cloned process itself, in its first steps: on version 2 it is born inside
//! (`CLONE_INTO_CGROUP`), on version 1 it writes itself into the `tasks` files that it was handed. A parent that writes
//! another process's number instead takes a lock in the kernel that waits for an RCU grace period: milliseconds.

mod v1;
mod v2;

use std::fmt::Debug;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::{Layer, Limits};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::janitor::OwnerTag;

/// A control file that could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{path}: {errno}")]
pub struct CgroupError {
    pub path: String,
    pub errno: Errno,
}

impl CgroupError {
    fn new(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.display().to_string(),
            errno: Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// Why no group can be made here.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoCgroup {
    #[error("no cgroup file system is mounted")]
    NotMounted,
    #[error("the cgroup controllers {missing} are on no hierarchy")]
    NoController { missing: String },
    #[error("this user may make no cgroups with memory, pids and cpu limits (tried {first} and {more} more)")]
    NotDelegated { first: String, more: usize, version: u8 },
}

impl NoCgroup {
    fn not_delegated(version: u8, tried: &[String]) -> Self {
        let first = tried.first().cloned().unwrap_or_default();
        Self::NotDelegated { first, more: tried.len().saturating_sub(1), version }
    }

    /// What to do about it.
    pub fn advice(&self) -> String {
        let uid = rustix::process::getuid().as_raw();
        let program =
            std::env::current_exe().map_or_else(|_| "redoma".to_owned(), |path| path.display().to_string());
        match self {
            Self::NotMounted => "mount cgroup2 at /sys/fs/cgroup".to_owned(),
            Self::NoController { .. } => {
                "boot with cgroup_enable=memory, or hand them down: systemctl edit user@.service, [Service] \
                 Delegate=cpu memory pids io"
                    .to_owned()
            }
            Self::NotDelegated { .. } if uid == 0 => {
                "inside a container the cgroup file system must be writable".to_owned()
            }
            Self::NotDelegated { version: 1, .. } => {
                format!("an administrator runs this once per boot: sudo {program} setup --delegate {uid}")
            }
            Self::NotDelegated { .. } => format!(
                "run it in a scope of systemd's: systemd-run --user --scope -p Delegate=yes {program} …; if controllers are \
                 missing there: systemctl edit user@.service, [Service] Delegate=cpu memory pids io"
            ),
        }
    }
}

/// What a group is to enforce.
#[derive(Debug, Clone)]
pub struct GroupLimits {
    pub memory: u64,
    pub swap: u64,
    pub pids: u64,
    /// Thousandths of a core.
    pub cpu_thousandths: u64,
    /// Reads from this block device, `major:minor`, in bytes per second.
    pub read: Option<(String, u64)>,
}

impl GroupLimits {
    /// `device`: the disk to throttle, asked for only where there is a limit on reads.
    pub fn from_limits(limits: &Limits, device: impl FnOnce() -> Option<String>) -> Self {
        Self {
            memory: limits.memory.0,
            swap: limits.swap.0,
            // The sandbox's init is in the group, and is not the code's to pay for.
            pids: limits.pids + 1,
            cpu_thousandths: u64::from(limits.cpus.0),
            read: limits.io.and_then(|bytes| Some((device()?, bytes.0))),
        }
    }
}

/// What a group has used. Absent is what this kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupUsage {
    pub cpu: Option<Duration>,
    pub cpu_user: Option<Duration>,
    pub cpu_system: Option<Duration>,
    pub memory_peak: Option<u64>,
    pub oom_kills: u64,
    pub pids_current: Option<u64>,
    pub pids_peak: Option<u64>,
    /// How often a fork was refused.
    pub forks_refused: u64,
}

/// How the cloned process gets into a group.
#[derive(Debug)]
pub enum Entry<'a> {
    CloneInto(BorrowedFd<'a>),
    /// It writes `0` (itself) into each of these.
    WriteSelf(&'a [OwnedFd]),
}

/// One sandbox's group.
pub trait Group: Debug + Send + Sync {
    fn entry(&self) -> Entry<'_>;
    /// Other limits than those it was made with.
    fn set_limits(&mut self, limits: &GroupLimits) -> Result<(), CgroupError>;
    /// CPU time used so far by all processes, ended ones included.
    fn cpu_time(&self) -> Option<Duration>;
    /// Kills every process in the group, where the kernel's own killing of a PID namespace waits for its init to be
    /// scheduled.
    fn kill_all(&self);
    /// Processes and threads at this moment, the sandbox's init among them.
    fn pids_current(&self) -> Option<u64>;
    /// The processes in the group at this moment.
    fn members(&self) -> Vec<rustix::process::Pid>;
    /// How many processes there may be from now on. Those that are there stay.
    fn set_pids(&self, most: u64) -> Result<(), CgroupError>;
    /// Bytes in use at this moment, files in memory included.
    fn memory_current(&self) -> Option<u64>;
    /// Gives back what memory can be, as long as nobody needs it.
    fn reclaim(&self);
    /// Begins to look for the most memory anew, where this kernel can.
    fn reset_peak(&self);
    /// Gives back what is kept for the next look at its counters.
    fn rest(&self);
    fn usage(&self) -> GroupUsage;
    fn version(&self) -> u8;
    /// Its share of the processors beside others.
    fn weight(&self) -> Weight;
    /// Which of the layers that may be missing this group provides.
    fn layers(&self) -> Vec<Layer>;
}

/// A group's share of the processors beside other groups, and the CPU time that it has used. Outlives the group: then it
/// writes nothing and reads nothing.
#[derive(Debug, Clone)]
pub struct Weight {
    files: Arc<WeightFiles>,
    state: Arc<Mutex<WeightState>>,
}

/// The control files of a group that are about CPU time.
#[derive(Debug)]
pub struct WeightFiles {
    /// `cpu.shares` or `cpu.weight`.
    pub weight: PathBuf,
    /// `cpu.idle`, since Linux 5.15.
    pub idle: PathBuf,
    /// The file with the CPU time used, the key of its line (empty: the file is one number), and nanoseconds per unit.
    pub usage: (PathBuf, &'static str, u64),
    /// The weight of a new group.
    pub whole: u32,
}

#[derive(Debug)]
struct WeightState {
    share: Share,
    /// The group is gone, and another one may have its name.
    is_gone: bool,
}

/// How much of the processors a group gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// One of so many parts of the weight of a new group.
    Part(u32),
    /// The time that groups with a [`Share::Part`] leave over: each of them is preferred as soon as it wakes up.
    Leftover,
}

/// Stands for [`Share::Leftover`] where Linux has no `cpu.idle`.
const LEFTOVER_PARTS: u32 = 64;

impl Weight {
    /// For a new group. Everything that changes the weight has a clone of this one.
    pub fn new(files: WeightFiles) -> Self {
        let state = WeightState { share: Share::Part(1), is_gone: false };
        Self { files: Arc::new(files), state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, WeightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nothing is written or read.
    fn end(&self) {
        self.lock().is_gone = true;
    }

    /// Best effort: fairness depends on it, safety does not.
    pub fn set(&self, share: Share) {
        let mut state = self.lock();
        if state.is_gone || state.share == share {
            return;
        }
        // Linux takes no weight for an idle group, and gives it the whole weight again when it is no longer idle.
        if state.share == Share::Leftover {
            let _ = write(&self.files.idle, "0\n");
        }
        state.share = share;
        let parts = match share {
            Share::Leftover if write(&self.files.idle, "1\n").is_ok() => return,
            Share::Leftover => LEFTOVER_PARTS,
            Share::Part(parts) => parts.max(1),
        };
        let _ = write(&self.files.weight, &format!("{}\n", (self.files.whole / parts).max(2)));
    }

    /// CPU time that the group has used, if it is still there.
    pub fn cpu_time(&self) -> Option<Duration> {
        let state = self.lock();
        if state.is_gone {
            return None;
        }
        let (path, key, nanos) = &self.files.usage;
        let text = read_file(path)?;
        let number: u64 = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())?;
        Some(Duration::from_nanos(number.saturating_mul(*nanos)))
    }
}

/// A process of a group, held: its number can't become somebody else's while it is signalled.
#[derive(Debug)]
pub struct Member {
    pid: rustix::process::Pid,
    pidfd: OwnedFd,
}

impl Member {
    pub fn pid(&self) -> rustix::process::Pid {
        self.pid
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
    }

    /// How willingly it is ended when memory runs out.
    pub fn set_oom_score(&self, score: u16) {
        crate::kernel::set_oom_score(self.pid, self.pidfd.as_fd(), score);
    }
}

/// Takes hold of those processes of a group that are wanted: those that are still in it when they are held.
pub fn hold(group: &dyn Group, is_wanted: impl Fn(rustix::process::Pid) -> bool) -> Vec<Member> {
    let open = |pid| {
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        Some(Member { pid, pidfd })
    };
    let mut held: Vec<_> =
        group.members().into_iter().filter(|pid| is_wanted(*pid)).filter_map(open).collect();
    if !held.is_empty() {
        let still = group.members();
        held.retain(|member| still.contains(&member.pid));
    }
    held
}

/// A place in which groups can be made.
#[derive(Debug)]
pub enum Hierarchy {
    V1(v1::Hierarchy),
    V2(v2::Hierarchy),
}

impl Hierarchy {
    /// Version 2 where it has the controllers, version 1 otherwise.
    pub fn find() -> Result<Self, NoCgroup> {
        let mounts = Mounts::read();
        let second = v2::Hierarchy::find(&mounts);
        match second {
            Ok(found) => Ok(Self::V2(found)),
            Err(error_v2) => match v1::Hierarchy::find(&mounts) {
                Ok(found) => Ok(Self::V1(found)),
                Err(NoCgroup::NotMounted) => Err(error_v2),
                Err(error_v1) => Err(error_v1),
            },
        }
    }

    pub fn version(&self) -> u8 {
        match self {
            Self::V1(_) => 1,
            Self::V2(_) => 2,
        }
    }

    /// Where groups are made, for people to look at.
    pub fn place(&self) -> String {
        match self {
            Self::V1(hierarchy) => hierarchy.place(),
            Self::V2(hierarchy) => hierarchy.place(),
        }
    }

    /// Makes a group with these limits. It keeps the tag, and with it its name, until its folders are gone.
    pub fn create(&self, tag: &OwnerTag, limits: &GroupLimits) -> Result<Box<dyn Group>, CgroupError> {
        match self {
            Self::V1(hierarchy) => Ok(Box::new(hierarchy.create(tag, limits)?)),
            Self::V2(hierarchy) => Ok(Box::new(hierarchy.create(tag, limits)?)),
        }
    }

    /// Every folder that a group of this name has or could have, for whoever cleans up should this process be killed.
    pub fn folders(&self, name: &str) -> Vec<PathBuf> {
        self.parents().into_iter().map(|parent| parent.join(name)).collect()
    }

    /// The folders in which groups are made.
    pub fn parents(&self) -> Vec<PathBuf> {
        match self {
            Self::V1(hierarchy) => hierarchy.parents(),
            Self::V2(hierarchy) => hierarchy.parents(),
        }
    }
}

/// Removes groups in these folders by their names: those whose supervisor can't any more.
pub(crate) fn sweep(parents: &[PathBuf], is_left: impl Fn(&str) -> bool, patience: Duration) {
    // A folder of this file system has two links and one for each group in it.
    let has_groups = |folder: &&PathBuf| fs::metadata(folder).is_ok_and(|meta| meta.nlink() > 2);
    for parent in parents.iter().filter(has_groups) {
        let Ok(entries) = fs::read_dir(parent) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(&is_left) {
                empty_and_remove_folder(&entry.path(), patience);
            }
        }
    }
}

/// The same for a group whose processes may still be ending, by a janitor: waits for their end to free what they leave in
/// the kernel's caches.
pub(crate) fn empty_and_remove_folder(folder: &Path, patience: Duration) -> bool {
    let group = Folder::new(folder.to_owned());
    let start = Instant::now();
    while !group.members().is_empty() && start.elapsed() < patience {
        group.kill_members();
        std::thread::sleep(Duration::from_millis(1));
    }
    group.free_caches();
    remove_folder(folder, patience.saturating_sub(start.elapsed()))
}

/// Ends what is left in a group's folder and removes it, trying for as long as `patience`: the kernel may need a
/// moment to let go of dying processes. Whether it is gone.
pub fn remove_folder(folder: &Path, patience: Duration) -> bool {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        match fs::remove_dir(folder) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) => {}
        }
        if start.elapsed() > patience {
            return false;
        }
        Folder::new(folder.to_owned()).kill_members();
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// One mounted cgroup hierarchy and this process's place in it.
#[derive(Debug, Clone)]
struct Mount {
    point: PathBuf,
    /// Which part of the hierarchy is visible there: `/`, or a container's own.
    root: String,
    version: u8,
    controllers: Vec<String>,
}

#[derive(Debug)]
struct Mounts {
    mounts: Vec<Mount>,
    /// `controllers → path` of this process, as in `/proc/self/cgroup`; version 2 has no controllers there.
    own: Vec<(Vec<String>, String)>,
}

impl Mounts {
    fn read() -> Self {
        // Enough room at once: the kernel goes through all mounts again for each piece that is asked for.
        let mut mountinfo = String::with_capacity(16 << 10);
        let _ =
            fs::File::open("/proc/self/mountinfo").and_then(|mut file| file.read_to_string(&mut mountinfo));
        let own = read_file(Path::new("/proc/self/cgroup")).unwrap_or_default();
        Self { mounts: parse_mounts(&mountinfo), own: parse_own(&own) }
    }

    /// This process's own folder in a mounted hierarchy.
    fn own_folder(&self, mount: &Mount) -> Option<PathBuf> {
        let is_here = |controllers: &[String]| match mount.version {
            2 => controllers.is_empty(),
            _ => controllers.iter().any(|controller| mount.controllers.contains(controller)),
        };
        let (_, path) = self.own.iter().find(|(controllers, _)| is_here(controllers))?;
        let below = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or("");
        Some(mount.point.join(below.trim_start_matches('/')))
    }
}

fn parse_mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut before = before.split(' ').skip(3);
            let (root, point) = (before.next()?, before.next()?);
            let mut after = after.split(' ');
            let version = match after.next()? {
                "cgroup2" => 2,
                "cgroup" => 1,
                _ => return None,
            };
            let controllers = after.nth(1)?.split(',').map(str::to_owned).collect();
            Some(Mount { point: point.into(), root: root.to_owned(), version, controllers })
        })
        .collect()
}

fn parse_own(text: &str) -> Vec<(Vec<String>, String)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            let names = controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            Some((names, fields.next()?.to_owned()))
        })
        .collect()
}

fn write(path: &Path, content: &str) -> Result<(), CgroupError> {
    // Not fs::write: control files must not be created or truncated.
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, content.as_bytes()))
        .map_err(|error| CgroupError::new(path, &error))
}

/// A group's folder. Held, its files are one step away, and not as many as its path has parts.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    held: Option<OwnedFd>,
    /// Counters that were looked at, and their files from the second time on: whoever looks twice looks again.
    counters: Mutex<Vec<(&'static str, Option<OwnedFd>)>>,
}

impl Folder {
    fn new(path: PathBuf) -> Self {
        Self { path, held: None, counters: Mutex::default() }
    }

    /// Closes everything that is open in it. To be called before the folder is removed: the kernel then drops its own
    /// entries of the folder's files with it. Those of files that are open at that moment stay in its caches.
    fn let_go(&mut self) {
        self.held = None;
        self.close_counters();
    }

    /// Takes hold of it, once it is there.
    fn hold(&mut self) -> Result<(), CgroupError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = rustix::fs::open(&self.path, flags, Mode::empty());
        self.held = Some(held.map_err(|errno| CgroupError::new(&self.path, &errno.into()))?);
        Ok(())
    }

    fn open(&self, file: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        match &self.held {
            Some(held) => rustix::fs::openat(held, file, flags | OFlags::CLOEXEC, Mode::empty()),
            None => rustix::fs::open(self.path.join(file), flags | OFlags::CLOEXEC, Mode::empty()),
        }
    }

    /// For writing.
    fn open_control(&self, file: &str) -> Result<OwnedFd, CgroupError> {
        self.open(file, OFlags::WRONLY).map_err(|errno| self.error(file, errno))
    }

    fn write(&self, file: &str, content: &str) -> Result<(), CgroupError> {
        let control = self.open_control(file)?;
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&control, content.as_bytes()));
        written.map(drop).map_err(|errno| self.error(file, errno))
    }

    /// The same, if this kernel has such a file. Whether it has.
    fn write_if_there(&self, file: &str, content: &str) -> Result<bool, CgroupError> {
        match self.open(file, OFlags::WRONLY) {
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.error(file, errno)),
            Ok(control) => {
                match rustix::io::retry_on_intr(|| rustix::io::write(&control, content.as_bytes())) {
                    Ok(_) => Ok(true),
                    Err(errno) => Err(self.error(file, errno)),
                }
            }
        }
    }

    fn error(&self, file: &str, errno: Errno) -> CgroupError {
        CgroupError::new(&self.path.join(file), &errno.into())
    }

    fn text(&self, file: &str) -> Option<String> {
        read_whole(&self.open(file, OFlags::RDONLY).ok()?)
    }

    /// Of a file with a few lines that says something else each time it is read, from its beginning. (Not of a list of processes:
    /// read again, version 1 may tell what it told before.)
    fn counter(&self, file: &'static str) -> Option<String> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let at = counters.iter().position(|(name, _)| *name == file);
        let Some(at) = at else {
            let text = self.text(file);
            counters.push((file, None));
            return text;
        };
        if counters[at].1.is_none() {
            counters[at].1 = self.open(file, OFlags::RDONLY).ok();
        }
        read_from(counters[at].1.as_ref()?, Some(0))
    }

    /// Closes what is open for the next look.
    fn close_counters(&self) {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn number(&self, file: &'static str) -> Option<u64> {
        self.counter(file)?.trim().parse().ok()
    }

    /// The value behind `key` in a file of `key value` lines.
    fn keyed(&self, file: &'static str, key: &str) -> Option<u64> {
        self.counter(file)?.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    }

    /// Tells the kernel to free what it can of a memory group that leaves much: see [`MAX_KERNEL_MEMORY_LEFT`].
    fn free_caches(&self) {
        let first = self.text("memory.kmem.usage_in_bytes").and_then(|text| text.trim().parse().ok());
        let second = || self.keyed("memory.stat", "kernel ");
        if first.or_else(second).is_some_and(|bytes: u64| bytes > MAX_KERNEL_MEMORY_LEFT) {
            let bytes = self.number("memory.current").unwrap_or(0).to_string();
            let _ = self.write("memory.force_empty", "0").or_else(|_| self.write("memory.reclaim", &bytes));
        }
    }

    fn members(&self) -> Vec<rustix::process::Pid> {
        let text = self.text("cgroup.procs").unwrap_or_default();
        let numbers = text.lines().filter_map(|line| line.parse().ok());
        numbers.filter_map(rustix::process::Pid::from_raw).collect()
    }

    /// Kills the processes in a sandbox's own group, as they are at this moment. Only ever called on folders that this program
    /// named and made.
    fn kill_members(&self) {
        let held =
            |pid| Some((pid, rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?));
        let held: Vec<_> = self.members().into_iter().filter_map(held).collect();
        // Who is still there now is who is held: a number can't have gone to somebody else.
        let still = if held.is_empty() { Vec::new() } else { self.members() };
        for (_, process) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
        }
    }
}

fn read_file(path: &Path) -> Option<String> {
    read_whole(&rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?)
}

/// A small file of the kernel's in one piece. These have no size of their own, so that the standard library feels its way
/// with many small reads.
fn read_whole(file: &OwnedFd) -> Option<String> {
    read_from(file, None)
}

/// The same from some place in it, or from where it has been read to.
fn read_from(file: &OwnedFd, offset: Option<u64>) -> Option<String> {
    let mut buffer = vec![0u8; 2 << 10];
    let mut length = 0;
    loop {
        let rest = &mut buffer[length..];
        let read = match offset {
            Some(offset) => rustix::io::pread(file, rest, offset + length as u64),
            None => rustix::io::read(file, rest),
        };
        match read {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        // The kernel ends a short answer early only at its end; a full buffer may have more behind it.
        if length < buffer.len() / 2 {
            break;
        }
        buffer.resize(buffer.len() * 2, 0);
    }
    buffer.truncate(length);
    String::from_utf8(buffer).ok()
}

/// As root: makes a group for a user on every version 1 hierarchy that sandboxes need, and gives it to them. The folders;
/// none where the controllers are on version 2.
pub fn delegate(uid: u32) -> Result<Vec<PathBuf>, CgroupError> {
    let mounts = Mounts::read();
    if v2::has_controllers(&mounts) {
        return Ok(Vec::new());
    }
    v1::delegate(&mounts, uid)
}

fn may_write(folder: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Kernel memory that a group may leave in the host's caches when it goes. Names that a program looked up and that do not
/// exist stay there (each 192 bytes, charged to the group until it is gone); with more of them than an honest program
/// leaves, the kernel is told to free what it can.
const MAX_KERNEL_MEMORY_LEFT: u64 = 8 << 20;

/// The longest time for which a group's removal is waited for before the janitor has to.
pub const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_folders_are_found_on_both_versions_and_inside_containers() {
        let mountinfo = "\
31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 24 0:28 /docker/abc /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
33 24 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 24 0:30 / /proc rw - proc proc rw
";
        let own = "7:memory:/docker/abc/inner\n5:cpu,cpuacct:/\n0::/user.slice/a:b.scope\n";
        let mounts = Mounts { mounts: parse_mounts(mountinfo), own: parse_own(own) };
        let folders: Vec<_> = mounts.mounts.iter().map(|mount| mounts.own_folder(mount).unwrap()).collect();
        let expected = [
            "/sys/fs/cgroup/unified/user.slice/a:b.scope",
            "/sys/fs/cgroup/memory/inner",
            "/sys/fs/cgroup/cpu,cpuacct",
        ];
        for (folder, expected) in folders.iter().zip(expected) {
            assert_eq!(folder.to_str().unwrap().trim_end_matches('/'), expected);
        }
    }
}
