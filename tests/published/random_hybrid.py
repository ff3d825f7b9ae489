#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs teams on a random Qwen3.5-0.8B, and compares the methods. Python's standard library only.

    python3 tests/published/random_shapes.py --only qwen3.5-0.8b --like qwen2.5-coder-0.5b.gguf --out DIR
    python3 tests/published/random_hybrid.py --model DIR/qwen3.5-0.8b.gguf --baton build/release/bin/baton [--pairs 3]
        [--time]

A chain and a parallel team have prompts of at least 1,500 tokens, with at most 30 tokens behind the last placeholder, and
answers of a forced length. Right is: the outputs of lockstep are those of full, and each prompt takes the state that was
kept where it branches off: rows that lockstep computed ahead, or a prefix. Without --time prompts are computed ahead
as fast as possible. --time gives the authors 480 tokens, during which lockstep computes their readers' prompts at its
usual pace, and prints its latency of first tokens as a fraction of full's, the median over pairs; on a machine that
does nothing else.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

WORDS = ("river", "engine", "ledger", "winter", "harbour", "signal", "garden", "copper", "lantern", "orbit", "market",
         "violin", "desert", "thread", "anchor", "summit")


def text(seed, words):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def team(topology, author_tokens):
    """A workflow file. In the chain each prompt holds a long text, the answers before it, and a short end; in the
    parallel team three readers share a long text and the writer's answer, and differ behind it."""
    def agent(system, user, tokens):
        return dict(prompt=dict(system=system, user=user), max_tokens=tokens)

    long = text(7, 1600)
    if topology == "chain":
        agents = {"first": agent(text(1, 20), f"{long}\nBegin.", author_tokens),
                  "second": agent(text(2, 20), f"{text(8, 1600)}\n{{{{ agent_first_current }}}}\nContinue.", author_tokens),
                  "third": agent(text(3, 20), f"{text(9, 1600)}\n{{{{ agent_second_current }}}}\nEnd.", 24)}
        workflow = dict(topology="chain", agents=list(agents))
    else:
        agents = {"writer": agent(text(1, 20), f"{long}\nBegin.", author_tokens)}
        for at, name in enumerate(("left", "middle", "right")):
            agents[name] = agent(text(4, 20), f"{long}\n{{{{ agent_writer_current }}}}\n{text(20 + at, 6)}", 24)
        workflow = dict(topology="graph", steps=[dict(id="writer", agent="writer")] + [
            dict(id=name, agent=name, needs=["writer"]) for name in ("left", "middle", "right")])
    return dict(version=1, name=f"random-hybrid-{topology}", inputs={}, models=dict(main=dict(path="${env:BATON_MODEL}")),
                defaults=dict(temperature=0), agents=agents, workflow=workflow,
                outputs={name: f"{{{{ agent_{name}_current }}}}" for name in agents})


def run(program, file, model, method, timed):
    """The run record."""
    pace = [] if timed else ["--slowdown", "10"]
    done = subprocess.run([program, "run", file, "--relay", method, "--json", *pace], capture_output=True, text=True,
                          env=os.environ | {"BATON_MODEL": str(model)})
    if done.returncode != 0:
        sys.exit(f"random_hybrid: {file.name}, {method}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compare(program, model, pairs, timed):
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for topology in ("chain", "parallel"):
            file = pathlib.Path(scratch) / f"{topology}.yaml"
            file.write_text(json.dumps(team(topology, 480 if timed else 40)))  # JSON is YAML
            ratios = {}
            for pair in range(pairs):
                full, lockstep = (run(program, file, model, method, timed) for method in ("full", "lockstep"))
                for one, other in zip(full["agents"], lockstep["agents"]):
                    same = one["output"] == other["output"]
                    kept = other["kv"]["ahead"] + other["kv"]["reused"]
                    missed = other["agent"] not in ("first", "writer") and kept == 0
                    failed += not same or missed
                    if one["ttft_ms"] > 0:
                        ratios.setdefault(other["agent"], []).append(other["ttft_ms"] / one["ttft_ms"])
                    if pair == 0:
                        print(f"{topology:9} {other['agent']:7} prompt of {other['prompt_tokens']}, answer of "
                              f"{other['output_tokens']}: {'same' if same else 'DIFFERS'}, ahead "
                              f"{other['kv']['ahead']}, reused {other['kv']['reused']} of {other['kv']['entries']}"
                              f"{' MISSED' if missed else ''}", flush=True)
            for agent, found in ratios.items() if timed else ():
                print(f"{topology:9} {agent:7} first token: {statistics.median(found):.3f} of full's")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="the random model's file")
    parser.add_argument("--baton", required=True, help="the runner")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--time", action="store_true", help="print the latencies of first tokens, too")
    given = parser.parse_args()
    return compare(given.baton, given.model, given.pairs, given.time)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
