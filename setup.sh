#!/usr/bin/env bash
# From a fresh clone to a running server: installs what is missing, builds, prepares the runtime, checks this host, starts.
# Safe to run again; then it takes seconds. `--no-start` stops before the last step. REDOMA_LISTEN and REDOMA_DATA_DIR are obeyed.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '%s\n' "$*"; }

say "1/5 packages"
scripts/install-packages.sh python3 python3-venv nodejs gcc libc6-dev
if ! command -v cargo >/dev/null; then
    echo "error: Rust is missing; install rustup from Debian's packages (apt-get install rustup && rustup default stable)," >&2
    echo "       or follow the instructions on Rust's own site, then run this again" >&2
    exit 1
fi

say "2/5 building (the first time takes some minutes)"
scripts/build.sh release redoma

say "3/5 preparing the runtime"
target/release/redoma setup

if [ "$(id -u)" -eq 0 ] && [ "${SUDO_UID:-0}" -ne 0 ]; then
    # Started with sudo: whoever did may run without it from now on.
    target/release/redoma setup --delegate "$SUDO_UID"
fi

say "4/5 checking this host"
if ! target/release/redoma doctor; then
    echo
    echo "Mend what is MISSING (each line says how), then run ./setup.sh again." >&2
    exit 1
fi

[ "${1-}" = --no-start ] && exit 0

say "5/5 starting the server"
redoma=$PWD/target/release/redoma
data=${REDOMA_DATA_DIR:-$([ "$(id -u)" -eq 0 ] && echo /var/lib/redoma || echo "${XDG_DATA_HOME:-$HOME/.local/share}/redoma")}
listen=${REDOMA_LISTEN:-127.0.0.1:8000}
# As `redoma serve` takes it: a port alone is this host's.
[[ $listen =~ ^:?[0-9]+$ ]] && listen=127.0.0.1:${listen#:}
host=${listen%:*}
host=${host#[} host=${host%]}
log=$data/serve.log
# Whether something answers there that is ready to run programs. With bash alone: curl may not be there.
ready() {
    (exec 3<>"/dev/tcp/$host/${listen##*:}" && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && head -1 <&3 | grep -q ' 200 ') 2>/dev/null
}
if ready; then
    echo "a server answers on $listen already; it is left as it is (kill it and run this again for the new build)"
else
    (umask 077 && touch "$log")
    setsid nohup "$redoma" serve --data-dir "$data" --listen "$listen" >>"$log" 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 300); do
        ready && break
        kill -0 "$pid" 2>/dev/null || { echo "error: the server did not start:" >&2; tail -3 "$log" >&2; exit 1; }
        sleep 0.2
    done
    ready || { echo "error: the server is not ready after a minute; its log is $log" >&2; exit 1; }
fi

cat <<TXT

Redoma serves on http://$listen   (reference: http://$listen/docs; log: $log${pid:+; stop it with: kill $pid})
The admin key is in $data/admin.key${REDOMA_API_KEY:+, or what REDOMA_API_KEY says}:  $(cat "$data/admin.key" 2>/dev/null || true)

Try it:
    KEY=\$(cat $data/admin.key)
    curl -s -H "X-API-Key: \$KEY" -d '{"language": "py", "code": "print(6 * 7)"}' http://$listen/api/v1/executions
    target/release/redoma run -c 'import pandas; print(pandas.__version__)'
    target/release/redoma keys create --data-dir $data --client librechat        # then: integrations/librechat/README.md
TXT
