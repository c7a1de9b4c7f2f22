//! System calls that rustix does not offer, each behind a safe function.
//!
//! Everything here may be called between clone and exec: no allocation, no locks, no libc state beyond errno.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "system calls take and give plain words, whose meaning is told beside each call"
)]

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::process::Pid;

fn checked(result: c_long) -> Result<c_long, Errno> {
    if result == -1 {
        // SAFETY: glibc's errno location is valid for the life of the thread.
        Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    } else {
        Ok(result)
    }
}

/// Which side of a clone this is.
#[derive(Debug)]
pub(crate) enum Cloned {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child,
}

static IS_COPY: AtomicBool = AtomicBool::new(false);

/// Whether this process is a copy that was made here. One that panics must not unwind: above it is what belongs to the
/// original, and would be cleaned up.
pub(crate) fn is_copy() -> bool {
    IS_COPY.load(Ordering::Relaxed)
}

/// `clone3` without shared memory: a fork into new namespaces and, on cgroup v2, right into a cgroup.
///
/// The child is a copy of this process with this one thread; until it execs it may only make system calls, as after
/// `fork` in a threaded program. The callers in this crate keep to that: `enter.rs` and `init.rs` neither allocate
/// nor lock.
pub(crate) fn clone_into(namespaces: c_int, cgroup: Option<BorrowedFd<'_>>) -> Result<Cloned, Errno> {
    let mut pidfd: c_int = -1;
    // SAFETY: clone_args is plain integers, for which all zeroes is valid.
    let mut args: libc::clone_args = unsafe { zeroed() };
    args.flags = u64::from((namespaces | libc::CLONE_PIDFD) as u32);
    args.pidfd = ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(fd) = cgroup {
        args.flags |= 0x2_0000_0000; // CLONE_INTO_CGROUP
        args.cgroup = fd.as_raw_fd() as u64;
    }
    // SAFETY: args outlives the call and its size is passed along; no CLONE_VM, so the child has its own memory and
    // this function's frame is copied, not shared.
    let pid =
        checked(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) })?;
    match Pid::from_raw(pid as i32) {
        None => {
            IS_COPY.store(true, Ordering::Relaxed);
            Ok(Cloned::Child)
        }
        Some(pid) => {
            // SAFETY: on success the kernel has stored a new descriptor in `pidfd`, owned by nobody else.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Cloned::Parent { pid, pidfd })
        }
    }
}

/// A plain fork by system call: no atfork handlers run, so it is safe after [`clone_into`]. `None` in the child.
pub(crate) fn fork() -> Result<Option<Pid>, Errno> {
    const NONE: c_long = 0;
    // SAFETY: without CLONE_VM this is fork; a null stack means a copy of the caller's. The argument order differs
    // between architectures only in the last two, both null here.
    let pid = checked(unsafe {
        libc::syscall(libc::SYS_clone, c_long::from(libc::SIGCHLD), NONE, NONE, NONE, NONE)
    })?;
    if pid == 0 {
        IS_COPY.store(true, Ordering::Relaxed);
    }
    Ok(Pid::from_raw(pid as i32))
}

/// A fork with the C library's own handlers, for a copy that goes on as what it is: those of libraries that keep threads,
/// locks or random numbers. `None` in the child.
pub(crate) fn fork_with_handlers() -> Result<Option<Pid>, Errno> {
    // SAFETY: the caller has a single thread, so that no lock is held by one that the copy lacks.
    let pid = checked(c_long::from(unsafe { libc::fork() }))?;
    Ok(Pid::from_raw(pid as i32))
}

/// Where glibc keeps a thread's number, from the start of what `pthread_self` points to (x86-64).
const TID_OFFSET: usize = 720;

