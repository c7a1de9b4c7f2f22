// claim: no id but the sandbox's own can be taken on, neither by system calls nor by tools
// weaken: seccomp,forbid_namespaces,landlock
const { spawnSync } = require("node:child_process");

const calls = {
  "setuid 0": () => process.setuid(0),
  "seteuid 0": () => process.seteuid(0),
  "setgid 0": () => process.setgid(0),
  "setegid 0": () => process.setegid(0),
  "setuid 1001": () => process.setuid(1001),
  "setgid 65534": () => process.setgid(65534),
  "setgroups 0": () => process.setgroups([0]),
  "setgroups none": () => process.setgroups([]),
  "initgroups root": () => process.initgroups("root", 0),
};
for (const [name, call] of Object.entries(calls)) {
  try {
    call();
    console.log("ESCAPED:", name);
  } catch (error) {
    console.log("refused:", name, error.code);
  }
}
for (const options of [{ uid: 0 }, { gid: 0 }, { uid: 65534 }]) {
  const result = spawnSync("id", ["-u"], options);
  console.log(result.error ? "refused: spawn" : "ESCAPED: spawn", JSON.stringify(options));
}
const tools = [
  ["su", "-c", "id -u"],
  ["setpriv", "--reuid=0", "id", "-u"],
  ["unshare", "--map-root-user", "id", "-u"],
];
for (const [tool, ...args] of tools) {
  const result = spawnSync(tool, args, { encoding: "utf8", input: "" });
  const isRoot = (result.stdout || "").trim() === "0";
  console.log(isRoot ? "ESCAPED: root by" : "refused:", tool, ...args);
}
console.log("CONTAINED");
