#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: run.sh PROCESSOR PROGRAM [ARGUMENT...] Runs a program of the preset aarch64 in qemu, as one of the processors
# that `qemu-aarch64 -cpu help` lists.
set -euo pipefail
processor=$1
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/aarch64-sysroot/root
libraries=$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu
exec qemu-aarch64 -cpu "$processor" -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$libraries" "$@"