/// `fork`, with a child that is this process's sibling: its parent's child, for whom nobody here can wait. With several
/// threads it is an ordinary child, since only the C library's own `fork` puts its locks in order.
pub(crate) fn fork_beside() -> Result<Option<Pid>, Errno> {
    const NONE: c_long = 0;
    if !is_single_threaded() {
        // SAFETY: the copy makes system calls only until it is woken; what then may be locked for good is its own risk.
        let pid = checked(c_long::from(unsafe { libc::fork() }))?;
        return Ok(Pid::from_raw(pid as i32));
    }
    let before = rustix::thread::gettid().as_raw_nonzero().get();
    let flags = c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: as in `fork`.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, flags, NONE, NONE, NONE, NONE) })?;
    if pid == 0 && cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
        let now = rustix::thread::gettid().as_raw_nonzero().get();
        // SAFETY: the thread's own descriptor, which is larger than this; it is changed only if it holds the number that this
        // thread had until a moment ago, which the C library's `fork` would have replaced too.
        unsafe {
            let place = (libc::pthread_self() as usize + TID_OFFSET) as *mut c_int;
            if place.read() == before {
                place.write(now);
            }
        }
    }
    Ok(Pid::from_raw(pid as i32))
}

/// How ended children go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaping {
    /// When somebody waits for them, as usual.
    ByWaiting,
    /// By themselves.
    AtOnce,
}

pub(crate) fn reap_children(reaping: Reaping) -> Result<(), Errno> {
    // SAFETY: sigaction is plain data, for which all zeroes is valid: the default action, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    if reaping == Reaping::AtOnce {
        action.sa_flags = libc::SA_NOCLDWAIT;
    }
    // SAFETY: the action outlives the call, and the old one is not asked for.
    checked(c_long::from(unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, ptr::null_mut()) }))?;
    Ok(())
}

/// A stack for [`spawn_borrowing`], in memory that is touched only as far as it is used.
#[derive(Debug)]
pub(crate) struct Stack(std::cell::UnsafeCell<Vec<u8>>);

impl Stack {
    const SIZE: usize = 256 << 10;

    pub(crate) fn new() -> Self {
        Self(std::cell::UnsafeCell::new(vec![0; Self::SIZE]))
    }

    /// One past its end, aligned as calls need it: stacks grow down.
    fn top(&self) -> *mut c_void {
        let base = self.0.get();
        // SAFETY: nobody else borrows the vector, which is never resized; the result stays within or one past it.
        let end = unsafe { (*base).as_mut_ptr().add(Self::SIZE) };
        end.wrapping_sub(end as usize % 16).cast()
    }
}

/// Starts a process that shares this one's memory until it execs or exits, while this one waits: `vfork`, on a stack of
/// its own. Nothing is copied, and what `run` writes to `argument` can be read afterwards.
pub(crate) fn spawn_borrowing<T>(
    stack: &Stack,
    run: extern "C" fn(*mut c_void) -> c_int,
    argument: &mut T,
) -> Result<Pid, Errno> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is used by the child alone and large enough for it; this process is suspended meanwhile, so the
    // borrow of `argument` is not aliased; `run` takes a pointer to a `T`, as its callers in this crate see to, and ends
    // in exec or exit.
    let pid = unsafe { libc::clone(run, stack.top(), flags, ptr::from_mut(argument).cast()) };
    Pid::from_raw(checked(c_long::from(pid))? as i32).ok_or(Errno::CHILD)
}

/// The argument of a function started by [`spawn_borrowing`], by the type that it was given with.
pub(crate) fn borrowed_argument<'a, T>(argument: *mut c_void) -> &'a mut T {
    // SAFETY: only called in such a function, on the pointer that it got, with the type that its starter used.
    unsafe { &mut *argument.cast() }
}

/// A process that runs beside this one, with the same descriptors, until it is waited for.
#[derive(Debug)]
pub(crate) struct Beside {
    pid: c_int,
}

/// Starts one, on another of these processors than this one's. It has its own copy of memory, its own working folder, namespaces and rights; `run` gives its exit code.
///
/// Not in the same memory: on Linux 6.1 programs then had init's score for when memory runs out (docs/performance.md).
pub(crate) fn spawn_beside(
    run: impl FnOnce() -> c_int,
    processors: Option<Processors>,
) -> Result<Beside, Errno> {
    const NONE: c_long = 0;
    // No signal at its end, which somebody who ignores SIGCHLD would never hear of.
    let flags = c_long::from(libc::CLONE_FILES);
    // SAFETY: as in `fork`.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, flags, NONE, NONE, NONE, NONE) })?;
    let Some(other) = Pid::from_raw(pid as i32) else {
        IS_COPY.store(true, Ordering::Relaxed);
        exit_now(run())
    };
    if let Some(processors) = processors {
        processors.without_this().give_to(other);
    }
    Ok(Beside { pid: pid as c_int })
}

