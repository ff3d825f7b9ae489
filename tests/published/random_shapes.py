#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF files of random weights in the published shapes of models whose files cannot be had here: the time and the
memory of a step do not depend on the values of the weights. Python's standard library only.

    python3 tests/published/random_shapes.py --out DIR [--only lfm2.5-1.2b,...] [--like FILE.gguf]
    python3 tests/bench/llama_peer.py --llama-bin DIR --model DIR/lfm2.5-1.2b.gguf --only prefill,decode,memory

Layers, widths, experts and vocabularies are those of the published configurations; types of tensors are those that
llama.cpp's quantiser writes for Q4_K_M, and for gpt-oss those of its published file (MXFP4 experts, Q8_0). The
tokenizer has a token for each byte, and fillers up to the published vocabulary; --like takes tokenizer, template and
vocabulary from a file instead, for teams that need real text.
"""

import argparse
import dataclasses
import os
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "gpu"))
import random_gguf  # noqa: E402
from random_gguf import ARRAY, F32, Q4_K, Q6_K, STRING, TILE, UINT32, more_bits  # noqa: E402

FLOAT32, BOOL, INT32 = 6, 7, 5
Q8_0, Q5_K, BF16, MXFP4 = 8, 13, 30, 39
random_gguf.BLOCK.update({Q8_0: (32, 34), Q5_K: (256, 176), BF16: (1, 2), MXFP4: (32, 17)})
EPSILON = {"attention.layer_norm_rms_epsilon": 1e-6}
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


@dataclasses.dataclass(frozen=True)
class Family:
    architecture: str
    vocabulary: int
    settings: dict
    tensors: object  # of the layers: yields (name, dims, type)
    width: int
    final_norm: str = "output_norm.weight"
    embedding: int = Q6_K
    outside: tuple = ()  # further tensors that belong to no layer


def mlp(width, inner, layer, layers):
    yield "ffn_gate.weight", [width, inner], Q4_K
    yield "ffn_up.weight", [width, inner], Q4_K
    yield "ffn_down.weight", [inner, width], Q6_K if more_bits(layer, layers) else Q4_K


def attention(width, queries, keys, layer, layers, head=0):
    """head: the width of a head, if queries and keys are normed."""
    yield "attn_q.weight", [width, queries], Q4_K
    yield "attn_k.weight", [width, keys], Q4_K
    yield "attn_v.weight", [width, keys], Q6_K if more_bits(layer, layers) else Q4_K
    if head:
        yield "attn_q_norm.weight", [head], F32
        yield "attn_k_norm.weight", [head], F32


# --- Qwen3.5-0.8B: three gated delta nets, then attention with an output gate ---------------------------------------


def qwen35():
    layers, width, inner, interval = 24, 1024, 3584, 4
    heads, kv_heads, head = 8, 2, 256
    states, state, taps = 16, 128, 4

    def tensors():
        for layer in range(layers):
            yield layer, "attn_norm.weight", [width], F32
            yield layer, "post_attention_norm.weight", [width], F32
            if (layer + 1) % interval == 0:
                listed = [*attention(width, 2 * heads * head, kv_heads * head, layer, layers, head),
                          ("attn_output.weight", [heads * head, width], Q4_K)]
            else:
                listed = [("attn_qkv.weight", [width, 3 * states * state], Q5_K),
                          ("attn_gate.weight", [width, states * state], Q4_K),
                          ("ssm_beta.weight", [width, states], Q4_K), ("ssm_alpha.weight", [width, states], Q4_K),
                          ("ssm_conv1d.weight", [taps, 3 * states * state], F32), ("ssm_a", [states], F32),
                          ("ssm_dt.bias", [states], F32), ("ssm_norm.weight", [state], F32),
                          ("ssm_out.weight", [states * state, width], Q4_K)]
            for one in (*listed, *mlp(width, inner, layer, layers)):
                yield layer, *one

    settings = {"block_count": layers, "context_length": 262144, "embedding_length": width, "feed_forward_length": inner,
                "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": head,
                "attention.value_length": head, "rope.freq_base": 1e7, "rope.dimension_count": head // 4,
                "rope.dimension_sections": [11, 11, 10, 0], "full_attention_interval": interval,
                "ssm.conv_kernel": taps, "ssm.state_size": state, "ssm.group_count": states,
                "ssm.time_step_rank": states, "ssm.inner_size": states * state, **EPSILON}
    return Family("qwen35", 248320, settings, tensors, width)


# --- LFM2.5-1.2B: gated short convolutions, six layers of attention --------------------------------------------------


def lfm2():
    layers, width, inner, heads, kv_heads, taps = 16, 2048, 8192, 32, 8, 3
    head = width // heads
    attends = {2, 5, 8, 10, 12, 14}

    def tensors():
        for layer in range(layers):
            yield layer, "attn_norm.weight", [width], F32
            yield layer, "ffn_norm.weight", [width], F32
            if layer in attends:
                listed = [*attention(width, width, kv_heads * head, layer, layers, head),
                          ("attn_output.weight", [width, width], Q4_K)]
            else:
                listed = [("shortconv.in_proj.weight", [width, 3 * width], Q4_K),
                          ("shortconv.conv.weight", [taps, width], F32),
                          ("shortconv.out_proj.weight", [width, width], Q4_K)]
            for one in (*listed, *mlp(width, inner, layer, layers)):
                yield layer, *one

    settings = {"block_count": layers, "context_length": 128000, "embedding_length": width, "feed_forward_length": inner,
                "attention.head_count": heads, "rope.freq_base": 1e6, "shortconv.l_cache": taps,
                "attention.head_count_kv": [kv_heads if layer in attends else 0 for layer in range(layers)], **EPSILON}
    return Family("lfm2", 65536, settings, tensors, width, final_norm="token_embd_norm.weight")


# --- Gemma 4 E2B: windows, per-layer embeddings, layers that read another layer's KV ---------------------------------


def gemma4():
    layers, width, inner, heads, local, wide, shared = 35, 1536, 6144, 8, 256, 512, 20
    inputs, vocabulary = 256, 262144
    sliding = [(layer + 1) % 5 != 0 for layer in range(layers)]
    inners = [inner if layer < layers - shared else 2 * inner for layer in range(layers)]

    def tensors():
        for layer in range(layers):
            head = local if sliding[layer] else wide
            for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"):
                yield layer, name + ".weight", [width], F32
            yield layer, "layer_output_scale.weight", [1], F32
            listed = list(attention(width, heads * head, head, layer, layers, head))
            if layer >= layers - shared:  # which have no keys and values of their own
                listed = [one for one in listed if one[0] in ("attn_q.weight", "attn_q_norm.weight")]
            listed += [("attn_output.weight", [heads * head, width], Q4_K), ("inp_gate.weight", [width, inputs], Q4_K),
                       ("proj.weight", [inputs, width], Q4_K)]
            for one in (*listed, *mlp(width, inners[layer], layer, layers)):
                yield layer, *one

    settings = {"block_count": layers, "context_length": 131072, "embedding_length": width,
                "feed_forward_length": inners, "attention.head_count": heads, "attention.head_count_kv": 1,
                "attention.key_length": wide, "attention.value_length": wide, "attention.key_length_swa": local,
                "attention.value_length_swa": local, "attention.sliding_window": 512,
                "attention.sliding_window_pattern": sliding, "attention.shared_kv_layers": shared,
                "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "rope.dimension_count": wide,
                "rope.dimension_count_swa": local, "final_logit_softcapping": 30.0,
                "embedding_length_per_layer_input": inputs, **EPSILON}
    outside = (("per_layer_token_embd.weight", [inputs * layers, vocabulary], Q6_K),
               ("per_layer_model_proj.weight", [width, inputs * layers], BF16),
               ("per_layer_proj_norm.weight", [inputs], F32), ("rope_freqs.weight", [wide // 2], F32))
    return Family("gemma4", vocabulary, settings, tensors, width, outside=outside)


# --- Granite 4 350M hybrid: 28 layers of Mamba2, four of attention ---------------------------------------------------


def granite():
    layers, width, inner, heads, kv_heads, head = 32, 768, 2048, 12, 4, 64
    states, state, taps = 48, 128, 4
    scanned, attends = 2 * width, {10, 13, 17, 27}

    def tensors():
        for layer in range(layers):
            yield layer, "attn_norm.weight", [width], F32
            yield layer, "ffn_norm.weight", [width], F32
            if layer in attends:
                listed = [*attention(width, heads * head, kv_heads * head, layer, layers),
                          ("attn_output.weight", [heads * head, width], Q4_K)]
            else:
                listed = [("ssm_in.weight", [width, 2 * scanned + 2 * state + states], Q4_K),
                          ("ssm_conv1d.weight", [taps, scanned + 2 * state], F32),
                          ("ssm_conv1d.bias", [scanned + 2 * state], F32), ("ssm_dt.bias", [states], F32),
                          ("ssm_a", [1, states], F32), ("ssm_d", [1, states], F32),
                          ("ssm_norm.weight", [scanned, 1], F32), ("ssm_out.weight", [scanned, width], Q4_K)]
            for one in (*listed, *mlp(width, inner, layer, layers)):
                yield layer, *one

    settings = {"block_count": layers, "context_length": 32768, "embedding_length": width, "feed_forward_length": inner,
                "attention.head_count": heads, "rope.dimension_count": head, "rope.scaling.finetuned": False,
                "attention.head_count_kv": [kv_heads if layer in attends else 0 for layer in range(layers)],
                "attention.scale": 0.015625, "embedding_scale": 12.0, "residual_scale": 0.246, "logit_scale": 3.0,
                "ssm.conv_kernel": taps, "ssm.state_size": state, "ssm.group_count": 1, "ssm.inner_size": scanned,
                "ssm.time_step_rank": states, **EPSILON}
    return Family("granitehybrid", 100352, settings, tensors, width)


# --- gpt-oss-20b: experts in MXFP4, attention with sinks, every second layer with a window ----------------------------


def gpt_oss():
    layers, width, inner, experts, used = 24, 2880, 2880, 32, 4
    heads, kv_heads, head = 64, 8, 64

    def tensors():
        for layer in range(layers):
            listed = [("attn_norm.weight", [width], F32), ("post_attention_norm.weight", [width], F32),
                      ("attn_sinks.weight", [heads], F32), ("ffn_gate_inp.weight", [width, experts], F32),
                      ("ffn_gate_inp.bias", [experts], F32)]
            for name, rows, columns in (("attn_q", heads * head, width), ("attn_k", kv_heads * head, width),
                                        ("attn_v", kv_heads * head, width), ("attn_output", width, heads * head)):
                listed += [(name + ".weight", [columns, rows], Q8_0), (name + ".bias", [rows], F32)]
            for name, rows, columns in (("ffn_gate_exps", inner, width), ("ffn_up_exps", inner, width),
                                        ("ffn_down_exps", width, inner)):
                listed += [(name + ".weight", [columns, rows, experts], MXFP4), (name + ".bias", [rows, experts], F32)]
            for one in listed:
                yield layer, *one

    settings = {"block_count": layers, "context_length": 131072, "embedding_length": width, "feed_forward_length": inner,
                "expert_feed_forward_length": inner, "expert_count": experts, "expert_used_count": used,
                "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": head,
                "attention.value_length": head, "attention.sliding_window": 128, "rope.freq_base": 150000.0,
                "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
                "rope.scaling.original_context_length": 4096, **EPSILON}
    return Family("gpt-oss", 201088, settings, tensors, width, embedding=Q8_0,
                  outside=(("output.weight", [width, 201088], Q8_0),))


FAMILIES = {"qwen3.5-0.8b": qwen35, "lfm2.5-1.2b": lfm2, "gemma-4-e2b": gemma4, "granite-4-350m": granite,
            "gpt-oss-20b": gpt_oss}


# --- The file ---------------------------------------------------------------------------------------------------------


def packed(value) -> bytes:
    """A value of the metadata with its type."""
    if isinstance(value, list):
        of_type, = struct.unpack("<I", packed(value[0])[:4])
        of_type = INT32 if of_type == UINT32 else of_type  # as llama.cpp wants lists
        return struct.pack("<IIQ", ARRAY, of_type, len(value)) + b"".join(packed(one)[4:] for one in value)
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    return struct.pack("<IQ", STRING, len(value.encode())) + value.encode()


def tokenizer(vocabulary: int) -> dict:
    """A token for each byte, one merge, the marks of TEMPLATE, and fillers."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    names = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        names.setdefault(byte, chr(256 + sum(one not in printable for one in range(byte))))
    tokens = [names[byte] for byte in range(256)] + ["er"]
    marks = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    fillers = vocabulary - len(tokens) - len(marks)
    kinds = [1] * len(tokens) + [5] * fillers + [3] * len(marks)  # normal, unused, control
    tokens += [f"<filler_{at}>" for at in range(fillers)] + marks
    return {"model": "gpt2", "pre": "qwen2", "tokens": tokens, "merges": ["e r"], "token_type": kinds,
            "eos_token_id": vocabulary - 2, "padding_token_id": vocabulary - 1, "add_bos_token": False,
            "chat_template": TEMPLATE}


