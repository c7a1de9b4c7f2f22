//! Trying what this kernel allows, by doing it: for `redoma doctor`, and for the choice of layers before a run.

use std::ffi::{CStr, c_int};
use std::os::fd::AsFd;

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::enter::Failure;
use crate::plan::{Ids, Role};
use crate::spawn::{Report, receive, wait_for, write_id_maps};
use crate::step::Step;
use crate::sys::{self, Cloned};

/// The running kernel's version, as in `6.1`.
pub fn kernel_version() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Since 5.14 `RLIMIT_NPROC` counts a user's processes per user namespace; before, all of the user's on the host, so that
/// a busy user's sandbox could start nothing.
pub(crate) fn processes_are_counted_per_namespace() -> bool {
    kernel_version() >= (5, 14)
}

/// By a file that is there with them: to look into `/proc/self/ns` costs ten times as much.
pub fn has_time_namespaces() -> bool {
    rustix::fs::access(c"/proc/self/timens_offsets", Access::EXISTS).is_ok()
}

/// All kernels that have groups have these.
pub fn has_cgroup_namespaces() -> bool {
    rustix::fs::access(c"/proc/self/cgroup", Access::EXISTS).is_ok()
}

/// Something to try as the first process of new namespaces, with all their rights.
#[derive(Debug, Clone, Copy)]
pub enum Attempt {
    /// Only the namespaces themselves.
    Nothing,
    /// Whether rights are real inside: AppArmor on Ubuntu lets one make the namespace and takes the rights away.
    Mount,
    /// A new `/proc`, which the kernel refuses where the host's own is covered in part, as in most containers.
    Proc,
}

/// Makes namespaces (`CLONE_NEW…` beside the user namespace) and tries something in them.
pub fn attempt(namespaces: c_int, attempt: Attempt) -> Result<(), Errno> {
    let (talk, inner) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let uid = rustix::process::getuid().as_raw();
    let ids = Ids { host_uid: uid, host_gid: rustix::process::getgid().as_raw(), by_root: uid == 0 };
    let pidfd = match sys::clone_into(libc::CLONE_NEWUSER | namespaces, None)? {
        Cloned::Parent { pid, pidfd } => {
            drop(inner);
            // Where the maps can't be written the child sees the closed socket and fails.
            if write_id_maps(pid, ids, Role::Code).is_ok() {
                let _ = rustix::net::send(&talk, b"g", SendFlags::NOSIGNAL);
            } else {
                drop(talk);
                wait_for(&pidfd);
                return Err(Errno::PERM);
            }
            pidfd
        }
        Cloned::Child => {
            drop(talk);
            let result = Report::wait_for_go(inner.as_fd(), |_| Ok(())).and_then(|()| make(attempt));
            match result {
                Ok(()) => Report::Running.send(inner.as_fd()),
                Err(errno) => {
                    Report::Failed(Failure { step: Step::Clone, errno, entry: u16::MAX }).send(inner.as_fd());
                }
            }
            sys::exit_now(0)
        }
    };
    let report = receive(&talk);
    wait_for(&pidfd);
    match report? {
        Some((Report::Running, _)) => Ok(()),
        Some((Report::Failed(failure), _)) => Err(failure.errno),
        _ => Err(Errno::PERM),
    }
}

fn make(attempt: Attempt) -> Result<(), Errno> {
    let tmpfs = |target: &CStr| mount(c"tmpfs", target, c"tmpfs", MountFlags::empty(), c"mode=0755");
    match attempt {
        Attempt::Nothing => Ok(()),
        Attempt::Mount => {
            sys::make_mounts_private()?;
            tmpfs(c"/")
        }
        Attempt::Proc => {
            sys::make_mounts_private()?;
            mount(c"proc", c"/", c"proc", MountFlags::empty(), c"hidepid=ptraceable")
        }
    }
}

/// Installs the real filter in a forked process and sees that it refuses.
pub fn seccomp_works() -> Result<(), Errno> {
    let filter = crate::seccomp::Filter::for_code();
    let Some(pid) = sys::fork()? else {
        let installed =
            rustix::thread::set_no_new_privs(true).and_then(|()| sys::install_seccomp(filter.program()));
        let refused = sys::unshare(libc::CLONE_NEWUTS) == Err(Errno::PERM);
        sys::exit_now(i32::from(installed.is_err() || !refused))
    };
    match rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())? {
        Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
        _ => Err(Errno::NOSYS),
    }
}
