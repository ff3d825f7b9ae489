#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares model families with Transformers: random configurations, not the one of each golden.

    python check_families.py build/release/bin/baton_answer_check [--only NAME] [--seeds 20]

Needs torch, transformers 5 and safetensors (as make_models.py, whose families it draws from). For each family and seed
it draws widths, heads, layers, windows and a vocabulary, fills a model with random weights, saves it as a Hugging Face
folder, and asks the program for logits and 32 greedy tokens after prompts of 1, 40 and 300 tokens, in f32.

Right is: logits within 8 times the noise of rounding (|float32 - float64| of Transformers), and the same tokens. At a
near tie, if the two best logits are closer than twice that tolerance, tokens may part; that is counted.
"""

import argparse
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers

from make_models import BASE, CONFIGS, FROM_ONE, MODELS, fill, in_double

PROMPTS = (1, 40, 300)
TOKENS = 32


def tokenizer():
    """A tokenizer.json with a token for each byte: the program opens none without one, and speaks in ids."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    names = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        names.setdefault(byte, chr(256 + sum(one not in printable for one in range(byte))))
    vocabulary = {names[byte]: byte for byte in range(256)}
    return json.dumps(dict(version="1.0", added_tokens=[], normalizer=None, post_processor=None,
                           pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True),
                           decoder=dict(type="ByteLevel"),
                           model=dict(type="BPE", vocab=vocabulary, merges=[])))


def drawn(name, seed):
    """The arguments of a family's configuration class, with other sizes."""
    kind, arguments = MODELS[name][:2]
    draw = random.Random(f"{name} {seed}")
    heads = draw.choice([2, 4, 6])
    head_dim = draw.choice([16, 24, 32])
    wide = "head_dim" in arguments  # else the width is that of all heads together
    sizes = dict(hidden_size=draw.choice([48, 64, 96]) if wide else heads * head_dim, num_attention_heads=heads,
                 num_key_value_heads=draw.choice([n for n in (1, 2, 4, 6) if heads % n == 0]),
                 intermediate_size=draw.choice([72, 112, 160]), num_hidden_layers=draw.randint(2, 5),
                 vocab_size=draw.randint(256, 400))
    if wide:
        sizes["head_dim"] = head_dim
    arguments = BASE | copy.deepcopy(arguments) | sizes
    arguments.pop("layer_types", None)
    if isinstance(arguments.get("sliding_window"), int):
        arguments["sliding_window"] = draw.choice([7, 20, 64, 130])
    if "no_rope_layers" in arguments:
        arguments["no_rope_layers"] = [draw.randint(0, 1) for _ in range(sizes["num_hidden_layers"])]
    if "mlp_only_layers" in arguments:
        arguments["mlp_only_layers"] = [i for i in range(sizes["num_hidden_layers"]) if draw.random() < 0.3]
    for key in ("num_experts", "num_local_experts"):
        if key in arguments:
            arguments[key] = draw.choice([4, 6, 9])
    rope = arguments.get("rope_parameters") or {}
    if "short_factor" in rope:
        pairs = int(head_dim * rope["partial_rotary_factor"]) // 2
        rope["short_factor"] = [draw.uniform(1.0, 2.0) for _ in range(pairs)]
        rope["long_factor"] = [draw.uniform(1.0, 20.0) for _ in range(pairs)]
    if name == "exaone4_full":
        arguments["layer_types"] = ["full_attention"] * sizes["num_hidden_layers"]
    return kind, arguments


def expected(model, double, ids):
    """(logits of the last position, noise) of a prompt."""
    with torch.no_grad():
        single = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        with in_double():
            exact = double(torch.tensor([ids]), use_cache=False).logits[0, -1]
    return single, float((single.double() - exact).abs().max())


def check(name, seed, program, folder):
    """(largest error divided by the tolerance, greedy runs that part at a near tie, what is wrong)"""
    kind, arguments = drawn(name, seed)
    config = getattr(transformers, CONFIGS.get(kind, kind + "Config"))(**arguments)
    config._attn_implementation = "eager"
    model = getattr(transformers, kind + "ForCausalLM")(config)
    fill(model, torch.Generator().manual_seed(seed), kind in FROM_ONE)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                              experts_implementation="eager").eval()
    double = copy.deepcopy(model).double()
    with in_double():
        double.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    draw = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(3, config.vocab_size, (length,), generator=draw).tolist() for length in PROMPTS]
    asked = "".join(json.dumps(dict(ids=ids, tokens=TOKENS, ends=False, logits=True)) + "\n" for ids in prompts)
    done = subprocess.run([program, folder, "f32"], input=asked, capture_output=True, text=True)
    if done.returncode != 0:
        return 0.0, 0, done.stderr.strip()
    worst, ties, goldens = 0.0, 0, [expected(model, double, ids) for ids in prompts]
    tolerance = 8 * max(noise for _, noise in goldens)
    for ids, (logits, _), line in zip(prompts, goldens, done.stdout.splitlines()):
        answer = json.loads(line)
        worst = max(worst, float((torch.tensor(answer["logits"]) - logits).abs().max()) / tolerance)
        run = list(ids)
        for token in answer["tokens"]:
            with torch.no_grad():
                best = torch.topk(model(torch.tensor([run]), use_cache=False).logits[0, -1], 2)
            if token != int(best.indices[0]):
                if float(best.values[0] - best.values[1]) >= 2 * tolerance:
                    return worst, ties, f"prompt of {len(ids)}: token {len(run) - len(ids)} differs"
                ties += 1
                break
            run.append(token)
    return worst, ties, "" if worst <= 1.0 else "logits differ"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="baton_answer_check")
    parser.add_argument("--only", action="append", choices=list(MODELS), help="these families alone")
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = 0
    for name in given.only or MODELS:
        worst, ties, problems = 0.0, 0, []
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                error, tied, problem = check(name, seed, given.program, pathlib.Path(folder))
            worst, ties = max(worst, error), ties + tied
            if problem:
                problems.append(f"seed {seed}: {problem}")
        if ties > 0.05 * given.seeds * len(PROMPTS):
            problems.append("more than 5 % of the runs part at near ties")
        failed += bool(problems)
        print(f"{name:14} {given.seeds} seeds, largest error {worst:.2f} of the tolerance, {ties} near ties"
              + "".join(f"\n    {problem}" for problem in problems), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
