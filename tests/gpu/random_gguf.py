#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file of a large model's shape in Q4_K_M with random codes, for measuring where the real file cannot be
had: the time of a step does not depend on the values of the weights. The tokenizer and all other metadata are those of
a smaller file of the same architecture, of which only the beginning is needed. Python's standard library only.

    python3 tests/gpu/random_gguf.py --like qwen2.5-coder-0.5b.gguf --shape qwen2.5-7b --out 7b.gguf
    python3 tests/gpu/random_gguf.py --like qwen2.5-coder-0.5b.gguf --cut header.gguf   # the beginning alone, to carry

The types are those of llama.cpp's Q4_K_M: Q4_K, and Q6_K for the head and for the values and the last product of the
feed-forward network in half of the layers.
"""

import argparse
import dataclasses
import math
import os
import pathlib
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of GGUF's value types, in bytes
UINT32, STRING, ARRAY = 4, 8, 9
F32, Q4_K, Q6_K = 0, 12, 14
BLOCK = {F32: (1, 4), Q4_K: (256, 144), Q6_K: (256, 210)}  # weights and bytes of a block
ALIGNMENT = 32
TILE = 4096  # blocks that differ; a tensor repeats them


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    context: int = 32768


SHAPES = {"qwen2.5-7b": Shape(28, 3584, 18944, 28, 4, 128), "test": Shape(2, 1024, 2816, 16, 2, 64)}


class Metadata:
    """The key-value pairs of a GGUF file as they are in it, {key: bytes of type and value}."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0
        magic, version, _, pairs = struct.unpack("<4sIQQ", self.take(24))
        if magic != b"GGUF" or version != 3:
            sys.exit("random_gguf: not a GGUF file of version 3")
        self.pairs = {}
        for _ in range(pairs):
            key = self.string()
            begin = self.at
            self.skip(struct.unpack("<I", self.take(4))[0])
            self.pairs[key] = data[begin:self.at]
        self.end = self.at

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            sys.exit("random_gguf: the file ends within its metadata")
        self.at += count
        return self.data[self.at - count:self.at]

    def string(self) -> str:
        return self.take(struct.unpack("<Q", self.take(8))[0]).decode("utf-8")

    def skip(self, kind: int) -> None:
        if kind == STRING:
            self.take(struct.unpack("<Q", self.take(8))[0])
        elif kind == ARRAY:
            inner, count = struct.unpack("<IQ", self.take(12))
            if inner in SIZES:
                self.take(SIZES[inner] * count)
            else:
                for _ in range(count):
                    self.skip(inner)
        else:
            self.take(SIZES[kind])

    def vocabulary(self) -> int:
        return struct.unpack("<IIQ", self.pairs["tokenizer.ggml.tokens"][:16])[2]


def more_bits(layer: int, layers: int) -> bool:
    """The layers whose values and last products llama.cpp stores in Q6_K."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def tensors(shape: Shape, vocabulary: int):
    """(name, [inputs, outputs] or [values], type) in the order of the file."""
    yield "token_embd.weight", [shape.hidden, vocabulary], Q4_K
    for layer in range(shape.layers):
        high = Q6_K if more_bits(layer, shape.layers) else Q4_K
        queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
        for name, dims, kind in (("attn_norm.weight", [shape.hidden], F32),
                                 ("attn_q.weight", [shape.hidden, queries], Q4_K), ("attn_q.bias", [queries], F32),
                                 ("attn_k.weight", [shape.hidden, keys], Q4_K), ("attn_k.bias", [keys], F32),
                                 ("attn_v.weight", [shape.hidden, keys], high), ("attn_v.bias", [keys], F32),
                                 ("attn_output.weight", [queries, shape.hidden], Q4_K),
                                 ("ffn_norm.weight", [shape.hidden], F32),
                                 ("ffn_gate.weight", [shape.hidden, shape.feed_forward], Q4_K),
                                 ("ffn_up.weight", [shape.hidden, shape.feed_forward], Q4_K),
                                 ("ffn_down.weight", [shape.feed_forward, shape.hidden], high)):
            yield f"blk.{layer}.{name}", dims, kind
    yield "output_norm.weight", [shape.hidden], F32
    yield "output.weight", [shape.hidden, vocabulary], Q6_K


def tile(kind: int) -> bytes:
    """Blocks with random codes whose values are of the size of real weights, about 0.02."""
    if kind == F32:
        return struct.pack("<f", 1.0) * TILE
    size = BLOCK[kind][1]
    blocks = bytearray(os.urandom(TILE * size))
    scale = struct.pack("<e", 6e-5 if kind == Q4_K else 1.3e-5)
    for i in range(TILE):
        if kind == Q4_K:  # its two scales come first
            blocks[i * size:i * size + 4] = scale + struct.pack("<e", 4.5e-4)
        else:             # its scale comes last
            blocks[(i + 1) * size - 2:(i + 1) * size] = scale
    return bytes(blocks)


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def write_file(out: pathlib.Path, pairs: dict, listed: list, values) -> None:
    """`pairs`: {key: bytes of type and value}; `listed`: (name, dims, type) of each tensor; values(name, type, count):
    bytes that a tensor of so many weights repeats until it is full."""
    def name(text):
        return struct.pack("<Q", len(text.encode())) + text.encode()

    head = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(pairs))
    head += b"".join(name(key) + value for key, value in pairs.items())
    offset, sizes = 0, []
    for title, dims, kind in listed:
        weights, size = BLOCK[kind]
        head += name(title) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        sizes.append(math.prod(dims) // weights * size)
        offset += padded(sizes[-1])
    with out.open("wb") as file:
        file.write(head.ljust(padded(len(head)), b"\0"))
        for (title, dims, kind), size in zip(listed, sizes):
            part = values(title, kind, math.prod(dims))
            whole, rest = divmod(size, len(part))
            for _ in range(whole):
                file.write(part)
            file.write(part[:rest])
            file.write(bytes(padded(size) - size))


def write(metadata: Metadata, shape: Shape, out: pathlib.Path) -> None:
    def number(value):
        return struct.pack("<II", UINT32, value)

    pairs = {**metadata.pairs, "qwen2.block_count": number(shape.layers), "qwen2.embedding_length": number(shape.hidden),
             "qwen2.feed_forward_length": number(shape.feed_forward), "qwen2.attention.head_count": number(shape.heads),
             "qwen2.attention.head_count_kv": number(shape.kv_heads), "qwen2.context_length": number(shape.context)}
    tiles = {kind: tile(kind) for kind in (F32, Q4_K, Q6_K)}

    def values(name, kind, count):
        return tiles[kind] if not name.endswith("bias") else bytes(len(tiles[kind]))

    write_file(out, pairs, list(tensors(shape, metadata.vocabulary())), values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", type=pathlib.Path, required=True, help="a GGUF file of the architecture qwen2, or its beginning")
    parser.add_argument("--cut", type=pathlib.Path, help="write only the beginning of --like, with all of its metadata")
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-7b")
    parser.add_argument("--out", type=pathlib.Path, help="the file to write")
    options = parser.parse_args()
    with options.like.open("rb") as file:
        data = file.read(64 * 2**20)
    metadata = Metadata(data)
    if "qwen2.block_count" not in metadata.pairs:
        sys.exit("random_gguf: --like: expected a file of the architecture qwen2")
    if options.cut:
        options.cut.write_bytes(data[:metadata.end])
    if options.out:
        write(metadata, SHAPES[options.shape], options.out)


if __name__ == "__main__":
    main()
