#!/usr/bin/env bash
# From a fresh clone to a first run: installs what is missing, builds, prepares the runtime, checks this host.
# Safe to run again; then it takes seconds.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '%s\n' "$*"; }

say "1/4 packages"
scripts/install-packages.sh python3 python3-venv nodejs gcc libc6-dev
if ! command -v cargo >/dev/null; then
    echo "error: Rust is missing; install rustup from Debian's packages (apt-get install rustup && rustup default stable)," >&2
    echo "       or follow the instructions on Rust's own site, then run this again" >&2
    exit 1
fi

say "2/4 building (the first time takes some minutes)"
scripts/build.sh release redoma

say "3/4 preparing the runtime"
target/release/redoma setup

if [ "$(id -u)" -eq 0 ] && [ "${SUDO_UID:-0}" -ne 0 ]; then
    # Started with sudo: whoever did may run without it from now on.
    target/release/redoma setup --delegate "$SUDO_UID"
fi

say "4/4 checking this host"
if ! target/release/redoma doctor; then
    echo
    echo "Mend what is MISSING (each line says how), then run ./setup.sh again." >&2
    exit 1
fi

cat <<TXT

Try it:
    target/release/redoma run -c 'import pandas; print(pandas.__version__)'
    target/release/redoma run --help
TXT
