// claim: no variable of the host's environment reaches the program
// weaken: environment
const known = ["PATH", "HOME", "USER", "LOGNAME", "PWD", "TMPDIR", "LANG", "TZ", "TERM", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"];
for (const [name, value] of Object.entries(process.env)) {
  if (/SECRET|CANARY|REDOMA/.test(name + value)) console.log("ESCAPED:", name, "=", value);
  else if (!known.includes(name)) console.log("set by the language:", name, value);
}
console.log("CONTAINED");
