#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: yaml.sh DIR. The source of yaml-cpp of this Debian release: DIR/src. The distribution's archive is not
# position-independent. The system's own package lists stay as they are.
set -euo pipefail
[ ! -e "$1/complete" ] || exit 0
. /etc/os-release
[ "$ID" = debian ] || { echo "yaml.sh: ID in /etc/os-release: expected debian, found $ID" >&2; exit 1; }
rm -rf "$1"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/../private_apt.sh"
private_apt "$dir" "$(dpkg --print-architecture)"
debian_lists "$dir" deb-src "$VERSION_CODENAME" main
cd "$dir"
apt-get source -qq yaml-cpp
mv yaml-cpp-*/src src
: >complete
