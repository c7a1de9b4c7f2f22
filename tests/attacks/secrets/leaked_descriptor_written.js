// claim: no descriptor that the host left open can be written to
// weaken: close_fds
const fs = require("fs");
// 42 is what the suite leaves open; the others belong to this program, and are only looked at.
try {
  fs.writeSync(42, "changed", 0);
  console.log("ESCAPED: wrote to descriptor 42");
} catch (error) {
  console.log("refused:", error.code);
}
for (const fd of fs.readdirSync("/proc/self/fd")) {
  let place = "";
  try {
    place = fs.readlinkSync("/proc/self/fd/" + fd);
  } catch {
    continue;
  }
  const inside = /^(pipe:|socket:|anon_inode:|\/dev\/(null|urandom|random)$|\/proc\/|\/mnt\/data)/.test(place);
  if (!inside) console.log("ESCAPED: descriptor", fd, "is", place);
}
console.log("CONTAINED");
