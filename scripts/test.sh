#!/usr/bin/env bash
# Everything that CI runs: builds the program and its weakened twin, prepares a runtime, runs all tests.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${REDOMA_TEST_DATA:-/var/tmp/redoma-test}

step() { printf '\n== %s\n' "$*"; }

step "checking that the threat model names every attack"
scripts/list-attacks.sh --check

step "building"
# The second is the same program with a switch to leave walls out, so that each attack can be seen to succeed without its
# wall. They are built one after the other: together, the switch would be in both.
scripts/build.sh debug redoma redoma-weakened

step "preparing the runtime in $data"
mkdir -p "$data" && chmod 755 "$data"
# Programs of earlier builds, which the unprivileged half of the tests had copies of.
[ ! -d "$data/bin" ] || find "$data/bin" -type f -mmin +180 -delete
target/debug/redoma setup --data-dir "$data"
if [ "$(id -u)" -eq 0 ]; then
    # The unprivileged half of the tests runs as this uid.
    target/debug/redoma setup --delegate "${REDOMA_TEST_UID:-54321}"
fi

step "installing LibreChat's own clients"
command -v node >/dev/null && command -v npm >/dev/null || scripts/install-packages.sh nodejs npm
tests/librechat/install.sh target/librechat-clients

step "installing Jupyter's own clients"
python3 -c 'import ensurepip, venv' 2>/dev/null || scripts/install-packages.sh python3 python3-venv
tests/jupyter/install.sh target/jupyter-clients

step "testing"
if command -v cargo-nextest >/dev/null; then
    # Only what fails or takes long is told, so that it is not lost among two thousand lines.
    cargo nextest run --locked --no-fail-fast --status-level slow --final-status-level fail
else
    echo "cargo-nextest is not installed; using cargo test (slower: cargo install cargo-nextest --locked)"
    cargo test --locked --no-fail-fast
fi
