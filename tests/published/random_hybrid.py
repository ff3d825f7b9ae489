#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file of a random Qwen3.5-0.8B, in the published shapes, as tests/gpu/random_gguf.py does of Qwen2.5;
then runs teams on it, and compares the methods. Python's standard library only.

    python3 tests/published/random_hybrid.py --like qwen2.5-coder-0.5b.gguf --out hybrid.gguf
    python3 tests/published/random_hybrid.py --out hybrid.gguf --baton build/release/bin/baton [--pairs 3] [--time]

The tokenizer and the chat template are those of --like, a file of Qwen2.5. Matrices are Q4_K with random codes. A chain
and a parallel team have prompts of at least 1,500 tokens, with at most 30 tokens behind the last placeholder, and
answers of a forced length. Right is: the outputs of lockstep are those of full, and each prompt takes the state that was
kept where it branches off: rows that lockstep computed ahead, or a prefix. Without --time prompts are computed ahead
as fast as possible. --time gives the authors 480 tokens, during which lockstep computes their readers' prompts at its
usual pace, and prints its latency of first tokens as a fraction of full's, the median over pairs; on a machine that
does nothing else.
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "gpu"))
import random_gguf  # noqa: E402
from random_gguf import ARRAY, BLOCK, F32, Q4_K, STRING, TILE, UINT32, padded  # noqa: E402

FLOAT32 = 6
LAYERS, WIDTH, FEED_FORWARD, INTERVAL = 24, 1024, 3584, 4
HEADS, KV_HEADS, HEAD = 8, 2, 256
STATE_HEADS, STATE, TAPS = 16, 128, 4
INNER = STATE_HEADS * STATE
SETTINGS = {
    "block_count": LAYERS, "context_length": 32768, "embedding_length": WIDTH, "feed_forward_length": FEED_FORWARD,
    "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD,
    "attention.value_length": HEAD, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e7,
    "rope.dimension_count": HEAD // 4, "full_attention_interval": INTERVAL, "ssm.conv_kernel": TAPS,
    "ssm.state_size": STATE, "ssm.group_count": STATE_HEADS, "ssm.time_step_rank": STATE_HEADS,
    "ssm.inner_size": INNER}


def tensors(vocabulary):
    """(name, [inputs, outputs] or [values], type) in the order of the file."""
    yield "token_embd.weight", [WIDTH, vocabulary], Q4_K
    for layer in range(LAYERS):
        attends = (layer + 1) % INTERVAL == 0
        mixer = [("attn_q.weight", [WIDTH, 2 * HEADS * HEAD], Q4_K), ("attn_k.weight", [WIDTH, KV_HEADS * HEAD], Q4_K),
                 ("attn_v.weight", [WIDTH, KV_HEADS * HEAD], Q4_K), ("attn_output.weight", [HEADS * HEAD, WIDTH], Q4_K),
                 ("attn_q_norm.weight", [HEAD], F32), ("attn_k_norm.weight", [HEAD], F32)]
        if not attends:
            mixer = [("attn_qkv.weight", [WIDTH, 3 * INNER], Q4_K), ("attn_gate.weight", [WIDTH, INNER], Q4_K),
                     ("ssm_beta.weight", [WIDTH, STATE_HEADS], Q4_K), ("ssm_alpha.weight", [WIDTH, STATE_HEADS], Q4_K),
                     ("ssm_conv1d.weight", [TAPS, 3 * INNER], F32), ("ssm_a", [STATE_HEADS], F32),
                     ("ssm_dt.bias", [STATE_HEADS], F32), ("ssm_norm.weight", [STATE], F32),
                     ("ssm_out.weight", [INNER, WIDTH], Q4_K)]
        feed = [("ffn_gate.weight", [WIDTH, FEED_FORWARD], Q4_K), ("ffn_up.weight", [WIDTH, FEED_FORWARD], Q4_K),
                ("ffn_down.weight", [FEED_FORWARD, WIDTH], Q4_K)]
        norms = [("attn_norm.weight", [WIDTH], F32), ("post_attention_norm.weight", [WIDTH], F32)]
        for name, dims, kind in (*norms, *mixer, *feed):
            yield f"blk.{layer}.{name}", dims, kind
    yield "output_norm.weight", [WIDTH], F32


def values(name, count, draw):
    """The f32 values of a vector or of taps."""
    last = name.split(".")[-1] if name.endswith(("ssm_a", "bias")) else name.split(".")[-2]
    if last == "ssm_a":
        return [-draw.uniform(0.2, 6.0) for _ in range(count)]
    if last == "bias":
        return [draw.gauss(-2.0, 1.0) for _ in range(count)]
    if last == "ssm_conv1d":
        return [draw.gauss(0.0, 0.5) for _ in range(count)]
    return [draw.gauss(1.0, 0.1) for _ in range(count)]


