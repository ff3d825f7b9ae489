#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: bare_root.sh SUITE [FOLDER]. Installs the packages that `./dev package` wrote into FOLDER (build/package) in a
# bare Debian (bookworm, trixie) or Ubuntu (noble), with what they depend on and nothing else; there a team answers, as
# a user without a home, and programs are built and run that find the library by CMake and by pkg-config, one of them
# without a C++ compiler, or that have it compiled with themselves by add_subdirectory, which takes most of the time.
# Then the packages are removed, and the wheel of `./dev wheel` is installed in a virtual environment, where there is
# one in FOLDER. Needs root and the network, debootstrap and the archive's keyring.
set -euo pipefail
die() { printf 'bare_root: %s\n' "$*" >&2; exit 1; }
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=${1:-} packages=${2:-$source/build/package}
case $suite in
  bookworm | trixie) mirror=http://deb.debian.org/debian keyring=debian-archive-keyring sections=main ;;
  noble) mirror=http://archive.ubuntu.com/ubuntu keyring=ubuntu-archive-keyring sections=main,universe ;;
  *) die "SUITE: unknown '$suite'; expected bookworm, trixie or noble" ;;
esac
compgen -G "$packages/*.deb" >/dev/null || die "no packages in '$packages'"
[ "$(id -u)" = 0 ] || die "needs root, for chroot"
command -v debootstrap >/dev/null || die "debootstrap is not installed"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --components="$sections" --keyring="/usr/share/keyrings/$keyring.gpg" "$suite" "$root" \
  "$mirror" >"$root/log" 2>&1 || { tail -n 20 "$root/log"; die "debootstrap failed"; }
chmod 755 "$root"
mkdir "$root/packages"
cp "$packages"/*.deb "$root/packages"
if compgen -G "$packages/*.whl" >/dev/null; then cp "$packages"/*.whl "$root/packages"; fi
mkdir "$root/source"
git -C "$source" archive HEAD | tar -x -C "$root/source"
cp -r "$source/tests/consumer" "$root/consumer"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# inside COMMAND...: in the root, with processes of its own. Its output is in `output`, its exit code in `code`.
inside() {
  code=0
  output=$(unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" 2>&1) || code=$?
}
expect() {  # expect CODE TEXT WHAT
  [[ $code = "$1" && $output == *"$2"* ]] || die "$suite: $3: expected exit code $1 and '$2', found $code and:"$'\n'"$output"
  printf 'bare_root: %s: %s: ok\n' "$suite" "$3"
}
stranger=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent)

inside sh -c 'apt-get install -y --no-install-recommends /packages/baton_*.deb /packages/baton-models_*.deb'
expect 0 "Setting up baton" "apt installs the program and the model"
inside "${stranger[@]}" baton run math_team -q \
  --input "user_question=A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?"
expect 0 "The answer is 26" "a team of the library answers"
inside "${stranger[@]}" HF_ENDPOINT=http://127.0.0.1:9 baton pull org/name
expect 1 "to connect to 127.0.0.1" "the program would download"

inside sh -c 'apt-get install -y --no-install-recommends gcc libc6-dev pkg-config /packages/libbaton-dev_*.deb'
expect 0 "Setting up libbaton-dev" "apt installs the headers"
inside sh -c '! command -v g++ && /consumer/pkg_config.sh /consumer/app /usr/share/doc/baton/samples/hello_team_c baton'
expect 0 "baton: a program in C answers" "programs in C, by pkg-config, without a C++ compiler"

inside apt-get install -y --no-install-recommends cmake make
expect 0 "Setting up cmake" "apt installs CMake"
inside sh -c '! command -v g++ && cmake -S /consumer/c_only -B /c_only && cmake --build /c_only'
expect 0 "Built target consumer_c" "a program in C, by find_package, without a C++ compiler"
inside "${stranger[@]}" /c_only/consumer_c
expect 0 "baton " "it runs"
inside apt-get install -y --no-install-recommends g++
expect 0 "Setting up g++" "apt installs a C++ compiler"
inside sh -c 'cmake -S /consumer/app -B /app -DBATON_SAMPLES=/usr/share/doc/baton/samples && cmake --build /app'
expect 0 "Built target consumer_c" "programs in C and C++, by find_package"
for program in consumer consumer_c; do
  inside "${stranger[@]}" "/app/$program"
  expect 0 "baton " "$program runs"
done
inside "${stranger[@]}" /app/hello_team "What is 6 x 7?"
expect 0 "ok in" "a team in a program in C++ answers"
inside apt-get install -y --no-install-recommends nlohmann-json3-dev libboost-dev
expect 0 "Setting up libboost-dev" "apt installs what samples need"
inside sh -c 'cmake -S /usr/share/doc/baton/samples -B /samples && cmake --build /samples'
expect 0 "sample desktop: left out" "the samples are built, but for the one that needs Qt"
inside "${stranger[@]}" /samples/event_loop
expect 0 "The answer is 26" "runs in an event loop answer"
inside "${stranger[@]}" /samples/own_tool
expect 0 "shop called price_of(): 7" "a team calls the function of a program"
inside apt-get purge -y baton libbaton-dev baton-models
expect 0 "Purging" "apt removes them"
[ ! -e "$root/usr/share/baton" ] || die "$suite: a removed package left $(ls "$root/usr/share/baton")"

if compgen -G "$root/packages/*.whl" >/dev/null; then
  inside sh -c 'apt-get install -y --no-install-recommends python3-venv && python3 -m venv /venv && /venv/bin/pip install --no-index /packages/*.whl'
  expect 0 "Successfully installed baton" "pip installs the wheel"
  inside "${stranger[@]}" /venv/bin/python /source/samples/hello_team_python/hello_team.py
  expect 0 "The answer is 61" "a team in a program in Python answers"
  inside "${stranger[@]}" /venv/bin/baton models
  expect 0 "nano" "the wheel's program finds its model"
fi

mapfile -t build_packages < <(sed -n '/^readonly base_packages=(/,/)/p' "$source/dev" | sed 's/.*(//; s/)//' | xargs -n 1)
inside apt-get install -y --no-install-recommends "${build_packages[@]}"
expect 0 "Setting up" "apt installs what a build needs"
inside sh -c 'cmake -S /source/tests/consumer/app -B /tree -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_SOURCE=/source &&
  cmake --build /tree --target consumer consumer_c -- --quiet && /tree/consumer && /tree/consumer_c'
expect 0 "baton " "programs in C and C++, by add_subdirectory"
