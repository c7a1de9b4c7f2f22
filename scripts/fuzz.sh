#!/usr/bin/env bash
# Fuzzes what reads hostile text, with coverage, for a while: fuzz.sh [SECONDS]. What it finds is kept in target/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
command -v g++ >/dev/null || scripts/install-packages.sh g++
corpus=target/fuzz/corpus/policy
mkdir -p "$corpus" target/fuzz/found
# Real programs to begin with: those that the tests of rules are made of.
python3 - "$corpus" <<'P'
import hashlib, pathlib, sys, tomllib
number = {"python": 0, "javascript": 1, "typescript": 2, "bash": 3}
def walk(value):
    if isinstance(value, dict):
        if isinstance(value.get("code"), str) and isinstance(value.get("language"), str):
            yield value["language"], value["code"]
        value = value.values()
    if not isinstance(value, str):
        try:
            for inner in value:
                yield from walk(inner)
        except TypeError:
            pass
names = {"py": "python", "js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash"}
for path in pathlib.Path("crates/redoma-policy").rglob("*.toml"):
    if path.name == "Cargo.toml":
        continue
    for language, code in walk(tomllib.loads(path.read_text())):
        first = number.get(names.get(language, language))
        if first is not None:
            data = bytes([first]) + code.encode()
            pathlib.Path(sys.argv[1], hashlib.sha1(data).hexdigest()).write_bytes(data)
P
# Counters for coverage on stable Rust; a target folder of its own, for the flags go for everything.
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=target/fuzz/build
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
cargo build --release --locked -p redoma-fuzz --target "$host"
exec "$CARGO_TARGET_DIR/$host/release/policy" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
    -artifact_prefix=target/fuzz/found/ "$corpus"
