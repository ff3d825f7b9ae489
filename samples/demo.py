#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job, shown: a team of agents answers held-out word problems with the shipped model.

Each problem is one `baton run` with its live view; the end is a summary. Called by `./dev demo`.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--problems", type=int, default=5, help="how many to answer (default 5)")
    parser.add_argument("--seed", type=int, default=3, help="which ones: drawn from 500 by this seed (default 3)")
    parser.add_argument("--workflow", default="workflows/library/math_team.yaml")
    arguments = parser.parse_args()

    lines = (ROOT / "tests/data/nano_heldout.jsonl").read_text(encoding="utf-8").splitlines()
    problems = [json.loads(line) for line in random.Random(arguments.seed).sample(lines, arguments.problems)]
    rows = []
    for number, problem in enumerate(problems, 1):
        question = problem["inputs"]["user_question"]
        print(f"\nProblem {number} of {len(problems)}")
        print(textwrap.fill(question, 100, initial_indent="  ", subsequent_indent="  "), flush=True)
        command = [str(ROOT / "build/release/bin/baton"), "run", arguments.workflow, "--json",
                   "--input", f"user_question={question}"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return done.returncode
        record = json.loads(done.stdout)
        final = record["agents"][-1]
        print("\n" + textwrap.indent(final["output"].strip(), "  | "), flush=True)
        tokens = sum(agent["output_tokens"] for agent in record["agents"])
        seconds = sum(agent["decode_ms"] for agent in record["agents"]) / 1000
        rows.append((number, final["answer"], problem["answer"], tokens, tokens / seconds if seconds else 0.0, record["wall_ms"] / 1000))

    print("\nSummary")
    print(f"  {'problem':>7}  {'answer':>7}  {'expected':>8}  {'tokens':>6}  {'tokens/s':>8}  {'seconds':>7}")
    for number, answer, expected, tokens, rate, seconds in rows:
        mark = "right" if answer == expected else "wrong"
        print(f"  {number:>7}  {answer:>7}  {expected:>8}  {tokens:>6}  {rate:>8.0f}  {seconds:>7.2f}  {mark}")
    right = sum(answer == expected for _, answer, expected, *_ in rows)
    print(f"  {right} of {len(rows)} right. The same team on your own question:")
    print(f"  build/release/bin/baton run {arguments.workflow} --input user_question=\"...\"")
    return 0


if __name__ == "__main__":
    sys.exit(main())
