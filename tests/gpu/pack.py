#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pack.py --build BUILD --root ROOT --out DIR: a folder that measures on another machine with a GPU: programs that need
nothing but the C library, the driver and cuBLAS there, the data of the tests, and run.sh. `./dev gpu --pack DIR` builds
with the right options first. Fails where a program needs another library or a newer C library, or the folder is too
large."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

# What a machine with a GPU has: the C library and libgcc_s, which is installed with it, the driver, cuBLAS.
ALLOWED = re.compile(r"^(linux-vdso|ld-linux[-\w]*|libc|libm|libdl|librt|libpthread|libgcc_s|libcuda|libcublas|libcublasLt)\.so(\.|$)")
RUN = """#!/usr/bin/env bash
# run.sh [RESULTS] [--sanitize] [--device cpu]...: the GPU tests and the benchmark tables, into RESULTS (./results).
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=results
case ${1:-} in '' | -*) ;; *) out=$1; shift ;; esac
exec "$here/tests/gpu/measure.sh" --bin "$here/bin" --root "$here" --out "$out" "$@"
"""
# From the root of the source tree; folders with all that is in them.
DATA = ["samples/models/nano", "workflows/library", "agents/roles", "tests/data", "tests/golden/models",
        "tests/gpu/measure.sh", "tests/gpu/report.py", "tests/gpu/tables.py", "tests/gpu/agent_tables.py", "tests/gpu/plots.py",
        "tests/gpu/cells.py", "tests/gpu/bounds.py", "tests/gpu/random_gguf.py",
        "tests/gpu/published.py", "tests/bench/transformers_peer.py"]


def needed(elf: str) -> list[str]:
    """The shared libraries of `objdump -p`."""
    return re.findall(r"^\s*NEEDED\s+(\S+)", elf, re.MULTILINE)


def unexpected(libraries: list[str]) -> list[str]:
    return [library for library in libraries if not ALLOWED.match(library)]


def newer_than(glibc: str, symbols: str) -> list[str]:
    """The symbols of `objdump -T` that only a newer glibc has, "pthread_once (2.34)"."""
    return [f"{name} ({version})" for version, name in re.findall(r"\bGLIBC_(\d[\d.]*)\)?\s+(\S+)", symbols)
            if version_key(version) > version_key(glibc)]


def output_of(*command) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def folder_bytes(folder: pathlib.Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())


def copy(root: pathlib.Path, out: pathlib.Path, name: str) -> None:
    source, target = root / name, out / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("recipe", "__pycache__"))
    else:
        shutil.copy2(source, target)


def programs(build: pathlib.Path) -> list[str]:
    tests = (build / "bin/gpu_tests.txt").read_text(encoding="utf-8").splitlines()
    return ["baton", "baton-lab", *sorted({line.split("\t")[0] for line in tests})]


def make(build: pathlib.Path, root: pathlib.Path, out: pathlib.Path, max_mib: float, glibc: str) -> list[str]:
    """What is wrong with it, or nothing."""
    if out.exists() and any(out.iterdir()):
        return [f"{out} is not empty"]
    (out / "bin").mkdir(parents=True, exist_ok=True)
    wrong = []
    for name in programs(build):
        target = out / "bin" / name
        subprocess.run(["strip", "-o", target, build / "bin" / name], check=True)
        bad = unexpected(needed(output_of("objdump", "-p", target)))
        wrong += [f"{name} needs {library}" for library in bad]
        if newer := newer_than(glibc, output_of("objdump", "-T", target)):
            wrong.append(f"{name} needs a C library newer than {glibc}: {', '.join(newer)}")
    shutil.copy2(build / "bin/gpu_tests.txt", out / "bin")
    for name in DATA:
        copy(root, out, name)
    # Where a program looks for what it was shipped with.
    os.makedirs(out / "share/baton", exist_ok=True)
    shutil.copytree(out / "agents/roles", out / "share/baton/roles")
    (out / "run.sh").write_text(RUN, encoding="utf-8")
    (out / "run.sh").chmod(0o755)
    size = folder_bytes(out) / 2**20
    print(f"{out}: {size:.1f} MiB; programs: {', '.join(programs(build))}; for glibc {glibc} or newer")
    if size > max_mib:
        wrong.append(f"{size:.1f} MiB are more than {max_mib:g}")
    return wrong


def version_key(text: str) -> tuple:
    return tuple(map(int, text.split(".")))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--max-mib", type=float, default=60)
    parser.add_argument("--glibc", default="2.31", help="the oldest C library that it has to run with")
    options = parser.parse_args()
    wrong = make(options.build, options.root, options.out, options.max_mib, options.glibc)
    for problem in wrong:
        print(f"pack: {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
