# claim: a program that becomes another one is the program still: its end is the run's end
# weaken: kill
# flags: --wall 3s
import os

if os.fork() == 0:
    os.setsid()
    os.execv("/usr/bin/sleep", ["innocent", "15"])
os.execv("/usr/bin/bash", ["bash", "-c", "exec bash -c 'echo CONTAINED'"])
