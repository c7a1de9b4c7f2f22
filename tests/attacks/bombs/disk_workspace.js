// claim: one file grows at most to the disk limit
// weaken: limits
// flags: --disk 8MiB
// hits: disk
const fs = require("node:fs");

const LIMIT = 8 << 20;
const file = fs.openSync("bomb", "w");
const piece = Buffer.alloc(65536, "x");
let total = 0;
try {
  while (total < 2 * LIMIT) total += fs.writeSync(file, piece);
} catch (error) {
  console.log("refused:", error.code);
}
if (total > LIMIT) console.log("ESCAPED: wrote", total, "bytes");
console.log("CONTAINED");
