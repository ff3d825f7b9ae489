#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first runs of a model about which Baton knows nothing: no run waits for a measurement, and the third one relays.

    first_runs.py BATON MODELS_DIR --dataset D.jsonl [--workflow team_gsm8k] [--runs 4] [--pairs 3] [MODEL...]

Each .gguf file is copied with another fingerprint, so that no levels fit it, and is run with an empty cache. In turn with
`--relay exact`: the first token (of the first agent, and the mean of those that read others), in ms from the turn's inputs
on; then runs of different questions. Prints a row for each model:

    first token, others: auto's over exact's, medians of the pairs; tail: seconds from the answer to the end of the process;
    relays: the first run that relays; levels: the run behind which as many turns are measured as levels rest on (three);
    turns, ms: what was measured in all runs, and by how much longer the steps were for it

Exit status 1: a first token above 1.2 x, a tail above 0.5 s, no relaying in the third run, or no levels.
Nothing else may run on the machine.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def questions(dataset: pathlib.Path) -> list[dict]:
    return [json.loads(line)["inputs"] for line in dataset.read_text(encoding="utf-8").splitlines() if line.strip()]


class Runner:
    def __init__(self, arguments, model: pathlib.Path, folder: pathlib.Path):
        self.arguments, self.folder = arguments, folder
        self.model = folder / model.name
        shutil.copyfile(model, self.model)
        with open(self.model, "ab") as file:  # behind the tensors: the same weights
            file.write(bytes(32))
        self.cache = folder / "cache"

    def forget(self):
        shutil.rmtree(self.cache / "baton" / "profiles", ignore_errors=True)

    def run(self, inputs: dict, relay: str) -> tuple[dict, float]:
        """The record, and the seconds from its last byte to the end of the process."""
        words = [self.arguments.baton, "run", self.arguments.workflow, "--model", str(self.model), "--relay", relay, "--json"]
        for name, value in inputs.items():
            words += ["-i", f"{name}={value}"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   env={**os.environ, "XDG_CACHE_HOME": str(self.cache)})
        text = ""
        answered = time.monotonic()
        for line in process.stdout:
            text += line
            if line.startswith("}"):
                answered = time.monotonic()
        if process.wait() != 0:
            sys.exit(f"{self.model.name}: the run failed")
        return json.loads(text), time.monotonic() - answered


def first_tokens(record: dict) -> tuple[float, float]:
    first, *others = [agent["ttft_ms"] for agent in record["agents"]]
    return first, statistics.mean(others)


def relayed(record: dict) -> bool:
    return any(slot["hops"] > 0 for agent in record["agents"] for slot in agent["slots"])


def measure(arguments, model: pathlib.Path, folder: pathlib.Path, inputs: list[dict]) -> bool:
    runner = Runner(arguments, model, folder)
    runner.run(inputs[0], "exact")  # the fingerprint of the file is computed once
    first, others, tails = [], [], []
    for pair in range(arguments.pairs):
        runner.forget()
        auto, tail = runner.run(inputs[0], "auto")
        exact, _ = runner.run(inputs[0], "exact")
        of_auto, of_exact = first_tokens(auto), first_tokens(exact)
        first.append(of_auto[0] / of_exact[0])
        others.append(of_auto[1] / of_exact[1])
        tails.append(tail)
    runner.forget()
    relays = known = None
    turns = ms = 0
    for number in range(1, arguments.runs + 1):
        record, tail = runner.run(inputs[(number - 1) % len(inputs)], "auto")
        tails.append(tail)
        turns += record["measured_turns"]
        ms += record["measured_ms"]
        if relays is None and relayed(record):
            relays = number
        places = [json.loads(file.read_text())["places"] for file in (runner.cache / "baton" / "profiles").glob("*.places.json")]
        if known is None and places and sum(len(place["observations"]) for place in places[0]) >= 3:
            known = number
    ratio = statistics.median(first)
    ok = ratio <= 1.2 and max(tails) <= 0.5 and relays is not None and relays <= 3 and known is not None
    print(f"| {model.stem} | {ratio:.2f} | {statistics.median(others):.2f} | {max(tails):.2f} s | {relays} | {known} | {turns} | "
          f"{ms:,.0f} | {'ok' if ok else 'MISSED'} |", flush=True)
    return ok


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baton")
    parser.add_argument("models_dir", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--dataset", type=pathlib.Path, required=True)
    parser.add_argument("--workflow", default="team_gsm8k")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_intermixed_args()
    inputs = questions(arguments.dataset)
    print("| model | first token | others | tail | relays | levels | turns | ms | |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    ok = True
    for model in sorted(arguments.models_dir.glob("*.gguf")):
        if arguments.models and model.stem not in arguments.models:
            continue
        with tempfile.TemporaryDirectory() as folder:
            ok = measure(arguments, model, pathlib.Path(folder), inputs) and ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
