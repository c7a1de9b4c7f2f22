// claim: nothing is mounted in the sandbox but what it is made of
// weaken: canary
const fs = require("node:fs");

const expected = [
  /^\/$/, /^\/(usr|etc|bin|sbin|lib|lib32|lib64|libx32)$/, /^\/usr\/local$/, /^\/opt\/(python|redoma\/inside)$/,
  /^\/(mnt\/data|tmp|home\/sandbox|dev\/shm)$/, /^\/dev\/(null|zero|full|random|urandom|pts)$/,
  /^\/proc(\/[^/]+)?$/,
];
const lines = fs.readFileSync("/proc/self/mountinfo", "utf8").trim().split("\n");
for (const line of lines) {
  const [, , , , place, options, ...rest] = line.split(" ");
  const propagates = rest.slice(0, rest.indexOf("-")).filter((tag) => /^(shared|master|propagate_from)/.test(tag));
  if (!expected.some((pattern) => pattern.test(place))) {
    console.log("ESCAPED: mounted at", place, options);
  }
  if (propagates.length) {
    console.log("ESCAPED: mounts travel between host and", place, propagates.join(" "));
  }
}
const known = "bin dev etc home lib lib32 lib64 libx32 mnt opt proc sbin tmp usr".split(" ");
const places = fs.readdirSync("/").filter((name) => !known.includes(name));
if (places.length) console.log("ESCAPED: at the root there is", places.join(" "));
console.log("looked at", lines.length, "mounts");
console.log("CONTAINED");
