#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the CUDA kernels and prints what ptxas reports: registers, spills and shared memory, per kernel and
architecture. Fails when a kernel spills. Needs the toolkit, but no GPU.

    engine/cuda/ptxas.py [--arch 90 ...] [--jobs N] [file.cu ...]
"""

import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "engine" / "cuda"
ARCHITECTURES = ["80", "86", "89", "90", "100", "120"]


def demangled(names: list[str]) -> list[str]:
    # nvcc puts the file into the name of the anonymous namespace; c++filt can read the name once that is shortened.
    plain = [re.sub(r"\d+_GLOBAL__N__[0-9a-f]+_\d+_\w+?_cu_[0-9a-f]{8}(?=\d)", "12_GLOBAL__N_1", name)
             for name in names]
    if not shutil.which("c++filt"):
        return plain
    out = subprocess.run(["c++filt"], input="\n".join(plain), capture_output=True, text=True, check=True).stdout
    short = []
    for line in out.splitlines():
        line = line.replace("baton::cuda::", "").replace("(anonymous namespace)::", "").replace("void ", "", 1)
        short.append(re.sub(r"\(.*$", "", line))
    return short


def compiled(nvcc: str, file: pathlib.Path, arch: str, folder: pathlib.Path) -> tuple[pathlib.Path, str, str]:
    command = [nvcc, "-std=c++20", "--fmad=false", f"-gencode=arch=compute_{arch},code=sm_{arch}", "-I", str(ROOT),
               "-Xptxas", "-v", "-cubin", "-o", str(folder / f"{file.stem}.{arch}.cubin"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ptxas: {file.name} for sm_{arch} does not compile:\n{done.stderr}")
    return file, arch, done.stderr


def kernels(report: str):
    name = spills = None
    for line in report.splitlines():
        if match := re.search(r"Compiling entry function '(\S+)'", line):
            name = match[1]
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = tuple(int(value) for value in match.groups())
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            yield name, int(match[1]), spills, int(shared[1]) if shared else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--arch", nargs="*", default=ARCHITECTURES)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not shutil.which(nvcc):
        print("ptxas: nvcc was not found", file=sys.stderr)
        return 2
    files = options.files or sorted(HERE.rglob("*.cu"))
    rows: dict[str, dict[str, tuple]] = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        work = [pool.submit(compiled, nvcc, file, arch, pathlib.Path(folder)) for file in files
                for arch in options.arch]
        for item in work:
            file, arch, report = item.result()
            found = list(kernels(report))
            for short, (_, registers, spills, _) in zip(demangled([kernel[0] for kernel in found]), found):
                rows.setdefault(f"{file.stem}: {short}", {})[arch] = (registers, spills)
    print(f"{'registers':60}" + "".join(f"{'sm_' + arch:>8}" for arch in options.arch))
    bad = []
    for name, of_arch in sorted(rows.items()):
        print(f"{name:60}" + "".join(f"{of_arch[arch][0] if arch in of_arch else '-':>8}" for arch in options.arch))
        bad += [f"{name} for sm_{arch}: stack {s[0]}, spill stores {s[1]}, spill loads {s[2]} bytes"
                for arch, (_, s) in of_arch.items() if any(s[1:])]
    for line in bad:
        print(f"ptxas: {line}", file=sys.stderr)
    print(f"ptxas: {len(bad)} kernels spill" if bad else f"ptxas: {len(rows)} kernels, none spills")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
