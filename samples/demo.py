#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job, shown: a team of agents answers held-out word problems, with the shipped model or a published one.

Each problem is one `baton run` with its live view; the end is a summary. Called by `./dev demo`. Without --model nothing
is downloaded. With --model hf:ORG/NAME[:FILE or QUANTISATION] a model that is not here is downloaded after its size and
licence were shown and you agreed.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent


BATON = str(ROOT / "build/release/bin/baton")


def pull(model: str, agreed: bool) -> int:
    """Shows what a download is, asks, and downloads. Returns an exit status."""
    name = model.removeprefix("hf:")
    shown = subprocess.run([BATON, "pull", name, "--dry-run"])
    if shown.returncode != 0:
        return shown.returncode
    if not agreed:
        if not sys.stdin.isatty():
            print("demo: nobody to ask whether to download it; --yes agrees beforehand", file=sys.stderr)
            return 2
        if input("Download it? [y/N] ").strip().lower() not in ("y", "yes"):
            return 2
    return subprocess.run([BATON, "pull", name]).returncode


def answer_of(agent: dict) -> str:
    """The number that an answer ends with: what the pattern found, without separators."""
    found = agent.get("answer") or (re.findall(r"-?[0-9][0-9,]*", agent["output"]) or [""])[-1]
    return found.replace(",", "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a .gguf file, a model folder or hf:ORG/NAME[:FILE or QUANTISATION] "
                        "(default: the shipped model)")
    parser.add_argument("--yes", action="store_true", help="download without asking")
    parser.add_argument("--problems", type=int, default=5, help="how many to answer (default 5)")
    parser.add_argument("--seed", type=int, default=3, help="which ones: drawn from 500 by this seed (default 3)")
    parser.add_argument("--workflow", help="default: workflows/library/math_team.yaml; with --model solve_and_check.yaml")
    arguments = parser.parse_args()
    model = arguments.model
    workflow = arguments.workflow or f"workflows/library/{'solve_and_check' if model else 'math_team'}.yaml"
    if model and model.startswith("hf:"):
        status = pull(model, arguments.yes)
        if status != 0:
            return status
    elif model:
        model = str(pathlib.Path(model).resolve())

    lines = (ROOT / "tests/data/nano_heldout.jsonl").read_text(encoding="utf-8").splitlines()
    problems = [json.loads(line) for line in random.Random(arguments.seed).sample(lines, arguments.problems)]
    rows = []
    for number, problem in enumerate(problems, 1):
        question = problem["inputs"]["user_question"]
        print(f"\nProblem {number} of {len(problems)}")
        print(textwrap.fill(question, 100, initial_indent="  ", subsequent_indent="  "), flush=True)
        command = [BATON, "run", workflow, "--json", "--input", f"user_question={question}"]
        if model:
            command += ["--model", model]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return done.returncode
        record = json.loads(done.stdout)
        if number == 1:
            print(f"\nDevice: {record['device']}")
        final = record["agents"][-1]
        print("\n" + textwrap.indent(final["output"].strip(), "  | "), flush=True)
        tokens = sum(agent["output_tokens"] for agent in record["agents"])
        seconds = sum(agent["decode_ms"] for agent in record["agents"]) / 1000
        rows.append((number, answer_of(final), problem["answer"], tokens, tokens / seconds if seconds else 0.0, record["wall_ms"] / 1000))

    print("\nSummary")
    print(f"  {'problem':>7}  {'answer':>7}  {'expected':>8}  {'tokens':>6}  {'tokens/s':>8}  {'seconds':>7}")
    for number, answer, expected, tokens, rate, seconds in rows:
        mark = "right" if answer == expected else "wrong"
        print(f"  {number:>7}  {answer:>7}  {expected:>8}  {tokens:>6}  {rate:>8.0f}  {seconds:>7.2f}  {mark}")
    right = sum(answer == expected for _, answer, expected, *_ in rows)
    print(f"  {right} of {len(rows)} right. The same team on your own question:")
    chosen = f" --model {model}" if model else ""
    print(f"  build/release/bin/baton run {workflow}{chosen} --input user_question=\"...\"")
    return 0


if __name__ == "__main__":
    sys.exit(main())
