#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the CUDA kernels with clang, whose front end is not nvcc's: the device's half down to machine code, and the
syntax of the host's. Warnings are errors. What clang compiles is not shipped, so its machine code is not checked.

    engine/cuda/clang.py --toolkit DIR [--clang PROGRAM] [--arch 90 ...] [--jobs N] [file.cu ...]
"""

import argparse
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "engine" / "cuda"
ARCHITECTURES = ["80", "87", "90"]


def errors(clang: str, toolkit: pathlib.Path, archs: list[str], file: pathlib.Path, folder: pathlib.Path) -> str:
    """What clang says about a file, or nothing."""
    common = [clang, "-x", "cuda", f"--cuda-path={toolkit}", "-Wno-unknown-cuda-version", "-std=c++20", "-O3",
              "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(ROOT)]
    device = [["--cuda-device-only", f"--cuda-gpu-arch=sm_{arch}", "-c", "-o", str(folder / f"{file.stem}.{arch}.cubin")]
              for arch in archs]
    host = ["--cuda-host-only", f"--cuda-gpu-arch=sm_{archs[0]}", "-fsyntax-only"]
    for half in (host, *device):
        done = subprocess.run(common + half + [str(file)], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--toolkit", type=pathlib.Path, required=True)
    parser.add_argument("--clang", default="clang++")
    parser.add_argument("--arch", nargs="*", default=ARCHITECTURES)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if not shutil.which(options.clang):
        print(f"clang: {options.clang} was not found", file=sys.stderr)
        return 2
    files = [file.resolve() for file in options.files] or sorted(HERE.rglob("*.cu"))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        work = [pool.submit(errors, options.clang, options.toolkit, options.arch, file, pathlib.Path(folder))
                for file in files]
        wrong = [said for said in (item.result() for item in work) if said]
    for said in wrong:
        print(said, file=sys.stderr)
    archs = ", ".join(f"sm_{arch}" for arch in options.arch)
    print(f"clang: {len(wrong)} of {len(files)} files do not compile for {archs}" if wrong else
          f"clang: {len(files)} files compile for {archs}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
