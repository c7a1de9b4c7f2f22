// claim: names and paths as long as the kernel allows, and paths longer than it takes in one piece, are handled
// weaken: harvest
const fs = require("fs");
const canary = process.argv[2];
const long = "n".repeat(255);
fs.symlinkSync(canary + "/secret.txt", long);
fs.writeFileSync("m".repeat(255), "harmless");
// Beyond PATH_MAX: each step from within.
for (let i = 0; i < 40; i++) {
  fs.mkdirSync(long.slice(0, 200));
  process.chdir(long.slice(0, 200));
  if (i % 8 === 7) fs.symlinkSync(canary + "/secret.txt", "link");
}
fs.writeFileSync("file", "harmless");
console.log("CONTAINED");
