// Node, started ahead of time. It waits here for its assignment, on descriptor 3, and then becomes what it would be if it had
// been started for the script. It has by then done everything but that, and has never seen anybody's code.
'use strict';
const fs = require('fs');
const Module = require('module');
// Nobody needs this file again: what the script finds in its home is its own.
fs.unlinkSync(__filename);
delete require.cache[__filename];
// What nearly every script uses, and Node makes on first use. That leaves the pipes non-blocking, which a script that
// writes to them by number does not expect.
for (const stream of [process.stdout, process.stderr]) {
  stream._handle?.setBlocking?.(true);
}
for (const name of ['path', 'url', 'util', 'os', 'events', 'stream', 'buffer', 'assert', 'crypto', 'fs/promises']) {
  require(name);
}
const buffer = Buffer.alloc(160 << 10);
const length = fs.readSync(3, buffer, 0, buffer.length, null);
fs.closeSync(3);
if (length === 0) {
  process.exit(125);
}
const { arguments: rest, script, code } = JSON.parse(buffer.toString('utf8', 0, length));
process.chdir('/mnt/data');
if (code !== undefined) {
  fs.writeFileSync(script, Buffer.from(code, 'base64'));
}
process.argv.splice(1, process.argv.length, `/mnt/data/${script}`, ...rest);
process.mainModule = undefined;
Module.runMain(process.argv[1]);