impl Beside {
    /// Waits for its end. Its exit code, if it had one; the first time only.
    pub(crate) fn join(&mut self) -> Option<i32> {
        let pid = std::mem::take(&mut self.pid);
        if pid == 0 {
            return None;
        }
        let mut status = 0;
        loop {
            // SAFETY: the status outlives the call.
            match checked(c_long::from(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) })) {
                Err(Errno::INTR) => {}
                Ok(_) if libc::WIFEXITED(status) => return Some(libc::WEXITSTATUS(status)),
                Ok(_) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.join();
    }
}

/// Processors that a process may run on.
#[derive(Clone, Copy)]
pub(crate) struct Processors(libc::cpu_set_t);

impl Processors {
    const SIZE: usize = size_of::<libc::cpu_set_t>();

    pub(crate) fn of_this_process() -> Option<Self> {
        // SAFETY: the set is plain bits, for which all zeroes is valid, and outlives the call, its size passed along.
        unsafe {
            let mut set: libc::cpu_set_t = zeroed();
            (libc::sched_getaffinity(0, Self::SIZE, &raw mut set) == 0).then_some(Self(set))
        }
    }

    /// Without the one that this process runs on, for a process that it has made: that often waits behind it, also when
    /// another processor is idle a moment later. All, if there is no other.
    pub(crate) fn without_this(mut self) -> Self {
        let all = self;
        // SAFETY: the number is checked against the set's size.
        unsafe {
            let here = usize::try_from(libc::sched_getcpu()).unwrap_or(usize::MAX);
            if here < Self::SIZE * 8 {
                libc::CPU_CLR(here, &mut self.0);
            }
            if libc::CPU_COUNT(&self.0) > 0 { self } else { all }
        }
    }

    /// Lets a process run on these only. If that can't be, it runs where it may.
    pub(crate) fn give_to(&self, pid: Pid) {
        let pid = pid.as_raw_nonzero().get();
        // SAFETY: the set outlives the call, its size passed along.
        unsafe { libc::sched_setaffinity(pid, Self::SIZE, &raw const self.0) };
    }
}

impl std::fmt::Debug for Processors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: counts the bits of a set.
        write!(f, "{} processors", unsafe { libc::CPU_COUNT(&self.0) })
    }
}

/// The network namespace that a socket is in.
pub(crate) fn network_of(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const SIOCGSKNS: c_long = 0x894c;
    // SAFETY: takes no argument, and gives a new descriptor.
    let fd = checked(c_long::from(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS as _) }))?;
    // SAFETY: it is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Bytes that were sent on a Unix socket and that its other end has not read.
pub(crate) fn unread_bytes(socket: BorrowedFd<'_>) -> Result<c_int, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: Linux writes one int, which outlives the call.
    checked(c_long::from(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ as _, &raw mut bytes) }))?;
    Ok(bytes)
}

/// Moves this process into the namespace that a descriptor stands for, which must be of this kind.
pub(crate) fn enter_namespace(namespace: BorrowedFd<'_>, kind: c_int) -> Result<(), Errno> {
    // SAFETY: the callers have one thread.
    checked(c_long::from(unsafe { libc::setns(namespace.as_raw_fd(), kind) }))?;
    Ok(())
}

/// Moves this process into new namespaces.
pub(crate) fn unshare(namespaces: c_int) -> Result<(), Errno> {
    // SAFETY: the callers have one thread and pass namespace flags only, which share no memory or descriptors away.
    checked(c_long::from(unsafe { libc::unshare(namespaces) }))?;
    Ok(())
}

/// Leaves at once, without exit handlers: those belong to the process this one was cloned from.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Null-terminated pointers to C strings, as `execve` wants them. Borrows the strings.
#[derive(Debug)]
pub(crate) struct StringPointers<'a> {
    pointers: Vec<*const c_char>,
    _strings: std::marker::PhantomData<&'a CStr>,
}

impl<'a> StringPointers<'a> {
    pub(crate) fn new(strings: impl Iterator<Item = &'a CStr>) -> Self {
        let pointers = strings.map(CStr::as_ptr).chain([ptr::null()]).collect();
        Self { pointers, _strings: std::marker::PhantomData }
    }
}

