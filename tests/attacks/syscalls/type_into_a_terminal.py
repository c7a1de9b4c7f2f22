# claim: characters can't be typed into a terminal, nor its driver be changed
# weaken: seccomp
import fcntl
import os
import termios

TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS = 0x5412, 0x541C, 0x5423, 0x541D
N_HDLC = 13

master, slave = os.openpty()
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    try:
        for byte in b"id\n":
            fcntl.ioctl(slave, TIOCSTI, bytes([byte]))
        print("ESCAPED: typed", os.read(slave, 10), flush=True)
    except OSError as error:
        print("refused: TIOCSTI", error, flush=True)
    os._exit(0)
os.wait()
for name, request, argument in (
    ("TIOCLINUX paste", TIOCLINUX, b"\3"),
    ("TIOCCONS", TIOCCONS, 0),
    ("TIOCSETD", TIOCSETD, N_HDLC.to_bytes(4, "little")),
    ("TIOCSETD back", TIOCSETD, bytes(4)),
):
    try:
        fcntl.ioctl(slave, request, argument)
        print("ESCAPED:", name)
    except OSError as error:
        print("refused:", name, error)
print("CONTAINED")
