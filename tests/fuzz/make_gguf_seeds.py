#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the seeds of the fuzz target gguf: small files that the Python package gguf writes.

    python make_gguf_seeds.py [--out corpus/gguf]

Needs gguf and numpy.
"""

import argparse
import pathlib

import numpy
from gguf import GGMLQuantizationType, GGUFWriter


def writer(path, architecture="llama"):
    out = GGUFWriter(path, architecture)
    out.add_block_count(1)
    out.add_context_length(64)
    out.add_embedding_length(32)
    out.add_feed_forward_length(32)
    out.add_head_count(2)
    out.add_head_count_kv(1)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(10000.0)
    return out


def finish(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def byte_level(path):
    out = writer(path, "qwen2")
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(["H", "e", "l", "o", "He", "ll", "<|end|>"])
    out.add_token_types([1, 1, 1, 1, 1, 1, 3])
    out.add_token_merges(["H e", "l l"])
    out.add_eos_token_id(6)
    out.add_tensor("token_embd.weight", numpy.zeros((7, 32), dtype=numpy.float32))
    out.add_tensor("output_norm.weight", numpy.ones(32, dtype=numpy.float32))
    finish(out)


def pieces(path):
    out = writer(path)
    out.add_tokenizer_model("llama")
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    out.add_token_list(["<unk>", "<s>", "</s>", *byte_tokens, "\u2581", "H", "e", "He", "\u2581He"])
    out.add_token_scores([0.0] * 259 + [-1.0, -2.0, -3.0, -4.0, -5.0])
    out.add_token_types([2, 3, 3] + [6] * 256 + [1] * 5)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    finish(out)


def kinds(path):
    out = GGUFWriter(path, "llama")
    out.add_uint8("a.u8", 1)
    out.add_int8("a.i8", -1)
    out.add_uint16("a.u16", 2)
    out.add_int16("a.i16", -2)
    out.add_int32("a.i32", -3)
    out.add_uint64("a.u64", 4)
    out.add_int64("a.i64", -4)
    out.add_float64("a.f64", 0.5)
    out.add_bool("a.flag", True)
    out.add_array("a.numbers", [1, 2, 3])
    out.add_array("a.texts", ["x", "yz"])
    for index, kind in enumerate((GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_K, GGMLQuantizationType.IQ2_XXS)):
        size = {0: 34 * 8, 1: 144, 2: 66}[index]
        out.add_tensor(f"t{index}", numpy.zeros((1, size), dtype=numpy.uint8), raw_dtype=kind)
    finish(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "corpus" / "gguf")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    byte_level(out / "byte_level.gguf")
    pieces(out / "pieces.gguf")
    kinds(out / "kinds.gguf")


if __name__ == "__main__":
    main()
