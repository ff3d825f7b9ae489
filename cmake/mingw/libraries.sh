#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: libraries.sh DIR [JOBS]. The libraries that Baton needs, for Windows: headers of Debian's packages, and static
# libraries of the sources of this Debian release, in DIR/root. The system's own package lists stay as they are.
set -euo pipefail
[ ! -e "$1/complete" ] || exit 0
. /etc/os-release
[ "$ID" = debian ] || { echo "libraries.sh: ID in /etc/os-release: expected debian, found $ID" >&2; exit 1; }
readonly headers=(nlohmann-json3-dev libcli11-dev libeigen3-dev libboost1.74-dev catch2)
readonly sources=(fmtlib yaml-cpp highway pcre2 utf8proc xxhash curl)
cmake=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1/sources"
dir=$(cd "$1" && pwd) jobs=${2:-$(nproc)} root=$(cd "$1" && pwd)/root

# Those that are headers alone: include/ and the files for CMake.
if [ ! -d "$root" ]; then
  "$cmake/unpack_debian.sh" "$dir/packages" "$VERSION_CODENAME" main "${headers[@]}"
  mkdir -p "$root/lib/cmake"
  cp -a "$dir/packages/usr/." "$root/"
fi

# build NAME [OPTION...]: with the library's own CMakeLists.txt.
build() {
  local name=$1 from
  shift
  [ ! -e "$dir/$name.done" ] || return 0
  echo "libraries.sh: $name" >&2
  from=$(echo "$dir/sources/$name"-*/)
  [ -f "$from/CMakeLists.txt" ] || from=$from/cmake_unofficial
  [ -f "$from/CMakeLists.txt" ] || from=$(dirname "$from")/build/cmake
  cmake -S "$from" -B "$dir/build/$name" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$cmake/mingw/toolchain.cmake" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$root" -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF \
    -DCMAKE_POLICY_DEFAULT_CMP0077=NEW -DCMAKE_MESSAGE_LOG_LEVEL=WARNING "$@" >"$dir/build/$name.log" 2>&1 &&
    cmake --build "$dir/build/$name" -j "$jobs" >>"$dir/build/$name.log" 2>&1 &&
    cmake --install "$dir/build/$name" >>"$dir/build/$name.log" 2>&1 ||
    { tail -n 30 "$dir/build/$name.log" >&2; echo "libraries.sh: $name: it cannot be built; see $dir/build/$name.log" >&2; exit 1; }
  : >"$dir/$name.done"
}

mkdir -p "$dir/build"
if [ ! -e "$dir/sources/complete" ]; then
  (
    . "$cmake/private_apt.sh"
    private_apt "$dir/sources" "$(dpkg --print-architecture)"
    debian_lists "$dir/sources" deb-src "$VERSION_CODENAME" main
    cd "$dir/sources"
    apt-get source -qq "${sources[@]}"
  )
  : >"$dir/sources/complete"
fi
build fmtlib -DFMT_TEST=OFF -DFMT_DOC=OFF
build yaml-cpp -DYAML_CPP_BUILD_TESTS=OFF -DYAML_CPP_BUILD_TOOLS=OFF
build highway -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF
cp -R "$dir"/sources/highway-*/hwy/contrib "$root/include/hwy/"  # its headers are used, and not its library
build pcre2 -DPCRE2_BUILD_TESTS=OFF -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_SUPPORT_JIT=ON
grep -q '^#define PCRE2_STATIC' "$root/include/pcre2.h" || sed -i '1i #define PCRE2_STATIC' "$root/include/pcre2.h"
build utf8proc
build xxhash -DXXHASH_BUILD_XXHSUM=OFF
# Schannel is the TLS of Windows, with its certificates.
build curl -DBUILD_CURL_EXE=OFF -DCURL_USE_SCHANNEL=ON -DCURL_USE_OPENSSL=OFF -DHTTP_ONLY=ON -DCURL_USE_LIBSSH2=OFF \
  -DCURL_USE_LIBPSL=OFF -DCURL_ZLIB=OFF -DUSE_LIBIDN2=OFF -DENABLE_MANUAL=OFF -DCURL_DISABLE_TESTS=ON -DUSE_NGHTTP2=OFF
: >"$dir/complete"
