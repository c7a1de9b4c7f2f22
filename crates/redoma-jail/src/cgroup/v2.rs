//! Version 2: one hierarchy, a group is one folder, controllers are handed down level by level.
//!
//! A folder that hands controllers down may hold no processes itself (but for the root). So groups are made beside this
//! process's own group, or above it, in the nearest ancestor that this user may write to: with systemd that is the
//! slice around the service or scope, so that limits set there hold for the sandboxes too. A service that systemd
//! started with `Delegate=yes` and that is alone in its group moves itself one level down first.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use redoma_model::Layer;
use rustix::process::Pid;

use super::{
    CgroupError, Entry, Folder, Group, GroupLimits, GroupUsage, Mounts, NoCgroup, Weight, WeightFiles,
    may_write, remove_folder, write,
};
use crate::janitor::OwnerTag;

const REQUIRED: [&str; 3] = ["memory", "pids", "cpu"];
const WANTED: [&str; 4] = ["memory", "pids", "cpu", "io"];
/// The group that a lone service moves itself into.
const SUPERVISOR: &str = "redoma-supervisor";

#[derive(Debug)]
pub struct Hierarchy {
    parent: PathBuf,
}

impl Hierarchy {
    pub(super) fn find(mounts: &Mounts) -> Result<Self, NoCgroup> {
        let mount = mounts.mounts.iter().find(|mount| mount.version == 2).ok_or(NoCgroup::NotMounted)?;
        let available = words(&mount.point.join("cgroup.controllers"));
        let missing: Vec<_> =
            REQUIRED.into_iter().filter(|name| !available.iter().any(|has| has == name)).collect();
        if !missing.is_empty() {
            return Err(NoCgroup::NoController { missing: missing.join(", ") });
        }
        let own = mounts.own_folder(mount).unwrap_or_else(|| mount.point.clone());
        let mut tried = Vec::new();
        for folder in own.ancestors().take_while(|folder| folder.starts_with(&mount.point)) {
            let is_root = !folder.join("cgroup.type").exists();
            if !may_write(folder) || !may_write_file(&folder.join("cgroup.procs")) {
                tried.push(format!("{} is not writable", folder.display()));
                continue;
            }
            let is_alone = || leave_alone(folder, &own);
            if (folder != own || is_root || is_alone()) && hand_down(folder) {
                put_before_sandboxes(&folder.join(SUPERVISOR));
                return Ok(Self { parent: folder.to_owned() });
            }
            tried.push(format!("{} can't hand controllers down", folder.display()));
        }
        Err(NoCgroup::not_delegated(2, &tried))
    }

    pub(super) fn place(&self) -> String {
        self.parent.display().to_string()
    }

    pub(super) fn parents(&self) -> Vec<PathBuf> {
        vec![self.parent.clone()]
    }

    pub(super) fn create(&self, tag: &OwnerTag, limits: &GroupLimits) -> Result<V2Group, CgroupError> {
        let folder = self.parent.join(tag.as_str());
        fs::create_dir(&folder).map_err(|error| CgroupError::new(&folder, &error))?;
        let open = File::open(&folder).map_err(|error| {
            remove_folder(&folder, Duration::ZERO);
            CgroupError::new(&folder, &error)
        })?;
        let mut group = V2Group {
            folder: Folder::new(folder),
            handle: Some(open.into()),
            swap_is_limited: false,
            reads_are_limited: false,
            weight: OnceLock::new(),
            tag: tag.clone(),
        };
        // From here on an early return removes the folder through Drop.
        group.folder.hold()?;
        group.set_limits(limits)?;
        Ok(group)
    }
}

/// Whether version 2 has the controllers that sandboxes need.
pub(super) fn has_controllers(mounts: &Mounts) -> bool {
    mounts.mounts.iter().filter(|mount| mount.version == 2).any(|mount| {
        let available = words(&mount.point.join("cgroup.controllers"));
        REQUIRED.iter().all(|name| available.iter().any(|has| has == name))
    })
}

