// claim: a chain of symbolic links, relative but for its last, is not followed when results are collected
// weaken: harvest
const fs = require("fs");
const canary = process.argv[2];
fs.mkdirSync("a/b", { recursive: true });
fs.symlinkSync(canary + "/secret.txt", "a/b/0");
for (let i = 1; i < 30; i++) fs.symlinkSync("../b/" + (i - 1), "a/b/" + i);
fs.symlinkSync("a/b/29", "result.csv");
fs.symlinkSync("../../../../../../../.." + canary + "/secret.txt", "dotdot.csv");
fs.symlinkSync("loop", "loop");
console.log("CONTAINED");
