#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefill, decode and the time to first token of a row of agents in Hugging Face Transformers: the peer that
`baton-lab bench` is compared with. SDPA attention, random weights made on the device, the same shapes and sizes; prints
JSON of the same form.

    baton-lab bench --shape qwen3-0.6b --config > config.json
    transformers_peer.py --config config.json --prefill 512,2048 --decode 1x1024,8x1024 --agents 5 --prefix 512 \\
        --question 1000 --output 512

Each number is that of the fastest cache: DynamicCache (grows by copying) or StaticCache (attends to all it could hold);
`cache` says which. --compile adds torch.compile with CUDA graphs to the decode steps, which takes minutes.
"""

import argparse
import json
import statistics
import sys
import time

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

MODEL_TYPES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
SEPARATOR = 4  # tokens behind the role text, the question and each answer, as in baton-lab bench
SECONDS = 0.3  # for each measured line, at least
LONG = 2.0     # seconds of a run that is repeated once only


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="config.json of the shape")
    parser.add_argument("--name", default="", help="of the shape")
    parser.add_argument("--layers", type=int, default=0, help="in place of the shape's own")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--prefill", default="512,2048,3584", help="N,N")
    parser.add_argument("--decode", default="1x1024,1x4096,8x1024", help="ROWSxDEPTH,...")
    parser.add_argument("--agents", type=int, default=0)
    parser.add_argument("--prefix", type=int, default=128)
    parser.add_argument("--question", type=int, default=512)
    parser.add_argument("--output", type=int, default=256)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def make_model(options):
    with open(options.config, encoding="utf-8") as file:
        fields = json.load(file)
    fields.setdefault("model_type", MODEL_TYPES[fields["architectures"][0]])
    if options.layers:
        fields["num_hidden_layers"] = options.layers
    config = AutoConfig.for_model(**fields)
    torch.manual_seed(options.seed)
    dtype = getattr(torch, options.dtype)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(options.device):
            model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    finally:
        torch.set_default_dtype(before)
    return model.to(dtype).eval(), config


class Clock:
    """Medians of runs that end with the device idle."""

    def __init__(self, device):
        self.cuda = device.startswith("cuda")

    def once(self, run):
        self.wait()
        begin = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - begin

    def median(self, run, most=1000):
        if self.once(run) > LONG:  # the first one also starts what it needs, and never counts
            return self.once(run)
        times = []
        while len(times) < 5 or (sum(times) < SECONDS and len(times) < most):
            times.append(self.once(run))
        return statistics.median(times)

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()


class Peer:
    def __init__(self, options):
        self.options = options
        begin = time.perf_counter()
        self.model, self.config = make_model(options)
        self.clock = Clock(options.device)
        self.clock.wait()
        self.load_ms = 1000 * (time.perf_counter() - begin)

    def cache(self, kind, length):
        if kind == "dynamic":
            return DynamicCache(config=self.config)
        return StaticCache(config=self.config, max_cache_len=length)

    def tokens(self, rows, count):
        return (torch.arange(rows * count, device=self.options.device) * 37 + 11).reshape(rows, count) % self.config.vocab_size

    def fastest(self, kinds, measure):
        """(seconds, kind) of the fastest; a kind that this version cannot run is left out, and said."""
        found = []
        for kind in kinds:
            try:
                found.append((measure(kind), kind))
            except Exception as error:  # the next kind may work
                print(f"{kind} cache: {type(error).__name__}: {error}", file=sys.stderr)
        if not found:
            raise RuntimeError("no cache of this version of Transformers could be measured")
        return min(found)

    def first_token(self, length):
        """Seconds from a prompt to its first token on the host, with logits of the last token alone."""
        ids = self.tokens(1, length)

        def measure(kind):
            def run():
                out = self.model(ids, past_key_values=self.cache(kind, length), use_cache=True, logits_to_keep=1)
                return int(out.logits[0, -1].argmax())
            return self.clock.median(run)
        return self.fastest(["dynamic", "static"], measure)

    def decode_step(self, rows, depth):
        prompt, token = self.tokens(rows, depth), self.tokens(rows, 1)

        def filled(kind, room):
            cache = self.cache(kind, room)
            self.model(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1)
            return cache

        def dynamic():
            cache = filled("dynamic", depth)  # each step makes it longer by one

            def run():
                out = self.model(token, past_key_values=cache, use_cache=True)
                return out.logits[:, -1].argmax(-1).tolist()
            return self.clock.median(run)

        def static(forward):
            room, steps = depth + 64, 60  # each step may take a place of its own
            cache = filled("static", room)
            position = torch.tensor([depth], device=self.options.device)

            def run():
                out = forward(token, past_key_values=cache, use_cache=True, cache_position=position,
                              position_ids=position.expand(rows, 1))
                return out.logits[:, -1].argmax(-1).tolist()
            return self.clock.median(run, steps)

        ways = {"dynamic": dynamic, "static": lambda: static(self.model)}
        if self.options.compile:
            ways["static, compiled"] = lambda: static(torch.compile(self.model, mode="reduce-overhead"))
        return self.fastest(ways, lambda kind: ways[kind]())


def numbers(text):
    return [int(part) for part in text.split(",") if part]


@torch.inference_mode()
def main():
    options = parse()
    peer = Peer(options)
    first = {}

    def first_token(length):
        if length not in first:
            print(f"prefill of {length} tokens", file=sys.stderr)
            first[length] = peer.first_token(length)
        return first[length]

    prefill = []
    for tokens in numbers(options.prefill):
        seconds, cache = first_token(tokens)
        prefill.append({"tokens": tokens, "tokens_per_s": tokens / seconds, "cache": cache})
    decode = []
    for text in filter(None, options.decode.split(",")):
        rows, depth = map(int, text.split("x"))
        print(f"decode of {rows} sequences, {depth} tokens deep", file=sys.stderr)
        seconds, cache = peer.decode_step(rows, depth)
        decode.append({"depth": depth, "rows": rows, "tokens_per_s": rows / seconds, "cache": cache})
    agents = []
    for agent in range(1, options.agents + 1):
        length = options.prefix + options.question + (agent - 1) * options.output + (agent + 1) * SEPARATOR
        seconds, cache = first_token(length)
        agents.append({"agent": agent, "prompt_tokens": length, "ttft_ms": 1000 * seconds, "cache": cache})
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else f"cpu, {torch.get_num_threads()} threads"
    json.dump({"schema": 1, "engine": f"Transformers {transformers.__version__}, PyTorch {torch.__version__}, SDPA"
                                      + (", compiled" if options.compile else ""),
               "device": device, "shape": options.name or options.config, "dtype": options.dtype,
               "params": {"layers": peer.config.num_hidden_layers, "agents": options.agents, "prefix": options.prefix,
                          "question": options.question, "output": options.output},
               "prefill": prefill, "decode": decode, "methods": [{"method": "full", "agents": agents}] if agents else [],
               "load_ms": peer.load_ms}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
