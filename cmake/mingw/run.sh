#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: run.sh PROGRAM [ARGUMENT...] Runs a program of the preset windows in Wine, in a Windows of its own.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export WINEPREFIX=${WINEPREFIX:-$root/build/wine} WINEDEBUG=${WINEDEBUG:--all} WINEDLLOVERRIDES=mscoree,mshtml=
exec "$(command -v wine64 || echo /usr/lib/wine/wine64)" "$@"
