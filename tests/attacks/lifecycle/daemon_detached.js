// claim: a child that Node detached and no longer waits for ends with the program
// weaken: kill
const { spawn } = require("node:child_process");

spawn("/usr/bin/sleep", ["15"], { detached: true, stdio: "ignore", cwd: "/" }).unref();
console.log("CONTAINED");