fn words(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn may_write_file(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// If this process and its children (the janitor) are alone in its group, moves them one level down, so that the group can
/// hand controllers down.
fn leave_alone(folder: &Path, own: &Path) -> bool {
    let members = words(&folder.join("cgroup.procs"));
    let is_ours = |pid: &String| *pid == std::process::id().to_string() || is_child(pid);
    if folder != own || !members.iter().all(is_ours) {
        return false;
    }
    let below = folder.join(SUPERVISOR);
    let _ = fs::create_dir(&below);
    members.iter().all(|pid| write(&below.join("cgroup.procs"), pid).is_ok())
}

/// Where this process has a group of its own: memory that is not taken from it for its sandboxes' sake, as far as the groups above
/// grant it, and more of the processor than any of them.
fn put_before_sandboxes(own: &Path) {
    if own.exists() {
        let _ = write(&own.join("memory.min"), &OWN_MEMORY.to_string());
        let _ = write(&own.join("cpu.weight"), "1000");
    }
}

/// As much as deploy/systemd/redoma.service asks for.
const OWN_MEMORY: u64 = 256 << 20;

/// Whether this process is the parent of that one.
fn is_child(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.is_some_and(|parent| parent.trim() == std::process::id().to_string())
}

/// Makes sure that groups in `folder` get the controllers. Input and output is taken where it can be had.
fn hand_down(folder: &Path) -> bool {
    let control = folder.join("cgroup.subtree_control");
    let has = words(&control);
    for name in WANTED.into_iter().filter(|name| !has.iter().any(|handed| handed == name)) {
        let _ = write(&control, &format!("+{name}"));
    }
    let has = words(&control);
    REQUIRED.iter().all(|name| has.iter().any(|handed| handed == name))
}

#[derive(Debug)]
pub(super) struct V2Group {
    folder: Folder,
    /// Until it is dropped.
    handle: Option<OwnedFd>,
    swap_is_limited: bool,
    reads_are_limited: bool,
    weight: OnceLock<Weight>,
    tag: OwnerTag,
}

impl V2Group {
    fn set(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        self.folder.write(file, value)
    }
}

impl Group for V2Group {
    fn set_limits(&mut self, limits: &GroupLimits) -> Result<(), CgroupError> {
        self.set("memory.max", &limits.memory.to_string())?;
        self.swap_is_limited = self.folder.write_if_there("memory.swap.max", &limits.swap.to_string())?;
        self.set("pids.max", &limits.pids.to_string())?;
        // A tenth of a second times thousandths of a core, at least what the kernel takes.
        self.set("cpu.max", &format!("{} 100000", (limits.cpu_thousandths * 100).max(1000)))?;
        if let Some((device, bytes)) = &limits.read {
            // Not every block device takes it; the layer is then reported missing.
            self.reads_are_limited = self.set("io.max", &format!("{device} rbps={bytes}")).is_ok();
        }
        Ok(())
    }

    fn entry(&self) -> Entry<'_> {
        match &self.handle {
            Some(handle) => Entry::CloneInto(handle.as_fd()),
            None => Entry::WriteSelf(&[]),
        }
    }

    fn cpu_time(&self) -> Option<Duration> {
        self.folder.keyed("cpu.stat", "usage_usec ").map(Duration::from_micros)
    }

    fn kill_all(&self) {
        if self.set("cgroup.kill", "1").is_err() {
            self.folder.kill_members(); // before Linux 5.14
        }
    }

    fn pids_current(&self) -> Option<u64> {
        self.folder.number("pids.current")
    }

    fn members(&self) -> Vec<Pid> {
        self.folder.members()
    }

    fn set_pids(&self, most: u64) -> Result<(), CgroupError> {
        self.set("pids.max", &most.to_string())
    }

    fn memory_current(&self) -> Option<u64> {
        self.folder.number("memory.current")
    }

    fn reclaim(&self) {
        if let Some(bytes) = self.memory_current() {
            let _ = self.set("memory.reclaim", &bytes.to_string());
        }
    }

    fn reset_peak(&self) {
        // Each open file of this kind has a peak of its own, so that there is none to reset.
    }

    fn rest(&self) {
        self.folder.close_counters();
    }

    fn usage(&self) -> GroupUsage {
        let micros = |key: &str| self.folder.keyed("cpu.stat", key).map(Duration::from_micros);
        GroupUsage {
            cpu: micros("usage_usec "),
            cpu_user: micros("user_usec "),
            cpu_system: micros("system_usec "),
            memory_peak: self.folder.number("memory.peak"),
            oom_kills: self.folder.keyed("memory.events", "oom_kill ").unwrap_or(0),
            pids_current: self.pids_current(),
            pids_peak: self.folder.number("pids.peak"),
            forks_refused: self.folder.keyed("pids.events", "max ").unwrap_or(0),
        }
    }

    fn version(&self) -> u8 {
        2
    }

    fn weight(&self) -> Weight {
        let files = || WeightFiles {
            weight: self.folder.path.join("cpu.weight"),
            idle: self.folder.path.join("cpu.idle"),
            usage: (self.folder.path.join("cpu.stat"), "usage_usec ", 1000),
            whole: 100,
        };
        self.weight.get_or_init(|| Weight::new(files())).clone()
    }

    fn layers(&self) -> Vec<Layer> {
        let mut layers = vec![Layer::Cgroup];
        layers.extend(self.swap_is_limited.then_some(Layer::Swap));
        layers.extend(self.reads_are_limited.then_some(Layer::Io));
        layers
    }
}

impl Drop for V2Group {
    fn drop(&mut self) {
        if let Some(weight) = self.weight.get() {
            weight.end();
        }
        self.folder.free_caches();
        self.handle = None;
        self.folder.let_go();
        if !remove_folder(&self.folder.path, super::REMOVAL_PATIENCE) {
            self.tag.keep_number();
        }
    }
}
