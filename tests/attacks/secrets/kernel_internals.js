// claim: /proc tells nothing about the kernel's inside: symbols, configuration, memory, timers, locks, keys
// weaken: mask_proc
const fs = require("fs");
const names = ["kallsyms", "config.gz", "vmallocinfo", "timer_list", "sched_debug", "slabinfo", "zoneinfo", "buddyinfo",
  "pagetypeinfo", "kpagecount", "kpageflags", "kcore", "kmsg", "locks", "keys", "key-users", "crypto", "vmstat", "softirqs",
  "cgroups", "sysvipc/shm", "pressure/cpu", "fs/ext4", "schedstat", "latency_stats", "dynamic_debug/control"];
for (const name of names) {
  try {
    const buffer = Buffer.alloc(100);
    const length = fs.readSync(fs.openSync("/proc/" + name, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK), buffer, 0, 100, null);
    if (length > 0) console.log("ESCAPED:", name, JSON.stringify(buffer.toString("latin1", 0, 40)));
    else console.log("covered:", name);
  } catch (error) {
    console.log("refused:", name, error.code);
  }
}
console.log("CONTAINED");
