#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the goldens of the block formats: random blocks, and what the Python package gguf reads from them.

    python make_blocks.py [--out blocks]

Needs gguf and numpy. Writes blocks/NAME.bin for each format: blocks of 512 values, then those values as
little-endian f32.
The scales are finite f16 numbers of any size and sign, zero and subnormals among them; all other bits are random.
"""

import argparse
import pathlib

import numpy
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

VALUES = 512
# Where the f16 scales of a block begin.
SCALES = {"F16": [0], "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
          "F32": [], "BF16": []}


def scales(random, count):
    bits = random.integers(0, 0x7C00, count, dtype=numpy.uint16)  # finite
    bits[: min(count, 4)] = [0x2E66, 0x0000, 0x0123, 0x3C00][: min(count, 4)]
    return bits | (random.integers(0, 2, count, dtype=numpy.uint16) << 15)


def blocks_of(name, random):
    values, size = GGML_QUANT_SIZES[Type[name]]
    count = VALUES // values
    if name in ("F32", "BF16"):  # random bits would hold NaN
        floats = random.standard_normal(VALUES).astype(numpy.float32)
        return floats.view(numpy.uint8) if name == "F32" else floats.view(numpy.uint8).reshape(-1, 4)[:, 2:].reshape(-1)
    blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
    for at in SCALES[name]:
        blocks[:, at : at + 2] = scales(random, count).view(numpy.uint8).reshape(count, 2)
    if name == "MXFP4":
        blocks[:4, 0] = [0, 1, 2, 127]
        blocks[blocks[:, 0] > 250, 0] = 120  # the largest exponents overflow
    return blocks.reshape(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "blocks")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(sorted(SCALES)):
        blocks = blocks_of(name, numpy.random.default_rng(index))
        values = dequantize(blocks, Type[name]).astype("<f4").reshape(-1)
        assert len(values) == VALUES and numpy.isfinite(values).all(), name
        (out / f"{name}.bin").write_bytes(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