/// Replaces this process. Returns only if that failed.
pub(crate) fn exec(path: &CStr, argv: &StringPointers<'_>, envp: &StringPointers<'_>) -> Errno {
    // SAFETY: both arrays end with a null pointer and borrow strings that live at least as long as they do.
    let result = unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), envp.pointers.as_ptr()) };
    checked(c_long::from(result)).err().unwrap_or(Errno::IO)
}

/// `mount_setattr`: adds attributes to a mount and, if `recursive`, to all mounts below it.
pub(crate) fn add_mount_attributes(
    mount: BorrowedFd<'_>,
    attributes: u64,
    recursive: bool,
) -> Result<(), Errno> {
    // SAFETY: mount_attr is plain integers, for which all zeroes is valid.
    let mut attr: libc::mount_attr = unsafe { zeroed() };
    attr.attr_set = attributes;
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static C string and attr outlives the call, its size passed along.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Cuts all mounts of this namespace off from the host's: nothing propagates either way.
pub(crate) fn make_mounts_private() -> Result<(), Errno> {
    // SAFETY: null source, type and data are what a propagation change takes.
    checked(c_long::from(unsafe {
        libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), libc::MS_REC | libc::MS_PRIVATE, ptr::null())
    }))?;
    Ok(())
}

/// Closes every descriptor from 3 up but those in `keep`, which must be sorted.
pub(crate) fn close_all_but(keep: &[RawFd]) -> Result<(), Errno> {
    let mut first: u32 = 3;
    for &fd in keep {
        let fd = fd as u32;
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = first.max(fd + 1);
    }
    close_range(first, u32::MAX)
}

/// Marks every descriptor from 3 up to be closed by the next exec.
pub(crate) fn close_all_on_exec() -> Result<(), Errno> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: sets a flag on descriptors, closes none.
    checked(unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, CLOSE_RANGE_CLOEXEC) })?;
    Ok(())
}

fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: closing descriptors is only unsound where an owner still uses them; the callers are freshly cloned
    // processes that use nothing but the descriptors they keep.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
    Ok(())
}

/// Puts `fd` at the number `target` (0, 1 or 2), inheritable.
pub(crate) fn place_fd(fd: RawFd, target: RawFd) -> Result<(), Errno> {
    // SAFETY: the caller is about to exec and owns its low descriptors.
    checked(c_long::from(unsafe { libc::dup2(fd, target) }))?;
    Ok(())
}

/// A descriptor known by its number, for the calls that take one. The number must be open.
pub(crate) fn borrow(fd: &RawFd) -> BorrowedFd<'_> {
    // SAFETY: only called with numbers that the plan or this process opened and keeps open meanwhile.
    unsafe { BorrowedFd::borrow_raw(*fd) }
}

/// Every signal back to its default action and none blocked: a program must not inherit our ignored SIGPIPE.
pub(crate) fn reset_signals() -> Result<(), Errno> {
    for signal in 1..=64 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP || (32..=33).contains(&signal) {
            continue; // can't be changed; 32 and 33 are glibc's own
        }
        // SAFETY: SIG_DFL is always a valid action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    set_signal_mask(libc::SIG_SETMASK, &[])
}

fn set_signal_mask(how: c_int, signals: &[c_int]) -> Result<(), Errno> {
    let set = signal_set(signals);
    // SAFETY: the set is initialised and the old mask is not asked for.
    checked(c_long::from(unsafe { libc::sigprocmask(how, &raw const set, ptr::null_mut()) }))?;
    Ok(())
}

fn signal_set(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set; sigaddset only fails for numbers that are not signals.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// SIGINT, SIGTERM and SIGHUP as something to poll, so that a supervisor can clean up before it leaves.
#[derive(Debug)]
pub struct SignalPipe(OwnedFd);

impl SignalPipe {
    /// Blocks the three signals for this thread and opens a descriptor that they can be read from.
    pub fn block() -> Result<Self, Errno> {
        let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        set_signal_mask(libc::SIG_BLOCK, &signals)?;
        let set = signal_set(&signals);
        // SAFETY: the set is initialised; -1 asks for a new descriptor, which nobody else owns.
        unsafe {
            let fd = checked(c_long::from(libc::signalfd(
                -1,
                &raw const set,
                libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
            )))?;
            Ok(Self(OwnedFd::from_raw_fd(fd as RawFd)))
        }
    }

    /// The number of the signal that came, if one did.
    pub fn take(&self) -> Option<i32> {
        let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.0, &mut record).ok()?;
        (read == record.len()).then(|| i32::from_ne_bytes([record[0], record[1], record[2], record[3]]))
    }
}

