# SPDX-License-Identifier: Apache-2.0
"""Writes the data of the two teams: held-out instantiations, that training never draws, to measure with, and others to
learn corrections from (baton-lab learn)."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import binding
from problems import draw, solve

MATH_SEED = 1001
BINDING_SEED = 1002
LEARN_SEEDS = (2001, 2002)
DATA = Path(__file__).resolve().parents[4] / "tests" / "data"


def math_rows(count: int, seed: int = MATH_SEED, held: bool = True) -> list[dict]:
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        problem = draw(rng, held=held)
        rows.append({"id": f"{problem.key.split()[0]}-{i:03}", "inputs": {"user_question": problem.question},
                     "answer": str(solve(problem.steps)[-1].value)})
    return rows


def binding_rows(count: int, seed: int = BINDING_SEED, held: bool = True) -> list[dict]:
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        case = binding.draw(rng, held=held, family=binding.FAMILIES[i % len(binding.FAMILIES)])
        rows.append({"id": f"{case.family}-{i:03}", "inputs": {"notes_a": case.notes_a, "notes_b": case.notes_b, "user_question": case.question},
                     "answer": str(case.answer)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--math", type=int, default=500)
    parser.add_argument("--binding", type=int, default=300)
    parser.add_argument("--learn", type=int, default=300, help="of each team, to learn corrections from")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, rows in (("nano_heldout.jsonl", math_rows(args.math)), ("nano_binding_heldout.jsonl", binding_rows(args.binding)),
                       ("nano_learn.jsonl", math_rows(args.learn, LEARN_SEEDS[0], False)),
                       ("nano_binding_learn.jsonl", binding_rows(args.learn, LEARN_SEEDS[1], False))):
        (args.out / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{len(rows)} lines in {args.out / name}")


if __name__ == "__main__":
    main()
