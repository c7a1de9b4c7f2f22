// claim: a full disk is reported, and results are collected from it all the same
// flags: --disk 4MiB
// hits: disk
// weaken: limits
const fs = require("fs");
const file = fs.openSync("full", "w");
let written = 0;
try {
  while (written < 16 << 20) written += fs.writeSync(file, Buffer.alloc(65536));
} catch (error) {
  console.log("refused:", error.code);
}
try {
  for (let i = 0; i < 100; i++) fs.writeFileSync("rest" + i, Buffer.alloc(4096));
} catch (error) {
  console.log("refused:", error.code);
}
console.log(written, "bytes");
setTimeout(() => console.log("CONTAINED"), 150);
