# claim: the filter is on every thread and every process that code starts, however it starts it
# weaken: seccomp
import os
import subprocess
import threading

QUESTION = "grep ^Seccomp: /proc/self/status"
answers = {}


def output(command, *descriptors):
    return subprocess.run(command, capture_output=True, text=True, pass_fds=descriptors).stdout


def ask(name, text):
    answers[name] = text.split()[1]


ask("program", output(["grep", "^Seccomp:", "/proc/self/status"]))
ask("shell", output(["sh", "-c", QUESTION]))
ask("new session", output(["setsid", "sh", "-c", QUESTION]))
ask("perl", output(["perl", "-ne", "print if /^Seccomp:/", "/proc/self/status"]))


def in_thread():
    with open("/proc/thread-self/status") as status:
        ask("thread", next(line for line in status if line.startswith("Seccomp:")))


thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
# A copy of a program in a file without a name.
copy = os.memfd_create("copy")
with open("/usr/bin/grep", "rb") as program:
    os.write(copy, program.read())
ask("nameless file", output([f"/proc/self/fd/{copy}", "^Seccomp:", "/proc/self/status"], copy))
for name, mode in answers.items():
    print("filtered:" if mode == "2" else "ESCAPED: no filter on", name, mode)
print("CONTAINED")
