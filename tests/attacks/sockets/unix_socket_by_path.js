// claim: no local socket of the host or of another sandbox can be found by a path
// weaken: canary,landlock,read_only
// twice: yes
const fs = require("node:fs");
const net = require("node:net");

const [canary, key, role] = process.argv.slice(2);
const folders = ["/tmp", "/dev/shm", "/mnt/data", "/home/sandbox", canary];
const path = (folder) => `${folder}/attack-${key}.socket`;
const done = () => {
  console.log("CONTAINED");
  process.exit(0);
};

if (role === "a") {
  for (const folder of folders) {
    const server = net.createServer((peer) => peer.end("hello from a"));
    server.on("error", (error) => console.log("refused:", folder, error.code));
    server.listen(path(folder), () => fs.chmodSync(path(folder), 0o777));
  }
  setTimeout(() => {
    for (const folder of folders) fs.rmSync(path(folder), { force: true });
    done();
  }, 2000);
} else {
  for (const host of ["/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/dev/log"]) {
    if (fs.existsSync(host)) console.log("ESCAPED: there is", host);
  }
  const timer = setInterval(() => {
    for (const folder of folders) {
      const client = net.connect(path(folder));
      client.on("error", () => {});
      client.on("data", (text) => {
        console.log("ESCAPED: the other sandbox says", String(text), "in", folder);
        clearInterval(timer);
      });
    }
  }, 50);
  setTimeout(() => {
    clearInterval(timer);
    done();
  }, 1800);
}
