# claim: the 32-bit entry into the kernel, with its other call numbers, ends the process
# weaken: seccomp
import ctypes
import mmap
import os
import signal

GETPID_32, SOCKET_32 = 20, 359  # the numbers of i386
AF_NETLINK, SOCK_RAW = 16, 3


def immediate(opcode, value):
    return bytes([opcode]) + value.to_bytes(4, "little")


def int80(number, *arguments):
    """push rbx; mov eax, ebx, ecx, edx; int 0x80; pop rbx; ret"""
    ebx, ecx, edx = (*arguments, 0, 0, 0)[:3]
    code = b"\x53" + immediate(0xB8, number) + immediate(0xBB, ebx) + immediate(0xB9, ecx) + immediate(0xBA, edx)
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code + b"\xcd\x80\x5b\xc3")
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


for name, arguments in (("getpid", (GETPID_32,)), ("a netlink socket", (SOCKET_32, AF_NETLINK, SOCK_RAW, 0))):
    pid = os.fork()
    if pid == 0:
        result = int80(*arguments)
        print("ESCAPED: int 0x80 for", name, "gave", result, flush=True)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        print("killed:", name, signal.Signals(os.WTERMSIG(status)).name)
print("CONTAINED")
