// claim: host files can be neither deleted nor emptied
// weaken: canary,landlock,read_only
const fs = require("fs");
const canary = process.argv[2];
const tries = {
  truncate: () => fs.truncateSync(canary + "/secret.txt", 0),
  overwrite: () => fs.writeFileSync(canary + "/secret.txt", "gone"),
  unlink: () => fs.unlinkSync(canary + "/victim.txt"),
  removeAll: () => fs.readdirSync(canary).forEach((name) => fs.rmSync(canary + "/" + name)),
};
for (const [name, attempt] of Object.entries(tries)) {
  try {
    attempt();
    console.log("ESCAPED:", name);
  } catch (error) {
    console.log("refused:", name, error.code);
  }
}
console.log("CONTAINED");
