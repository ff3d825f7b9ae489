#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: programs.sh (as root) Has this machine's kernel start programs for 64-bit Arm with start.sh of this folder
# (binfmt_misc), so that a test can start one as it would start any other. It stays so until the next boot, or until -1
# is written to /proc/sys/fs/binfmt_misc/baton-aarch64.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
formats=/proc/sys/fs/binfmt_misc
[ -e "$formats/register" ] || mount -t binfmt_misc binfmt_misc "$formats"
[ ! -e "$formats/baton-aarch64" ] || echo -1 >"$formats/baton-aarch64"
# The first 20 bytes of an ELF file: 64 bits, little-endian, an executable or a shared object, machine 183.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf ':baton-aarch64:M::%s:%s:%s:\n' "$magic" "$mask" "$here/start.sh" >"$formats/register"
