#!/bin/sh
# Installs the locked packages into a folder of the build and runs the tests there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$1
command -v npm >/dev/null || { echo "no npm: skipped"; exit 77; }
mkdir -p "$work"
cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$here/client.test.js" "$work"
cd "$work"
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --silent
    cp package-lock.json node_modules/.installed
fi
ECHO_PROTO=$here/../echo.proto exec node --test client.test.js
