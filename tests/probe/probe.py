# Runs inside a sandbox and reports what it sees there, as JSON: facts, no verdicts. tests/tests/probe.rs has the verdicts.
import ctypes
import errno
import json
import os
import resource
import socket

libc = ctypes.CDLL(None, use_errno=True)


def status():
    wanted = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    facts = {}
    for line in open("/proc/self/status"):
        key, value = line.split(":", 1)
        if key in wanted:
            facts[key] = value.split()
    return facts


def mounts():
    facts = {}
    for line in open("/proc/self/mountinfo"):
        left, right = line.split(" - ")
        fields = left.split()
        facts[fields[4]] = {"options": fields[5].split(","), "type": right.split()[0]}
    return facts


def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    return "ok" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")


def writable(path):
    try:
        name = os.path.join(path, ".probe")
        open(name, "w").close()
        os.unlink(name)
        return True
    except OSError:
        return False


def try_socket(family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def top_level():
    return {name: ("link" if os.path.islink("/" + name) else "folder") for name in os.listdir("/")}


PTRACE, UNSHARE, MOUNT, BPF, KEYCTL, IO_URING_SETUP, CLONE3, OPENAT2, UNKNOWN = 101, 272, 165, 321, 250, 425, 435, 437, 9999

print(
    json.dumps(
        {
            "status": status(),
            "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in os.listdir("/proc/self/ns")},
            "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)),
            "mounts": mounts(),
            "environment": dict(os.environ),
            "pid": os.getpid(),
            "visible_pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
            "hostname": socket.gethostname(),
            "interfaces": [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]],
            "cgroup": open("/proc/self/cgroup").read(),
            "top_level": top_level(),
            "writable": {path: writable(path) for path in ("/", "/usr", "/etc", "/opt", "/opt/python", "/dev", "/proc", "/mnt", "/home", "/mnt/data", "/tmp", "/home/sandbox", "/dev/shm")},
            "calls": {
                "ptrace": call(PTRACE, 0, 0, 0, 0),
                "unshare_user": call(UNSHARE, 0x10000000),
                "mount": call(MOUNT, b"none", b"/tmp", b"tmpfs", 0, 0),
                "bpf": call(BPF, 0, 0, 0),
                "keyctl": call(KEYCTL, 0, 0, 0, 0, 0),
                "io_uring_setup": call(IO_URING_SETUP, 1, 0),
                "clone3": call(CLONE3, 0, 0),
                "openat2": call(OPENAT2, -100, b"/", 0, 0),
                "unknown": call(UNKNOWN),
            },
            "sockets": {
                "unix": try_socket(socket.AF_UNIX, socket.SOCK_STREAM),
                "inet": try_socket(socket.AF_INET, socket.SOCK_STREAM),
                "netlink": try_socket(16, socket.SOCK_RAW),
                "packet": try_socket(17, socket.SOCK_RAW),
                "raw": try_socket(socket.AF_INET, socket.SOCK_RAW, 1),
            },
            "rlimits": {
                "core": resource.getrlimit(resource.RLIMIT_CORE),
                "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
                "fsize": resource.getrlimit(resource.RLIMIT_FSIZE),
            },
            "umask": os.umask(0o022),
            "session_leader": os.getsid(0) == os.getpid(),
        }
    )
)
