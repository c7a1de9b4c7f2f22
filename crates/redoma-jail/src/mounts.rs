//! The file system that the code sees: a small root of our own, read-only pieces of the runtime in it, one writable
//! file system with a hard quota, a `/proc` that tells little and a `/dev` with nothing dangerous.
//!
//! Mounts are made detached, given their restrictions, and only then attached: there is no moment in which one is
//! visible without them. Everything is a mount of the sandbox's own user namespace, so the kernel drops the whole tree
//! when the last process is gone.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use crate::enter::{At, Failure};
use crate::locks::LockList;
use crate::plan::{Plan, Role, TreeEntry};
use crate::step::Step;
use crate::sys;

const NOSUID_NODEV: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
const READ_ONLY: MountAttrFlags = NOSUID_NODEV.union(MountAttrFlags::MOUNT_ATTR_RDONLY);

/// What stays visible of the kernel's own part of `/proc`; the processes' folders always do.
///
/// Libraries read these to size their thread pools and caches. The rest tells about the host (its command line,
/// modules, devices, disks, interrupts) or can be written to, and is covered.
const PROC_KEPT: [&CStr; 11] = [
    c"cpuinfo",
    c"filesystems",
    c"loadavg",
    c"meminfo",
    c"mounts",
    c"net",
    c"self",
    c"stat",
    c"thread-self",
    c"uptime",
    c"version",
];

/// What the kernel gives to root only (mode 0400 or less). The sandbox's uid is never root's, so these are closed to it
/// without a cover; each cover costs a mount.
const PROC_FOR_ROOT: [&CStr; 11] = [
    c"kcore",
    c"kmsg",
    c"kpagecgroup",
    c"kpagecount",
    c"kpageflags",
    c"pagetypeinfo",
    c"slabinfo",
    c"sysrq-trigger",
    c"timer_list",
    c"vmallocinfo",
    c"vmcore",
];

/// A folder to cover others with; gone from the root once that is done.
const EMPTY: &CStr = c".empty";

const DEVICES: [&CStr; 5] = [c"null", c"zero", c"full", c"random", c"urandom"];

/// Takes hold of the host's folders, read-only, while this process still has the supervisor's uid.
pub(crate) fn open_sources(plan: &Plan) -> Result<(), Failure> {
    for (index, entry) in plan.tree.iter().enumerate() {
        if let TreeEntry::Bind { source, mount, .. } = entry {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE;
            let tree =
                rustix::mount::open_tree(CWD, source.as_c_str(), flags).at_entry(Step::OpenSources, index)?;
            let attributes = if plan.weakening.has("read_only") { NOSUID_NODEV } else { READ_ONLY };
            sys::add_mount_attributes(tree.as_fd(), attributes.bits().into(), true)
                .at_entry(Step::OpenSources, index)?;
            mount.set(tree.into_raw_fd());
        }
    }
    Ok(())
}

/// The pieces that [`change_root`] goes on with.
#[derive(Debug)]
pub(crate) struct Unsealed {
    root: OwnedFd,
    scratch: OwnedFd,
    locks: OwnedFd,
}

/// Builds the new root on top of the old one, complete but for what must be mounted from within.
pub(crate) fn build_root(plan: &Plan) -> Result<Unsealed, Failure> {
    let options = [(c"size", c"4m"), (c"nr_inodes", c"4096"), (c"mode", c"0755")];
    let root = new_file_system(c"tmpfs", &options, NOSUID_NODEV).at(Step::BuildRoot)?;
    attach(&root, CWD, c"/").at(Step::BuildRoot)?;
    for path in [EMPTY, c"mnt", c"mnt/data", c"tmp", c"home", c"home/sandbox"] {
        make_folder(&root, path).at(Step::BuildRoot)?;
    }
    for path in [c"proc", c"dev", c"dev/shm", c"dev/pts"] {
        make_folder(&root, path).at(Step::BuildRoot)?;
    }
    for (index, entry) in plan.tree.iter().enumerate() {
        make_entry(&root, entry).at_entry(Step::BuildRoot, index)?;
    }

    let scratch = mount_scratch(plan, &root).at(Step::MountScratch)?;
    make_devices(&root).at(Step::MountDevices)?;

    let proc = new_file_system(
        c"proc",
        &[(c"hidepid", if plan.weakening.has("hidepid") { c"off" } else { c"ptraceable" })],
        NOSUID_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
    .at(Step::MountProc)?;
    attach(&proc, &root, c"proc").at(Step::MountProc)?;
    if plan.role == Role::Code && !plan.weakening.has("forbid_namespaces") {
        forbid_namespaces(&proc).at(Step::ForbidNamespaces)?;
    }
    let locks = LockList::open(&proc).at(Step::MountProc)?;
    Ok(Unsealed { root, scratch, locks })
}

/// What is left in hand of a finished root.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// The folder in which the code's files will be, for the supervisor to collect them from.
    pub(crate) workspace: OwnedFd,
    /// A folder on the same file system that no code gets to.
    pub(crate) beside: OwnedFd,
    /// The writable file system as a whole.
    pub(crate) scratch: OwnedFd,
    /// Where the sandbox's record locks are listed.
    pub(crate) locks: OwnedFd,
}

