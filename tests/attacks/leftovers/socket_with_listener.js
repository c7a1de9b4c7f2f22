// claim: sockets are left where they are, and nobody listens behind them any more
// weaken: kill
const { spawn } = require("child_process");
const listener = "require('net').createServer((c) => c.write('x'.repeat(1e6))).listen('/mnt/data/result.sock'); setTimeout(() => process.exit(), 5000)";
spawn(process.execPath, ["-e", listener], { detached: true, stdio: "ignore" }).unref();
setTimeout(() => {
  console.log("socket is there:", require("fs").existsSync("/mnt/data/result.sock"));
  console.log("CONTAINED");
}, 300);