impl Drop for SignalPipe {
    /// From here on the signals do again what they usually do.
    fn drop(&mut self) {
        let _ = set_signal_mask(libc::SIG_UNBLOCK, &[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    }
}

impl AsFd for SignalPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Marks the loopback device of this network namespace as up. Gives the socket that was needed for it.
pub(crate) fn loopback_up() -> Result<OwnedFd, Errno> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: ifreq is integers and byte arrays, for which all zeroes is valid; "lo" fits its name.
    let mut request: libc::ifreq = unsafe { zeroed() };
    request.ifr_name[0] = b'l' as c_char;
    request.ifr_name[1] = b'o' as c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which outlives the call.
    checked(c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request)
    }))?;
    Ok(socket)
}

/// Installs a seccomp filter for this thread and what it will start.
pub(crate) fn install_seccomp(filter: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, which lives until after the call; it does not write to it.
    checked(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    })?;
    Ok(())
}

/// The same, with a descriptor on which the calls that the filter asks about are heard. Once heard, a call can be
/// interrupted by nothing but death (Linux 5.19).
pub(crate) fn install_seccomp_with_listener(filter: &[libc::sock_filter]) -> Result<OwnedFd, Errno> {
    const NEW_LISTENER: c_long = 1 << 3;
    const WAIT_KILLABLE_RECV: c_long = 1 << 5;
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?,
        filter: filter.as_ptr().cast_mut(),
    };
    let flags = NEW_LISTENER | WAIT_KILLABLE_RECV;
    // SAFETY: the kernel copies the program, which lives until after the call; it does not write to it.
    let fd = checked(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    })?;
    // SAFETY: the call gave a new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A call that a filter asks about.
pub(crate) fn receive_notice(listener: BorrowedFd<'_>) -> Result<libc::seccomp_notif, Errno> {
    // SAFETY: plain integers, for which all zeroes is valid; the kernel wants it so.
    let mut notice: libc::seccomp_notif = unsafe { zeroed() };
    // SAFETY: the kernel fills in the structure that this request is for.
    checked(c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut notice)
    }))?;
    Ok(notice)
}

/// Lets such a call happen.
pub(crate) fn answer_notice(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    const CONTINUE: u32 = 1;
    // SAFETY: plain integers, for which all zeroes is valid.
    let mut answer: libc::seccomp_notif_resp = unsafe { zeroed() };
    answer.id = id;
    answer.flags = CONTINUE;
    // SAFETY: the kernel reads the structure that this request is for.
    checked(c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut answer)
    }))?;
    Ok(())
}

/// The bare call, which comes back only if a filter answers in the kernel's place.
pub(crate) fn exit_group(code: u32) {
    // SAFETY: no memory is passed; if it does not come back, nothing is left to be unsound.
    unsafe { libc::syscall(libc::SYS_exit_group, c_long::from(code)) };
}

/// Whether this kernel knows a seccomp action (`SECCOMP_RET_…`).
pub(crate) fn seccomp_has_action(action: u32) -> bool {
    // SAFETY: the kernel reads one u32, which outlives the call.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

/// The argument of `landlock_create_ruleset`, up to ABI 6.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LandlockRuleset {
    pub(crate) handled_access_fs: u64,
    pub(crate) handled_access_net: u64,
    pub(crate) scoped: u64,
}

#[repr(C, packed)]
struct LandlockPathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

pub(crate) fn landlock_abi() -> Result<u32, Errno> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the kernel takes no attribute and only answers.
    let abi = checked(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<c_void>(), 0usize, VERSION)
    })?;
    Ok(abi as u32)
}

/// `size` is how much of the attribute this kernel's ABI knows.
pub(crate) fn landlock_create(ruleset: LandlockRuleset, size: usize) -> Result<OwnedFd, Errno> {
    // SAFETY: size is at most the attribute's own, and the attribute outlives the call.
    let fd = checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            size.min(size_of::<LandlockRuleset>()),
            0,
        )
    })?;
    // SAFETY: the call gave a new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