/// Makes the new root the only one, finishes the workspace and seals everything.
pub(crate) fn change_root(plan: &Plan, built: Unsealed) -> Result<Sealed, Failure> {
    let Unsealed { root, scratch, locks } = built;
    rustix::process::fchdir(&root).at(Step::PivotRoot)?;
    rustix::process::pivot_root(c".", c".").at(Step::PivotRoot)?;
    // The old root now lies on top of the new one at the same place: take it off, and it is gone for good.
    rustix::mount::unmount(c".", UnmountFlags::DETACH).at(Step::PivotRoot)?;
    rustix::process::chdir(c"/").at(Step::PivotRoot)?;
    // Over a covered /proc the kernel lets nobody mount another, which a nursery's sandboxes each do.
    if plan.role == Role::Code && !plan.weakening.has("mask_proc") {
        cover_proc(&root).at(Step::MaskProc)?;
    }

    let open = |folder: &CStr| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&scratch, folder, flags, Mode::empty()).at(Step::OpenWorkspace)
    };
    let (workspace, beside) = (open(c"data")?, open(c"work")?);
    // The scratch as a whole disappears under its own part for /tmp.
    attach_copy(scratch.as_fd(), c"tmp", root.as_fd(), c"tmp").at(Step::SealRoot)?;
    rustix::fs::unlinkat(&root, EMPTY, AtFlags::REMOVEDIR).at(Step::SealRoot)?;
    if !plan.weakening.has("read_only") {
        sys::add_mount_attributes(root.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY.bits().into(), false)
            .at(Step::SealRoot)?;
    }
    Ok(Sealed { workspace, beside, scratch, locks })
}

/// Gives a finished root's scratch another quota.
pub(crate) fn resize_scratch(scratch: &OwnedFd, size: &CStr, inodes: &CStr) -> Result<(), Errno> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let context = rustix::mount::fspick(scratch, c"", flags)?;
    rustix::mount::fsconfig_set_string(&context, c"size", size)?;
    rustix::mount::fsconfig_set_string(&context, c"nr_inodes", inodes)?;
    rustix::mount::fsconfig_reconfigure(&context)
}

