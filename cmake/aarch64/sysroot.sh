#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: sysroot.sh DIR PACKAGE... Downloads the arm64 builds of Debian packages and of what they need, and unpacks them
# into DIR/root. The system's own package lists and architectures stay as they are. The C and C++ libraries are left out:
# those of the cross compiler are used.
set -euo pipefail
dir=$1
shift
stamp="$dir/packages"
if [ "$(cat "$stamp" 2>/dev/null)" = "$*" ]; then exit 0; fi
command -v apt-get >/dev/null || { echo "sysroot.sh: no apt-get here: $dir/root has to hold the arm64 libraries: $*" >&2; exit 1; }
rm -rf "$dir"
mkdir -p "$dir/root"
cmake=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$cmake/private_apt.sh"
dir=$(cd "$dir" && pwd)
private_apt "$dir" arm64
apt-get update -qq
apt-get install -qq -y --no-install-recommends --download-only "$@" >/dev/null
for file in "$dir"/archives/*.deb; do
  case ${file##*/} in
    libc6* | libc-dev-bin* | linux-libc-dev* | gcc-* | libgcc* | libstdc++* | lib*san[0-9]* | libatomic1* | libgomp1* | libitm1*) ;;
    *) dpkg-deb -x "$file" "$dir/root" ;;
  esac
done
rm -rf "$dir/lists" "$dir/archives"
echo "$*" >"$stamp"
