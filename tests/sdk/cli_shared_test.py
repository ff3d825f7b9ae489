#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents that read the same texts: what they have in common is computed once, and their answers are those of `full`.

Usage: cli_shared_test.py RUNNER [unittest options]
"""

import json
import unittest

from runner import Cli, ROOT

HEAD = """\
version: 1
name: readers
inputs: {document: string}
models: {main: {path: "%s"}}
defaults: {max_tokens: 40, temperature: 0}
""" % (ROOT / "samples/models/nano")

DOCUMENT = " ".join(f"Box {i} holds {i * 7 % 40} apples and {i * 3 % 20} pears." for i in range(12))

# Tokens that a reader computes itself rather than wait for them.
NOT_WORTH_WAITING = 16


def agent(name, question, reads=(), system="You read a document and answer."):
    answers = "".join(f"{other}: {{{{ agent_{other}_current }}}}\\n" for other in reads)
    return (f"  {name}:\n    prompt:\n      system: {system}\n"
            f'      user: "{{{{ document }}}}\\n{answers}{question}"\n')


class Shared(Cli):
    def run_team(self, agents, workflow, relay):
        self.write("readers.yaml", HEAD + "agents:\n" + "".join(agents) + f"workflow: {workflow}\n")
        done = self.baton("run", "readers.yaml", "--input", f"document={DOCUMENT}", "--relay", relay, "--json", "-q")
        return json.loads(done.stdout)["agents"]

    def check_team(self, agents, workflow, readers_of_answers=()):
        full = self.run_team(agents, workflow, "full")
        for turn in full:
            self.assertEqual(turn["kv"]["computed"], turn["kv"]["entries"])
        for relay in ("prefix", "auto"):
            turns = self.run_team(agents, workflow, relay)
            self.assertEqual([turn["output"] for turn in turns], [turn["output"] for turn in full], relay)
            documents = [slot for turn in turns for slot in turn["slots"] if slot["name"] == "document"]
            self.assertEqual(len(documents), len(turns))
            computed = [slot for slot in documents if slot["reused_tokens"] < slot["tokens"]]
            self.assertEqual(len(computed), 1, f"{relay}: {documents}")
            self.assertEqual({slot["method"] for slot in documents if slot not in computed}, {"prefix"})
            for name in readers_of_answers:
                slots = [slot for turn in turns for slot in turn["slots"] if slot["name"] == name]
                self.assertGreater(len(slots), 1)
                computed = sum(slot["tokens"] - slot["reused_tokens"] for slot in slots)
                self.assertLessEqual(computed, slots[0]["tokens"] + (len(slots) - 1) * NOT_WORTH_WAITING, f"{relay}: {slots}")

    def test_parallel_readers(self):
        agents = [agent(f"r{i}", f"Question {i}: how many apples are in box {i}?") for i in range(4)]
        self.check_team(agents, "{topology: parallel}")
        self.check_team(agents, "{topology: parallel, max_parallel: 2}")

    def test_star(self):
        agents = [agent(f"r{i}", f"Question {i}: how many pears are in box {i}?") for i in range(3)]
        agents.append(agent("center", "What follows?", ("r0", "r1", "r2")))
        self.check_team(agents, "{topology: star, center: center}")

    def test_map_and_reduce(self):
        agents = [agent(f"r{i}", f"Question {i}: how many pears are in box {i}?") for i in range(3)]
        agents.append(agent("sum", "What is the sum?", ("r0", "r1", "r2")))
        self.check_team(agents, "{topology: parallel, agents: [r0, r1, r2], then: sum}")

    def test_layers(self):
        agents = [agent("a", "How many apples are in box 1?"), agent("b", "How many pears are in box 2?"),
                  agent("c", "Check what a and b say.", ("a", "b")), agent("d", "Add what a and b say.", ("a", "b"))]
        self.check_team(agents, "{topology: layered, layers: [[a, b], [c, d]]}", ("agent_a_current", "agent_b_current"))

    def test_texts_behind_different_beginnings(self):
        agents = [agent(f"r{i}", f"Question {i}: how many apples are in box {i}?", system=f"You are reader {i} of a document.")
                  for i in range(4)]
        for workflow in ("{topology: parallel}", "{topology: parallel, max_parallel: 2}"):
            for relay, handed_over in (("rectify", 3), ("prefix", 0), ("lockstep", 0)):
                turns = self.run_team(agents, workflow, relay)
                documents = [slot for turn in turns for slot in turn["slots"] if slot["name"] == "document"]
                relayed = [slot for slot in documents if slot["method"] == relay and slot["reused_tokens"] > slot["tokens"] / 2]
                self.assertEqual(len(relayed), handed_over, f"{relay}, {workflow}: {documents}")
                self.assertNotIn(documents[0], relayed)  # the first in the plan computes it, whichever prompt was ready first
                again = [turn["output"] for turn in self.run_team(agents, workflow, relay)]
                self.assertEqual(again, [turn["output"] for turn in turns])

    def test_plan_hints_at_texts_behind_different_beginnings(self):
        systems = ("You count apples.", "You count pears.", "You count apples.")
        agents = [agent(f"r{i}", f"Question {i}?", system=system) for i, system in enumerate(systems)]
        self.write("readers.yaml", HEAD + "agents:\n" + "".join(agents) + "workflow: {topology: parallel}\n")
        hints = json.loads(self.baton("check", "--plan", "readers.yaml", "--input", f"document={DOCUMENT}", "--json").stdout)["hints"]
        self.assertEqual(len(hints), 1)
        self.assertIn("r0, r1, r2 hold {{ document }}", hints[0])
        self.assertIn("hint: r0, r1, r2", self.baton("check", "--plan", "readers.yaml", "--input", f"document={DOCUMENT}").stdout)
        alike = [agent(f"r{i}", f"Question {i}?") for i in range(3)]
        self.write("readers.yaml", HEAD + "agents:\n" + "".join(alike) + "workflow: {topology: parallel}\n")
        plan = self.baton("check", "--plan", "readers.yaml", "--input", f"document={DOCUMENT}", "--json").stdout
        self.assertEqual(json.loads(plan)["hints"], [])
        self.assertEqual(json.loads(self.baton("check", "--plan", "readers.yaml", "--json").stdout)["hints"], [])  # length unknown


if __name__ == "__main__":
    unittest.main()
