// claim: a program that only waits is ended at the wall limit
// weaken: limits
// flags: --wall 500ms
// limit: wall
setTimeout(() => {
  console.log("ESCAPED: waited for 1.5 s");
  console.log("CONTAINED");
}, 1500);
