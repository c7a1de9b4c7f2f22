// claim: nothing names the machine: no boot id, machine id, serial number or hardware address
// weaken: mask_proc
const fs = require("fs");
const os = require("os");
for (const path of ["/proc/sys/kernel/random/boot_id", "/etc/machine-id", "/var/lib/dbus/machine-id", "/run/machine-id",
  "/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/board_serial", "/sys/devices/virtual/dmi/id/product_name",
  "/sys/class/net/eth0/address", "/proc/device-tree/serial-number", "/etc/ssh/ssh_host_ed25519_key.pub", "/etc/hostid"]) {
  try {
    console.log("ESCAPED:", path, fs.readFileSync(path, "utf8").trim());
  } catch (error) {
    console.log("refused:", path, error.code);
  }
}
if (os.hostname() !== "redoma") console.log("ESCAPED: the host is", os.hostname());
try {
  for (const name of Object.keys(os.networkInterfaces())) {
    if (name !== "lo") console.log("ESCAPED: network", name);
  }
} catch (error) {
  console.log("refused: network interfaces", error.code);
}
console.log("CONTAINED");
