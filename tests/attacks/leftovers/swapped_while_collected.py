# claim: no process is left to swap a file for a link between the look at it and its opening
# weaken: kill,harvest
import os, signal, sys, time
open("good", "w").write("harmless")
os.symlink(sys.argv[1] + "/secret.txt", "bad")
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            os.rename("good", "result")
            os.rename("bad", "good")
            os.rename("result", "bad")
    os._exit(0)
os.wait()
print("CONTAINED")
