#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The documentation site in build/site; called by `./dev site`. Its Python packages go into build/site-packages, a virtual
# environment that is made again when requirements.txt changes. Exit code 4: the packages cannot be installed here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly here=packaging/site packages=build/site-packages

if ! cmp -s $here/requirements.txt $packages/installed.txt; then
  rm -rf $packages
  { python3 -m venv $packages && $packages/bin/pip install --quiet --disable-pip-version-check --no-deps -r $here/requirements.txt; } ||
    { echo "site: the Python packages of $here/requirements.txt cannot be installed here" >&2; exit 4; }
  cp $here/requirements.txt $packages/installed.txt
fi
# The theme advertises its successor on every build. Warnings fail, but not with --quiet, which does not count them.
log=$(NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1 $packages/bin/mkdocs build --strict --config-file $here/mkdocs.yml 2>&1) ||
  { printf '%s\n' "$log" >&2; exit 1; }
command -v dot >/dev/null || echo "site: graphs are shown as text: dot (package graphviz) is not installed" >&2
if command -v doxygen >/dev/null; then
  log=$(doxygen $here/api/Doxyfile 2>&1)
  [ -z "$log" ] || { printf 'site: the C++ and C reference:\n%s\n' "$log" >&2; exit 1; }
else
  echo "site: without the C++ and C reference: doxygen is not installed" >&2
fi
if grep -rlE '(src|href)="(https?:)?//[^"]*\.(js|css|woff2?)"' build/site --include='*.html' --include='*.css'; then
  echo "site: these pages load files from the network" >&2
  exit 1
fi
echo "site: build/site/index.html"
