#!/usr/bin/env bash
# Installs real Jupyter clients for the tests in this folder.
#
#   ./install.sh FOLDER [--reference]          e.g. ./install.sh ../../target/jupyter-clients
#
# FOLDER/venv        a Python environment with what requirements.txt pins; with --reference also ipykernel, pandas and
#                    matplotlib (requirements-reference.txt), for reference.sh and the benchmark
# FOLDER/open-webui  the Python files of the open-webui wheel, unmodified and checked against its published hash. The wheel
#                    is under a licence of its own and is never part of this repository; its dependencies are not installed.
#
# A second call sees the stamp and does nothing.
#
# Then, against a running server:
#   FOLDER/venv/bin/python openwebui.py URL TOKEN [--password PW] [--wall SECONDS]
#   FOLDER/venv/bin/python kernel_client.py URL TOKEN
#   FOLDER/venv/bin/python gateway.py URL TOKEN [--token-b TOKEN]
set -euo pipefail

open_webui=0.12.4
open_webui_sha256=02e9caba96234db3fa17a92e56163b3f7f2b8ca8227fa886b85c178d696483f6

fail() { printf 'jupyter clients: %s\n' "$1" >&2; exit 1; }

[ $# -ge 1 ] && [ $# -le 2 ] && [ "${2:---reference}" = --reference ] || fail "usage: $0 FOLDER [--reference]"
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" || fail "cannot create $1"
folder=$(cd "$1" && pwd)
python=${PYTHON:-python3}

command -v "$python" >/dev/null || fail "$python is missing; install Python 3.11 or newer (sudo apt-get install python3 python3-venv)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || fail "$("$python" --version) is too old; 3.11 or newer is needed (name another with PYTHON=…)"
"$python" -c 'import ensurepip, venv' 2>/dev/null \
    || fail "$python cannot make virtual environments; install Debian's package: sudo apt-get install python3-venv"

stamp() { "$python" --version; echo "$open_webui_sha256"; cat "$here/$1" "$here/install.sh" | cksum; }
pip() { "$folder/venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
install_packages() {
    # All of the lock file's packages are named in it, so that pip need not look for more.
    pip install --quiet --no-deps --only-binary :all: --root-user-action=ignore -r "$here/$1" >/dev/null \
        || fail "pip could not install $1; is https://pypi.org reachable?"
}

if [ "$(cat "$folder/.installed" 2>/dev/null)" = "$(stamp requirements.txt)" ]; then
    echo "jupyter clients: they are there"
else
    echo "jupyter clients: installing into $folder"
    rm -rf "$folder/venv" "$folder/open-webui" "$folder/.installed" "$folder/.installed-reference" "$folder/download"
    "$python" -m venv "$folder/venv" || fail "cannot make a virtual environment in $folder/venv"
    install_packages requirements.txt
    # The wheel says that it needs Python < 3.13; the one file of it that is driven here does not.
    pip download --quiet --no-deps --only-binary :all: --ignore-requires-python --dest "$folder/download" \
        "open-webui==$open_webui" >/dev/null || fail "pip could not fetch open-webui $open_webui; is https://pypi.org reachable?"
    "$python" - "$folder/download/open_webui-$open_webui-py3-none-any.whl" "$open_webui_sha256" "$folder/open-webui" <<'PYTHON' \
        || fail "the wheel is not the one that was published as open-webui $open_webui"
import hashlib, sys, zipfile
wheel, expected, target = sys.argv[1:]
with open(wheel, "rb") as file:
    if hashlib.file_digest(file, "sha256").hexdigest() != expected:
        sys.exit(1)
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(target, [name for name in archive.namelist() if name.endswith(".py") or "/licenses/LICENSE" in name])
PYTHON
    rm -r "$folder/download"
    stamp requirements.txt > "$folder/.installed"
fi

if [ "${2:-}" = --reference ] \
    && [ "$(cat "$folder/.installed-reference" 2>/dev/null)" != "$(stamp requirements-reference.txt)" ]; then
    echo "jupyter clients: installing the original kernel too"
    install_packages requirements-reference.txt
    stamp requirements-reference.txt > "$folder/.installed-reference"
fi
