# SPDX-License-Identifier: Apache-2.0
"""What the machine code of a kernel must be like: blocks per multiprocessor, instructions, memory. Used by ptxas.py."""

import dataclasses
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Multiprocessor:
    """Limits of one multiprocessor: the CUDA programming guide, table of technical specifications."""
    threads: int
    blocks: int
    shared: int  # bytes
    registers: int = 65536


MULTIPROCESSORS = {
    "80": Multiprocessor(2048, 32, 164 << 10),
    "86": Multiprocessor(1536, 16, 100 << 10),
    "87": Multiprocessor(1536, 16, 164 << 10),
    "89": Multiprocessor(1536, 24, 100 << 10),
    "90": Multiprocessor(2048, 32, 228 << 10),
    "100": Multiprocessor(2048, 32, 228 << 10),
    "120": Multiprocessor(1536, 24, 100 << 10),
}
RESERVED_SHARED = 1024  # bytes of shared memory that each block needs in addition to its own


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a hot kernel needs. `blocks`: per multiprocessor, promised by its launch bounds or expected by its design."""
    pattern: str
    threads: str  # an expression of sizes()
    shared: str
    blocks: str
    required: tuple[str, ...] = ()


TILES = ("HMMA", "LDSM", "LDGSTS.*128")
RULES = (
    Rule(r"attention_tiles_\d+: attend_tiles<(?P<D>\d+), 1>", "tile_threads", "tile_shared_{D}", "tile_blocks_{D}_1",
         TILES),
    Rule(r"attention_tiles_\d+: attend_tiles<(?P<D>\d+), 4>", "tile_threads", "tile_shared_{D}", "tile_blocks_{D}_4",
         TILES),
    Rule(r"attention_tiles_\d+: receive_tiles<(?P<D>\d+)>", "tile_threads", "received_shared_{D}", "tile_blocks_{D}_4",
         ("HMMA", "LDSM")),
    Rule(r"few_rows: few_rows<\d+, .*>", "few_rows_threads", "0", "4", (r"LDG\.E.*\.128",)),
    Rule(r"few_rows_tensor: .*", "few_rows_tensor_threads", "few_rows_tensor_shared", "3",
         ("HMMA", r"LDG\.E.*\.128")),
    Rule(r"quantized: quantized_few_rows<\d+, 1>", "quantized_threads", "quantized_shared_1", "3",
         ("HMMA", r"LDG\.E.*\.128")),
    Rule(r"quantized: quantized_(few|many)_rows<\d+(, 4)?>", "quantized_threads",
         "quantized_shared_4", "2", ("HMMA", r"LDG\.E.*\.128")),
    Rule(r"norm: norm_rows<.*", "norm_threads", "norm_shared", "1"),
    Rule(r"rows: copy_rows<\w+, \w+, true>", "rows_threads", "0", "8", ("LDG", "STG")),
    Rule(r"kv: norm_store_rope_rows<.*", "kv_threads", "kv_shared", "4"),
    Rule(r"choose: choose_rows", "choose_threads", "choose_shared", "2"),
)
# Atomic additions in shared memory as loops that wait for one another; local memory, which is memory of the device.
FORBIDDEN = {"ATOMS.*SPIN": "spinning atomics", r"(LDL|STL)\b": "local memory"}
# FP64 runs at 1/64 of the rate of FP32 on GeForce.
FP64 = r"D(ADD|MUL|FMA|SETP)\b"
# Draws that equal the CPU's, at most one row of logits a token; sums of a detection, once a prompt.
MAY_USE_FP64 = (r"choose: ", r"kv: deviation_rows")


def sizes() -> dict[str, int]:
    """Threads and bytes of shared memory of the hot kernels, from their sources."""
    widths = (32, 64, 80, 96, 128)
    lines = [f'std::printf("{name} %lld\\n", static_cast<long long>({expression}));' for name, expression in (
        [("tile_threads", "kTileThreads")]
        + [(f"tile_shared_{d}", f"sizeof(TileShared<{d}>)") for d in widths]
        + [(f"received_shared_{d}", f"sizeof(ReceivedShared<{d}>)") for d in widths]
        + [(f"tile_blocks_{d}_{warps}", f"min_blocks({d}, {warps})") for d in widths for warps in (1, 4)])]
    source = ('#include <cstdio>\n#include "engine/cuda/attention/attention_tiles.cuh"\nusing namespace baton::cuda;\n'
              'int main() {\n' + "\n".join(lines) + "\n}\n")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "sizes"
        (pathlib.Path(folder) / "sizes.cpp").write_text(source)
        include = [f"-I{ROOT / one}" for one in ("", "engine/base", "sdk/include", "tests/support/simt",
                                                 "tests/support/strict/toolkit")]
        done = subprocess.run([shutil.which("c++") or "g++", "-std=c++20", "-w", "-O0", *include, "-c",
                               f"{program}.cpp", "-o", f"{program}.o"], capture_output=True, text=True)
        # Templates that are only measured need nothing that would have to be linked.
        linked = subprocess.run([shutil.which("c++") or "g++", f"{program}.o", "-o", str(program),
                                 "-Wl,--unresolved-symbols=ignore-all"], capture_output=True, text=True)
        if done.returncode or linked.returncode:
            raise SystemExit(f"ptxas: the sizes of the kernels cannot be read:\n{done.stderr}{linked.stderr}")
        for line in subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines():
            name, value = line.split()
            found[name] = int(value)
    for room in ("few_rows", "few_rows_tensor", "norm", "rows", "kv", "choose"):
        text = (ROOT / f"engine/cuda/kernels/{room}.cu").read_text()
        match = re.search(r"constexpr (?:int|unsigned) k(?:Max)?Threads = (\d+);", text)
        if match is None:
            raise SystemExit(f"ptxas: {room}.cu has no kThreads")
        found[f"{room}_threads"] = int(match[1])
    # Eight splits of 16 outputs by 8 rows and by 32 rows.
    found |= {"quantized_threads": 256, "quantized_shared_1": 4 << 10, "quantized_shared_4": 16 << 10}
    # Sums of the warps; bins and sums of a row; sums and a head's norms: at most.
    found |= {"few_rows_tensor_shared": 5120, "choose_shared": 4096, "norm_shared": 128, "kv_shared": 4096, "0": 0}
    return found


def blocks_per_multiprocessor(arch: str, threads: int, registers: int, shared: int) -> int:
    """Occupancy as the CUDA programming guide computes it: registers in units of 256 per warp."""
    limits = MULTIPROCESSORS[arch]
    warps = (threads + 31) // 32
    of_registers = limits.registers // (warps * ((registers * 32 + 255) // 256 * 256))
    of_shared = limits.shared // (shared + RESERVED_SHARED)
    return min(limits.blocks, limits.threads // (warps * 32), of_registers, of_shared)


def disassembler() -> str | None:
    """cuobjdump of the toolkit, or of the Python package triton."""
    found = shutil.which("cuobjdump")
    if found is None and pathlib.Path("/usr/local/cuda/bin/cuobjdump").is_file():
        found = "/usr/local/cuda/bin/cuobjdump"
    if found is None:
        try:
            import importlib.util
            spec = importlib.util.find_spec("triton")
            folder = pathlib.Path(spec.origin).parent / "backends/nvidia/bin" if spec and spec.origin else None
        except ImportError:
            folder = None
        if folder and (folder / "cuobjdump").is_file():
            found = str(folder / "cuobjdump")
    return found


def instructions(program: str, cubin: pathlib.Path) -> dict[str, list[str]]:
    """The instructions of each kernel of a file, by its mangled name."""
    text = subprocess.run([program, "-sass", str(cubin)], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        if match := re.search(r"Function : (\S+)", line):
            name = match[1]
            found[name] = []
        elif name and (match := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)", line)):
            found[name].append(match[1])
    return found


def problems(name: str, arch: str, registers: int, stack: int, spills: tuple[int, int], code: list[str] | None,
             known: dict[str, int]) -> tuple[list[str], int | None]:
    """What is wrong with a kernel, and its predicted blocks per multiprocessor where it is a hot one."""
    wrong = []
    if any(spills):
        wrong.append(f"spills {spills[0]} bytes of stores and {spills[1]} of loads")
    if stack:
        wrong.append(f"has a stack of {stack} bytes")
    if code is not None:
        for pattern, what in FORBIDDEN.items():
            if any(re.match(pattern, one) for one in code):
                wrong.append(f"has {what}")
        if any(re.match(FP64, one) for one in code) and not any(re.match(one, name) for one in MAY_USE_FP64):
            wrong.append("computes in FP64")
    blocks = None
    for rule in RULES:
        match = re.fullmatch(rule.pattern, name)
        if match is None:
            continue
        value = {key: known[getattr(rule, key).format(**match.groupdict())] for key in ("threads", "shared")}
        promised = rule.blocks.format(**match.groupdict())
        least = int(promised) if promised.isdigit() else known[promised]
        blocks = blocks_per_multiprocessor(arch, value["threads"], registers, value["shared"])
        of_shared = MULTIPROCESSORS[arch].shared // (value["shared"] + RESERVED_SHARED)
        if blocks < min(least, of_shared):  # launch bounds promise registers; shared memory may allow fewer blocks
            wrong.append(f"has room for {blocks} blocks per multiprocessor; at least {least} are expected")
        for pattern in rule.required:
            if code is not None and not any(re.match(pattern, one) for one in code):
                wrong.append(f"has no {pattern}")
    return wrong, blocks
