"""Drives every system call that a sandbox may make, one family at a time, and holds what the kernel made for it.

`tests/tests/kernel_memory` runs it inside a sandbox: `finder.py list` prints a JSON list of families and the calls that
each covers; `finder.py FAMILY` makes as many objects as the limits permit (or the family's own cap), prints a line
`HOLDING count note`, and waits to be ended. Errors are part of the work: a call that is refused holds nothing.
"""
import array
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long

FAMILIES = {}
# Descriptors per process, below the limit of 1,024 that sandboxes have, and processes, below their 128.
FDS = 1000
PROCESSES = 16
# A family that takes longer holds less.
DEADLINE = time.monotonic() + 1.5


def family(name, *calls):
    def add(function):
        FAMILIES[name] = (calls, function)
        return function
    return add


def time_is_up():
    return time.monotonic() > DEADLINE


def until_refused(make, most):
    """Calls `make` until it is refused; how often it was not."""
    for number in range(most):
        if number % 64 == 0 and time_is_up():
            return number
        try:
            make(number)
        except (OSError, ValueError, MemoryError, OverflowError):
            return number
    return most


def spread(work, processes=PROCESSES, to_the_end=False):
    """Runs `work` in so many processes, which then wait; the sum of what they held."""
    total = 0
    for index in range(processes):
        if time_is_up() and not to_the_end:
            break
        ours, theirs = os.pipe()
        try:
            child = os.fork()
        except OSError:
            os.close(ours)
            os.close(theirs)
            break
        if child == 0:
            os.close(ours)
            try:
                count = work(index)
            except BaseException as error:  # noqa: B902: a child reports nothing but its count
                os.write(2, f"{error!r}\n".encode())
                count = 0
            os.write(theirs, struct.pack("q", count or 0))
            os.close(theirs)
            while True:
                signal.pause()
        os.close(theirs)
        said = os.read(ours, 8)
        total += struct.unpack("q", said)[0] if len(said) == 8 else 0
        os.close(ours)
    return total


def hold(kept, make):
    """A `make` for until_refused that keeps what it makes."""
    return lambda number: kept.append(make(number))


KEPT = []
# No family finds names that an earlier run has looked up.
UNIQUE = os.urandom(4).hex()


def many_descriptors(make, processes=PROCESSES, each=FDS):
    def work(index):
        return until_refused(hold(KEPT, make), each)
    return spread(work, processes)


# --- descriptors ---

@family("nothing")
def nothing():
    return 0


@family("eventfd", "eventfd2", "eventfd")
def eventfds():
    return many_descriptors(lambda number: os.eventfd(0))


@family("more descriptors than a sandbox may have", "eventfd2")
def too_many_descriptors():
    return many_descriptors(lambda number: os.eventfd(0), processes=100)


@family("timerfd", "timerfd_create", "timerfd_settime", "timerfd_gettime")
def timerfds():
    spec = (ctypes.c_long * 4)(0, 0, 3600, 0)

    def make(number):
        file = libc.timerfd_create(0, 0)
        if file < 0:
            raise OSError
        libc.timerfd_settime(file, 0, spec, None)
    return many_descriptors(make)


@family("signalfd", "signalfd4", "signalfd")
def signalfds():
    mask = (ctypes.c_ulong * 16)()
    mask[0] = 1 << 9

    def make(number):
        if libc.signalfd(-1, mask, 0) < 0:
            raise OSError
    return many_descriptors(make)


@family("epoll instances", "epoll_create1", "epoll_create")
def epolls():
    return many_descriptors(lambda number: select.epoll())


