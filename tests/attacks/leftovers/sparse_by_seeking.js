// claim: writing one byte far beyond the disk limit is refused too
// flags: --disk 4MiB
// weaken: rlimits
const fs = require("fs");
process.on("SIGXFSZ", () => console.log("signal"));
for (const offset of [4 << 20, 2 ** 32, 2 ** 40]) {
  try {
    fs.writeSync(fs.openSync("far" + offset, "w"), "x", offset);
    console.log("ESCAPED: a byte at", offset);
  } catch (error) {
    console.log("refused:", offset, error.code);
  }
}
console.log("CONTAINED");
