//! Version 1: a hierarchy per controller, so a group is a folder in each of them.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use redoma_model::Layer;
use rustix::process::Pid;

use super::{
    CgroupError, Entry, Folder, Group, GroupLimits, GroupUsage, Mounts, NoCgroup, Weight, WeightFiles,
    may_write, remove_folder,
};
use crate::janitor::OwnerTag;

/// The folders in which groups are made, one per controller (co-mounted ones are the same folder).
#[derive(Debug)]
pub struct Hierarchy {
    memory: PathBuf,
    pids: PathBuf,
    cpu: PathBuf,
    cpuacct: PathBuf,
    blkio: Option<PathBuf>,
}

impl Hierarchy {
    pub(super) fn find(mounts: &Mounts) -> Result<Self, NoCgroup> {
        if !mounts.mounts.iter().any(|mount| mount.version == 1) {
            return Err(NoCgroup::NotMounted);
        }
        let required = ["memory", "pids", "cpu", "cpuacct"].map(|controller| place(mounts, controller));
        let missing: Vec<_> = required.iter().filter_map(|found| found.as_ref().err()).collect();
        let absent: Vec<_> =
            missing.iter().filter(|reason| reason.tried.is_empty()).map(|r| r.controller).collect();
        if !absent.is_empty() {
            return Err(NoCgroup::NoController { missing: absent.join(", ") });
        }
        if !missing.is_empty() {
            let tried: Vec<_> = missing.iter().flat_map(|reason| reason.tried.iter().cloned()).collect();
            return Err(NoCgroup::not_delegated(1, &tried));
        }
        let [Ok(memory), Ok(pids), Ok(cpu), Ok(cpuacct)] = required else { return Err(NoCgroup::NotMounted) };
        Ok(Self { memory, pids, cpu, cpuacct, blkio: place(mounts, "blkio").ok() })
    }

    pub(super) fn place(&self) -> String {
        self.memory.display().to_string()
    }

    pub(super) fn parents(&self) -> Vec<PathBuf> {
        let mut parents =
            vec![self.memory.clone(), self.pids.clone(), self.cpu.clone(), self.cpuacct.clone()];
        parents.extend(self.blkio.clone());
        parents.sort();
        parents.dedup();
        parents
    }

    pub(super) fn create(&self, tag: &OwnerTag, limits: &GroupLimits) -> Result<V1Group, CgroupError> {
        let name = tag.as_str();
        let mut group = V1Group {
            memory: Folder::new(self.memory.join(name)),
            pids: Folder::new(self.pids.join(name)),
            cpu: Folder::new(self.cpu.join(name)),
            cpuacct: Folder::new(self.cpuacct.join(name)),
            blkio: None,
            tasks: Vec::with_capacity(5),
            swap_is_limited: false,
            weight: OnceLock::new(),
            tag: tag.clone(),
        };
        for folder in group.folders() {
            // One that is there already has counters of another run.
            fs::create_dir(&folder.path).map_err(|error| CgroupError::new(&folder.path, &error))?;
        }
        // From here on an early return removes the folders through Drop.
        for folder in [&mut group.memory, &mut group.pids, &mut group.cpu, &mut group.cpuacct] {
            folder.hold()?;
        }
        group.set_limits(limits)?;
        if let (Some(blkio), Some((device, bytes))) = (&self.blkio, &limits.read) {
            group.limit_reads(blkio.join(name), device, *bytes);
        }
        group.tasks = group.open_tasks()?;
        Ok(group)
    }
}

/// Why a controller can't be used: on no hierarchy at all, or in none of the folders tried.
#[derive(Debug)]
struct Unusable {
    controller: &'static str,
    tried: Vec<String>,
}

