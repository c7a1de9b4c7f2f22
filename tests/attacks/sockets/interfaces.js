// claim: code is not told the host's network addresses
// weaken: seccomp,net_namespace
const os = require("node:os");
const fs = require("node:fs");

try {
  for (const [name, addresses] of Object.entries(os.networkInterfaces())) {
    const outside = addresses.filter((one) => !one.internal).map((one) => one.address);
    console.log(outside.length ? "ESCAPED:" : "own:", name, outside.join(" "));
  }
} catch (error) {
  console.log("refused: networkInterfaces", error.code);
}
// The same from the kernel's tables, without a socket.
for (const file of ["fib_trie", "if_inet6", "arp", "route"]) {
  const text = fs.readFileSync(`/proc/net/${file}`, "utf8");
  const v4 = (text.match(/\b\d+\.\d+\.\d+\.\d+\b/g) || []).filter((ip) => !/^(127\.|0\.0\.0\.0$)/.test(ip));
  const v6 = file === "if_inet6" ? text.split("\n").filter((line) => line && !line.endsWith(" lo")) : [];
  console.log(v4.length || v6.length ? `ESCAPED: ${file} tells ${v4.concat(v6)[0]}` : `nothing in ${file}`);
}
console.log("CONTAINED");
