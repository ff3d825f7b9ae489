#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs baton resume, replay and diff: runs that are killed after each of their events, stopped, changed, damaged.

Usage: cli_resume_test.py RUNNER [unittest options]
"""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from runner import Cli, LONG, QUESTION, ROOT, RUNNER

# Rounds that end by a condition, an answer, a turn that is skipped, a turn that fails, tools before a prompt.
TEAM = """\
version: 1
name: resumed
inputs: {question: {type: string, required: true}}
models: {main: {path: "%s"}}
defaults: {max_tokens: 5, temperature: 1, seed: 3}
agents:
  solver: {prompt: {system: You are a math expert., user: "{{ question }} {{ agent_checker_history_1 }}"}}
  checker:
    prompt: {user: "{{ question }} Solver: {{ agent_solver_current }}"}
    output: {schema: {type: object, properties: {right: {type: boolean}}, required: [right]}}
    max_tokens: 40
  counter:
    prompt: {user: "Length: {{ condition_counter_current }}"}
    tools: [{python: {from: agent_solver_current}}]
    calls: {on_error: tell}
  skipped: {prompt: {user: "{{ agent_solver_current }}"}}
  failing: {prompt: {user: "{{ question }}"}, output: {pattern: "no such text"}, on_error: skip}
workflow:
  topology: graph
  rounds: 2
  steps:
    - {id: solver, agent: solver}
    - {id: checker, agent: checker, needs: [solver]}
    - {id: counter, agent: counter, needs: [solver]}
    - {id: skipped, agent: skipped, needs: [solver], when: {agent: solver, matches: "no such text"}}
    - {id: failing, agent: failing, needs: [checker]}
