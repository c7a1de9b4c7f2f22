#!/usr/bin/env bash
#
# Does run-in-vm.sh keep its promises, and can the guest do what the sandbox needs?

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"
failures=0

expect() { # NAME EXPECTED ACTUAL
    if [[ $2 == "$3" ]]; then
        printf 'ok   %s\n' "$1"
    else
        printf 'FAIL %s: expected %q, got %q\n' "$1" "$2" "$3"
        failures=$((failures + 1))
    fi
}

exit_code_of() { # ARGUMENTS...: the exit code on stdout, the output dropped
    local code=0
    ./run-in-vm.sh "$@" >/dev/null 2>&1 || code=$?
    echo "$code"
}

# shellcheck disable=SC2016 # the point is that nothing expands them
odd=('a b' "it's" '"q"' '$HOME `id` \n' $'new\nline' '' '*' $'\xff' --user)
expect "arguments arrive as they are" "$(printf '<%s>' "${odd[@]}")" \
    "$(./run-in-vm.sh -- printf '<%s>' "${odd[@]}")"
expect "REDOMA_ variables arrive" "x 'y'" "$(REDOMA_T="x 'y'" ./run-in-vm.sh -- printenv REDOMA_T)"
expect "stderr stays apart" out "$(./run-in-vm.sh -- sh -c 'echo err >&2; echo out' 2>/dev/null)"
expect "the exit code arrives" 7 "$(exit_code_of -- sh -c 'exit 7')"
expect "a long output arrives whole, leftovers do not hold the machine" \
    "$(seq 100000 | sha256sum)" "$(./run-in-vm.sh -- sh -c 'sleep 1000 & seq 100000' | sha256sum)"
expect "a crash is 125" 125 "$(exit_code_of -- sh -c 'echo c >/proc/sysrq-trigger')"
expect "a timeout is 125" 125 "$(exit_code_of --timeout 3 -- sleep 1000)"
expect "the host is not written to" "" \
    "$(./run-in-vm.sh -- sh -c "echo 1 >'$here/written-in-guest'"; ls "$here/written-in-guest" 2>/dev/null || true)"
expect "the guest, as root" 0 "$(./run-in-vm.sh -- /usr/bin/python3 guest-check.py >&2; echo $?)"
expect "the guest, as a user" 0 "$(./run-in-vm.sh --user -- /usr/bin/python3 guest-check.py >&2; echo $?)"
exit $((failures > 0))
