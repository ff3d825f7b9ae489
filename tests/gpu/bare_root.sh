#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: bare_root.sh PACK. Runs what `./dev gpu --pack PACK` made in a bare Debian 11: run.sh ends with "No usable GPU"
# and exit code 4, the GPU tests start and say that they are skipped, and a team answers on the CPU. Needs root and the
# network, debootstrap and debian-archive-keyring.
set -euo pipefail
die() { printf 'bare_root: %s\n' "$*" >&2; exit 1; }
[ -x "${1:-}/run.sh" ] || die "no pack in '${1:-}'"
[ "$(id -u)" = 0 ] || die "needs root, for chroot"
command -v debootstrap >/dev/null || die "debootstrap is not installed"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg bullseye "$root" \
  http://deb.debian.org/debian >"$root.log" 2>&1 || { tail -n 20 "$root.log"; die "debootstrap failed"; }
rm "$root.log"
cp -r "$1" "$root/pack"

# inside COMMAND...: in the root, with processes of its own. Its output is in `output`, its exit code in `code`.
inside() {
  code=0
  output=$(unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" "$@" 2>&1) || code=$?
}
expect() {  # expect CODE TEXT WHAT
  [[ $code = "$1" && $output == *"$2"* ]] || die "$3: expected exit code $1 and '$2', found $code and:"$'\n'"$output"
  printf 'bare_root: %s: ok\n' "$3"
}

inside /pack/run.sh /tmp/results
expect 4 "No usable GPU" "run.sh"
inside env BATON_TEST_DIR=/pack/tests /pack/bin/baton_test_cuda
expect 0 "SKIPPED: " "GPU tests"
inside env BATON_MODEL_PATH=/pack/samples/models /pack/bin/baton run /pack/workflows/library/math_team.yaml -q \
  --input "user_question=A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?"
expect 0 "The answer is 26" "a team on the CPU"
