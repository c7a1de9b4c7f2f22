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
    built=target/$host/$profile/$package place=target/$profile/$package
    if [ "$profile" = release ]; then
        # A copy: what a linker has written here and there, the kernel keeps and maps page by page; what was written from
        # beginning to end starts 0.2 ms sooner.
        if [ -L "$place" ] || ! cmp -s "$built" "$place"; then
            cp "$built" "$place.new"
            mv "$place.new" "$place"
        fi
    else
        ln -sfn "../$host/$profile/$package" "$place"
    fi
done
