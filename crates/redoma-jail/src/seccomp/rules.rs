//! Which system calls code may make. Each group says who needs it; each refusal says why.
//!
//! What is in no list is answered with `ENOSYS`, as by a kernel that has never heard of it: programs then fall back
//! to older calls, and a call that the kernel gains tomorrow is closed today. Known dangers are listed all the same
//! and answered with `EPERM`, so that a program (and the attack suite) can tell refusal from absence.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the kernel's constants have other widths in libc than in the interface that takes them"
)]

use std::ffi::c_long;

/// How a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Errno(i32),
    Kill,
    /// Not refused, but held until the supervisor has seen it.
    Ask,
}

impl Refusal {
    pub(super) const UNKNOWN: Self = Self::Errno(libc::ENOSYS);
    pub(super) const FORBIDDEN: Self = Self::Errno(libc::EPERM);
}

/// Which half of a 64-bit argument is looked at. Most parameters are `int`s, of which the kernel itself reads no more
/// than the low half; for a pointer both matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    Low,
    High,
}

/// Holds if the argument's half, masked, is one of the values; or, if `negated`, none of them.
#[derive(Debug, Clone, Copy)]
pub struct Condition {
    pub(super) negated: bool,
    pub(super) argument: u8,
    pub(super) half: Half,
    pub(super) mask: u32,
    pub(super) one_of: &'static [u32],
}

/// What to do about one call.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub name: &'static str,
    pub number: u32,
    /// Alternatives, of which one must hold in all its conditions. Empty: no conditions.
    pub(super) allowed_if: &'static [&'static [Condition]],
    /// How it is refused: always, if there are no conditions; otherwise when none holds. `None` without conditions
    /// means that the call is allowed.
    pub refusal: Option<Refusal>,
}

impl Rule {
    /// Whether there are arguments with which the call is let through.
    pub fn is_ever_allowed(&self) -> bool {
        self.refusal.is_none() || !self.allowed_if.is_empty()
    }
}

type Named = (&'static str, c_long);

/// Names and numbers of calls, from libc's constants.
macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), calls!(@ $name))),*] };
    (@ $name:ident) => { libc::$name };
}

/// Memory, threads, time, signals: every process from its first instruction on.
const RUNNING: &[Named] = calls!(
    SYS_brk SYS_munmap SYS_mprotect SYS_mremap SYS_mincore SYS_mlock SYS_mlock2
    SYS_munlock SYS_mlockall SYS_munlockall SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
    SYS_futex SYS_futex_waitv SYS_set_robust_list SYS_get_robust_list SYS_rseq SYS_set_tid_address
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_sigaltstack SYS_tkill SYS_tgkill SYS_restart_syscall
    SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_times
    SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun
    SYS_timer_delete SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
    SYS_getrandom SYS_sched_yield SYS_sched_getaffinity SYS_sched_getparam SYS_sched_getscheduler
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval SYS_sched_getattr
    SYS_getpriority SYS_getcpu SYS_get_mempolicy SYS_getrlimit SYS_getrusage
    SYS_sysinfo SYS_uname
);

/// Starting, finding and awaiting processes: subprocess, shells. `clone` has a rule of its own.
const PROCESSES: &[Named] = calls!(
    SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_pidfd_open SYS_pidfd_send_signal
    SYS_getpid SYS_getppid SYS_gettid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups
    SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid
    SYS_setgroups SYS_capget SYS_capset
);

/// Landlock only ever takes rights away; the sandbox's own process goes under it behind this filter.
const LANDLOCK: &[Named] = calls!(
    SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
);

/// Files and folders: what may be reached is the mounts' and Landlock's business, not this list's.
const FILES: &[Named] = calls!(
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_lseek SYS_openat SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_flock
    SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2 SYS_readlinkat
    SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_umask
    SYS_mkdirat SYS_unlinkat SYS_renameat SYS_renameat2 SYS_linkat SYS_symlinkat
    SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat
    SYS_truncate SYS_ftruncate SYS_fallocate SYS_readahead
    SYS_sendfile SYS_copy_file_range SYS_splice SYS_tee
    SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr
    SYS_removexattr SYS_lremovexattr SYS_fremovexattr
);

