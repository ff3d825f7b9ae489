#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the CUDA kernels and checks their machine code, per kernel and architecture: registers, and for hot kernels
the predicted blocks per multiprocessor. Fails on spills, stacks, too few blocks, and, where a disassembler is found
(cuobjdump of the toolkit or of the Python package triton), on missing or forbidden instructions (machine_code.py). Needs
the toolkit, but no GPU. Warnings are errors.

    engine/cuda/ptxas.py [--arch 90 ...] [--jobs N] [--nvcc PROGRAM] [file.cu ...]
"""

import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import machine_code

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "engine" / "cuda"
ARCHITECTURES = ["80", "86", "87", "89", "90", "100", "120"]


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
        line = line.replace("(baton::BlockType)", "")
        short.append(re.sub(r"\(.*$", "", line))
    return short


def compiled(nvcc: str, file: pathlib.Path, arch: str,
             folder: pathlib.Path) -> tuple[pathlib.Path, str, str, pathlib.Path]:
    cubin = folder / f"{file.stem}.{arch}.cubin"
    command = [nvcc, "-std=c++20", "--fmad=false", f"-gencode=arch=compute_{arch},code=sm_{arch}", "-I", str(ROOT),
               "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin", "-o", str(cubin), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ptxas: {file.name} for sm_{arch} does not compile:\n{done.stderr}")
    return file, arch, done.stderr, cubin


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
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    options = parser.parse_args()
    if not shutil.which(options.nvcc):
        print(f"ptxas: {options.nvcc} was not found", file=sys.stderr)
        return 2
    files = [file.resolve() for file in options.files] or sorted(HERE.rglob("*.cu"))
    known = machine_code.sizes()
    program = machine_code.disassembler()
    registers_of: dict[str, dict[str, int]] = {}
    blocks_of: dict[str, dict[str, int]] = {}
    bad = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        work = [pool.submit(compiled, options.nvcc, file, arch, pathlib.Path(folder)) for file in files
                for arch in options.arch]
        for item in work:
            file, arch, report, cubin = item.result()
            code = machine_code.instructions(program, cubin) if program else {}
            found = list(kernels(report))
            for short, (mangled, registers, memory, _) in zip(demangled([kernel[0] for kernel in found]), found):
                name = f"{file.stem}: {short}"
                registers_of.setdefault(name, {})[arch] = registers
                wrong, blocks = machine_code.problems(name, arch, registers, memory[0], memory[1:], code.get(mangled),
                                                      known)
                bad += [f"{name} for sm_{arch} {one}" for one in wrong]
                if blocks is not None:
                    blocks_of.setdefault(name, {})[arch] = blocks
    for title, table in (("registers", registers_of), ("blocks per multiprocessor, predicted", blocks_of)):
        print(f"{title:60}" + "".join(f"{'sm_' + arch:>8}" for arch in options.arch))
        for name, of_arch in sorted(table.items()):
            print(f"{name:60}" + "".join(f"{of_arch.get(arch, '-'):>8}" for arch in options.arch))
    for line in bad:
        print(f"ptxas: {line}", file=sys.stderr)
    if not program:
        print("ptxas: no cuobjdump was found: instructions are not checked (the Python package triton has one)")
    print(f"ptxas: {len(bad)} problems" if bad else f"ptxas: {len(registers_of)} kernels, nothing to complain of")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