def metadata(family: Family, like) -> dict:
    if like is None:
        pairs = {f"tokenizer.{'' if key == 'chat_template' else 'ggml.'}{key}": packed(value)
                 for key, value in tokenizer(family.vocabulary).items()}
    else:
        pairs = {key: value for key, value in like.pairs.items() if key.startswith("tokenizer.")}
    pairs["general.architecture"] = packed(family.architecture)
    return pairs | {f"{family.architecture}.{key}": packed(value) for key, value in family.settings.items()}


def codes(kind: int) -> bytes:
    """Blocks with random codes whose values are about as large as real weights, 0.02."""
    if kind in (Q4_K, Q6_K):
        return random_gguf.tile(kind)
    if kind == BF16:  # +-[1/64, 1/32)
        return b"".join(bytes([low & 0x7F | 0x80, 0x3C | sign & 0x80]) for low, sign in zip(*[iter(os.urandom(4 * TILE))] * 2))
    size = random_gguf.BLOCK[kind][1]
    blocks = bytearray(os.urandom(TILE * size))
    begin = {Q8_0: struct.pack("<e", 1.6e-4), Q5_K: struct.pack("<ee", 3e-5, 4.5e-4), MXFP4: bytes([119])}[kind]
    for at in range(0, len(blocks), size):
        blocks[at:at + len(begin)] = begin
    return bytes(blocks)


