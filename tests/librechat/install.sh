#!/usr/bin/env bash
# Installs LibreChat's own code-interpreter clients for the tests in this folder.
#
#   ./install.sh FOLDER          e.g. ./install.sh ../../target/librechat-clients
#
# FOLDER/gen_b  @librechat/agents 3.9.2   (LibreChat v0.8.6 and newer)
# FOLDER/gen_a  @librechat/agents 3.1.63  (LibreChat up to v0.8.5)
#
# A plain `npm install` of one of them brings 551 MB of model providers. Their code tools and their
# ToolNode need only the packages that clients/*/package-lock.json pins (139 MB and 74 MB), so the
# package itself is unpacked beside those, unmodified, and checked against its published hash.
# No install script of any package runs. A second call sees the stamp and does nothing.
#
# Then, against a running server:
#   REDOMA_BASE=http://127.0.0.1:8000 REDOMA_KEY=… REDOMA_CLIENTS=FOLDER \
#   REDOMA_JWT_ED25519_PRIVATE=ed.pem REDOMA_JWT_RSA_PRIVATE=rsa.pem node gen_b.cjs [words of test names]
# and the same with gen_a.cjs, which needs no JWT keys.
set -euo pipefail

fail() { printf 'librechat clients: %s\n' "$1" >&2; exit 1; }

[ $# -eq 1 ] || fail "usage: $0 FOLDER"
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" || fail "cannot create $1"
folder=$(cd "$1" && pwd)

command -v node >/dev/null || fail "node is missing; install Node.js 18 or newer (https://nodejs.org)"
command -v npm >/dev/null || fail "npm is missing; it comes with Node.js, or as Debian's package npm (https://nodejs.org)"
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 18 ] || fail "node $(node -v) is too old; 18 or newer is needed"

install_client() {
    local generation=$1 version=$2 integrity=$3
    local target=$folder/$generation source=$here/clients/$generation
    local stamp
    stamp="$version $integrity $(cat "$source/package.json" "$source/package-lock.json" "$0" | cksum)"
    if [ "$(cat "$target/.installed" 2>/dev/null)" = "$stamp" ]; then
        printf '%s: @librechat/agents %s is there\n' "$generation" "$version"
        return
    fi

    printf '%s: installing @librechat/agents %s into %s\n' "$generation" "$version" "$target"
    rm -rf "$target"
    mkdir -p "$target"
    cp "$source/package.json" "$source/package-lock.json" "$target/"
    (
        cd "$target"
        npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
        npm pack "@librechat/agents@$version" --ignore-scripts --silent --loglevel=error >/dev/null
    ) || fail "npm could not fetch $generation; is https://registry.npmjs.org reachable?"

    local tarball=$target/librechat-agents-$version.tgz
    node -e '
        const [file, expected] = process.argv.slice(1);
        const hash = require("node:crypto").createHash("sha512").update(require("node:fs").readFileSync(file));
        process.exit(`sha512-${hash.digest("base64")}` === expected ? 0 : 1);
    ' "$tarball" "$integrity" || fail "$tarball is not the package that was published as $version"

    local package=$target/node_modules/@librechat/agents
    mkdir -p "$package"
    tar -xzf "$tarball" -C "$package" --strip-components=1 --exclude='*.map' \
        package/dist/cjs package/package.json package/LICENSE
    rm "$tarball"
    printf '%s\n' "$stamp" > "$target/.installed"
}

install_client gen_b 3.9.2 sha512-QrCGLdJLZQBprBvS7gNfrNEqykwt0B157A2tMGJflmzdBQa8/TQ0yLydQo3NcA7TtFZJeJNmCo0hsZj4UJbjmw==
install_client gen_a 3.1.63 sha512-6uHsGyY2kOrBbSffWVzBnQcIoVG65L1ojYSBFHYZiQc/SsW2BGCmVTUWzORA8aZIE7uX+DYP3pBtybGvsYTURg==
