// claim: the folders of the root can't be moved away and replaced by others
// weaken: read_only,landlock
const fs = require("fs");
fs.mkdirSync("/tmp/fake");
for (const name of ["/opt", "/bin", "/lib", "/lib64", "/home", "/mnt", "/etc", "/usr"]) {
  try {
    fs.renameSync(name, name + "-away");
    console.log("ESCAPED: moved", name);
    fs.renameSync(name + "-away", name);
  } catch (error) {
    console.log("refused:", name, error.code);
  }
}
console.log("CONTAINED");
