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

targets=(consumer consumer_c)
if [ "$way" = tree ]; then
  "${configure[@]}" -DBATON_SOURCE="$source" >/dev/null
else
  cmake --install "$build" --prefix "$work/first" >/dev/null
  mv "$work/first" "$work/prefix"  # nothing installed may remember where it was
  "${configure[@]}" -DCMAKE_PREFIX_PATH="$work/prefix" -DBATON_SAMPLES="$source/samples" >/dev/null
  targets+=(hello_team)
fi
cmake --build "$work/app" --target "${targets[@]}" -- -j2 >"$work/log" || { cat "$work/log"; exit 1; }
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
echo "a sample finds the model of the prefix that its library came from"
env -u BATON_MODEL -u BATON_MODEL_PATH "$work/app/hello_team" "What is 6 x 7?" | tee "$work/hello"
grep -q '^ok in' "$work/hello"
usual=$(sed -n 's/^CMAKE_INSTALL_PREFIX:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ ! -e "$usual/share/baton" ]; then  # where the library looks last
  echo "and none without it"
  mv "$work/prefix/share/baton/models" "$work/models"
  if env -u BATON_MODEL -u BATON_MODEL_PATH "$work/app/hello_team" >"$work/hello" 2>&1; then
    echo "it found another model than that of the prefix" >&2
    exit 1
  fi
  grep -qF "$work/prefix/share/baton/models/nano" "$work/hello"
  mv "$work/models" "$work/prefix/share/baton/models"
fi
"$work/prefix/bin/baton" version
"$work/prefix/bin/baton" models | grep nano
"$work/prefix/bin/baton" validate "$work"/prefix/share/baton/workflows/*.yaml