/// The folder for groups of one controller: this process's own, so that limits on the service hold for its sandboxes
/// too; else the one that an administrator has handed to this user.
fn place(mounts: &Mounts, controller: &'static str) -> Result<PathBuf, Unusable> {
    let mount = mounts
        .mounts
        .iter()
        .find(|mount| mount.version == 1 && mount.controllers.iter().any(|name| name == controller))
        .ok_or(Unusable { controller, tried: Vec::new() })?;
    let delegated = mount.point.join(delegated_name(rustix::process::getuid().as_raw()));
    let candidates: Vec<_> = mounts.own_folder(mount).into_iter().chain([delegated]).collect();
    candidates.iter().find(|folder| may_write(folder)).cloned().ok_or_else(|| Unusable {
        controller,
        tried: candidates.iter().map(|folder| folder.display().to_string()).collect(),
    })
}

fn make(folder: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(CgroupError::new(folder, &error))
        }
        _ => Ok(()),
    }
}

/// The group that an administrator makes for a user.
fn delegated_name(uid: u32) -> String {
    format!("redoma-{uid}")
}

/// Makes that group on every hierarchy that sandboxes use.
pub(super) fn delegate(mounts: &Mounts, uid: u32) -> Result<Vec<PathBuf>, CgroupError> {
    const USED: [&str; 5] = ["memory", "pids", "cpu", "cpuacct", "blkio"];
    let is_used = |mount: &&super::Mount| {
        mount.version == 1 && mount.controllers.iter().any(|name| USED.contains(&name.as_str()))
    };
    let mut folders = Vec::new();
    for mount in mounts.mounts.iter().filter(is_used) {
        let folder = mount.point.join(delegated_name(uid));
        make(&folder)?;
        // The folder alone: its own limits stay root's, groups made inside it are the user's.
        std::os::unix::fs::chown(&folder, Some(uid), None)
            .map_err(|error| CgroupError::new(&folder, &error))?;
        folders.push(folder);
    }
    Ok(folders)
}

#[derive(Debug)]
pub(super) struct V1Group {
    memory: Folder,
    pids: Folder,
    cpu: Folder,
    cpuacct: Folder,
    blkio: Option<Folder>,
    tasks: Vec<OwnedFd>,
    swap_is_limited: bool,
    weight: OnceLock<Weight>,
    tag: OwnerTag,
}

impl V1Group {
    /// Each once: controllers may be mounted together.
    fn folders(&self) -> Vec<&Folder> {
        let mut folders = vec![&self.memory, &self.pids, &self.cpu, &self.cpuacct];
        folders.extend(&self.blkio);
        folders.sort_by(|one, other| one.path.cmp(&other.path));
        folders.dedup_by(|one, other| one.path == other.path);
        folders
    }

    /// What a process writes itself into to enter.
    fn open_tasks(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        self.folders().into_iter().map(|folder| folder.open_control("tasks")).collect()
    }

    /// Throttles reads where the device can be: not every block device takes it, and then the layer is reported missing.
    fn limit_reads(&mut self, folder: PathBuf, device: &str, bytes: u64) {
        if make(&folder).is_err() {
            return;
        }
        let folder = Folder::new(folder);
        if folder.write("blkio.throttle.read_bps_device", &format!("{device} {bytes}")).is_ok() {
            self.blkio = Some(folder);
        } else {
            remove_folder(&folder.path, Duration::ZERO);
        }
    }
}

impl V1Group {
    /// Memory, and memory with swap, of which the first may at no moment be the larger.
    fn set_memory(&mut self, limits: &GroupLimits) -> Result<(), CgroupError> {
        let (alone, both) = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes");
        let (memory, all) =
            (limits.memory.to_string(), limits.memory.saturating_add(limits.swap).to_string());
        let first = self.memory.write(alone, &memory);
        self.swap_is_limited = self.memory.write_if_there(both, &all)?;
        match first {
            // Above what both had until now.
            Err(_) if self.swap_is_limited => self.memory.write(alone, &memory),
            other => other,
        }
    }
}

