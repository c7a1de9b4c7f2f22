#!/usr/bin/env bash
# Writes the list of attack cases, from their first lines, to the end of docs/threat-model.md. With --check it only says
# whether the list there is the right one.
set -euo pipefail
cd "$(dirname "$0")/.."
page=docs/threat-model.md
mark='<!-- cases: made by scripts/list-attacks.sh -->'

grep -qxF "$mark" "$page" || { echo "error: $page has lost its line $mark" >&2; exit 1; }

list() {
    awk -v mark="$mark" '{ print } $0 == mark { exit }' "$page"
    echo
    echo '| case | claim | noticed without |'
    echo '|---|---|---|'
    for file in tests/attacks/*/*; do
        field() { grep -m1 -E "^(#|//) ?$1:" "$file" | sed -E "s/^(#|\/\/) ?$1: *//"; }
        printf '| `%s` | %s | %s |\n' "${file#tests/attacks/}" "$(field claim | sed 's/|/\\|/g')" "$(field weaken)"
    done
}

if [ "${1:-}" = --check ]; then
    list | diff -q - "$page" >/dev/null || { echo "the list in $page is old; run scripts/list-attacks.sh" >&2; exit 1; }
else
    list >"$page.new" && mv "$page.new" "$page"
fi
