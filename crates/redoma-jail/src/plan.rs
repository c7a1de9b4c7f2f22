//! A sandbox on paper: everything that is decided and allocated before the first process is cloned.

use std::cell::Cell;
use std::ffi::{CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use redoma_model::{Layer, Limits};

use crate::landlock::LandlockPlan;
use crate::seccomp::Filter;
use crate::weakening::Weakening;

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("`{0}` has a NUL byte in it")]
    NulByte(String),
}

/// Text for the kernel, checked once.
pub(crate) fn c_string(text: impl AsRef<OsStr>) -> Result<CString, PlanError> {
    let text = text.as_ref();
    CString::new(text.as_bytes()).map_err(|_| PlanError::NulByte(text.to_string_lossy().into_owned()))
}

/// One thing in the sandbox's root, at a path relative to it. Entries are made in the order given.
#[derive(Debug)]
pub enum TreeEntry {
    Folder {
        path: CString,
    },
    Link {
        path: CString,
        target: CString,
    },
    /// A small file with fixed content, such as `/etc/passwd`.
    File {
        path: CString,
        content: Vec<u8>,
    },
    /// A folder or file of the host, read-only.
    Bind {
        source: CString,
        path: CString,
        folder: bool,
        /// The detached mount, once opened inside the sandbox.
        mount: Cell<RawFd>,
    },
    /// An empty read-only folder over one that a bind brought along.
    Cover {
        path: CString,
    },
}

impl TreeEntry {
    pub fn folder(path: impl AsRef<OsStr>) -> Result<Self, PlanError> {
        Ok(Self::Folder { path: c_string(path)? })
    }
    pub fn link(path: impl AsRef<OsStr>, target: impl AsRef<OsStr>) -> Result<Self, PlanError> {
        Ok(Self::Link { path: c_string(path)?, target: c_string(target)? })
    }
    pub fn file(path: impl AsRef<OsStr>, content: impl Into<Vec<u8>>) -> Result<Self, PlanError> {
        Ok(Self::File { path: c_string(path)?, content: content.into() })
    }
    pub fn bind_folder(source: &Path, path: impl AsRef<OsStr>) -> Result<Self, PlanError> {
        Self::bind(source, path, true)
    }
    pub fn bind_file(source: &Path, path: impl AsRef<OsStr>) -> Result<Self, PlanError> {
        Self::bind(source, path, false)
    }
    fn bind(source: &Path, path: impl AsRef<OsStr>, folder: bool) -> Result<Self, PlanError> {
        Ok(Self::Bind { source: c_string(source)?, path: c_string(path)?, folder, mount: Cell::new(-1) })
    }
    pub fn cover(path: impl AsRef<OsStr>) -> Result<Self, PlanError> {
        Ok(Self::Cover { path: c_string(path)? })
    }

    /// What to name in an error about this entry.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Bind { source, .. } => source.to_string_lossy().into_owned(),
            Self::Folder { path }
            | Self::Link { path, .. }
            | Self::File { path, .. }
            | Self::Cover { path } => {
                format!("/{}", path.to_string_lossy())
            }
        }
    }
}

/// Who the sandbox is on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub host_uid: u32,
    pub host_gid: u32,
    /// Whether the supervisor may give the sandbox another uid than its own, and drop supplementary groups.
    pub by_root: bool,
}

/// What a sandbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Code that is hostile by assumption: every wall.
    Code,
    /// Our own code, which makes sandboxes for others' inside of this one: see `nursery/`. It has the namespaces, the
    /// read-only root and a group; what it needs for its work it keeps (further namespaces, mounts, ids of its own).
    Nursery,
}

/// The one writable file system of a sandbox: workspace, `/tmp`, home and `/dev/shm` share it and its quota.
#[derive(Debug)]
pub struct Scratch {
    pub(crate) size: CString,
    pub(crate) inodes: CString,
}

/// What is at `/mnt/data` when the program starts.
#[derive(Debug)]
pub struct Workspace {
    /// The program's own source, relative to the workspace.
    pub(crate) script: Option<(CString, Vec<u8>)>,
}

/// What to start.
#[derive(Debug)]
pub struct Program {
    pub(crate) path: CString,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
}