def numbers(name: str, count: int, draw: random.Random) -> list[float]:
    """The f32 values of a vector, of taps, or of a router."""
    last = name.split(".")[-2] if name.endswith("weight") else name.split(".", 2)[-1]
    if last == "rope_freqs":  # a quarter of the pairs turns
        return [1.0 if at < count // 4 else 1e30 for at in range(count)]
    if last == "ssm_a":
        return [-draw.uniform(0.2, 6.0) for _ in range(count)]
    if last == "ssm_dt.bias":
        return [draw.gauss(-2.0, 1.0) for _ in range(count)]
    if name.endswith(".bias") or last in ("ffn_gate_inp", "attn_sinks"):
        return [draw.gauss(0.0, 0.02) for _ in range(count)]
    if last in ("ssm_conv1d", "conv"):
        return [draw.gauss(0.0, 0.5) for _ in range(count)]
    return [draw.gauss(1.0, 0.1) for _ in range(count)]


def write(family: Family, like, out: pathlib.Path) -> None:
    vocabulary = like.vocabulary() if like else family.vocabulary
    listed = [("token_embd.weight", [family.width, vocabulary], family.embedding)]
    listed += [(f"blk.{layer}.{name}", dims, kind) for layer, name, dims, kind in family.tensors()]
    listed += [(family.final_norm, [family.width], F32), *family.outside]
    draw = random.Random(1)

    def values(name, kind, count):
        return codes(kind) if kind != F32 else struct.pack(f"<{count}f", *numbers(name, count, draw))

    random_gguf.write_file(out, metadata(family, like), listed, values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder of the files")
    parser.add_argument("--only", default=",".join(FAMILIES), help=f"some of {', '.join(FAMILIES)}")
    parser.add_argument("--like", type=pathlib.Path, help="a GGUF file whose tokenizer and template are taken")
    given = parser.parse_args()
    like = None
    if given.like:
        with given.like.open("rb") as file:
            like = random_gguf.Metadata(file.read(64 * 2**20))
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.only.split(","):
        if name not in FAMILIES:
            parser.error(f"--only: unknown '{name}'; expected some of {', '.join(FAMILIES)}")
        write(FAMILIES[name](), like, given.out / f"{name}.gguf")


if __name__ == "__main__":
    main()