pub(crate) fn landlock_allow_beneath(
    ruleset: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    access: u64,
) -> Result<(), Errno> {
    const PATH_BENEATH: u32 = 1;
    let rule = LandlockPathBeneath { allowed_access: access, parent_fd: parent.as_raw_fd() };
    // SAFETY: the rule has the packed layout that the kernel reads, and outlives the call.
    checked(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const rule, 0)
    })?;
    Ok(())
}

pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>, flags: u32) -> Result<(), Errno> {
    // SAFETY: no pointers.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), flags) })?;
    Ok(())
}

/// Locks one byte of a file for this open file description (or lets go of it), so that closing its last copy, in
/// whichever process, lets go too. `false` if somebody else holds it.
pub(crate) fn lock_byte(file: BorrowedFd<'_>, offset: i64, hold: bool) -> Result<bool, Errno> {
    // SAFETY: flock is plain integers, for which all zeroes is valid.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = if hold { libc::F_WRLCK } else { libc::F_UNLCK } as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = offset;
    lock.l_len = 1;
    // SAFETY: the lock description outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    match checked(c_long::from(result)) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Gives memory back to the host that this process has freed. The C library keeps it otherwise, in a heap for each thread, and
/// these heaps grow slowly for as long as a server lives.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and the library locks its own heaps.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Linux lets the calling thread run sooner when it wakes, for shorter turns: of the threads with the same right to a
/// processor, the one with the shorter turn goes first. Copies of the thread get ordinary turns. Before Linux 6.12 this
/// changes nothing, and where it is refused, nothing is lost but the time.
pub fn take_short_turns() {
    const RESET_ON_FORK: u64 = 1;
    const TURN_NANOSECONDS: u64 = 200_000;
    // SAFETY: the structure is plain numbers; zero is a value of each.
    let mut attributes: libc::sched_attr = unsafe { zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_flags = RESET_ON_FORK;
    attributes.sched_runtime = TURN_NANOSECONDS;
    // SAFETY: the structure outlives the call and tells its own size; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Whether this process has one thread only, so that a clone of it is a whole copy.
pub fn is_single_threaded() -> bool {
    // The folder of its threads has one more link for each; to count what is in it takes several times as long.
    let links = rustix::fs::stat(c"/proc/self/task").map(|stat| stat.st_nlink);
    links == Ok(3) || std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Where the C library keeps what belongs to this thread.
pub(crate) fn thread_block() -> usize {
    // SAFETY: it has no conditions.
    unsafe { libc::pthread_self() as usize }
}

/// Gives memory back. What was there must not be used any more: of the callers that is the one that has nothing left to do but
/// to wait.
pub(crate) fn unmap(start: usize, length: usize) {
    // SAFETY: the caller's promise. What can't be unmapped stays.
    unsafe { libc::munmap(start as *mut c_void, length) };
}

/// What is open under a number, if anything is.
pub(crate) fn file_type(fd: RawFd) -> Option<rustix::fs::FileType> {
    // SAFETY: the number is looked at within this call only; if it is nobody's, the kernel says so.
    let borrowed = (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })?;
    rustix::fs::fstat(borrowed).ok().map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode))
}

/// Closes a descriptor by its number, in a cloned process that will not use it again.
pub(crate) fn close_number(fd: RawFd) {
    // SAFETY: the callers are cloned processes that end or exec without touching the owner of this number again.
    unsafe { libc::close(fd) };
}

/// For a process that must finish its work whoever asks it to leave politely.
pub(crate) fn ignore_polite_signals() -> Result<(), Errno> {
    set_signal_mask(
        libc::SIG_BLOCK,
        &[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE],
    )
}

/// As whom this thread deals with files; as whom it did before. With another uid than root's the kernel also takes root's
/// rights over files away, until it is root's again.
pub(crate) fn set_file_ids(uid: u32, gid: u32) -> (u32, u32) {
    // SAFETY: both take a number and give the one before; they can't fail in a way that matters to memory. Not through the C
    // library, which has no say in what a single thread is.
    let (gid, uid) = unsafe {
        (
            libc::syscall(libc::SYS_setfsgid, c_long::from(gid)),
            libc::syscall(libc::SYS_setfsuid, c_long::from(uid)),
        )
    };
    (uid as u32, gid as u32)
}
