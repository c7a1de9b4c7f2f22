#!/usr/bin/env bash
# Builds programs of this workspace (package = program) and puts them where people look: target/debug or target/release.
# Cargo itself has them one folder deeper, since a target is named in .cargo/config.toml.
# usage: build.sh debug|release PACKAGE…
set -euo pipefail
cd "$(dirname "$0")/.."
profile=$1
shift
host=$(rustc -vV | sed -n 's/^host: //p')
for package in "$@"; do
    flags=(--locked -p "$package")
    [ "$profile" = release ] && flags+=(--release)
    cargo build "${flags[@]}"
    mkdir -p "target/$profile"
    ln -sfn "../$host/$profile/$package" "target/$profile/$package"
done
