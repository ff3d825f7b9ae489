#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The install as its users see it: installs a build into a new prefix, moves the prefix, and builds a separate project
# against it; with a second argument "tree" builds the same project around the source tree instead.
# Usage: run.sh BUILD_FOLDER [installed|tree]
set -euo pipefail
build=$(realpath "$1")
way=${2:-installed}
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
configure=(cmake -S "$source/tests/consumer/app" -B "$work/app" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler")

ccache=$(command -v ccache || true)  # the second way compiles everything once more
[ -z "$ccache" ] || configure+=(-DCMAKE_CXX_COMPILER_LAUNCHER="$ccache")

if [ "$way" = tree ]; then
  "${configure[@]}" -DBATON_SOURCE="$source" >/dev/null
else
  cmake --install "$build" --prefix "$work/first" >/dev/null
  mv "$work/first" "$work/prefix"  # nothing installed may remember where it was
  "${configure[@]}" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
fi
cmake --build "$work/app" --target consumer consumer_c -- -j2 >"$work/log" || { cat "$work/log"; exit 1; }
"$work/app/consumer"
"$work/app/consumer_c"
[ "$way" = tree ] && exit 0

if grep -rlE 'nlohmann|fmt/|yaml-cpp|boost/' "$work/prefix/include"; then
  echo "a public header includes somebody else's" >&2
  exit 1
fi
if grep -rl -- "$source" "$work/prefix/lib/cmake" "$work/prefix/include"; then
  echo "an installed file names the source tree" >&2
  exit 1
fi
cd /
"$work/prefix/bin/baton" version
"$work/prefix/bin/baton" models | grep nano
"$work/prefix/bin/baton" validate "$work"/prefix/share/baton/workflows/*.yaml
