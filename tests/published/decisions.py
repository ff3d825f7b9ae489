#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often relaying changes a decision: a choice among given texts, an enum of a schema, a judge's verdict.

    make_dataset.py decisions --part tables --data DIR > decisions.jsonl
    decisions.py BATON MODEL.gguf --dataset decisions.jsonl [--limit N] [--tolerance T] [--rows FILE]

Runs tests/published/teams/decisions.yaml on each question with full prefill and with `auto`, in turn, and compares the
decisions of the three agents whose texts were handed over at 80 % reuse or more: that was so before the decision, and a
prompt that its guard refused does not count. `auto` decides by the model's levels alone (`relay.history: false`), within the
tolerance T, so that it relays. Prints

    decisions: all that count; flips without the rule: those that differ from full prefill, if none were made again (the
    record says which were changed by that); flips: those that differ now; exact: the share that was made again on exact KV;
    first token: of those made again, and of the others, over full prefill's, medians

and --rows writes a JSON line for each decision, with the margin, from which the factor of the rule was chosen.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TEAM = pathlib.Path(__file__).resolve().parent / "teams" / "decisions.yaml"
AGENTS = ["chooser", "classifier", "judge"]


def run(arguments, inputs: dict, relay: list[str], cache: str) -> dict:
    words = [arguments.baton, "run", str(TEAM), "--model", arguments.model, "--json", *relay]
    for name, value in inputs.items():
        words += ["-i", f"{name}={value}"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": cache})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words[:6])}: exit status {done.returncode}: {done.stderr.strip()[-400:]}")
    return {agent["agent"]: agent for agent in json.loads(done.stdout)["agents"]}


def decided(agent: dict) -> str:
    """What the answer says, however it is written."""
    text = agent["output"]
    return json.loads(text)["earlier"] if text.lstrip().startswith("{") else text


def margin(agent: dict) -> float | None:
    """By how much the best choice is more probable than the next, nats."""
    found = sorted((value for _, value in pairs(agent)), reverse=True)
    return math.log(found[0] / found[1]) if len(found) > 1 and found[1] > 0 else None


def pairs(agent: dict) -> list:
    shares = agent.get("probabilities") or {}
    return list(shares.items()) if isinstance(shares, dict) else [tuple(one) for one in shares]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baton")
    parser.add_argument("model")
    parser.add_argument("--dataset", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--rows", type=pathlib.Path)
    arguments = parser.parse_args()
    questions = [json.loads(line) for line in arguments.dataset.read_text(encoding="utf-8").splitlines() if line.strip()]
    questions = questions[arguments.skip:][:arguments.limit or None]
    auto = ["--relay", "auto", "--set", f"relay.tolerance={arguments.tolerance}", "--set", "relay.history=false"]
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for question in questions:
            full = run(arguments, question["inputs"], ["--relay", "full"], cache)
            relayed = run(arguments, question["inputs"], auto, cache)
            if relayed["reader"]["output"] != full["reader"]["output"]:
                raise SystemExit(f"{question['id']}: the reader's answers differ: its prompt is not exact")
            for name in AGENTS:
                then, now = full[name], relayed[name]
                rows.append({"id": question["id"], "agent": name, "full": decided(then), "auto": decided(now), "text": now["output"],
                             "text_full": then["output"],
                             "right": question["right"][name], "reuse": now["kv"]["reuse_rate"],
                             "decisions": now.get("decisions", 0), "exact": now.get("decisions_exact", 0),
                             "changed": now.get("decisions_changed", 0), "expected": now["expected_nats"],
                             "guard": now["guard_nats"], "margin": margin(now), "margin_full": margin(then),
                             "probabilities": pairs(now), "probabilities_full": pairs(then),
                             "reasons": [slot["reason"] for slot in now["slots"] if slot["name"] == "passages"],
                             "ttft": now["ttft_ms"], "ttft_full": then["ttft_ms"]})
            print(f"\r{len(rows)} of {3 * len(questions)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if arguments.rows:
        arguments.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    counted = [row for row in rows if row["decisions"] > 0]
    refused = sum(1 for row in rows if row["decisions"] == 0)
    if not counted:
        print(f"no decision was made on texts handed over ({refused} prompts were exact); raise --tolerance")
        return 1
    exact = [row for row in counted if row["exact"]]
    flips = [row for row in counted if row["auto"] != row["full"]]
    before = sum(1 for row in counted if row["auto"] != row["full"] or row["changed"])
    print(f"{pathlib.Path(arguments.model).stem}: {len(counted)} decisions ({refused} more on exact prompts)")
    print(f"flips without the rule {before} ({100 * before / len(counted):.1f} %), with it {len(flips)} "
          f"({100 * len(flips) / len(counted):.1f} %), made again {len(exact)} ({100 * len(exact) / len(counted):.1f} %)")
    reuse = [row["reuse"] for row in counted if not row["exact"]]
    kept = [row["ttft"] / row["ttft_full"] for row in counted if not row["exact"]]
    again = [row["ttft"] / row["ttft_full"] for row in exact]
    medians = [f"{statistics.median(some):.2f}" if some else "-" for some in (reuse, kept, again)]
    print(f"reuse of the others {medians[0]}; first token over full's: {medians[1]}, of those made again {medians[2]}")
    for name in AGENTS:
        some = [row for row in counted if row["agent"] == name]
        print(f"  {name}: {len(some)}, flips {sum(row['auto'] != row['full'] for row in some)}, changed by the rule "
              f"{sum(row['changed'] for row in some)}, made again {sum(row['exact'] for row in some)}, "
              f"right {sum(row['right'] == row['auto'] for row in some)} (full {sum(row['right'] == row['full'] for row in some)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