impl Program {
    pub fn new<A: AsRef<OsStr>>(
        path: impl AsRef<OsStr>,
        argv: &[A],
        env: &[(&str, String)],
    ) -> Result<Self, PlanError> {
        Ok(Self {
            path: c_string(path)?,
            argv: argv.iter().map(c_string).collect::<Result<_, _>>()?,
            env: env
                .iter()
                .map(|(key, value)| c_string(format!("{key}={value}")))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Limits that the kernel keeps per process.
#[derive(Debug, Clone, Copy)]
pub struct Rlimits {
    pub fsize: u64,
    pub nofile: u64,
    pub cpu_seconds: u64,
    /// Processes of this user in this user namespace: the second wall behind the cgroup's count.
    pub nproc: Option<u64>,
}

impl Rlimits {
    /// `has_cgroup`: the count of processes is a second wall only, and leaves the first one room to be the one that
    /// refuses, since only that one can be read back.
    pub fn from_limits(limits: &Limits, has_cgroup: bool) -> Self {
        let processes = limits.pids + if has_cgroup { 17 } else { 1 };
        Self {
            fsize: limits.disk.0,
            nofile: limits.nofile,
            // One more than the whole-tree limit, which is checked from outside and should come first.
            cpu_seconds: limits.cpu_time.0.as_secs() + 2,
            nproc: crate::trial::processes_are_counted_per_namespace().then_some(processes),
        }
    }
}

/// The filters of a sandbox that waits.
#[derive(Debug)]
pub(crate) struct FiltersAhead {
    /// For a program that takes its leave.
    pub(crate) with_leave: Filter,
    pub(crate) init: Filter,
}

/// A whole sandbox, ready to be made.
#[derive(Debug)]
pub struct Plan {
    pub role: Role,
    pub ids: Ids,
    pub tree: Vec<TreeEntry>,
    /// Folders, links and small files in the home folder, which is writable: relative to it.
    pub home: Vec<TreeEntry>,
    pub scratch: Scratch,
    pub workspace: Workspace,
    pub program: Program,
    pub rlimits: Rlimits,
    pub landlock: Option<LandlockPlan>,
    pub seccomp: Filter,
    /// For the processes of a sandbox that waits.
    pub(crate) seccomp_ahead: Option<FiltersAhead>,
    pub(crate) cgroup_namespace: bool,
    pub(crate) time_namespace: bool,
    pub weakening: Weakening,
}

/// What the scratch holds before the code runs: its own root, five folders, the home's entries, the script.
pub fn own_inodes(home: &[TreeEntry]) -> u64 {
    7 + home.len() as u64
}

impl Plan {
    /// How many inodes of the scratch are not the code's.
    pub fn own_inodes(&self) -> u64 {
        own_inodes(&self.home)
    }

    /// Makes room for files that are put into the workspace before the program starts: they come on top of what the code may
    /// write.
    pub fn add_room(&mut self, limits: &Limits, bytes: u64, inodes: u64) -> Result<(), PlanError> {
        self.scratch = Scratch {
            size: c_string(limits.disk.0.saturating_add(bytes).to_string())?,
            inodes: c_string((limits.files + self.own_inodes() + inodes).to_string())?,
        };
        Ok(())
    }

    /// A plan for `program` with every layer that `layers` names; the caller has made sure of what may be missing.
    pub fn new(
        ids: Ids,
        limits: &Limits,
        layers: &[Layer],
        tree: Vec<TreeEntry>,
        home: Vec<TreeEntry>,
        program: Program,
    ) -> Result<Self, PlanError> {
        let weakening = Weakening::from_environment();
        let landlock =
            layers.contains(&Layer::Landlock).then(|| LandlockPlan::for_tree(&tree)).transpose()?;
        Ok(Self {
            role: Role::Code,
            ids,
            tree,
            scratch: Scratch {
                size: c_string(limits.disk.0.to_string())?,
                // What we put there ourselves comes on top of what the code may make.
                inodes: c_string((limits.files + own_inodes(&home)).to_string())?,
            },
            home,
            workspace: Workspace { script: None },
            program,
            rlimits: Rlimits::from_limits(limits, layers.contains(&Layer::Cgroup)),
            landlock,
            seccomp: Filter::for_code(),
            seccomp_ahead: None,
            cgroup_namespace: layers.contains(&Layer::CgroupNamespace),
            time_namespace: layers.contains(&Layer::TimeNamespace),
            weakening,
        })
    }

    /// A plan for a nursery: for our own program, with what making sandboxes needs.
    pub fn for_nursery(
        ids: Ids,
        limits: &Limits,
        layers: &[Layer],
        tree: Vec<TreeEntry>,
        program: Program,
    ) -> Result<Self, PlanError> {
        let plan = Self::new(ids, limits, layers, tree, Vec::new(), program)?;
        // Whoever is under Landlock can mount nothing.
        Ok(Self { role: Role::Nursery, landlock: None, ..plan })
    }

    /// Puts the program's source into the workspace, under `name`.
    pub fn set_script(&mut self, name: impl AsRef<OsStr>, content: Vec<u8>) -> Result<(), PlanError> {
        self.workspace.script = Some((c_string(name)?, content));
        Ok(())
    }
}
