#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: unpack_debian.sh DIR RELEASE SECTION PACKAGE... Downloads packages of a Debian release for x86-64, without what
# they depend on, and unpacks them into DIR. The system's own package lists stay as they are.
set -euo pipefail
out=$1 release=$2 section=$3
shift 3
command -v apt-get >/dev/null || { echo "unpack_debian.sh: no apt-get here" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(cd "$out" && pwd)
. "$(dirname "${BASH_SOURCE[0]}")/private_apt.sh"
private_apt "$work" amd64
debian_lists "$work" deb "$release" "$section"
cd "$work/archives"
apt-get download -qq "$@"
for file in *.deb; do dpkg-deb -x "$file" "$out"; done
