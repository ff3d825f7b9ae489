#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First tokens of a process that finds the KV of its document in a store (`relay.store`).

    python tests/published/restart.py --baton BATON --model FILE.gguf [--tokens N] [--runs N] [--threads N]

One agent reads a document behind its role and answers a question. In turn, each in a process of its own: without a store;
with an empty store; with the same store again; and behind another role, with the store and without. Prints the times to
the first token, with loading the model beside them, how many tokens came from the store, and whether the answers are
those of the runs without it.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

ROLES = ["You are a careful archivist. You answer from the records alone, in one sentence.",
         "You check claims for a newspaper, and you doubt what you read. Say in one sentence what the records tell."]
WORDS = ("harbour ledger winter engine council river market letter garden railway copper night bridge school island "
         "captain window village paper station summer mountain forest doctor teacher king road stone").split()


def document(tokens, seed):
    """About as many tokens of made-up records."""
    draw = random.Random(seed)
    lines = []
    while sum(len(line.split()) for line in lines) < tokens * 0.62:
        words = " ".join(draw.choice(WORDS) for _ in range(9))
        lines.append(f"Record {len(lines) + 1}: the {words}, in the year {draw.randint(1700, 1999)}.")
    return "\n".join(lines)


def run(arguments, folder, role, store, relay):
    workflow = {"version": 1, "inputs": {"text": {"type": "string", "required": True}},
                "models": {"main": str(arguments.model)},
                "relay": {"method": relay} | ({"store": {"disk": str(store)}} if store else {}),
                "agents": {"reader": {"prompt": {
                    "system": ROLES[role],
                    "user": ["Records:\n{{ text }}\n\nQuestion: what is told of the harbour?"]}}},
                "defaults": {"max_tokens": 24, "temperature": 0}}
    file = folder / "restart.yaml"
    file.write_text(json.dumps(workflow))
    done = subprocess.run([arguments.baton, "run", file, "--json", "-q", "--device", "cpu", "--threads",
                           str(arguments.threads), "-i", f"text=@{folder / 'text.txt'}"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    record = json.loads(done.stdout)
    turn = record["agents"][0]
    return {"ttft": turn["ttft_ms"], "load": record["load_ms"], "stored": turn["kv"]["stored_tokens"],
            "stored_ms": turn["kv"]["stored_ms"], "prompt": turn["prompt_tokens"], "output": turn["output"],
            "reuse": turn["kv"]["reuse_rate"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    arguments.model = arguments.model.resolve()
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number in range(arguments.runs):
            (folder / "text.txt").write_text(document(arguments.tokens, number))
            store = folder / "kv"
            shutil.rmtree(store, ignore_errors=True)
            steps = [("no store", 0, None, "prefix"), ("store, empty", 0, store, "auto"),
                     ("store, same role", 0, store, "auto"), ("no store, other role", 1, None, "prefix"),
                     ("store, other role", 1, store, "auto")]
            for title, role, where, relay in steps:
                found.setdefault(title, []).append(run(arguments, folder, role, where, relay))
            size = sum(file.stat().st_size for file in store.rglob("*.kv"))
        print(f"{arguments.model.name}, prompts of {found['no store'][0]['prompt']} tokens, "
              f"{size / 2**20:.0f} MiB in the store")
        print(f"{'':26}{'first token':>12}{'over none':>11}{'loading':>10}{'stored':>8}{'waited':>8}{'reuse':>8}  same answer")
        for title, runs in found.items():
            base = found["no store, other role" if "other" in title else "no store"]
            ratio = statistics.median(one["ttft"] / two["ttft"] for one, two in zip(runs, base))
            same = sum(one["output"] == two["output"] for one, two in zip(runs, base))
            median = {key: statistics.median(one[key] for one in runs)
                      for key in ("ttft", "load", "stored", "stored_ms", "reuse")}
            print(f"{title:26}{median['ttft']:9.0f} ms{ratio:11.3f}{median['load']:7.0f} ms{median['stored']:8.0f}"
                  f"{median['stored_ms']:5.0f} ms{median['reuse']:8.2f}  {same} of {len(runs)}")


if __name__ == "__main__":
    main()
