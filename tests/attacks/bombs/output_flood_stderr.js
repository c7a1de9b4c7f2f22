// claim: a program that complains without end is ended, and names the output limit
// weaken: limits
// flags: --output 64KiB
// limit: output
const fs = require("node:fs");

const piece = Buffer.alloc(65536, "x");
for (let i = 0; i < 128; i++) fs.writeSync(2, piece);
console.log("CONTAINED");
