# SPDX-License-Identifier: Apache-2.0
"""Measures the trained model as a team: each agent reads what the agents before it really wrote.

Weights are the stored bf16 ones, activations are float32, decoding is greedy with a KV cache.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

import binding
import conversations
from conversations import MATH_ROLES, RESULT, Piece
from heldout import BINDING_SEED, MATH_SEED
from model import Nano, load, rotation
from problems import corrupt, draw, solve

TESTS = ("chain", "chain-last", "wrong", "wrong-last", "binding")  # last: the question stands behind the answers


@torch.inference_mode()
def generate(model: Nano, prompts: list[list[int]], end: int, limit: int) -> list[list[int]]:
    """Greedy answers without the end token. Rows keep their own positions; a mask hides what lies behind them."""
    rows, longest = len(prompts), max(map(len, prompts))
    config = model.config
    lengths = torch.tensor([len(p) for p in prompts])
    ids = torch.tensor([p + [0] * (longest - len(p)) for p in prompts])
    shape = (rows, config.num_key_value_heads, longest + limit, config.head_dim)
    keys = [torch.zeros(shape) for _ in model.layers]
    values = [torch.zeros(shape) for _ in model.layers]

    cos, sin = rotation(config, torch.arange(longest))
    x = F.embedding(ids, model.embedding)
    for layer, k_cache, v_cache in zip(model.layers, keys, values):
        q, k, v = layer.heads(x, cos, sin)
        k_cache[:, :, :longest], v_cache[:, :, :longest] = k, v
        x = layer.finish(x, layer.attend(q, k, v))
    every = torch.arange(rows)
    token = model.logits(x[every, lengths - 1]).argmax(-1)

    answers: list[list[int]] = [[] for _ in prompts]
    open_rows = torch.ones(rows, dtype=torch.bool)
    for step in range(limit):
        open_rows &= token != end
        if not open_rows.any():
            break
        for row in open_rows.nonzero().flatten().tolist():
            answers[row].append(int(token[row]))
        position = lengths + step
        cos, sin = (t[:, None, None] for t in rotation(config, position))
        mask = (torch.arange(longest + step + 1) <= position[:, None])[:, None, None]
        x = F.embedding(token[:, None], model.embedding)
        for layer, k_cache, v_cache in zip(model.layers, keys, values):
            q, k, v = layer.heads(x, cos, sin)
            k_cache[every, :, position], v_cache[every, :, position] = k[:, :, 0], v[:, :, 0]
            shared = q.view(rows, config.num_key_value_heads, -1, config.head_dim)  # the query heads of a KV head stand as its rows
            attended = F.scaled_dot_product_attention(shared, k_cache[:, :, :longest + step + 1], v_cache[:, :, :longest + step + 1], mask)
            x = layer.finish(x, attended.view(q.shape))
        token = model.logits(x[:, 0]).argmax(-1)
    return answers


class Team:
    """Answers prompts in batches; keeps the ids an agent wrote, to hand them on as they are."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.model = load(folder).eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.end = self.tokenizer.token_to_id("<|im_end|>")
        self.rows = rows
        self.written: dict[str, list[int]] = {}

    def encode(self, pieces: list[Piece]) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            ids += self.written.get(piece.text) or self.tokenizer.encode(piece.text, add_special_tokens=False).ids
        return ids

    def answer(self, prompts: list[list[Piece]], limit: int = 180) -> list[str]:
        encoded = [self.encode(p) for p in prompts]
        order = sorted(range(len(prompts)), key=lambda i: len(encoded[i]))
        texts = [""] * len(prompts)
        for start in range(0, len(order), self.rows):
            chosen = order[start:start + self.rows]
            for i, ids in zip(chosen, generate(self.model, [encoded[i] for i in chosen], self.end, limit)):
                texts[i] = self.tokenizer.decode(ids, skip_special_tokens=False)
                self.written[texts[i]] = ids
        return texts


def result_of(text: str) -> int | None:
    found = RESULT.search(text)
    return int(found.group(1)) if found else None


def run_chain(team: Team, problems: list, question_last: bool, corrupted: random.Random | None) -> list[list[str]]:
    """The answers of the chain, per problem; with `corrupted` the analyst's answer is replaced by a mistaken one."""
    said: list[list[str]] = [[] for _ in problems]
    for role in MATH_ROLES:
        if role == "analyst" and corrupted:
            texts = [conversations.write(role, p.question, corrupt(corrupted, p), []) for p in problems]
        else:
            texts = team.answer([conversations.math_prompt(role, p.question, s, question_last) for p, s in zip(problems, said)])
        for answers, text in zip(said, texts):
            answers.append(text)
    return said


def show(name: str, right: dict[str, int], count: int) -> None:
    print(f"{name}: " + ", ".join(f"{k} {v / count:.1%}" for k, v in right.items()), flush=True)


