#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Thirty turns of a session on a published model: what each turn computes, and whether a session that was written, ended and
read again answers as one without the break.

    python tests/published/sessions.py --bin build/release/bin --models DIR [--model smollm2-135m] [--relay auto] [--turns 30]

Talks with one agent (workflows/library/chat.yaml), with a team of two that relays, and prints a line for each turn: the
tokens of the prompt, those that were computed, those of the new message and the time to the first token. Each is talked with
in one process; again, with the session written and the process ended in the middle; and, where the method is exact, by
`full`, which computes every prompt anew. Exit code 1: an answer differs, or a turn computes more than its new tokens (but
for `auto`, whose guard may refuse an approximate conversation: the lines say ANEW).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHAT = ROOT / "workflows/library/chat.yaml"

PAIR = """\
version: 1
name: pair
inputs: {message: {type: string, required: true}}
models: {main: {path: any}}
defaults: {max_tokens: 40}
agents:
  writer:
    prompt:
      system: You answer questions about cooking in two or three sentences.
      user: "{{ message }}"
  editor:
    prompt:
      system: You shorten what a writer wrote to one sentence, and keep what was asked for.
      user: "Question: {{ message }}\\n\\nThe writer's answer: {{ agent_writer_current }}"
workflow: {topology: chain, agents: [writer, editor]}
outputs: {answer: "{{ agent_editor_current }}"}
"""

DISHES = ("onion soup", "an omelette", "rice for four", "a simple bread", "roast carrots", "apple pie", "lentils", "pancakes",
          "a green salad", "baked potatoes")
ASKED = ("How do I make {}?", "What goes wrong most often with {}?", "And how long does it keep?")


def messages(turns):
    texts = [ASKED[i % 3].format(DISHES[i // 3 % len(DISHES)]) for i in range(turns)]
    texts[0] = "My name is Ada and I have one pan. " + texts[0]
    return texts


class Talk:
    def __init__(self, arguments, workflow, folder):
        self.runner = str(pathlib.Path(arguments.bin).resolve() / "baton")
        self.model = str(pathlib.Path(arguments.models).resolve() / f"{arguments.model}.gguf")
        self.workflow, self.folder = workflow, folder

    def say(self, texts, relay, session=None):
        """The records of one process."""
        command = [self.runner, "chat", str(self.workflow), "--model", self.model, "--relay", relay, "--json", "-q",
                   "--set", "defaults.max_tokens=40", "--set", "defaults.temperature=0"]
        if session:
            command += ["--session", str(session)]
        done = subprocess.run(command, input="\n".join(texts) + "\n", capture_output=True, text=True, check=False)
        records = [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode != 0 or len(records) != len(texts):
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        return records


def answers(records):
    return [[(turn["output"], turn["output_tokens"], turn["prompt_tokens"]) for turn in record["agents"]] for record in records]


def check_turns(name, records, may_refuse):
    """Each turn computes its new tokens, and the last one of the answer before it, which was never run. Returns how many do
    not. The first turn after a break has the KV from the file."""
    wrong = 0
    said, total = {}, {}
    print(f"\n{name}\n{'turn':>4} {'agent':>8} {'prompt':>7} {'computed':>8} {'new':>5} {'first token':>12}")
    for number, record in enumerate(records, 1):
        for turn in record["agents"]:
            layers = turn["kv"]["entries"] / turn["prompt_tokens"]
            computed = turn["kv"]["computed"] / layers
            new = turn["prompt_tokens"] - said.get(turn["agent"], 0)
            history = turn["history"]
            forgot = bool(history and history["forgotten"])
            more = not forgot and computed > new + 1
            wrong += more and not may_refuse
            print(f"{number:>4} {turn['agent']:>8} {turn['prompt_tokens']:>7} {computed:>8.1f} {new:>5} {turn['ttft_ms']:>9.0f} ms"
                  + ("  forgot" if forgot else "") + ("  ANEW" if more else ""))
            total[turn["agent"]] = [a + b for a, b in zip(total.get(turn["agent"], [0, 0]), (computed, new))]
            said[turn["agent"]] = turn["prompt_tokens"] + turn["output_tokens"]
    for agent, (computed, new) in total.items():
        print(f"{agent}: {computed:.0f} tokens computed, {new} new")
    return wrong


def same(name, one, other):
    a, b = answers(one), answers(other)
    equal = sum(x == y for x, y in zip(a, b))
    print(f"{name}: {equal} of {len(a)} turns are the same")
    return equal == len(a)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--models", required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--relay", default="auto")
    parser.add_argument("--turns", type=int, default=30)
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        pair = pathlib.Path(folder) / "pair.yaml"
        pair.write_text(PAIR, encoding="utf-8")
        for name, workflow in (("one agent", CHAT), ("team of two", pair)):
            talk = Talk(arguments, workflow, folder)
            texts = messages(arguments.turns)
            half = arguments.turns // 2
            whole = talk.say(texts, arguments.relay)
            failed |= check_turns(f"{name}, relay {arguments.relay}", whole, arguments.relay == "auto") > 0
            file = pathlib.Path(folder) / f"{workflow.stem}.session"
            broken = talk.say(texts[:half], arguments.relay, file)
            size = file.stat().st_size
            broken += talk.say(texts[half:], arguments.relay, file)
            failed |= not same(f"{name}: written after {half} turns ({size / 2**20:.1f} MiB), read by another process", whole, broken)
            if arguments.relay in ("exact", "prefix", "lockstep", "verified") or name == "one agent":
                failed |= not same(f"{name}: full prefill", whole, talk.say(texts, "full"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
