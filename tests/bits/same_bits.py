#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints hashes of what the engine computes, to compare two builds: a change that only restructures changes none of them.

    same_bits.py --bin build/release/bin [--models DIR] [--out FILE] [--only PART,..] [--against FILE]

Parts: logits (of `bench`, on nano and SmolLM2), teams (all tokens of 200 random teams, by seed), greedy (answers of each
.gguf file to 20 prompts, with the gap to the second best token), eval (math_team on 100 problems, by full, lockstep,
rectify and anchors: the agents' tokens, divergences, reuse). --against compares with an earlier output; exit status 1: a
hash differs. Programs that only one of the builds has are looked for under both names.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PARTS = ["logits", "teams", "greedy", "eval"]
TEAMS = ",".join(f"random teams: {model} model gives the answers of full in every way" for model in ("a tiny", "the shipped"))
TIMES = ("ms", "_s", "per_s")  # ends of the names of fields that hold times


def digest(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if not key.endswith(TIMES)}
    if isinstance(value, list):
        return [without_times(inner) for inner in value]
    return value


class Build:
    def __init__(self, folder: pathlib.Path):
        self.bin = folder
        lab = folder / "baton-lab"
        self.lab = lab if lab.exists() else folder / "baton"

    def measure(self, *words: str) -> str:
        return subprocess.run([str(self.lab), *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def logits(build: Build, models: list[pathlib.Path]):
    smollm = [str(model) for model in models if "smollm2" in model.name]
    for name in ["nano", *smollm]:
        found = json.loads(build.measure("bench", "--model", name, "--methods", "full,rectify", "--agents", "2", "--prefix", "40", "--question", "60", "--output", "30", "--prefill", "64,300",
                                         "--decode", "1x64,4x64", "--repeat", "1", "--json", "-q"))
        yield f"logits {pathlib.Path(name).stem}", found["logits_hash"]


def teams(build: Build, _):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "teams"
        subprocess.run([str(build.bin / "baton_test_teams"), TEAMS], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "BATON_TEAM_HASHES": str(file), "BATON_RANDOM_TEAMS": "200"})
        lines = file.read_text(encoding="utf-8").splitlines()
    yield f"teams {len(lines)}", digest(lines)


def greedy(build: Build, models: list[pathlib.Path]):
    prompts = [json.loads(line) for line in (ROOT / "tests/published/prompts.jsonl").read_text(encoding="utf-8").splitlines()][:20]
    questions = "".join(json.dumps({"text": prompt, "tokens": 32}) + "\n" for prompt in prompts)
    for model in models:
        found = subprocess.run([str(build.bin / "baton_answer_check"), str(model)], check=True, input=questions,
                               stdout=subprocess.PIPE, text=True).stdout
        yield f"greedy {model.stem}", digest(found)


def evaluated(build: Build, _):
    for method in ["full", "lockstep", "rectify", "anchors"]:
        with tempfile.TemporaryDirectory() as folder:
            answers = pathlib.Path(folder) / "answers.jsonl"
            found = json.loads(build.measure(
                "eval", "math_team", "--dataset", str(ROOT / "tests/data/nano_heldout.jsonl"), "--limit", "100", "--methods",
                "full" if method == "full" else f"full,{method}", "--floor-limit", "0", "--jobs", "1", "--json", "-q",
                "--answers", str(answers)))
            lines = sorted(digest(without_times(json.loads(line))) for line in answers.read_text(encoding="utf-8").splitlines())
        quality = [without_times(row) for row in found["methods"]]
        yield f"eval {method} answers", digest(lines)
        yield f"eval {method} quality", digest([{key: row.get(key) for key in (
            "method", "accuracy", "exact_match", "greedy_agreement", "kl_first_token", "kl_mean", "kv_reuse_rate")} for row in quality])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--models", type=pathlib.Path, help="a folder of .gguf files")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--against", type=pathlib.Path)
    options = parser.parse_args()
    build = Build(options.bin)
    models = sorted(options.models.glob("*.gguf")) if options.models else []
    run = {"logits": logits, "teams": teams, "greedy": greedy, "eval": evaluated}
    lines = {}
    for part in options.only.split(","):
        for name, value in run[part](build, models):
            lines[name] = value
            print(f"{name}: {value}", flush=True)
    if options.out:
        options.out.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()), encoding="utf-8")
    if not options.against:
        return 0
    before = dict(line.rsplit(": ", 1) for line in options.against.read_text(encoding="utf-8").splitlines())
    wrong = [name for name, value in lines.items() if before.get(name) != value]
    for name in wrong:
        print(f"differs: {name}: {before.get(name)} before", file=sys.stderr)
    print("same bits" if not wrong else f"{len(wrong)} of {len(lines)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
