#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: toolkit12.sh DIR. Puts the compiler and the headers of CUDA 12.4 into DIR, in the layout of NVIDIA's own
# installations: the programs from the package of Debian 13, the headers from NVIDIA's Python packages (Debian's
# package of headers has 900 MB). Nothing outside of DIR changes. CUDA has a licence of its own.
set -euo pipefail
[ ! -e "$1/complete" ] || exit 0
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
missing() { printf 'toolkit12.sh: %s; BATON_CUDA_12=DIR names a CUDA 12 that is installed\n' "$1" >&2; exit 1; }
python3 -m pip --version >/dev/null 2>&1 || missing "python3 has no pip, to download the headers"
rm -rf "$1"
mkdir -p "$1"/{bin,lib64,nvvm/bin}
cd "$1"
"$here/../../cmake/unpack_debian.sh" root trixie non-free nvidia-cuda-toolkit || missing "the compiler cannot be downloaded"
python3 -m pip download -q --no-deps --only-binary :all: -d wheels nvidia-cuda-runtime-cu12==12.4.127 \
  nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-cccl-cu12==12.9.27 || missing "the headers cannot be downloaded"
for wheel in wheels/*.whl; do python3 -m zipfile -e "$wheel" wheels; done
cp -r wheels/nvidia/*/include .
cp root/usr/bin/{cudafe++,ptxas,fatbinary,nvlink,cuobjdump,nvdisasm} bin
cp -r root/usr/lib/nvidia-cuda-toolkit/bin/{nvcc,crt} bin
cp root/usr/lib/nvidia-cuda-toolkit/bin/cicc nvvm/bin
cp -r root/usr/lib/nvidia-cuda-toolkit/libdevice nvvm
cat >bin/nvcc.profile <<'EOF'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
EOF
rm -rf root wheels
: >complete
