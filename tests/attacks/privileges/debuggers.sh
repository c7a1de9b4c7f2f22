# claim: the host's debuggers (strace, gdb, gcore, perf) can't follow a process, not even one's own
# weaken: seccomp
sleep 20 &
victim=$!
strace -f -o trace.txt true 2>/dev/null && echo "ESCAPED: strace of a program"
timeout 0.5 strace -p "$victim" -o trace.txt 2>/dev/null
[ -s trace.txt ] && echo "ESCAPED: strace wrote $(head -c 100 trace.txt)"
if command -v gdb >/dev/null; then
    timeout 10 gdb --nx --batch -ex 'run' -ex 'info registers rip' /usr/bin/true >gdb.txt 2>&1
    grep -q 'exited normally' gdb.txt && echo "ESCAPED: gdb ran a program"
fi
perf stat -e task-clock true >perf.txt 2>&1 && echo "ESCAPED: perf measured"
kill "$victim"
rm -f trace.txt gdb.txt perf.txt
echo CONTAINED