/// Waiting and talking between the sandbox's own processes. `socket`, `socketpair` and `setsockopt` have rules of their own.
const WAITING: &[Named] = calls!(
    SYS_pipe2 SYS_eventfd2 SYS_signalfd4 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2
    SYS_ppoll SYS_pselect6
    SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname SYS_getpeername
    SYS_getsockopt SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_shutdown
    SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_shmat SYS_shmdt SYS_shmctl
    SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl
    SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr
);

/// The same under their old names, which other architectures never had.
#[cfg(target_arch = "x86_64")]
const OLD_NAMES: &[Named] = calls!(
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_mkdir SYS_rmdir SYS_unlink
    SYS_rename SYS_link SYS_symlink SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat
    SYS_pipe SYS_dup2 SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd
    SYS_fork SYS_vfork SYS_getpgrp SYS_pause SYS_alarm SYS_time
);
#[cfg(not(target_arch = "x86_64"))]
const OLD_NAMES: &[Named] = &[];

/// Mounts and roots: the way out of a file system.
const REFUSED_MOUNTS: &[Named] = calls!(
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount SYS_fsopen SYS_fsconfig
    SYS_fsmount SYS_fspick SYS_mount_setattr SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd
);
/// Namespaces: fresh capabilities, fresh kernel code to attack.
const REFUSED_NAMESPACES: &[Named] = calls!(SYS_unshare SYS_setns);
/// Other processes' memory and descriptors, also within the sandbox: init is one of them.
const REFUSED_PEEKING: &[Named] = calls!(
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp SYS_process_madvise
    SYS_process_mrelease
);
/// Files by handle instead of by path, and watching whole file systems: both step around the mounts.
const REFUSED_BY_HANDLE: &[Named] = calls!(
    SYS_open_by_handle_at SYS_name_to_handle_at SYS_fanotify_init SYS_fanotify_mark
);
/// Watching files: the runtime's files are the host's, so a watch would tell which programs the host and other sandboxes
/// start; and the number of watchers is counted against whoever runs Redoma. Programs fall back to polling.
const REFUSED_WATCHES: &[Named] = calls!(SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch);
#[cfg(target_arch = "x86_64")]
const REFUSED_OLD_WATCHES: &[Named] = calls!(SYS_inotify_init);
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OLD_WATCHES: &[Named] = &[];
/// Extended attributes: they would not count against the disk limit.
const REFUSED_ATTRIBUTES: &[Named] = calls!(SYS_setxattr SYS_lsetxattr SYS_fsetxattr);
/// Large kernel interfaces with a history of holes, of no use to the code that runs here.
const REFUSED_SURFACE: &[Named] = calls!(
    SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register
    SYS_io_setup SYS_io_submit SYS_io_getevents SYS_io_cancel SYS_io_destroy SYS_vmsplice SYS_remap_file_pages
    SYS_add_key SYS_request_key SYS_keyctl SYS_seccomp SYS_memfd_secret
    SYS_mbind SYS_set_mempolicy SYS_migrate_pages SYS_move_pages
    SYS_lookup_dcookie SYS_ioprio_set
);
/// The machine as a whole.
const REFUSED_MACHINE: &[Named] = calls!(
    SYS_reboot SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module
    SYS_acct SYS_syslog SYS_vhangup SYS_sethostname SYS_setdomainname
    SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex
);
#[cfg(target_arch = "x86_64")]
const REFUSED_X86: &[Named] =
    calls!(SYS_iopl SYS_ioperm SYS_modify_ldt SYS_uselib SYS_ustat SYS_sysfs SYS__sysctl);
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_X86: &[Named] = &[];

const NAMESPACE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

const fn when(argument: u8, one_of: &'static [u32]) -> Condition {
    Condition { negated: false, argument, half: Half::Low, mask: u32::MAX, one_of }
}
const fn unless(argument: u8, one_of: &'static [u32]) -> Condition {
    Condition { negated: true, ..when(argument, one_of) }
}
const fn when_high(argument: u8, one_of: &'static [u32]) -> Condition {
    Condition { half: Half::High, ..when(argument, one_of) }
}
const fn when_masked(argument: u8, mask: u32, one_of: &'static [u32]) -> Condition {
    Condition { mask, ..when(argument, one_of) }
}

