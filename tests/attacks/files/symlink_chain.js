// claim: a chain of relative symbolic links leads no further than the root
// weaken: canary,landlock
const fs = require("fs");
const canary = process.argv[2];
fs.mkdirSync("d/e", { recursive: true });
fs.symlinkSync("../../../../../../../../../.." + canary, "d/e/hop0");
for (let i = 1; i < 35; i++) fs.symlinkSync("./hop" + (i - 1), "d/e/hop" + i);
fs.symlinkSync("d/e/../e/hop34", "last");
for (const path of ["d/e/hop0", "d/e/hop34", "last"]) {
  try {
    console.log("ESCAPED: through", path, fs.readFileSync(path + "/secret.txt", "utf8"));
  } catch (error) {
    console.log("refused:", path, error.code);
  }
}
console.log("CONTAINED");
