# SPDX-License-Identifier: Apache-2.0
# Sourced. private_apt DIR ARCHITECTURE: apt-get works in DIR from now on, with lists and archives of its own, so that the
# system's stay as they are. DIR is an absolute path.
private_apt() {
  mkdir -p "$1/lists/partial" "$1/archives/partial"
  : >"$1/status"
  cat >"$1/apt.conf" <<EOF
APT::Architecture "$2";
APT::Architectures { "$2"; };
APT::Sandbox::User "root";
Debug::NoLocking "true";
Dir::State::Lists "$1/lists";
Dir::State::Status "$1/status";
Dir::Cache::Archives "$1/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
EOF
  export APT_CONFIG=$1/apt.conf
}

# debian_lists DIR KIND RELEASE SECTION: after private_apt DIR; of Debian's own archive alone. KIND: deb, deb-src.
debian_lists() {
  local key=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "$2 [signed-by=$key] http://deb.debian.org/debian $3 $4" >"$1/sources"
  cat >>"$1/apt.conf" <<EOF
Dir::Etc::sourcelist "$1/sources";
Dir::Etc::sourceparts "-";
EOF
  apt-get update -qq
}
