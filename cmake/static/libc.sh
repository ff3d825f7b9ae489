#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: libc.sh DIR. The C library of Debian 11 (glibc 2.31), to link with: DIR/lib, DIR/usr/lib.
set -euo pipefail
[ ! -e "$1/complete" ] || exit 0
rm -rf "$1"
"$(dirname "${BASH_SOURCE[0]}")/../unpack_debian.sh" "$1" bullseye main libc6 libc6-dev libgcc-s1
# Links from the root would leave DIR.
find "$1" -lname '/*' | while read -r link; do ln -sfr "$1$(readlink "$link")" "$link"; done
: >"$1/complete"
