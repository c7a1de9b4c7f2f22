// claim: the CPU time of worker threads ends at its limit
// weaken: limits
// flags: --cpu-time 500ms
// limit: cpu_time
const { Worker } = require("node:worker_threads");

// Twelve seconds of waiting is the safety line.
const deadline = Date.now() + 12000;
const spin = `const busy = () => { const { user, system } = process.cpuUsage(); return user + system; };
while (busy() < 1.2e6 && Date.now() < ${deadline}) {}`;
let running = 4;
for (let i = 0; i < running; i++) {
  new Worker(spin, { eval: true }).on("exit", () => {
    if (--running) return;
    console.log("ESCAPED: used 1.2 s of CPU time");
    console.log("CONTAINED");
  });
}