const THREAD: u32 = libc::CLONE_THREAD as u32;
const SHARED_FILES: u32 = libc::CLONE_FILES as u32;
/// `clone`: threads and processes, but no namespaces, and no processes that share their descriptors: a record lock of
/// theirs would outlive the process that took it, and could not be counted any more (`locks.rs`).
const CLONE: &[&[Condition]] =
    &[&[when_masked(0, NAMESPACE_FLAGS | THREAD | SHARED_FILES, &[0, THREAD, THREAD | SHARED_FILES])]];

/// Huge pages come from a pool of the host's that the memory limit does not count.
const NO_HUGE_MMAP: &[&[Condition]] = &[&[when_masked(3, libc::MAP_HUGETLB as u32, &[0])]];
const NO_HUGE_SHM: &[&[Condition]] = &[&[when_masked(2, libc::SHM_HUGETLB as u32, &[0])]];
const NO_HUGE_MEMFD: &[&[Condition]] = &[&[when_masked(1, libc::MFD_HUGETLB, &[0])]];

/// Not `F_NOTIFY` (see the watches above), not leases, which make others wait for a file, and not locks of open files
/// (`F_OFD_SETLK`), which belong to no process and can't be counted (`locks.rs`).
const FCNTLS: &[Condition] = &[when(
    1,
    &[
        libc::F_DUPFD as u32,
        libc::F_GETFD as u32,
        libc::F_SETFD as u32,
        libc::F_GETFL as u32,
        libc::F_SETFL as u32,
        libc::F_GETLK as u32,
        libc::F_SETLK as u32,
        libc::F_SETLKW as u32,
        libc::F_SETOWN as u32,
        libc::F_GETOWN as u32,
        10, // F_SETSIG
        11, // F_GETSIG
        15, // F_SETOWN_EX
        16, // F_GETOWN_EX
        libc::F_DUPFD_CLOEXEC as u32,
        libc::F_SETPIPE_SZ as u32,
        libc::F_GETPIPE_SZ as u32,
        libc::F_ADD_SEALS as u32,
        libc::F_GET_SEALS as u32,
    ],
)];

/// Pages that may be merged are shared with equal pages of other sandboxes where the host runs KSM: how long a write to one
/// takes tells that another sandbox has the same page.
const NO_MERGING: &[&[Condition]] = &[&[unless(2, &[libc::MADV_MERGEABLE as u32])]];

