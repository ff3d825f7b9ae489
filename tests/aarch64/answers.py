#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy answers on 64-bit Arm are those of this machine, token for token.

    python tests/aarch64/answers.py --bin build/release/bin --arm-bin build/aarch64/bin [FILE.gguf ...]

Nano, and the models that are given, continue two texts in both programs: with weights, KV and activations in f32, and with
bf16, where products with quantised weights take activations of 8 bits. The ids and the tokens have to be equal, and, bit
for bit, how far each token's logit is ahead of the next, where a difference shows before it changes a token.

Prints a line for each model and type. Exit code 1: something differs, or an answer has too few tokens to say anything.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NANO = ROOT / "samples/models/nano"
RUN = ROOT / "cmake/aarch64/run.sh"
TEXTS = ("Once upon a time, a fox came to a river and", "The capital of France is Paris. The sky is blue because")
TOKENS, MIN_TOKENS = 20, 16


def answers(program, model, dtype):
    questions = "".join(json.dumps({"text": text, "tokens": TOKENS}) + "\n" for text in TEXTS)
    done = subprocess.run([*program, model, dtype], input=questions, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="programs of this machine")
    parser.add_argument("--arm-bin", type=pathlib.Path, required=True, help="programs of the preset aarch64")
    parser.add_argument("--processor", default="max", help="one of `qemu-aarch64 -cpu help`")
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    failed = False
    for model in (NANO, *options.models):
        for dtype in ("f32", "bf16"):
            here = answers([options.bin / "baton_answer_check"], model, dtype)
            there = answers([RUN, options.processor, options.arm_bin / "baton_answer_check"], model, dtype)
            counts = [len(answer["tokens"]) for answer in here]
            verdict = f"{' + '.join(map(str, counts))} tokens, the same with their leads" if here == there else f"{here} here, {there} on Arm"
            good = here == there and len(counts) == len(TEXTS) and min(counts) >= MIN_TOKENS
            failed = failed or not good
            print(f"{model.stem}, {dtype}: {verdict}{'' if good else ': FAILED'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
