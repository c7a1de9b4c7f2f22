//! The steps of entering the jail, by name, and what it means when one fails.

use std::fmt;

use rustix::io::Errno;

macro_rules! steps {
    ($($variant:ident = $text:literal: $hint:literal,)+) => {
        /// One step on the way into the jail, in the order in which they happen.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Step { $($variant),+ }

        impl Step {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(crate) fn from_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }

            /// What is being done, to follow "could not".
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// What usually helps.
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint),+ }
            }
        }
    };
}

steps! {
    Clone = "create the sandbox's namespaces": "user namespaces may be switched off or used up (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone); `redoma doctor` tells which",
    MapIds = "map the sandbox's user id": "the kernel refused the uid map; `redoma doctor` tells more",
    Hostname = "set the sandbox's host name": "a security module (AppArmor, SELinux) takes rights away inside user namespaces; see `redoma doctor`",
    Network = "make the sandbox's network": "network namespaces may be used up (sysctl user.max_net_namespaces), or a security module (AppArmor, SELinux) takes rights away inside user namespaces; see `redoma doctor`",
    DetachMounts = "cut the mount namespace off from the host's": "a security module (AppArmor, SELinux) forbids mounts inside user namespaces; see `redoma doctor`",
    OpenSources = "open a folder of the runtime": "a folder or file of the runtime is missing or not readable for this user; run `redoma setup` again",
    WaitForGo = "hear from the supervisor": "the supervisor ended while the sandbox started; run it again",
    BecomeUser = "switch to the sandbox's user": "the uid map does not hold the sandbox's uid",
    BuildRoot = "build the sandbox's root": "the runtime's folders have changed; run `redoma setup` again",
    MountScratch = "mount the sandbox's own file system": "the kernel lacks tmpfs in user namespaces (Linux 5.13 or newer is needed)",
    MountProc = "mount /proc": "inside a container /proc is covered in part, and the kernel then refuses a new one: start the container with --security-opt systempaths=unconfined",
    ForbidNamespaces = "forbid further namespaces": "/proc/sys/user is not there or not writable",
    MountDevices = "make /dev": "/dev/null, zero, full, random and urandom must exist on the host",
    JoinCgroup = "move the sandbox into its cgroup": "the cgroup must be delegated to this user; see `redoma doctor`",
    CgroupNamespace = "create a cgroup namespace": "the kernel lacks CONFIG_CGROUPS",
    WriteScript = "write the program into the workspace": "the disk limit is too small for the program itself",
    PivotRoot = "change to the sandbox's root": "the host's root must be a real mount, not an initramfs",
    MaskProc = "cover parts of /proc": "the kernel refused a mount inside the sandbox's own namespace",
    SealRoot = "make the sandbox's root read-only": "the kernel refused a mount inside the sandbox's own namespace",
    OpenWorkspace = "open the workspace for collecting results": "the process may be out of file descriptors",
    Rlimits = "set resource limits": "a limit is above what this user may set; see `ulimit -Ha`",
    Capabilities = "give up all capabilities": "report this as a bug",
    Seccomp = "install the system call filter": "the kernel needs CONFIG_SECCOMP_FILTER",
    Fork = "start the program's process": "the pids limit may be too small",
    Session = "give the program a session of its own": "report this as a bug",
    Stdio = "connect stdin, stdout and stderr": "report this as a bug",
    OomScore = "make the program the first to go when memory runs out": "/proc is not usable inside the sandbox",
    Landlock = "restrict the file system with Landlock": "the kernel needs Landlock (Linux 5.13 or newer, `landlock` in the lsm= list)",
    WorkingFolder = "enter the workspace": "report this as a bug",
    Exec = "start the program": "the runtime has no such program; run `redoma setup` again",
    WaitForAssignment = "hear what the sandbox is for": "the supervisor ended while the sandbox waited; run it again",
    Init = "keep the sandbox's init running": "report this as a bug",
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Why there is no sandbox.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JailError {
    /// A step of entering failed. Nothing of the program has run.
    #[error("could not {step}: {errno} ({detail}); {}", .step.hint())]
    Step {
        step: Step,
        errno: Errno,
        /// Which of several like things, such as the path of a mount.
        detail: String,
    },
    /// The sandbox went away without a word, before the program started: killed from outside, or out of memory.
    #[error("the sandbox ended before the program started; the memory limit may be too small for it")]
    EndedEarly,
    #[error("the sandbox's messages could not be read: {0}")]
    Talk(Errno),
}