def math_report(team: Team, count: int, question_last: bool, wrong_analyst: bool, examples: int) -> None:
    rng = random.Random(MATH_SEED)
    problems = [draw(rng, held=True) for _ in range(count)]
    said = run_chain(team, problems, question_last, random.Random(MATH_SEED + 1) if wrong_analyst else None)
    right: dict[str, int] = dict.fromkeys(MATH_ROLES, 0)
    missed: dict[str, int] = defaultdict(int)
    length = 0
    for problem, answers in zip(problems, said):
        value = solve(problem.steps)[-1].value
        for role, text in zip(MATH_ROLES, answers):
            right[role] += result_of(text) == value
            length += len(team.encode([Piece(text, "answer")]))
        missed[problem.key.split()[0]] += result_of(answers[-1]) != value
        if examples and result_of(answers[-1]) != value:
            examples -= 1
            print(problem.question, f"[{value}]", *answers, sep="\n", end="\n\n")
    name = "chain" + (", question last" if question_last else "") + (", analyst wrong" if wrong_analyst else "")
    show(f"{name} ({count} problems, answers of {length / count / 4:.0f} tokens)", right, count)
    worst = sorted((n, k) for k, n in missed.items() if n)[-5:]
    if worst:
        print("  missed most: " + ", ".join(f"{k} {n}" for n, k in reversed(worst)))


def binding_report(team: Team, count: int, examples: int) -> None:
    rng = random.Random(BINDING_SEED)
    cases = [binding.draw(rng, held=True, family=binding.FAMILIES[i % len(binding.FAMILIES)]) for i in range(count)]
    reports: dict[str, list[str]] = {}
    empty = ("", "")
    for role in ("keeper", "counter"):
        reports[role] = team.answer([conversations.binding_prompt(role, c, empty, "") for c in cases])
    pairs = list(zip(reports["keeper"], reports["counter"]))
    resolved = team.answer([conversations.binding_prompt("resolver", c, p, "") for c, p in zip(cases, pairs)])
    verified = team.answer([conversations.binding_prompt("verifier", c, p, r) for c, p, r in zip(cases, pairs, resolved)])
    right: dict[str, int] = dict.fromkeys(("keeper", "counter", "resolver", "verifier"), 0)
    by_family: dict[str, list[int]] = {f: [0, 0, 0] for f in binding.FAMILIES}
    for case, pair, first, last in zip(cases, pairs, resolved, verified):
        right["keeper"] += pair[0] == case.report_a
        right["counter"] += pair[1] == case.report_b
        right["resolver"] += result_of(first) == case.answer
        right["verifier"] += result_of(last) == case.answer
        row = by_family[case.family]
        row[0] += 1
        row[1] += result_of(first) == case.answer
        row[2] += result_of(last) == case.answer
        if examples and result_of(first) != case.answer:
            examples -= 1
            print(case.question, f"[{case.answer}]", *pair, first, last, sep="\n", end="\n\n")
    show(f"binding team ({count} cases)", right, count)
    print("  resolver / verifier: " + ", ".join(f"{k} {a / n:.0%} / {b / n:.0%}" for k, (n, a, b) in by_family.items() if n))


def write_chains(team: Team, path: Path, count: int, seed: int) -> None:
    """Chains on training problems, in which half of the analysts are given a mistake; for train.py --chains."""
    seeds = [seed * 1_000_000 + i for i in range(count)]
    problems = [draw(random.Random(s)) for s in seeds]
    half = count // 2
    said = run_chain(team, problems[:half], False, None) + run_chain(team, problems[half:], True, random.Random(seed))
    path.write_text("".join(json.dumps({"seed": s, "texts": a[:3]}) + "\n" for s, a in zip(seeds, said)))
    print(f"{count} chains in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--count", type=int, default=500, help="held-out problems of the math team")
    parser.add_argument("--binding", type=int, default=300, help="held-out cases of the binding team")
    parser.add_argument("--rows", type=int, default=100, help="rows generated together")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--examples", type=int, default=0, help="show so many wrong answers")
    parser.add_argument("--tests", nargs="+", choices=TESTS, default=list(TESTS), help="what to measure; `wrong`: the analyst is given a mistake")
    parser.add_argument("--write", type=Path, help="write chains on training problems here instead of measuring")
    parser.add_argument("--seed", type=int, default=1, help="of the chains to write")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    begun = time.monotonic()
    team = Team(args.model, args.rows)
    if args.write:
        write_chains(team, args.write, args.count, args.seed)
        return
    for test in args.tests:
        if test == "binding":
            binding_report(team, args.binding, args.examples)
        else:
            math_report(team, args.count, "last" in test, "wrong" in test, args.examples)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
