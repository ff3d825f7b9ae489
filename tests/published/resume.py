#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a run on a published model with SIGKILL after each of its events, resumes it, and compares the outputs.

    python tests/published/resume.py --bin build/release/bin --models DIR [--model smollm2-135m] [--every 1]

The team's four agents read one another, one answers under a schema and one step has a condition. Exit code 1: an output of a
resumed run differs, or `baton compare --replay` of the whole run does.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TEAM = """\
version: 1
name: resumed
inputs: {user_question: {type: string, required: true}}
models: {main: {path: any}}
defaults: {max_tokens: 12}
relay: {method: exact}
agents:
  writer: {prompt: {system: You answer in one sentence., user: "{{ user_question }}"}}
  doubter: {prompt: {user: "Is this right? {{ agent_writer_current }}"}}
  judge:
    prompt: {user: "Question: {{ user_question }} Answer: {{ agent_writer_current }} Objection: {{ agent_doubter_current }}"}
    output: {enum: ["good", "bad"]}
  editor: {prompt: {user: "Shorten: {{ agent_writer_current }}"}}
workflow:
  topology: graph
  steps:
    - {agent: writer}
    - {agent: doubter}
    - {agent: judge}
    - {agent: editor, when: "agent_judge_answer in ['good', 'bad']"}
outputs: {judgement: "{{ agent_judge_answer }}", answer: "{{ agent_editor_current }}"}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--models", required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--every", type=int, default=1, help="kill after each N-th event only")
    arguments = parser.parse_args()
    runner = str(pathlib.Path(arguments.bin).resolve() / "baton")
    model = str(pathlib.Path(arguments.models).resolve() / f"{arguments.model}.gguf")
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "team.yaml").write_text(TEAM, encoding="utf-8")
        start = [runner, "run", "team.yaml", "--model", model, "-i", "user_question=Why is the sky blue?", "-q", "--events", "ndjson"]

        def outputs(name):
            record = json.loads((pathlib.Path(folder) / name / "run.json").read_text())
            return record["outputs"], [(turn["agent"], turn["output"]) for turn in record["agents"]]

        whole = subprocess.run([*start, "--record", "whole"], cwd=folder, capture_output=True, text=True, check=True)
        events, expected, same, tried, taken = len(whole.stdout.splitlines()), outputs("whole"), 0, 0, {}
        print(f"{events} events; {expected[0]}")
        for event in range(1, events, arguments.every):
            name = f"killed-{event}"
            run = subprocess.Popen([*start, "--record", name], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(event):
                run.stdout.readline()
            run.kill()
            run.communicate()
            done = subprocess.run([runner, "resume", name], cwd=folder, capture_output=True, text=True, check=False)
            tried += 1
            turns = done.stderr.split()[0] if done.returncode == 0 else "?"
            taken[turns] = taken.get(turns, 0) + 1
            same += done.returncode == 0 and outputs(name) == expected
        print(f"killed {tried} times, turns that were taken over: {dict(sorted(taken.items()))}")
        print(f"{same} of {tried} resumed runs have the same outputs")
        replay = subprocess.run([runner, "compare", "whole", "--replay", "-q"], cwd=folder, capture_output=True, text=True, check=False)
        print(f"replay: {replay.stdout.strip()}")
        sys.exit(0 if same == tried and replay.returncode == 0 else 1)


if __name__ == "__main__":
    main()