fn new_file_system(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, *key, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Attaches a detached mount at `path` below `folder`.
fn attach(mount: impl AsFd, folder: impl AsFd, path: &CStr) -> Result<(), Errno> {
    rustix::mount::move_mount(mount, c"", folder, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A detached copy of the mount (or of a folder in it) at `path` below `folder`, attached again at `target`.
fn attach_copy(
    folder: BorrowedFd<'_>,
    path: &CStr,
    root: BorrowedFd<'_>,
    target: &CStr,
) -> Result<(), Errno> {
    attach(detached_copy(folder, path)?, root, target)
}

fn detached_copy(folder: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(folder, path, flags)
}

fn make_folder(root: &OwnedFd, path: &CStr) -> Result<(), Errno> {
    match rustix::fs::mkdirat(root, path, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

pub(crate) fn make_file(root: impl AsFd, path: &CStr, content: &[u8], mode: u32) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(root, path, flags, Mode::from_raw_mode(mode))?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

fn make_entry(root: &OwnedFd, entry: &TreeEntry) -> Result<(), Errno> {
    match entry {
        TreeEntry::Folder { path } => make_folder(root, path),
        TreeEntry::Link { path, target } => rustix::fs::symlinkat(target.as_c_str(), root, path.as_c_str()),
        TreeEntry::File { path, content } => make_file(root, path, content, 0o444),
        TreeEntry::Bind { path, folder, mount, .. } => {
            if *folder {
                make_folder(root, path)?;
            } else {
                make_file(root, path, b"", 0o444)?;
            }
            attach(sys::borrow(&mount.get()), root, path)
        }
        TreeEntry::Cover { path } => match cover_folder(root, root.as_fd(), path) {
            // Nothing there to be covered.
            Err(Errno::NOENT) => Ok(()),
            other => other,
        },
    }
}

/// The writable file system and the four places at which the code sees it.
fn mount_scratch(plan: &Plan, root: &OwnedFd) -> Result<OwnedFd, Errno> {
    let options = [
        (c"size", plan.scratch.size.as_c_str()),
        (c"nr_inodes", plan.scratch.inodes.as_c_str()),
        (c"mode", c"0755"),
    ];
    let scratch = new_file_system(c"tmpfs", &options, NOSUID_NODEV)?;
    // Copies can only be taken of what is attached. It is not taken off again, but covered: taking a mount off waits
    // for an RCU grace period.
    attach(&scratch, root, c"tmp")?;
    for folder in [c"data", c"tmp", c"home", c"shm", c"work"] {
        make_folder(&scratch, folder)?;
    }
    let home = rustix::fs::openat(&scratch, c"home", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for entry in &plan.home {
        make_entry(&home, entry)?;
    }
    for (folder, target) in [(c"data", c"mnt/data"), (c"home", c"home/sandbox"), (c"shm", c"dev/shm")] {
        attach_copy(scratch.as_fd(), folder, root.as_fd(), target)?;
    }
    Ok(scratch)
}

/// Puts the program's source into the workspace, in time to be counted against the sandbox's own limits.
pub(crate) fn write_script(plan: &Plan, workspace: &OwnedFd) -> Result<(), Errno> {
    match &plan.workspace.script {
        Some((name, content)) => make_file(workspace, name, content, 0o644),
        None => Ok(()),
    }
}

/// The same in a finished root, from a file that somebody else made.
pub(crate) fn copy_script(scratch: &OwnedFd, name: &CStr, content: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let workspace = rustix::fs::openat(scratch, c"data", flags, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&workspace, name, flags, Mode::from_raw_mode(0o644))?;
    let mut offset = 0;
    while rustix::fs::sendfile(&file, content, Some(&mut offset), 1 << 20)? > 0 {}
    Ok(())
}

/// `/dev`: five harmless devices, terminals of the sandbox's own, and the customary links.
fn make_devices(root: &OwnedFd) -> Result<(), Errno> {
    let dev = rustix::fs::openat(root, c"dev", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let host = rustix::fs::open(c"/dev", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // Not NODEV: these are devices. Read-only is about the node (its mode, its times), not about writing to it.
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    for name in DEVICES {
        make_file(&dev, name, b"", 0o444)?;
        let node = detached_copy(host.as_fd(), name)?;
        sys::add_mount_attributes(node.as_fd(), attributes.bits().into(), false)?;
        attach(&node, &dev, name)?;
    }
    let terminals = new_file_system(
        c"devpts",
        &[(c"ptmxmode", c"0666"), (c"mode", c"0620"), (c"max", c"16")],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )?;
    attach(&terminals, &dev, c"pts")?;
    for (name, target) in [
        (c"ptmx", c"pts/ptmx"),
        (c"fd", c"/proc/self/fd"),
        (c"stdin", c"/proc/self/fd/0"),
        (c"stdout", c"/proc/self/fd/1"),
        (c"stderr", c"/proc/self/fd/2"),
    ] {
        rustix::fs::symlinkat(target, &dev, name)?;
    }
    Ok(())
}

/// No user namespace can be made inside, whatever else fails: the kernel's own count is set to none.
fn forbid_namespaces(proc: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, c"sys/user/max_user_namespaces", flags, Mode::empty())?;
    rustix::io::write(&file, b"0")?;
    Ok(())
}

/// Covers what the new `/proc` has beyond the processes and [`PROC_KEPT`], whatever this kernel calls it. Called with the
/// new root in place: some thirty mounts, each by the one call that takes paths.
fn cover_proc(root: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open(c"/proc", flags, Mode::empty())?;
    // `sys` is always there. Its cover is made read-only before it is attached; a bind copies that to the others.
    cover_folder(root, proc.as_fd(), c"sys")?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(proc, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        let is_process = name.to_bytes().iter().all(u8::is_ascii_digit);
        let is_listed = |list: &[&CStr]| list.contains(&name);
        if is_process
            || is_listed(&[c".", c"..", c"sys"])
            || is_listed(&PROC_KEPT)
            || is_listed(&PROC_FOR_ROOT)
        {
            continue;
        }
        let mut path = [0u8; 300];
        let path = join(&mut path, b"/proc/", name)?;
        match entry.file_type() {
            FileType::Symlink => {}
            FileType::Directory => rustix::mount::mount_bind(c"/proc/sys", path)?,
            _ => rustix::mount::mount_bind(c"/dev/null", path)?,
        }
    }
    Ok(())
}

/// A path, without allocating.
fn join<'a>(buffer: &'a mut [u8; 300], folder: &[u8], name: &CStr) -> Result<&'a CStr, Errno> {
    let name = name.to_bytes_with_nul();
    let length = folder.len() + name.len();
    buffer.get_mut(..folder.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(folder);
    buffer.get_mut(folder.len()..length).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name);
    CStr::from_bytes_until_nul(buffer).map_err(|_| Errno::NAMETOOLONG)
}

/// Puts an empty read-only folder over one that is there.
fn cover_folder(root: &OwnedFd, folder: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    // Not "there is no such file": that is what callers take for nothing to be covered.
    let empty = detached_copy(root.as_fd(), EMPTY).map_err(|_| Errno::IO)?;
    let attributes = READ_ONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    sys::add_mount_attributes(empty.as_fd(), attributes.bits().into(), false)?;
    attach(empty, folder, path)
}
