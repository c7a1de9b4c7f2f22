# claim: named pipes are not opened, and nobody is left who could feed them
# weaken: kill
import os, time
os.mkdir("folder")
for name in ("result.csv", "folder/pipe", "-"):
    os.mkfifo(name, 0o666)
if os.fork() == 0:
    os.setsid()
    # Open for both, so that neither side ever waits.
    pipe = os.open("result.csv", os.O_RDWR | os.O_NONBLOCK)
    for _ in range(50):
        try:
            os.write(pipe, b"x" * 4096)
        except BlockingIOError:
            pass
        time.sleep(0.1)
    os._exit(0)
print("CONTAINED")
