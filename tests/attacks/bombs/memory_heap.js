// claim: buffers outside of JavaScript's heap count against the memory limit
// weaken: limits
// flags: --memory 96MiB
// limit: memory
const held = [];
while (held.length < 50) held.push(Buffer.alloc(4 << 20, "x"));
console.log("ESCAPED: holds 200 MiB of 96");
console.log("CONTAINED");