/// Every resource but the core file's size: at 1 no dump is made, while at 0 a host's dump handler would still be
/// started, as root, for every crash in here.
const RESOURCES: &[u32] = &[0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// One's own limits, or only asking.
const PRLIMIT: &[&[Condition]] =
    &[&[when(0, &[0]), when(1, RESOURCES)], &[when(2, &[0]), when_high(2, &[0])]];
const SETRLIMIT: &[&[Condition]] = &[&[when(0, RESOURCES)]];

/// Init has the same uid as the code. Made idle and pinned to a busy core it would take its time to die, and with it the
/// whole sandbox.
const NOT_INIT: &[&[Condition]] = &[&[unless(0, &[1])]];
/// Not everybody at once: a session's checkpoints, which code has no other way to find, would be among them.
const NOT_EVERYBODY: &[&[Condition]] = &[&[unless(0, &[u32::MAX])]];
/// One process's priority (not init's) or a group's; not that of all processes of the uid.
const SETPRIORITY: &[&[Condition]] = &[&[when(0, &[0]), unless(1, &[1])], &[when(0, &[1])]];
/// `RWF_NOWAIT` tells whether a file of the runtime is in memory, and so whether another sandbox has just read it; throwing
/// it out of memory (`RWF_DONTCACHE`) makes that a tool. Flags of tomorrow are refused with them.
const NO_PEEKING_AT_THE_CACHE: &[&[Condition]] =
    &[&[when_masked(5, !(libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND).cast_unsigned(), &[0])]];
const NO_EVICTING: &[&[Condition]] = &[&[unless(3, &[libc::POSIX_FADV_DONTNEED as u32])]];

/// The type of a socket without its flags.
const SOCKET_TYPE: u32 = 0xf;
const ORDINARY_TYPES: &[u32] =
    &[libc::SOCK_STREAM as u32, libc::SOCK_DGRAM as u32, libc::SOCK_SEQPACKET as u32];
const UNIX_SOCKET: &[Condition] =
    &[when(0, &[libc::AF_UNIX as u32]), when_masked(1, SOCKET_TYPE, ORDINARY_TYPES), when(2, &[0])];
/// Inet sockets reach the sandbox's own loopback only: its network namespace has nothing else. No raw ones, none of
/// the rarer protocols (SCTP, MPTCP, ICMP), whose code is seldom looked at.
const INET_SOCKET: &[Condition] = &[
    when(0, &[libc::AF_INET as u32, libc::AF_INET6 as u32]),
    when_masked(1, SOCKET_TYPE, &[libc::SOCK_STREAM as u32, libc::SOCK_DGRAM as u32]),
    when(2, &[0, libc::IPPROTO_TCP as u32, libc::IPPROTO_UDP as u32]),
];

/// Options of sockets that programs set: `asyncio`, Node, `ZeroMQ`, databases and web servers on the loopback. All others are
/// refused, as by a kernel that lacks them. Filters (`SO_ATTACH_FILTER` and its relatives) are compiled into memory of the
/// host that no cgroup counts, and without which no sandbox can install its own filter. Multicast groups are uncounted too.
/// Errors that wait to be read (`IP_RECVERR`) take up to 240 KB for each socket, which no cgroup counts.
/// Timestamps switch on code in the host's own packet path. `TCP_ULP` and `TCP_CONGESTION` load other protocols.
const SOCKET_OPTIONS: &[&[Condition]] = &[
    &[
        when(1, &[libc::SOL_SOCKET as u32]),
        when(
            2,
            &[
                libc::SO_REUSEADDR as u32,
                libc::SO_REUSEPORT as u32,
                libc::SO_KEEPALIVE as u32,
                libc::SO_SNDBUF as u32,
                libc::SO_RCVBUF as u32,
                libc::SO_RCVLOWAT as u32,
                libc::SO_RCVTIMEO as u32,
                libc::SO_SNDTIMEO as u32,
                libc::SO_LINGER as u32,
                libc::SO_BROADCAST as u32,
                libc::SO_OOBINLINE as u32,
                libc::SO_DONTROUTE as u32,
                libc::SO_PRIORITY as u32,
                libc::SO_PASSCRED as u32,
                libc::SO_PEEK_OFF as u32,
            ],
        ),
    ],
    &[
        when(1, &[libc::IPPROTO_TCP as u32]),
        when(
            2,
            &[
                libc::TCP_NODELAY as u32,
                libc::TCP_MAXSEG as u32,
                libc::TCP_CORK as u32,
                libc::TCP_KEEPIDLE as u32,
                libc::TCP_KEEPINTVL as u32,
                libc::TCP_KEEPCNT as u32,
                libc::TCP_SYNCNT as u32,
                libc::TCP_LINGER2 as u32,
                libc::TCP_DEFER_ACCEPT as u32,
                libc::TCP_WINDOW_CLAMP as u32,
                libc::TCP_QUICKACK as u32,
                libc::TCP_USER_TIMEOUT as u32,
                libc::TCP_NOTSENT_LOWAT as u32,
            ],
        ),
    ],
    &[
        when(1, &[libc::IPPROTO_IP as u32]),
        when(
            2,
            &[
                libc::IP_TOS as u32,
                libc::IP_TTL as u32,
                libc::IP_PKTINFO as u32,
                libc::IP_MTU_DISCOVER as u32,
                libc::IP_RECVTTL as u32,
                libc::IP_RECVTOS as u32,
                libc::IP_BIND_ADDRESS_NO_PORT as u32,
                libc::IP_MULTICAST_IF as u32,
                libc::IP_MULTICAST_TTL as u32,
                libc::IP_MULTICAST_LOOP as u32,
            ],
        ),
    ],
    &[
        when(1, &[libc::IPPROTO_IPV6 as u32]),
        when(
            2,
            &[
                libc::IPV6_V6ONLY as u32,
                libc::IPV6_UNICAST_HOPS as u32,
                libc::IPV6_TCLASS as u32,
                libc::IPV6_RECVTCLASS as u32,
                libc::IPV6_RECVPKTINFO as u32,
                libc::IPV6_MTU_DISCOVER as u32,
                libc::IPV6_RECVHOPLIMIT as u32,
                libc::IPV6_MULTICAST_IF as u32,
                libc::IPV6_MULTICAST_HOPS as u32,
                libc::IPV6_MULTICAST_LOOP as u32,
            ],
        ),
    ],
];

/// Terminals and descriptors; not `TIOCSTI` (typing into somebody's terminal), not the thousands of driver commands.
const IOCTLS: &[Condition] = &[when(
    1,
    &[
        libc::TCGETS as u32,
        libc::TCSETS as u32,
        libc::TCSETSW as u32,
        libc::TCSETSF as u32,
        0x802c_542a, // TCGETS2
        0x402c_542b, // TCSETS2
        0x402c_542c, // TCSETSW2
        0x402c_542d, // TCSETSF2
        libc::TCFLSH as u32,
        libc::TIOCGWINSZ as u32,
        libc::TIOCSWINSZ as u32,
        libc::TIOCGPGRP as u32,
        libc::TIOCSPGRP as u32,
        libc::TIOCGSID as u32,
        libc::TIOCSCTTY as u32,
        libc::TIOCNOTTY as u32,
        libc::TIOCOUTQ as u32,
        0x8004_5430, // TIOCGPTN: the number of a pseudo-terminal
        0x4004_5431, // TIOCSPTLCK: unlocking it
        0x5441,      // TIOCGPTPEER: opening its other end
        libc::FIONREAD as u32,
        libc::FIONBIO as u32,
        libc::FIOCLEX as u32,
        libc::FIONCLEX as u32,
        libc::FIOASYNC as u32,
        0x8008_6601, // FS_IOC_GETFLAGS: cp and ls ask
    ],
)];

/// Asking and setting what is harmless about oneself.
const PRCTLS: &[Condition] = &[when(
    0,
    &[
        libc::PR_SET_PDEATHSIG as u32,
        libc::PR_GET_PDEATHSIG as u32,
        libc::PR_GET_DUMPABLE as u32,
        libc::PR_SET_DUMPABLE as u32,
        libc::PR_SET_NAME as u32,
        libc::PR_GET_NAME as u32,
        libc::PR_GET_SECCOMP as u32,
        libc::PR_CAPBSET_READ as u32,
        libc::PR_GET_SECUREBITS as u32,
        libc::PR_GET_KEEPCAPS as u32,
        libc::PR_SET_TIMERSLACK as u32,
        libc::PR_GET_TIMERSLACK as u32,
        libc::PR_SET_CHILD_SUBREAPER as u32,
        libc::PR_GET_CHILD_SUBREAPER as u32,
        libc::PR_SET_NO_NEW_PRIVS as u32,
        libc::PR_GET_NO_NEW_PRIVS as u32,
        libc::PR_GET_THP_DISABLE as u32,
        libc::PR_SET_THP_DISABLE as u32,
        libc::PR_CAP_AMBIENT as u32,
        libc::PR_GET_SPECULATION_CTRL as u32,
        0x5356_4d41, // PR_SET_VMA: naming memory regions, as allocators do
    ],
)];

/// Asking for the personality, and the ordinary one; not the switch that turns address randomisation off.
const PERSONALITIES: &[Condition] = &[when(0, &[0, u32::MAX])];

/// FIFOs, sockets and plain files; the kernel refuses devices here anyway.
const NODE_KINDS: &[u32] = &[0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK];
const MKNODAT: &[Condition] = &[when_masked(2, libc::S_IFMT, NODE_KINDS)];
#[cfg(target_arch = "x86_64")]
const MKNOD: &[Condition] = &[when_masked(1, libc::S_IFMT, NODE_KINDS)];
#[cfg(target_arch = "x86_64")]
const ARCH_PRCTLS: &[Condition] =
    &[when(0, &[0x1001, 0x1002, 0x1003, 0x1004, 0x3001, 0x5001, 0x5003, 0x5004])];

/// In the upper half of an exit code, where the kernel ignores it: the program of a sandbox that waited says that it leaves
/// for good, with everything written out. Whoever else says so only ends its own run sooner.
pub const LEAVING: u32 = 0x5eda_0000;
pub(crate) const LEAVING_MASK: u32 = 0xffff_0000;
const NOT_LEAVING: &[&[Condition]] =
    &[&[Condition { negated: true, argument: 0, half: Half::Low, mask: LEAVING_MASK, one_of: &[LEAVING] }]];

/// The rules for a process whose leave is asked for: the same, but that such an end is held.
pub fn rules_with_leave() -> Vec<Rule> {
    let mut rules = rules();
    rules.retain(|rule| rule.number != libc::SYS_exit_group as u32);
    rules.push(rule("SYS_exit_group", libc::SYS_exit_group, NOT_LEAVING, Some(Refusal::Ask)));
    rules
}

/// What the init of a sandbox that waited still does once it has given up its rights: hear, tell, wait, free memory, leave.
const INIT: &[Named] = calls!(
    SYS_recvmsg SYS_recvfrom SYS_sendmsg SYS_sendto SYS_wait4 SYS_close SYS_exit SYS_exit_group
    SYS_brk SYS_munmap SYS_madvise SYS_rt_sigreturn SYS_restart_syscall
);

/// The rules for such an init.
pub fn rules_for_init() -> Vec<Rule> {
    INIT.iter().map(|&(name, number)| rule(name, number, &[], None)).collect()
}

/// What a process does that reads a text and says what is in it: memory, its two pipes, its end.
const READER: &[Named] = calls!(
    SYS_read SYS_write SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_futex
    SYS_rt_sigprocmask SYS_rt_sigaction SYS_rt_sigreturn SYS_sigaltstack SYS_restart_syscall
    SYS_getpid SYS_gettid SYS_tgkill SYS_exit SYS_exit_group SYS_clock_gettime SYS_getrandom
);

/// The rules for such a process. Whatever else it tries is its end: nothing honest in it does.
pub fn rules_for_reader() -> Vec<Rule> {
    let mut rules: Vec<_> = rules()
        .into_iter()
        .map(|rule| Rule { allowed_if: &[], refusal: Some(Refusal::Kill), ..rule })
        .collect();
    for &(name, number) in READER {
        rules.retain(|rule| rule.name != name);
        rules.push(rule(name, number, &[], None));
    }
    rules
}

/// All rules, in no particular order.
pub fn rules() -> Vec<Rule> {
    let mut rules = Vec::with_capacity(400);
    let mut add = |calls: &[Named], refusal: Option<Refusal>| {
        rules.extend(calls.iter().map(|&(name, number)| rule(name, number, &[], refusal)));
    };
    for allowed in [RUNNING, PROCESSES, LANDLOCK, FILES, WAITING, OLD_NAMES] {
        add(allowed, None);
    }
    for refused in [
        REFUSED_MOUNTS,
        REFUSED_NAMESPACES,
        REFUSED_PEEKING,
        REFUSED_BY_HANDLE,
        REFUSED_SURFACE,
        REFUSED_MACHINE,
        REFUSED_X86,
    ] {
        add(refused, Some(Refusal::FORBIDDEN));
    }
    // Its flags are in memory, where a filter can't look; on ENOSYS glibc goes back to `clone`.
    add(calls!(SYS_clone3), Some(Refusal::Errno(libc::ENOSYS)));
    // The same: `RESOLVE_CACHED` would tell which files of the host are in memory. Programs go back to `openat`.
    add(calls!(SYS_openat2), Some(Refusal::Errno(libc::ENOSYS)));
    // Would make the host's disks flush, also through the runtime's files. Told that it is done, which is true of all
    // that can be written in here: it is in memory.
    let flushing = calls!(SYS_sync SYS_syncfs SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_msync);
    add(flushing, Some(Refusal::Errno(0)));
    for watches in [REFUSED_WATCHES, REFUSED_OLD_WATCHES] {
        add(watches, Some(Refusal::Errno(libc::ENOSYS)));
    }
    add(REFUSED_ATTRIBUTES, Some(Refusal::Errno(libc::EOPNOTSUPP)));
    let forbidden = Some(Refusal::FORBIDDEN);
    rules.push(rule("SYS_clone", libc::SYS_clone, CLONE, forbidden));
    rules.push(rule("SYS_mmap", libc::SYS_mmap, NO_HUGE_MMAP, Some(Refusal::Errno(libc::ENOMEM))));
    rules.push(rule("SYS_shmget", libc::SYS_shmget, NO_HUGE_SHM, Some(Refusal::Errno(libc::ENOMEM))));
    rules.push(rule(
        "SYS_memfd_create",
        libc::SYS_memfd_create,
        NO_HUGE_MEMFD,
        Some(Refusal::Errno(libc::EINVAL)),
    ));
    rules.push(rule("SYS_madvise", libc::SYS_madvise, NO_MERGING, Some(Refusal::Errno(libc::EINVAL))));
    rules.push(rule("SYS_fcntl", libc::SYS_fcntl, &[FCNTLS], Some(Refusal::Errno(libc::EINVAL))));
    rules.push(rule("SYS_prlimit64", libc::SYS_prlimit64, PRLIMIT, forbidden));
    for (name, number) in [
        ("SYS_sched_setaffinity", libc::SYS_sched_setaffinity),
        ("SYS_sched_setparam", libc::SYS_sched_setparam),
        ("SYS_sched_setscheduler", libc::SYS_sched_setscheduler),
        ("SYS_sched_setattr", libc::SYS_sched_setattr),
    ] {
        rules.push(rule(name, number, NOT_INIT, forbidden));
    }
    rules.push(rule("SYS_setpriority", libc::SYS_setpriority, SETPRIORITY, forbidden));
    let unsupported = Some(Refusal::Errno(libc::EOPNOTSUPP));
    rules.push(rule("SYS_preadv2", libc::SYS_preadv2, NO_PEEKING_AT_THE_CACHE, unsupported));
    rules.push(rule("SYS_pwritev2", libc::SYS_pwritev2, NO_PEEKING_AT_THE_CACHE, unsupported));
    rules.push(rule("SYS_fadvise64", libc::SYS_fadvise64, NO_EVICTING, Some(Refusal::Errno(0))));
    rules.push(rule("SYS_setrlimit", libc::SYS_setrlimit, SETRLIMIT, forbidden));
    rules.push(rule("SYS_socket", libc::SYS_socket, &[UNIX_SOCKET, INET_SOCKET], forbidden));
    rules.push(rule("SYS_socketpair", libc::SYS_socketpair, &[UNIX_SOCKET], forbidden));
    let unknown_option = Some(Refusal::Errno(libc::ENOPROTOOPT));
    rules.push(rule("SYS_setsockopt", libc::SYS_setsockopt, SOCKET_OPTIONS, unknown_option));
    rules.push(rule("SYS_ioctl", libc::SYS_ioctl, &[IOCTLS], Some(Refusal::Errno(libc::ENOTTY))));
    rules.push(rule("SYS_kill", libc::SYS_kill, NOT_EVERYBODY, forbidden));
    rules.push(rule("SYS_prctl", libc::SYS_prctl, &[PRCTLS], Some(Refusal::Errno(libc::EINVAL))));
    rules.push(rule("SYS_personality", libc::SYS_personality, &[PERSONALITIES], forbidden));
    rules.push(rule("SYS_mknodat", libc::SYS_mknodat, &[MKNODAT], forbidden));
    #[cfg(target_arch = "x86_64")]
    {
        rules.push(rule("SYS_mknod", libc::SYS_mknod, &[MKNOD], forbidden));
        rules.push(rule(
            "SYS_arch_prctl",
            libc::SYS_arch_prctl,
            &[ARCH_PRCTLS],
            Some(Refusal::Errno(libc::EINVAL)),
        ));
    }
    rules
}

fn rule(
    name: &'static str,
    number: c_long,
    allowed_if: &'static [&'static [Condition]],
    refusal: Option<Refusal>,
) -> Rule {
    Rule { name, number: u32::try_from(number).unwrap_or(u32::MAX), allowed_if, refusal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_has_two_rules() {
        let mut rules = rules();
        rules.sort_by_key(|rule| rule.number);
        for pair in rules.windows(2) {
            assert_ne!(pair[0].number, pair[1].number, "{} and {}", pair[0].name, pair[1].name);
        }
    }
}
