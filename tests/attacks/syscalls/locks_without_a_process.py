# claim: no lock belongs to a process that is gone, or to none: such locks could not be counted
# weaken: seccomp
import ctypes
import errno
import fcntl
import os
import signal
import struct

libc = ctypes.CDLL(None, use_errno=True)
CLONE, CLONE_FILES = 56, 0x400
file = os.open("/tmp/file", os.O_RDWR | os.O_CREAT)
for name, command in {"F_OFD_SETLK": 37, "F_OFD_SETLKW": 38}.items():
    try:
        fcntl.fcntl(file, command, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 1, 0))
        print("ESCAPED:", name)
    except OSError as error:
        print("refused:", name, error.strerror)
pid = libc.syscall(CLONE, ctypes.c_long(CLONE_FILES | signal.SIGCHLD), 0, 0, 0, 0)
if pid == 0:
    os._exit(0)
if pid > 0:
    os.waitpid(pid, 0)
    print("ESCAPED: a process shares its descriptors with another")
else:
    print("refused: clone with CLONE_FILES", errno.errorcode.get(ctypes.get_errno()))
print("CONTAINED")
