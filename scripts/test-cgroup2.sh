#!/usr/bin/env bash
# The jail on a real cgroup v2 hierarchy: a Debian kernel in QEMU under software emulation, with this machine's root file
# system shared read-only (tests/vm). Runs the whole-program tests there as root and as a plain user. Slow: some ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
vm=tests/vm/run-in-vm.sh
data=${REDOMA_TEST_DATA:-/var/tmp/redoma-test}
# The guest's /var/tmp is a disk of its own, so the runtime is handed in under another path.
shared=$PWD/target/vm-data

step() { printf '\n== %s\n' "$*"; }

step "building"
scripts/build.sh debug redoma
# nextest knows where the test programs are; the guest then runs them without cargo.
list() { cargo test --quiet --locked -p redoma-tests --no-run --message-format json 2>/dev/null; }
program() { list | grep -o "\"executable\":\"[^\"]*/$1-[0-9a-f]*\"" | tail -1 | cut -d'"' -f4; }

step "preparing the runtime"
target/debug/redoma setup --data-dir "$data"
rm -rf "$shared" && mkdir -p "$shared"
cp -a --reflink=auto "$data/runtimes" "$shared/"

guest() { # --user|--root, then a shell script
    local who=$1
    shift
    local flags=(--timeout 2400 --memory 4096)
    [ "$who" = --user ] && flags+=(--user)
    REDOMA_VM_SHARED=$shared "$vm" "${flags[@]}" -- bash -euc "$*"
}
# Timed to the hundredth of a second is nothing under emulation.
skip="--skip the_wall_limit_ends_a_run_within --skip the_cpu_limit_counts --skip output_comes_while"
prepare='
    export REDOMA_TEST_DATA=/var/tmp/t
    mkdir -p $REDOMA_TEST_DATA
    ln -sfn $REDOMA_VM_SHARED/runtimes $REDOMA_TEST_DATA/runtimes
    test "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs
'
attacks=$(program attacks) run_command=$(program run_command) probe=$(program probe)

step "as root"
guest --root "$prepare
    target/debug/redoma doctor --data-dir \$REDOMA_TEST_DATA
    target/debug/redoma run --data-dir \$REDOMA_TEST_DATA --json -c 'print(1)' | grep '\"cgroup_version\": 2'
    chmod 777 /var/tmp; cd tests
    REDOMA_TEST_MODES=root $probe
    REDOMA_TEST_MODES=root $run_command $skip --skip without_a_usable_cgroup
    REDOMA_TEST_MODES=root $attacks root::"

step "as a plain user with a delegated cgroup"
guest --user "$prepare
    mkdir -p /sys/fs/cgroup/user-1000/tests
    echo \$\$ > /sys/fs/cgroup/user-1000/tests/cgroup.procs
    target/debug/redoma doctor --data-dir \$REDOMA_TEST_DATA
    cd tests
    $probe
    $run_command $skip
    $attacks rootless::"

step "as a service alone in its delegated cgroup"
guest --user "$prepare
    exec target/debug/redoma run --data-dir \$REDOMA_TEST_DATA --json -c 'print(1)'" | grep '"cgroup_version": 2'

echo
echo "cgroup v2: all passed"
