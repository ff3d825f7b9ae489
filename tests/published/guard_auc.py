#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says how well the guard tells turns above the tolerance from the others, from the finished questions of an evaluation.

    baton-lab eval TEAM.yaml --dataset D.jsonl --methods "full,rectify:reuse=0.8" --forced-only --resume DONE.jsonl
    guard_auc.py DONE.jsonl [--method 1] [--tolerance 0.02] [--scale FILE.levels.json]

A turn is above when its mean KL is above the tolerance. The area under the curve is the probability that the guard measured
more for a turn above than for one below; its 95 % interval is a percentile bootstrap over questions (2,000 draws, seed 0).
With --scale (the model's levels, docs/cli.md) it also counts what a prompt's guard would have done: how many turns would have
been computed in full, and how many of those that stay are above the tolerance.
"""

import argparse
import json
import pathlib
import random
import sys

DRAWS = 2000


def turns_of(path: pathlib.Path, method: int) -> list[list[tuple[float, float]]]:
    """Of each question the (guard, mean KL) of its turns."""
    questions = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        distances = json.loads(line)["methods"][method]["distances"]
        turns = [(turn["guard"], sum(turn["kl"]) / len(turn["kl"])) for turn in distances.values() if "guard" in turn and turn["kl"]]
        questions.append(turns)
    return questions


def area(turns: list[tuple[float, float]], tolerance: float) -> float | None:
    """Rank statistic of Mann and Whitney; ties count one half. None: all turns are on one side."""
    above = sum(kl > tolerance for _, kl in turns)
    below = len(turns) - above
    if above == 0 or below == 0:
        return None
    ordered = sorted(turns)
    ranks, begin = 0.0, 0
    while begin < len(ordered):
        end = begin
        while end < len(ordered) and ordered[end][0] == ordered[begin][0]:
            end += 1
        ranks += sum(kl > tolerance for _, kl in ordered[begin:end]) * (begin + 1 + end) / 2
        begin = end
    return (ranks - above * (above + 1) / 2) / (above * below)


def interval(questions, tolerance: float) -> tuple[float, float] | None:
    draw, areas = random.Random(0), []
    for _ in range(DRAWS):
        drawn = [turn for _ in questions for turn in draw.choice(questions)]
        one = area(drawn, tolerance)
        if one is not None:
            areas.append(one)
    areas.sort()
    return (areas[int(0.025 * len(areas))], areas[min(int(0.975 * len(areas)), len(areas) - 1)]) if areas else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("done", type=pathlib.Path, nargs="+", help="files of `baton-lab eval --resume`; their questions are put together")
    parser.add_argument("--method", type=int, default=1, help="which of the evaluation's methods, from 0 (1)")
    parser.add_argument("--tolerance", type=float, default=0.02, help="nats per token (0.02)")
    parser.add_argument("--scale", type=pathlib.Path, metavar="FILE", help="the model's levels")
    options = parser.parse_args()
    questions = [turns for path in options.done for turns in turns_of(path, options.method)]
    turns = [turn for question in questions for turn in question]
    above = sum(kl > options.tolerance for _, kl in turns)
    print(f"{len(questions)} questions, {len(turns)} turns with a guard, {above} of them above {options.tolerance} nats")
    found = area(turns, options.tolerance)
    if found is None:
        print("no area under the curve: all turns are on one side")
        return 1
    low, high = interval(questions, options.tolerance)
    print(f"area under the curve {found:.3f} (95 %: {low:.3f} to {high:.3f})")
    if options.scale:
        scale = json.loads(options.scale.read_text(encoding="utf-8"))["guard_scale"]
        stay = [kl for guard, kl in turns if guard * scale <= options.tolerance]
        beyond = sum(kl > options.tolerance for kl in stay)
        print(f"computed in full by the guard: {len(turns) - len(stay)} of {len(turns)}; of the {len(stay)} that stay, {beyond} are above "
              f"({100 * beyond / max(1, len(stay)):.1f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
