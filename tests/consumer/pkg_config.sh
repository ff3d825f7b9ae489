#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The install as a project in C sees it that does not use CMake: compiles the consumer and the sample in C with what
# pkg-config says, and runs them as a user without a home, from an empty folder. PKG_CONFIG_PATH says where the install
# is, if it is not the system's; CC, which compiler.
# Usage: pkg_config.sh FOLDER_OF_main.c FOLDER_OF_THE_SAMPLE PACKAGE...
set -euo pipefail
app=$1 sample=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
question="A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?"
mkdir "$work/empty"
chmod 755 "$work"
for package in "$@"; do
  read -ra flags <<<"$(pkg-config --cflags --libs "$package")"
  for source in "$app/main.c" "$sample/hello_team.c"; do
    ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror "$source" "${flags[@]}" -o "$work/$(basename "$source" .c)"
  done
  cd "$work/empty"
  alone=(env -i HOME=/nonexistent LD_LIBRARY_PATH="$(pkg-config --variable=libdir "$package")")
  "${alone[@]}" "$work/main"
  # A program outside of the prefix that holds the archive does not know the prefix.
  [ "$package" != baton-static ] || alone+=(BATON_MODEL_PATH="$(pkg-config --variable=prefix "$package")/share/baton/models")
  "${alone[@]}" "$work/hello_team" "$question" >"$work/answer"
  grep -q 'The answer is 26' "$work/answer" || { cat "$work/answer"; exit 1; }
  cd - >/dev/null
  echo "$package: a program in C answers"
done