@family("epoll watches", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2")
def epoll_watches():
    def work(index):
        pipes = []
        until_refused(hold(pipes, lambda number: os.eventfd(0)), FDS // 2)
        instances = []

        def make(number):
            instance = select.epoll()
            instances.append(instance)
            for file in pipes:
                instance.register(file, select.EPOLLIN)
        count = until_refused(make, 60)
        KEPT.append((pipes, instances))
        return count * len(pipes)
    return spread(work, 8)


@family("pipes", "pipe2", "pipe")
def pipes():
    return many_descriptors(lambda number: os.pipe(), each=FDS // 2)


@family("pipes resized and filled", "splice", "tee", "write")
def pipes_resized():
    def work(index):
        def make(number):
            read, write = os.pipe()
            KEPT.append((read, write))
            try:
                fcntl.fcntl(write, 1031, 1 << 20)
            except OSError:
                pass
            os.set_blocking(write, False)
            try:
                while True:
                    os.write(write, bytes(65536))
            except BlockingIOError:
                pass
            other_read, other_write = os.pipe()
            KEPT.append((other_read, other_write))
            libc.tee(read, other_write, 65536, 2)
            libc.splice(read, None, other_write, None, 65536, 2)
        return until_refused(make, 60)
    return spread(work, 8)


@family("files opened", "openat", "open", "creat", "close", "close_range", "dup", "dup2", "dup3", "fcntl")
def files_opened():
    open("many", "w").close()
    return many_descriptors(lambda number: os.open("many", os.O_RDWR))


@family("descriptors with an owner and a signal", "fcntl")
def owners():
    def make(number):
        ours, theirs = socket.socketpair()
        KEPT.append((ours, theirs))
        for one in (ours, theirs):
            fcntl.fcntl(one, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(one, 10, signal.SIGIO)
            fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    return many_descriptors(make, each=FDS // 2)


@family("memfds with seals", "memfd_create", "ftruncate", "truncate")
def memfds():
    def make(number):
        file = os.memfd_create(f"finder{number}", os.MFD_ALLOW_SEALING)
        os.ftruncate(file, 1 << 20)
        fcntl.fcntl(file, 1033, 0xe)
        return file
    return many_descriptors(make)


@family("pidfds of ended processes", "pidfd_open", "pidfd_send_signal", "wait4", "waitid", "fork", "vfork", "exit", "exit_group")
def pidfds():
    def work(index):
        def make(number):
            child = os.fork()
            if child == 0:
                os._exit(0)
            KEPT.append(os.pidfd_open(child))
            os.waitpid(child, 0)
        return until_refused(make, 120)
    return spread(work)


@family("folders listed (tmpfs and runtime)", "getdents64", "getdents", "lseek")
def folders():
    names = ["/usr/bin", "/usr/lib", "/mnt/data", "/", "/proc", "/dev", "/etc"]

    def make(number):
        file = os.open(names[number % len(names)], os.O_RDONLY | os.O_DIRECTORY)
        buffer = ctypes.create_string_buffer(4096)
        libc.getdents64(file, buffer, 4096)
        return file
    return many_descriptors(make)


@family("folder with inputs listed", "getdents64")
def overlay_listing():
    for number in range(4000):
        open(f"entry-with-a-long-name-{number:0200d}", "w").close()

    def make(number):
        file = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        buffer = ctypes.create_string_buffer(4096)
        libc.getdents64(file, buffer, 4096)
        return file
    return many_descriptors(make, processes=1, each=100)


@family("files of /proc held", "read", "pread64", "readlinkat", "readlink")
def proc_files():
    names = []
    for root in ["/proc/self", "/proc/self/task/%d" % os.getpid(), "/proc", "/proc/self/net", "/proc/self/fdinfo",
                 "/proc/self/ns", "/proc/self/attr"]:
        try:
            names += [f"{root}/{name}" for name in os.listdir(root)]
        except OSError:
            pass
    good = []
    for name in names:
        try:
            file = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
            os.close(file)
            good.append(name)
        except OSError:
            pass

    def make(number):
        file = os.open(good[number % len(good)], os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.read(file, 1)
        except OSError:
            pass
        return file
    return many_descriptors(make)


@family("pseudo-terminals", "ioctl")
def terminals():
    def make(number):
        ours, theirs = os.openpty()
        KEPT.append((ours, theirs))
        os.set_blocking(ours, False)
        try:
            for _ in range(64):
                os.write(ours, b"x" * 1024)
        except OSError:
            pass
    return many_descriptors(make, processes=20, each=FDS // 2)


@family("flock on open files", "flock")
def flocks():
    for number in range(100):
        open(f"locked{number}", "w").close()

    def work(index):
        def make(number):
            file = os.open(f"locked{index}", os.O_RDWR)
            fcntl.flock(file, fcntl.LOCK_SH)
            return file
        return until_refused(hold(KEPT, make), FDS)
    return spread(work)


@family("record locks", "fcntl")
def record_locks():
    file = os.open("records", os.O_RDWR | os.O_CREAT)

    def make(number):
        fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, number * 2, 1, 0))
    return until_refused(make, 150_000)


@family("open file description locks", "fcntl")
def ofd_locks():
    file = os.open("ofd", os.O_RDWR | os.O_CREAT)

    def make(number):
        fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, number * 2, 1, 0))
    return until_refused(make, 150_000)


# --- names and inodes ---

@family("names that do not exist (workspace)", "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2")
def missing_names_workspace():
    return until_refused(lambda number: os.path.exists(f"missing-{number}"), 200_000)


@family("names that do not exist (runtime)", "statfs", "fstatfs")
def missing_names_runtime():
    return until_refused(lambda number: os.path.exists(f"/usr/lib/missing-{UNIQUE}-{number}"), 200_000)


@family("names that do not exist (/proc, /dev, /etc)", "fstat")
def missing_names_elsewhere():
    def make(number):
        for folder in ["/proc", "/proc/self", "/dev", "/etc", "/", "/tmp", "/dev/shm", "/home/sandbox"]:
            os.path.exists(f"{folder}/missing-{UNIQUE}-{number}")
    return until_refused(make, 25_000) * 8


@family("files, folders and links", "mkdirat", "mkdir", "unlinkat", "unlink", "rmdir", "renameat", "renameat2", "rename", "linkat",
        "link", "symlinkat", "symlink", "mknodat", "mknod", "fchmod", "fchmodat", "chmod", "fchown", "fchownat", "chown",
        "lchown", "utimensat", "utime", "utimes", "futimesat")
def inodes():
    def make(number):
        name = f"n{number}"
        kind = number % 4
        if kind == 0:
            open(name, "w").close()
        elif kind == 1:
            os.mkdir(name)
        elif kind == 2:
            os.symlink("x" * 4000, name)
        else:
            os.mkfifo(name)
        os.utime(name, follow_symlinks=False)
        os.rename(name, name + "r")
    return until_refused(make, 12_000)


@family("made and removed again", "unlinkat")
def made_and_removed():
    def make(number):
        os.mkdir(f"gone{number}")
        os.rmdir(f"gone{number}")
        os.close(os.open(f"gone{number}", os.O_CREAT))
        os.unlink(f"gone{number}")
    return until_refused(make, 40_000)


# --- memory ---

@family("mappings split", "mmap", "munmap", "mprotect", "mremap", "madvise", "brk", "mincore")
def mappings():
    def work(index):
        size = 120_000 * 4096
        libc.mmap.restype = ctypes.c_void_p
        start = libc.mmap(None, ctypes.c_size_t(size), 0, 0x22, -1, ctypes.c_long(0))
        count = 0
        for page in range(0, 60_000, 2):
            if page % 512 == 0 and time_is_up():
                break
            if libc.mprotect(ctypes.c_void_p(start + page * 4096), ctypes.c_size_t(4096), 1) != 0:
                break
            count += 1
        return count
    return spread(work, 8)


@family("mappings named (PR_SET_VMA)", "prctl")
def mappings_named():
    def work(index):
        size = 120_000 * 4096
        libc.mmap.restype = ctypes.c_void_p
        start = libc.mmap(None, ctypes.c_size_t(size), 0, 0x22, -1, ctypes.c_long(0))
        libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
        count = 0
        for page in range(30_000):
            if page % 256 == 0 and time_is_up():
                break
            name = ctypes.create_string_buffer((b"%d-%d-" % (index, page)).ljust(79, b"n"))
            if libc.prctl(0x53564d41, 0, start + page * 4096, 4096, ctypes.addressof(name)) != 0:
                break
            count += 1
        return count
    return spread(work, 20)


@family("page tables of sparse memory", "mlock", "mlock2", "munlock", "mlockall", "munlockall")
def page_tables():
    def work(index):
        size = 64 << 30
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
        KEPT.append(memory)

        def make(number):
            memory[number << 21]
        return until_refused(make, 8_000)
    return spread(work, 4)


@family("file mapped by many processes", "mmap")
def mapped_files():
    with open("mapped", "wb") as file:
        file.truncate(4 << 20)

    def work(index):
        file = os.open("mapped", os.O_RDWR)

        def make(number):
            memory = mmap.mmap(file, 4 << 20)
            memory[number % 1000 * 4096] = 1
            return memory
        return until_refused(hold(KEPT, make), 500)
    return spread(work)


@family("protection keys", "pkey_alloc", "pkey_free", "pkey_mprotect")
def protection_keys():
    def work(index):
        return until_refused(lambda number: check(syscall(330, 0, 0)), 64)
    return spread(work, 20)


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


# --- processes ---

@family("processes", "fork", "clone", "set_tid_address", "rseq", "set_robust_list", "sigaltstack", "arch_prctl", "execve", "execveat")
def processes():
    return spread(lambda index: 1, 120)


@family("threads", "clone", "futex", "futex_waitv", "get_robust_list", "membarrier")
def threads():
    import threading
    threading.stack_size(65536)
    never = threading.Event()

    def make(number):
        thread = threading.Thread(target=never.wait, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise OSError from None
    return until_refused(make, 120)


@family("zombies", "wait4", "exit_group", "setpgid", "setsid", "getpgid", "getsid", "getpgrp")
def zombies():
    def make(number):
        if os.fork() == 0:
            os.setsid()
            os._exit(0)
    return until_refused(make, 120)


@family("processes started and ended", "vfork", "kill", "tkill", "tgkill")
def processes_ended():
    def make(number):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    return until_refused(make, 1500)


@family("credentials", "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups",
        "capget", "capset", "getgroups", "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid")
def credentials():
    uid, gid = os.getuid(), os.getgid()

    def work(index):
        def make(number):
            os.setresuid(uid, uid, uid)
            os.setresgid(gid, gid, gid)
            KEPT.append(os.open("/dev/null", os.O_RDONLY))
        return until_refused(make, FDS)
    return spread(work)


@family("landlock rules and layers", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
def landlock():
    def work(index):
        attributes = (ctypes.c_uint64 * 1)(0x1fff)
        kept = []

        def make(number):
            ruleset = check(syscall(444, attributes, 8, 0))
            kept.append(ruleset)
            for name in ["/usr", "/usr/lib", "/usr/bin", "/etc", "/dev", "/tmp", "/home", "/mnt/data"]:
                parent = os.open(name, os.O_PATH)
                rule = struct.pack("=Qi", 0x4, parent)
                syscall(445, ruleset, 1, ctypes.c_char_p(rule), 0)
                os.close(parent)
        count = until_refused(make, 400)
        for ruleset in kept[:14]:
            syscall(446, ruleset, 0)
        for number in range(200):
            try:
                os.mkdir(f"/usr/denied{number}")
            except OSError:
                pass
        KEPT.append(kept)
        return count
    return spread(work, 20)


@family("POSIX timers", "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete", "getitimer", "setitimer", "alarm")
def posix_timers():
    def work(index):
        def make(number):
            timer = ctypes.c_int()
            check(syscall(222, 1, None, ctypes.byref(timer)))
        return until_refused(make, 2000)
    return spread(work, 4)


@family("signals waiting", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "rt_sigprocmask", "rt_sigpending", "rt_sigaction")
def signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    info = (ctypes.c_int * 32)(40, 0, -1)
    return until_refused(lambda number: check(syscall(129, os.getpid(), 40, info)), 5000)


# --- IPC ---

@family("System V semaphores", "semget", "semop", "semctl", "semtimedop")
def semaphores():
    def make(number):
        group = check(libc.semget(0, 250, 0o600))
        operation = struct.pack("Hhh", 0, 1, 0x1000)
        libc.semop(group, ctypes.c_char_p(operation), 1)
    return until_refused(make, 20_000)


@family("System V messages", "msgget", "msgsnd", "msgrcv", "msgctl")
def messages():
    body = ctypes.create_string_buffer(struct.pack("l", 1) + b"", 16)

    def make(number):
        queue = check(libc.msgget(0, 0o600))
        while libc.msgsnd(queue, body, 0, 0o4000) == 0:
            pass
    return until_refused(make, 12)


@family("System V memory", "shmget", "shmat", "shmdt", "shmctl")
def shared_memory():
    def make(number):
        segment = check(libc.shmget(0, 4096, 0o600))
        libc.shmat(segment, None, 0)
    return until_refused(make, 20_000)


@family("POSIX message queues", "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr")
def message_queues():
    def make(number):
        check(libc.syscall(240, ctypes.c_char_p(b"q%d" % number), os.O_CREAT | os.O_RDWR, 0o600, None))
    return until_refused(make, 1000)


# --- sockets ---

KINDS = {
    "unix stream": (socket.AF_UNIX, socket.SOCK_STREAM),
    "unix datagram": (socket.AF_UNIX, socket.SOCK_DGRAM),
    "unix seqpacket": (socket.AF_UNIX, socket.SOCK_SEQPACKET),
    "TCP over IPv4": (socket.AF_INET, socket.SOCK_STREAM),
    "TCP over IPv6": (socket.AF_INET6, socket.SOCK_STREAM),
    "UDP over IPv4": (socket.AF_INET, socket.SOCK_DGRAM),
    "UDP over IPv6": (socket.AF_INET6, socket.SOCK_DGRAM),
}


def sockets_of(kind):
    return many_descriptors(lambda number: socket.socket(*KINDS[kind]))


for kind_name in KINDS:
    family(f"sockets: {kind_name}", "socket")(lambda kind=kind_name: sockets_of(kind))


@family("sockets: bound", "bind", "getsockname")
def bound():
    def work(index):
        def make(number):
            kind = number % 3
            if kind == 0:
                one = socket.socket(socket.AF_UNIX)
                one.bind(f"\0{index}-{number}".ljust(100, "x"))
            elif kind == 1:
                one = socket.socket()
                one.bind((f"127.{index}.0.1", 0))
            else:
                one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                one.bind((f"127.{index}.0.1", 0))
            return one
        return until_refused(hold(KEPT, make), FDS)
    return spread(work)


@family("sockets: pairs with descriptors in flight", "socketpair", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg", "getpeername")
def in_flight():
    def work(index):
        def make(number):
            ours, theirs = socket.socketpair()
            KEPT.append((ours, theirs))
            for _ in range(20):
                ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 50))])
        return until_refused(make, 60)
    return spread(work, 8)


@family("sockets: unix, filled", "sendto", "recvfrom", "shutdown")
def unix_filled():
    def work(index):
        def make(number):
            ours, theirs = socket.socketpair(socket.AF_UNIX, [socket.SOCK_STREAM, socket.SOCK_DGRAM][number % 2])
            KEPT.append((ours, theirs))
            ours.setblocking(False)
            try:
                ours.send(b"o", socket.MSG_OOB)
            except OSError:
                pass
            try:
                while True:
                    ours.send(b"x")
            except BlockingIOError:
                pass
        return until_refused(make, 60)
    return spread(work, 8)


@family("sockets: UDP, filled", "connect")
def udp_filled():
    def work(index):
        def make(number):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.bind(("127.0.0.1", 0))
            one.connect(one.getsockname())
            one.setblocking(False)
            KEPT.append(one)
            for _ in range(1000):
                one.send(b"x")
        return until_refused(make, 100)
    return spread(work, 8)


@family("sockets: TCP connected, accepted", "listen", "accept", "accept4")
def tcp_accepted():
    def work(index):
        listener = socket.create_server((f"127.1.{index}.1", 0), backlog=4096)

        def make(number):
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
            KEPT.append((ours, theirs))
        return until_refused(make, 450)
    return spread(work, 20)


@family("sockets: TCP connected, not accepted", "listen")
def tcp_not_accepted():
    def work(index):
        listeners = [socket.create_server((f"127.1.{index}.1", 0), backlog=4096) for _ in range(4)]
        KEPT.append(listeners)
        place = [listener.getsockname() for listener in listeners]

        def make(number):
            one = socket.socket()
            one.settimeout(0.2)
            one.connect(place[number % 4])
            one.close()
        return until_refused(make, 2000)
    return spread(work, 12)


@family("sockets: TCP data sent, not accepted", "sendto")
def tcp_not_accepted_data():
    def work(index):
        listener = socket.create_server((f"127.1.{index}.1", 0), backlog=4096)
        KEPT.append(listener)
        place = listener.getsockname()

        def make(number):
            one = socket.socket()
            one.settimeout(0.2)
            one.connect(place)
            one.setblocking(False)
            try:
                for _ in range(64):
                    one.send(bytes(65536))
            except BlockingIOError:
                pass
            one.close()
        return until_refused(make, 40)
    return spread(work, 4)


@family("sockets: TIME_WAIT", "connect")
def time_wait():
    def work(index):
        listener = socket.create_server((f"127.2.{index}.1", 0), backlog=128)
        KEPT.append(listener)

        def make(number):
            one = socket.socket()
            one.settimeout(0.5)
            one.connect(listener.getsockname())
            other, _ = listener.accept()
            one.close()
            other.close()
        return until_refused(make, 6000)
    return spread(work, 4)


@family("sockets: addresses spoken to (metrics, peers)", "connect")
def addresses():
    def work(index):
        listener = socket.create_server(("0.0.0.0", 0), backlog=128)
        port = listener.getsockname()[1]
        closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        KEPT.append(listener)

        def make(number):
            place = f"127.{3 + index}.{number >> 8}.{number & 255}"
            closed.sendto(b"x", (place, 9))
            one = socket.socket()
            one.settimeout(0.5)
            one.connect((place, port))
            other, _ = listener.accept()
            other.close()
            one.close()
        return until_refused(make, 4000)
    return spread(work, 4)


@family("sockets: UDP connected to groups (routes)", "connect")
def routes():
    def work(index):
        def make(number):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            KEPT.append(one)
            for level, name, value in [(0, 32, socket.inet_aton("127.0.0.1")), (socket.SOL_SOCKET, socket.SO_BROADCAST, 1)]:
                try:
                    one.setsockopt(level, name, value)
                except OSError:
                    pass
            try:
                one.connect((f"239.1.{number >> 8}.{number & 255}", 9))
            except OSError:
                one.connect(("127.255.255.255", 9))
        return until_refused(make, FDS)
    return spread(work)


def option_flood(kind, make_options, each=FDS, processes=PROCESSES // 2):
    def work(index):
        done = [0]

        def make(number):
            one = socket.socket(*KINDS[kind])
            KEPT.append(one)
            for level, name, value in make_options(index, number):
                try:
                    one.setsockopt(level, name, value)
                    done[0] += 1
                except OSError:
                    pass
        until_refused(make, each)
        return done[0]
    return spread(work, processes)


@family("options: IPv4 multicast memberships", "setsockopt", "getsockopt")
def multicast4():
    local = socket.inet_aton("127.0.0.1")

    def options(index, number):
        for group in range(20):
            yield 0, 35, struct.pack("=BBBB", 239, index, number & 255, (number >> 8) * 20 + group) + local
    return option_flood("UDP over IPv4", options, each=400, processes=10)


@family("options: IPv4 source filters", "setsockopt")
def sources4():
    local = socket.inet_aton("127.0.0.1")

    def options(index, number):
        for source in range(10):
            group = struct.pack("=BBBB", 239, index, number & 255, number >> 8)
            yield 0, 39, group + local + struct.pack("=BBBB", 127, 9, 9, source)
    return option_flood("UDP over IPv4", options, each=600, processes=10)


@family("options: IPv6 multicast memberships", "setsockopt")
def multicast6():
    def options(index, number):
        for group in range(100):
            yield 41, 20, struct.pack("=H10xHBBI", 0x05ff, index, number & 255, group, 1)[:16] + struct.pack("=I", 1)
    return option_flood("UDP over IPv6", options, each=100, processes=10)


@family("options: IPv6 flow labels", "setsockopt")
def flow_labels():
    def options(index, number):
        for label in range(32):
            address = socket.inet_pton(socket.AF_INET6, "::1")
            yield 41, 32, address + struct.pack(">I", (index << 14 | number << 5 | label) & 0xfffff) + struct.pack("=BBHHHI", 0, 1, 1, 600, 600, 0)
    return option_flood("UDP over IPv6", options, each=200, processes=4)


@family("options: IP options and sticky headers", "setsockopt")
def ip_options():
    def options(index, number):
        yield 0, 4, b"\x01" * 40
        yield 0, 8, 1
    v6 = struct.pack("BB6x", 0, 0)

    def options6(index, number):
        yield 41, 59, v6
        yield 41, 54, v6
        yield 41, 57, struct.pack("BBBB4x", 0, 0, 2, 0)
        yield 41, 50, bytes(20)
        yield 41, 6, bytes(64)
    return option_flood("UDP over IPv4", options) + option_flood("UDP over IPv6", options6)


@family("options: TCP keys, ULP, fast open and congestion", "setsockopt")
def tcp_options():
    def options(index, number):
        for key in range(40):
            yield 6, 14, struct.pack("=HHI120xBBHI80s", 2, 0, 0x0100007f + (key << 24), 0, 0, 16, 0, b"k" * 16)[:216]
        yield 6, 31, b"tls"
        yield 6, 13, b"reno"
        yield 6, 23, 1000
        yield 6, 33, b"k" * 32
        yield 6, 27, 1
    return option_flood("TCP over IPv4", options)


@family("options: UDP encapsulation, zerocopy, txtime, timestamps", "setsockopt")
def udp_options():
    def options(index, number):
        for level, name, value in [(17, 100, 2), (17, 103, 1400), (17, 104, 1), (1, 60, 1), (1, 61, struct.pack("iI", 1, 0)), (1, 65, 0x1ff),
                                   (1, 37, 0xfff), (1, 25, b"lo"), (1, 46, 50), (1, 69, 8), (1, 12, 6), (1, 51, 1), (1, 15, 1), (1, 82, 1)]:
            yield level, name, value
    return option_flood("UDP over IPv4", options)


@family("options: filters on sockets", "setsockopt")
def socket_filters():
    instructions = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffff) * 4)
    program = struct.pack("HxxxxxxQ", 4, ctypes.addressof(instructions))

    def options(index, number):
        yield 1, 26, program
        yield 1, 15, 1
        yield 1, 51, program
    return option_flood("UDP over IPv4", options, each=400, processes=4)


@family("errors and copies queued on sockets", "recvmsg")
def error_queues():
    def work(index):
        def make(number):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            KEPT.append(one)
            for level, name, value in [(0, 11, 1), (1, 37, 0xfff), (1, 60, 1)]:
                try:
                    one.setsockopt(level, name, value)
                except OSError:
                    pass
            one.connect(("127.0.0.1", 9))
            for _ in range(300):
                try:
                    one.send(b"x", 0x4000000 if number % 2 else 0)
                except OSError:
                    pass
        return until_refused(make, 150)
    return spread(work, 8)


# --- calls that hold nothing by themselves ---

# Each is made many times with every kind of descriptor, pointers and numbers, in a process of its own that then waits and so
# holds the objects that the kernel keeps for it. Some calls end, block or replace their process.
SIMPLE = """
readv writev pwrite64 preadv pwritev preadv2 pwritev2 fallocate readahead fadvise64 sendfile copy_file_range
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd chdir fchdir umask
poll select ppoll pselect6 pause rt_sigreturn rt_sigsuspend rt_sigtimedwait restart_syscall clock_gettime clock_getres
clock_nanosleep nanosleep gettimeofday time times getrandom sched_yield sched_getaffinity sched_setaffinity sched_getparam
sched_setparam sched_getscheduler sched_setscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval
sched_getattr sched_setattr getpriority setpriority getcpu get_mempolicy getrlimit setrlimit prlimit64 getrusage sysinfo uname
personality getpid getppid gettid
""".split()
ROUNDS = 1500


def arguments():
    """Rows of six arguments: descriptors of every kind, memory, and numbers."""
    memory = ctypes.create_string_buffer(65536)
    name = ctypes.create_string_buffer(b"simple")
    place, path = ctypes.addressof(memory), ctypes.addressof(name)
    ours, theirs = os.pipe()
    for one in (ours, theirs):
        os.set_blocking(one, False)
    files = [os.open("simple", os.O_RDWR | os.O_CREAT), os.open(".", os.O_RDONLY), ours, theirs, os.eventfd(1),
             socket.socket(socket.AF_UNIX).detach(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach(), -1]
    KEPT.append((memory, name))
    for file in files:
        yield file, place, 64, 0, 0, 0
        yield file, place, 1, place + 4096, 8, 0
        yield file, files[0], 16, 0, 0, 0
    for number in (0, 1, 2, 7, 64):
        yield path, path, place, 64, number, 0
        yield number, place, 8, place + 8192, place + 16384, 0
        yield place, number, 64, place + 4096, 0, 0
        yield number, 0, place, 0, 0, 0


def simple(calls, numbers):
    def work(index):
        number = numbers[calls[index]]
        # The call may block or end its process: the family's parent then goes on without it.
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        end = time.monotonic() + 0.06
        rows = [tuple(ctypes.c_long(value) for value in row) for row in arguments()]
        made = 0
        while made < ROUNDS and time.monotonic() < end:
            for row in rows:
                syscall(ctypes.c_long(number), *row)
                made += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        return made
    return spread(work, len(calls), to_the_end=True)


PER_FAMILY = 20
for first in range(0, len(SIMPLE), PER_FAMILY):
    group = SIMPLE[first:first + PER_FAMILY]
    family(f"simple calls: {group[0]} to {group[-1]}", *group)(lambda calls=tuple(group): simple(calls, json.loads(sys.argv[2])))


def hold_forever(name, count):
    print(f"HOLDING {count}", flush=True)
    while True:
        time.sleep(60)


def main():
    if sys.argv[1] == "list":
        print(json.dumps([[name, calls] for name, (calls, _) in FAMILIES.items()]))
        return
    name = sys.argv[1]
    hold_forever(name, FAMILIES[name][1]())


main()