impl Group for V1Group {
    fn set_limits(&mut self, limits: &GroupLimits) -> Result<(), CgroupError> {
        self.set_memory(limits)?;
        // Version 1 counts buffers of TCP and UDP sockets apart, and only if they have a limit.
        let sockets = (limits.memory / 8).max(1 << 20).to_string();
        self.memory.write_if_there("memory.kmem.tcp.limit_in_bytes", &sockets)?;
        self.set_pids(limits.pids)?;
        self.cpu.write("cpu.cfs_period_us", "100000")?;
        // A tenth of a second times thousandths of a core, at least what the kernel takes.
        self.cpu.write("cpu.cfs_quota_us", &(limits.cpu_thousandths * 100).max(1000).to_string())
    }

    fn entry(&self) -> Entry<'_> {
        Entry::WriteSelf(&self.tasks)
    }

    fn cpu_time(&self) -> Option<Duration> {
        self.cpuacct.number("cpuacct.usage").map(Duration::from_nanos)
    }

    fn kill_all(&self) {
        // More may be forked meanwhile; not many rounds are needed, since the killed fork no more.
        for _ in 0..20 {
            if self.pids_current() == Some(0) {
                break;
            }
            self.pids.kill_members();
        }
    }

    fn pids_current(&self) -> Option<u64> {
        self.pids.number("pids.current")
    }

    fn members(&self) -> Vec<Pid> {
        self.pids.members()
    }

    fn set_pids(&self, most: u64) -> Result<(), CgroupError> {
        self.pids.write("pids.max", &most.to_string())
    }

    fn memory_current(&self) -> Option<u64> {
        self.memory.number("memory.usage_in_bytes")
    }

    fn reclaim(&self) {
        let _ = self.memory.write("memory.force_empty", "0");
    }

    fn reset_peak(&self) {
        let _ = self.memory.write("memory.max_usage_in_bytes", "0");
    }

    fn rest(&self) {
        for folder in [&self.memory, &self.pids, &self.cpuacct] {
            folder.close_counters();
        }
    }

    fn usage(&self) -> GroupUsage {
        let nanos = |file: &'static str| self.cpuacct.number(file).map(Duration::from_nanos);
        GroupUsage {
            cpu: self.cpu_time(),
            cpu_user: nanos("cpuacct.usage_user"),
            cpu_system: nanos("cpuacct.usage_sys"),
            memory_peak: self.memory.number("memory.max_usage_in_bytes"),
            oom_kills: self.memory.keyed("memory.oom_control", "oom_kill ").unwrap_or(0),
            pids_current: self.pids_current(),
            pids_peak: self.pids.number("pids.peak"),
            forks_refused: self.pids.keyed("pids.events", "max ").unwrap_or(0),
        }
    }

    fn version(&self) -> u8 {
        1
    }

    fn weight(&self) -> Weight {
        let files = || WeightFiles {
            weight: self.cpu.path.join("cpu.shares"),
            idle: self.cpu.path.join("cpu.idle"),
            usage: (self.cpuacct.path.join("cpuacct.usage"), "", 1),
            whole: 1024,
        };
        self.weight.get_or_init(|| Weight::new(files())).clone()
    }

    fn layers(&self) -> Vec<Layer> {
        let mut layers = vec![Layer::Cgroup];
        layers.extend(self.swap_is_limited.then_some(Layer::Swap));
        layers.extend(self.blkio.is_some().then_some(Layer::Io));
        layers
    }
}

impl Drop for V1Group {
    fn drop(&mut self) {
        if let Some(weight) = self.weight.get() {
            weight.end();
        }
        self.memory.free_caches();
        self.tasks.clear();
        let Self { memory, pids, cpu, cpuacct, blkio, .. } = self;
        for folder in [memory, pids, cpu, cpuacct].into_iter().chain(blkio) {
            folder.let_go();
        }
        let mut is_gone = true;
        for folder in self.folders() {
            is_gone &= remove_folder(&folder.path, super::REMOVAL_PATIENCE);
        }
        if !is_gone {
            self.tag.keep_number();
        }
    }
}
