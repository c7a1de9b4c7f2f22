#!/usr/bin/env bash
# Installs the Debian packages named as arguments, those that are missing: as root or with sudo. Without either it says
# what to run, and stops.
set -euo pipefail

missing=()
for package in "$@"; do
    # A tool that came from elsewhere (a newer Node, say) will do as well as Debian's package.
    case "$package" in
        nodejs) command -v node >/dev/null && continue ;;
        python3) [ -x /usr/bin/python3 ] && continue ;;
        bubblewrap) command -v bwrap >/dev/null && continue ;;
    esac
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "error: install these with your system's package manager, then run this again: ${missing[*]}" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "error: packages are missing; run this, then try again:" >&2
        echo "    sudo apt-get install -y ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "${missing[@]}" >"$log" 2>&1; }
# The package lists may be old or missing: fetch them only if that is so.
if ! install; then
    "${as_root[@]}" apt-get update -q >"$log" 2>&1 || { tail -5 "$log" >&2; exit 1; }
    install || { tail -20 "$log" >&2; exit 1; }
fi
