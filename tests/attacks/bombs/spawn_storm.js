// claim: Node's child_process starts at most as many processes as the pids limit says
// weaken: limits
// flags: --pids 32
// hits: pids
const { spawn } = require("node:child_process");

const MOST = 60;
let started = 0;
for (let i = 0; i < MOST; i++) {
  const child = spawn("/usr/bin/sleep", ["5"], { stdio: "ignore" });
  child.on("error", () => {});
  if (child.pid) started++;
}
console.log("processes:", started);
if (started > 32) console.log("ESCAPED:", started, "processes at one time");
console.log("CONTAINED");
process.exit(0);