def write(like, out):
    draw = random.Random(1)
    kept = {key: value for key, value in like.pairs.items() if not key.startswith("qwen2.")}
    kept["general.architecture"] = struct.pack("<IQ", STRING, 6) + b"qwen35"
    pairs = kept | {f"qwen35.{key}": struct.pack("<If", FLOAT32, value) if isinstance(value, float)
                    else struct.pack("<II", UINT32, value) for key, value in SETTINGS.items()}
    listed = list(tensors(like.vocabulary()))

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
            if kind == F32:
                file.write(struct.pack(f"<{size // 4}f", *values(title, size // 4, draw)))
            else:  # each tensor repeats blocks of its own
                blocks = random_gguf.tile(kind)
                for _ in range(size // len(blocks)):
                    file.write(blocks)
                file.write(blocks[:size % len(blocks)])
            file.write(bytes(padded(size) - size))


WORDS = ("river", "engine", "ledger", "winter", "harbour", "signal", "garden", "copper", "lantern", "orbit", "market",
         "violin", "desert", "thread", "anchor", "summit")


def text(seed, words):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def team(topology, author_tokens):
    """A workflow file. In the chain each prompt holds a long text, the answers before it, and a short end; in the
    parallel team three readers share a long text and the writer's answer, and differ behind it."""
    def agent(system, user, tokens):
        return dict(prompt=dict(system=system, user=user), max_tokens=tokens)

    long = text(7, 1600)
    if topology == "chain":
        agents = {"first": agent(text(1, 20), f"{long}\nBegin.", author_tokens),
                  "second": agent(text(2, 20), f"{text(8, 1600)}\n{{{{ agent_first_current }}}}\nContinue.", author_tokens),
                  "third": agent(text(3, 20), f"{text(9, 1600)}\n{{{{ agent_second_current }}}}\nEnd.", 24)}
        workflow = dict(topology="chain", agents=list(agents))
    else:
        agents = {"writer": agent(text(1, 20), f"{long}\nBegin.", author_tokens)}
        for at, name in enumerate(("left", "middle", "right")):
            agents[name] = agent(text(4, 20), f"{long}\n{{{{ agent_writer_current }}}}\n{text(20 + at, 6)}", 24)
        workflow = dict(topology="graph", steps=[dict(id="writer", agent="writer")] + [
            dict(id=name, agent=name, needs=["writer"]) for name in ("left", "middle", "right")])
    return dict(version=1, name=f"random-hybrid-{topology}", inputs={}, models=dict(main=dict(path="${env:BATON_MODEL}")),
                defaults=dict(temperature=0), agents=agents, workflow=workflow,
                outputs={name: f"{{{{ agent_{name}_current }}}}" for name in agents})


def run(program, file, model, method, timed):
    """The run record."""
    pace = [] if timed else ["--slowdown", "10"]
    done = subprocess.run([program, "run", file, "--relay", method, "--json", *pace], capture_output=True, text=True,
                          env=os.environ | {"BATON_MODEL": str(model)})
    if done.returncode != 0:
        sys.exit(f"random_hybrid: {file.name}, {method}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compare(program, model, pairs, timed):
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for topology in ("chain", "parallel"):
            file = pathlib.Path(scratch) / f"{topology}.yaml"
            file.write_text(json.dumps(team(topology, 480 if timed else 40)))  # JSON is YAML
            ratios = {}
            for pair in range(pairs):
                full, lockstep = (run(program, file, model, method, timed) for method in ("full", "lockstep"))
                for one, other in zip(full["agents"], lockstep["agents"]):
                    same = one["output"] == other["output"]
                    kept = other["kv"]["ahead"] + other["kv"]["reused"]
                    missed = other["agent"] not in ("first", "writer") and kept == 0
                    failed += not same or missed
                    if one["ttft_ms"] > 0:
                        ratios.setdefault(other["agent"], []).append(other["ttft_ms"] / one["ttft_ms"])
                    if pair == 0:
                        print(f"{topology:9} {other['agent']:7} prompt of {other['prompt_tokens']}, answer of "
                              f"{other['output_tokens']}: {'same' if same else 'DIFFERS'}, ahead "
                              f"{other['kv']['ahead']}, reused {other['kv']['reused']} of {other['kv']['entries']}"
                              f"{' MISSED' if missed else ''}", flush=True)
            for agent, found in ratios.items() if timed else ():
                print(f"{topology:9} {agent:7} first token: {statistics.median(found):.3f} of full's")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", type=pathlib.Path, help="a GGUF file of Qwen2.5; its model is written to --out")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the random model's file")
    parser.add_argument("--baton", help="the runner: runs the teams")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--time", action="store_true", help="print the latencies of first tokens, too")
    given = parser.parse_args()
    if given.like:
        with given.like.open("rb") as file:
            write(random_gguf.Metadata(file.read(64 * 2**20)), given.out)
    return compare(given.baton, given.out, given.pairs, given.time) if given.baton else 0


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
