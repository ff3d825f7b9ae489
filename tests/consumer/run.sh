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
c_compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
configure=(cmake -S "$source/tests/consumer/app" -B "$work/app" -G Ninja -DCMAKE_CXX_COMPILER="$compiler")

ccache=$(command -v ccache || true)  # the second way compiles everything once more
[ -z "$ccache" ] || configure+=(-DCMAKE_CXX_COMPILER_LAUNCHER="$ccache")

targets=(consumer consumer_c)
if [ "$way" = tree ]; then
  # A type of its own, without optimisation: this is about whether the tree builds inside of another project.
  "${configure[@]}" -DCMAKE_BUILD_TYPE=Plain -DBATON_SOURCE="$source" >/dev/null
else
  cmake --install "$build" --prefix "$work/first" >/dev/null
  mv "$work/first" "$work/prefix"  # nothing installed may remember where it was
  "${configure[@]}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" -DBATON_SAMPLES="$work/prefix/share/doc/baton/samples" >/dev/null
  targets=(all)
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
mkdir "$work/empty"
cd "$work/empty"
stranger=(env -i HOME=/nonexistent)
echo "a sample finds the model of the prefix that its library came from"
"${stranger[@]}" "$work/app/hello_team" "What is 6 x 7?" | tee "$work/hello"
grep -q '^ok in' "$work/hello"
echo "the samples are a project of their own"
cmake -S "$work/prefix/share/doc/baton/samples" -B "$work/samples" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log"
sed -n '/^-- sample/p' "$work/log"
cmake --build "$work/samples" -- -j2 >"$work/log" || { cat "$work/log"; exit 1; }
"${stranger[@]}" PATH="$PATH" python3 "$source/tests/samples/samples_test.py" "$work/samples"
usual=$(sed -n 's/^CMAKE_INSTALL_PREFIX:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ ! -e "$usual/share/baton" ]; then  # where the library looks last
  echo "and none without it"
  mv "$work/prefix/share/baton/models" "$work/models"
  if "${stranger[@]}" "$work/app/hello_team" >"$work/hello" 2>&1; then
    echo "it found another model than that of the prefix" >&2
    exit 1
  fi
  grep -qF "$work/prefix/share/baton/models/nano" "$work/hello"
  mv "$work/models" "$work/prefix/share/baton/models"
fi
baton=("${stranger[@]}" "$work/prefix/bin/baton")
"${baton[@]}" --version
"${baton[@]}" models | grep nano
"${baton[@]}" check "$work"/prefix/share/baton/workflows/*.yaml
echo "a workflow of the prefix by name, with the model of the prefix"
"${baton[@]}" run math_team -q \
  --input "user_question=A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?" |
  grep "The answer is 26"

packages=(baton-static)
if [ -e "$work/prefix/lib/pkgconfig/baton.pc" ]; then
  packages+=(baton)
  "$work/app/consumer_shared"
  "${stranger[@]}" "$work/app/hello_team_shared" "What is 6 x 7?" | grep '^ok in'
  echo "the shared library alone needs no package of anybody else"
  "${configure[@]}" -B "$work/shared" -DCMAKE_PREFIX_PATH="$work/prefix" -DBATON_COMPONENTS=shared \
    -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON --no-warn-unused-cli >/dev/null
  cmake --build "$work/shared" --target consumer_c >"$work/log" || { cat "$work/log"; exit 1; }
  "$work/shared/consumer_c"
  echo "and a project in C alone no C++ compiler"
  cmake -S "$source/tests/consumer/c_only" -B "$work/c_only" -G Ninja -DCMAKE_C_COMPILER="$c_compiler" \
    -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
  cmake --build "$work/c_only" >"$work/log" || { cat "$work/log"; exit 1; }
  "$work/c_only/consumer_c"
fi
PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig CC=$c_compiler \
  "$source/tests/consumer/pkg_config.sh" "$source/tests/consumer/app" "$work/prefix/share/doc/baton/samples/hello_team_c" "${packages[@]}"