outputs: {answer: "{{ agent_checker_answer.right }} {{ agent_counter_current }} {{ agent_failing_current }}"}
""" % (ROOT / "samples/models/nano")


class Resumed(Cli):
    def setUp(self):
        super().setUp()
        self.graph = self.write("graph.yaml", TEAM)

    def outputs(self, folder):
        record = json.loads((self.folder / folder / "run.json").read_text())
        return record["outputs"], [(turn["agent"], turn["state"], turn["output"]) for turn in record["agents"]]

    def killed(self, team, folder, events, *arguments):
        """Starts a run and kills it when it has told so many events. Returns the number of turns in its journal."""
        run = subprocess.Popen([RUNNER, "run", team, "-i", QUESTION, "-q", "--record", folder, "--events", "ndjson", *arguments],
                               cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(events):
            run.stdout.readline()
        run.kill()
        run.wait()
        run.stdout.close()
        journal = self.folder / f"{folder}.journal"
        return len(journal.read_text().splitlines()) - 1 if journal.exists() else None

    def test_killed_after_each_event_a_run_goes_on_to_the_same_outputs(self):
        for relay in ("exact", "rectify"):
            options = ("--relay", relay, "--set", "relay.min_tokens=1")
            whole = self.baton("run", self.graph, "-i", QUESTION, "-q", "--record", f"{relay}", "--events", "ndjson", *options)
            events = len(whole.stdout.splitlines())
            self.assertGreater(events, 20)
            expected = self.outputs(relay)
            taken = set()
            for event in range(1, events, 1 if relay == "exact" else 7):
                folder = f"{relay}-{event}"
                taken.add(self.killed(self.graph, folder, event, *options))
                done = self.baton("resume", folder, "-q")
                self.assertEqual(done.stderr, "")
                if relay == "exact":  # an approximate hand-over is made again from KV that is computed again
                    self.assertEqual(self.outputs(folder), expected)
                self.assertFalse((self.folder / f"{folder}.journal").exists())
                self.assertEqual(self.outputs(folder)[0].keys(), expected[0].keys())
                shutil.rmtree(self.folder / folder)
            if relay == "exact":
                self.assertGreaterEqual(len(taken), 5, taken)

    def test_what_is_finished_is_not_computed_again(self):
        self.baton("run", self.team, "-i", QUESTION, "-q", "--record", "whole")
        self.killed(self.team, "part", len((self.folder / "whole/events.ndjson").read_text().splitlines()) - 2)
        done = self.baton("resume", "part", "--events", "ndjson")
        self.assertRegex(done.stderr, r"1 turn of the run is done|2 turns of the run are done")
        kinds = [json.loads(line)["type"] for line in done.stdout.splitlines()]
        self.assertLessEqual(kinds.count("agent_started"), 1)
        self.assertEqual(kinds.count("agent_finished"), 2)
        self.assertEqual(self.outputs("part"), self.outputs("whole"))
        self.assertIn("nothing to resume", self.baton("resume", "part").stderr)

    def test_a_run_that_was_stopped_goes_on(self):
        self.write("long.yaml", LONG)
        run = subprocess.Popen([RUNNER, "run", "long.yaml", "-i", QUESTION, "--record", "stopped", "--events", "ndjson"],
                               cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while "agent_finished" not in run.stdout.readline():
            pass
        run.send_signal(signal.SIGINT)
        run.stdout.read()
        self.assertEqual(run.wait(), 130)
        run.stdout.close()
        first = len((self.folder / "stopped/journal.ndjson").read_text().splitlines())
        again = subprocess.Popen([RUNNER, "resume", "stopped", "--events", "ndjson"], cwd=self.folder, env=self.environment(),
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told = 0
        while told < first + 2:
            told += "agent_finished" in again.stdout.readline()
        again.send_signal(signal.SIGINT)
        again.stdout.read()
        self.assertEqual(again.wait(), 130)
        again.stdout.close()
        self.assertGreater(len((self.folder / "stopped/journal.ndjson").read_text().splitlines()), first)

    def test_a_journal_that_is_torn_or_hostile(self):
        self.killed(self.graph, "torn", 30)
        journal = self.folder / "torn.journal"
        lines = journal.read_text().splitlines(keepends=True)
        self.assertGreater(len(lines), 1)
        journal.write_text("".join(lines) + lines[-1][:40])
        self.baton("resume", "torn", "-q")
        for name, expected, change in (
                ("index", "expected the index of one of the workflow's", lambda turn: turn.update(turn=99)),
                ("agent", "expected agent 'solver' in round 1, found 'other'", lambda turn: turn["record"].update(agent="other")),
                ("round", "expected agent 'solver' in round 1, found 'solver' in round 2", lambda turn: turn["record"].update(round=2)),
                ("state", "expected the state ok or failed, found cancelled", lambda turn: turn["record"].update(state="cancelled")),
                ("ids", "expected a list of token ids", lambda turn: turn.update(tokens="x")),
                ("twice", "it stands there twice", None)):
            turn = json.loads(lines[1])
            if change:
                change(turn)
            (self.folder / f"{name}.journal").write_text(lines[0] + json.dumps(turn) + "\n" + (lines[1] if not change else ""))
            for verb in (["resume"], ["compare", "--replay"]):
                self.assertIn(expected, self.baton(*verb, name, "-q", code=3).stderr)
        # Ids that are not those of the text, and ids that no model has: the text counts.
        for name, tokens in (("foreign", [5, 6, 7]), ("large", [2**29])):
            turn = json.loads(lines[1])
            turn["tokens"] = tokens
            (self.folder / f"{name}.journal").write_text(lines[0] + json.dumps(turn) + "\n")
            self.baton("resume", name, "-q")
        self.assertIn("expected a folder", self.baton("resume", "nowhere", code=2).stderr + self.baton("compare", "nowhere", "--replay", code=2).stderr)

    def test_a_journal_is_never_lost(self):
        self.killed(self.graph, "part", 30)
        journal = self.folder / "part.journal"
        before = journal.read_text()
        self.assertGreater(len(before.splitlines()), 1)
        nano = self.folder / "graph.yaml"  # a model that cannot be opened
        text = nano.read_text()
        model = str(ROOT / "samples/models/nano")
        hidden = self.folder / "hidden"
        shutil.copytree(model, self.folder / "model")
        self.write("moved.yaml", text.replace(model, str(self.folder / "model")))
        self.killed("moved.yaml", "moved", 30)
        kept = (self.folder / "moved.journal").read_text()
        (self.folder / "model").rename(hidden)
        self.baton("resume", "moved", code=4)
        self.assertEqual((self.folder / "moved.journal").read_text(), kept)
        hidden.rename(self.folder / "model")
        self.baton("resume", "moved", "-q")
        # A run that did not begin leaves no journal.
        self.baton("run", self.graph, "--record", "new", code=2)
        self.baton("run", "moved.yaml", "-i", QUESTION, "--model", "/no/model", "--record", "new", code=4)
        self.assertFalse((self.folder / "new.journal").exists())
        # Two processes at once.
        self.write("long.yaml", LONG)
        run = subprocess.Popen([RUNNER, "run", "long.yaml", "-i", QUESTION, "--record", "busy", "--events", "ndjson"],
                               cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while "agent_finished" not in run.stdout.readline():
            pass
        self.assertIn("is being written by another run", self.baton("resume", "busy", code=2).stderr)
        run.kill()
        run.wait()
        run.stdout.close()
        # What else lies in the folder of the record stays.
        self.baton("run", self.graph, "-i", QUESTION, "-q", "--record", "full")
        (self.folder / "full/notes.txt").write_text("mine")
        record = json.loads((self.folder / "full/run.json").read_text())
        record["state"] = "cancelled"
        (self.folder / "full/run.json").write_text(json.dumps(record))
        self.baton("resume", "full", "-q")
        self.assertEqual((self.folder / "full/notes.txt").read_text(), "mine")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir() if path.name.startswith((".full", "full"))), ["full"])

    def test_a_changed_workflow_is_refused(self):
        self.killed(self.graph, "part", 12)
        self.write("graph.yaml", TEAM.replace("Length:", "Size:"))
        self.assertIn("has changed since the run began", self.baton("resume", "part", code=3).stderr)
        self.assertIn("baton resume part", self.baton("run", self.graph, "-i", QUESTION, "--record", "part", code=2).stderr)

    def test_replay(self):
        self.baton("run", self.graph, "-i", QUESTION, "-q", "--record", "runs/1", "--seed", "5")
        done = self.baton("compare", "runs/1", "--replay", "-v")
        self.assertIn("solver: the same 5 tokens", done.stdout)
        self.assertRegex(done.stdout, r"(\d+) of \1 turns are the same")
        path = self.folder / "runs/1/journal.ndjson"
        lines = path.read_text().splitlines(keepends=True)
        turn = json.loads(lines[1])
        turn["tokens"][2] += 1
        path.write_text(lines[0] + json.dumps(turn) + "\n" + "".join(lines[2:]))
        changed = self.baton("compare", "runs/1", "--replay", code=6)
        self.assertIn("solver: differs from token 3 on", changed.stdout)
        self.assertRegex(changed.stdout, r"\n7 of 8 turns are the same")

    def test_diff(self):
        for folder, *options in (("a",), ("b",), ("c", "--set", "agents.checker.max_tokens=7"), ("d", "--relay", "full")):
            self.baton("run", self.team, "-i", QUESTION, "-q", "--record", folder, *options)
        self.assertIn("the answers are the same", self.baton("compare", "a", "b").stdout)
        self.assertIn("relay: auto and full", self.baton("compare", "a", "d").stdout)
        shown = self.baton("compare", "a", "c", code=6).stdout
        self.assertIn("solver: the same", shown)
        self.assertIn("checker: differs; 24 and 7 tokens", shown)
        self.assertIn("output answer: differs", shown)
        self.assertIn("No such file", self.baton("compare", "a", "nowhere", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
