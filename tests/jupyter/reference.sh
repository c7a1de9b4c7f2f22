#!/usr/bin/env bash
# Starts the original, a jupyter_server with ipykernel, to prove that the suites in this folder are right.
#
#   ./reference.sh FOLDER [PORT]      FOLDER as given to `install.sh FOLDER --reference`
#
# Serves http://127.0.0.1:PORT/jupyter with the token "reference-token" and the password "reference-password", in the
# foreground, until it is ended by Ctrl-C or by its pid. It uses no file of the user's Jupyter. Its limit of 1 MB/s for
# output is off, so that what is seen is what its messages do.
set -euo pipefail

fail() { printf 'jupyter reference: %s\n' "$1" >&2; exit 1; }

[ $# -ge 1 ] || fail "usage: $0 FOLDER [PORT]"
python=$1/venv/bin/python
"$python" -c 'import jupyter_server, ipykernel' 2>/dev/null || fail "run install.sh $1 --reference first"
home=$(mktemp -d)
mkdir "$home/files"
export HOME=$home JUPYTER_CONFIG_DIR=$home/config JUPYTER_DATA_DIR=$home/data JUPYTER_RUNTIME_DIR=$home/runtime
export IPYTHONDIR=$home/ipython MPLCONFIGDIR=$home/mpl JUPYTER_NO_CONFIG=1
hash=$("$python" -c 'from jupyter_server.auth import passwd; print(passwd("reference-password"))')
# `exec`, so that the pid of this script is the pid of the server; the folder in /tmp is left to the system.
exec "$python" -m jupyter_server --ServerApp.ip=127.0.0.1 --ServerApp.port="${2:-18890}" --ServerApp.port_retries=0 \
    --ServerApp.base_url=/jupyter/ --ServerApp.root_dir="$home/files" --no-browser --allow-root \
    --ZMQChannelsWebsocketConnection.iopub_data_rate_limit=1e10 \
    --IdentityProvider.token=reference-token --PasswordIdentityProvider.hashed_password="$hash"
