#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs workflows with steps that ask: answered in advance, by a person, by nobody, and later in another process.

Usage: cli_ask_test.py RUNNER [unittest options]
"""

import json
import os
import unittest

from runner import Cli, QUESTION, ROOT, Terminal

TEAM = """\
version: 1
name: asking
inputs: {question: {type: string, required: true}}
models: {main: {path: "%s"}}
defaults: {max_tokens: 8}
agents:
  solver: {prompt: {system: You are a math expert., user: "{{ question }}"}}
  approval:
    ask: "Is this right?\\n{{ agent_solver_current }}"
    output: {enum: ["yes", "no"]}
  checker: {prompt: {user: "{{ question }} Solver: {{ agent_solver_current }} Right: {{ agent_approval_current }}"}}
  aside: {prompt: {user: "{{ question }}"}}
workflow:
  topology: graph
  steps:
    - {agent: solver}
    - {agent: approval}
    - {agent: checker, needs: [approval]}
    - {agent: aside}
outputs: {answer: "{{ agent_approval_answer }}: {{ agent_checker_current }}"}
""" % (ROOT / "samples/models/nano")

# The model has to call, and its one possible call is this.
CALLING = """\
version: 1
inputs: {question: {type: string, required: true}}
models: {main: {path: "%s"}}
tools:
  delete_file:
    description: Deletes a file.
    parameters: {properties: {path: {enum: [a]}}, required: [path], additionalProperties: false}
    python: print("deleted " + arguments["path"])
agents:
  caller:
    max_tokens: 200
    prompt: "{{ question }}"
    tools: [{call: delete_file}]
    calls: {approve: always, tool_choice: required, text: forbidden, max: 1}
""" % (ROOT / "samples/models/nano")

PROMPT = r"> \x1b\[0m"  # other agents may have a line behind it


class Asking(Cli):
    def setUp(self):
        super().setUp()
        self.asking = self.write("asking.yaml", TEAM)

    def record(self, folder):
        return json.loads((self.folder / folder / "run.json").read_text())

    def states(self, record):
        return {turn["agent"]: turn["state"] for turn in record["agents"]}

    def test_an_answer_in_advance_is_the_output(self):
        done = self.baton("run", self.asking, "-i", QUESTION, "--answer", "approval=yes", "--json", "-q")
        record = json.loads(done.stdout)
        self.assertEqual(record["state"], "ok")
        approval = next(turn for turn in record["agents"] if turn["agent"] == "approval")
        solver = next(turn for turn in record["agents"] if turn["agent"] == "solver")
        self.assertEqual(approval["output"], "yes")
        self.assertEqual(approval["model"], "")
        use = approval["tools"][0]
        self.assertEqual([use["tool"], use["arguments"], use["result"]], ["ask", "Is this right?\n" + solver["output"], "yes"])
        self.assertTrue(record["outputs"]["answer"].startswith("yes: "))

    def test_an_answer_that_nobody_reads_is_refused(self):
        self.baton("run", self.asking, "-i", QUESTION, "--record", "t", "--set", "agents.approval.retry=2",
                   "--answer", "approval=maybe", "-q", code=7)
        self.assertIn("'maybe' was refused: the output is none of the texts of its enum", self.record("t")["error"])

    def test_a_step_is_answered_once(self):
        two = TEAM.replace("  aside: {prompt: {user: \"{{ question }}\"}}", "  aside: {ask: Else}")
        self.write("two.yaml", two)
        self.baton("run", "two.yaml", "-i", QUESTION, "--record", "two", "--answer", "approval=yes", "-q", code=7)
        done = self.baton("resume", "two", "--answer", "approval=no", "--answer", "aside=x", "-q", code=2)
        self.assertIn("step 'approval' is over, with 'yes'", done.stderr)
        self.baton("resume", "two", "--answer", "aside=x", "-q")

    def test_a_run_without_an_answer_goes_on_later(self):
        whole = json.loads(self.baton("run", self.asking, "-i", QUESTION, "--answer", "approval=no", "--json", "-q").stdout)
        done = self.baton("run", self.asking, "-i", QUESTION, "--record", "r", code=7)
        self.assertIn("the run was suspended: the answer to 'approval' is missing", done.stderr)
        self.assertIn("approval asks: Is this right?", done.stderr)
        self.assertIn("(yes, no)\nAnswer with: baton resume r --answer approval=TEXT\n", done.stderr)
        record = self.record("r")
        self.assertEqual(record["state"], "suspended")
        self.assertEqual(self.states(record), {"solver": "ok", "approval": "cancelled", "checker": "skipped", "aside": "ok"})
        events = [json.loads(line) for line in (self.folder / "r/events.ndjson").read_text().splitlines()]
        asked = [event for event in events if event["type"] == "asked"]
        self.assertEqual([(event["agent"], event["choices"]) for event in asked], [("approval", ["yes", "no"])])

        self.baton("resume", "r", code=7)  # it still waits
        wrong = self.baton("resume", "r", "--answer", "approval=perhaps", code=1)
        self.assertIn("none of the texts of its enum", wrong.stderr)
        resumed = self.baton("resume", "r", "--answer", "approval=no")
        self.assertIn("2 turns of the run are done", resumed.stderr)
        self.assertEqual(self.record("r")["outputs"], whole["outputs"])
        self.assertEqual(self.states(self.record("r")), dict.fromkeys(["solver", "approval", "checker", "aside"], "ok"))
        self.assertIn("4 of 4 turns are the same", self.baton("compare", "r", "--replay").stdout)  # it knows the answer

    def test_without_a_record_it_says_how_to_answer(self):
        done = self.baton("run", self.asking, "-i", QUESTION, "-q", code=7)
        self.assertIn("Run it again with --answer approval=TEXT, or with --record DIR", done.stderr)

    def test_answers_to_nobody_are_mistakes(self):
        done = self.baton("run", self.asking, "-i", QUESTION, "--answer", "aproval=yes", code=2)
        self.assertIn("answers: unknown turn 'aproval'; expected one of approval", done.stderr)
        done = self.baton("run", self.asking, "-i", QUESTION, "--answer", "yes", code=2)
        self.assertIn("STEP=TEXT", done.stderr)
        done = self.baton("run", self.team, "-i", QUESTION, "--answer", "solver=yes", code=2)
        self.assertIn("answers: unknown turn 'solver'; expected none", done.stderr)

    def test_a_person_answers_on_a_terminal(self):
        terminal = Terminal(self, "run", self.asking, "-i", QUESTION)
        shown = terminal.wait_for(PROMPT)
        self.assertIn("approval asks: Is this right?", shown)
        self.assertIn("expected one of: yes, no", terminal.say("perhaps\n", PROMPT))
        terminal.say("yes\n", r"yes: ")
        self.assertEqual(terminal.exit_code(), 0)

    def test_a_person_who_leaves_suspends_the_run(self):
        terminal = Terminal(self, "run", self.asking, "-i", QUESTION, "--record", "r")
        terminal.wait_for(PROMPT)
        os.write(terminal.end, b"\x04")
        self.assertEqual(terminal.exit_code(), 7)
        self.assertEqual(self.record("r")["state"], "suspended")

    def test_ctrl_c_ends_a_run_that_asks(self):
        terminal = Terminal(self, "run", self.asking, "-i", QUESTION)
        terminal.wait_for(PROMPT)
        os.write(terminal.end, b"\x03")
        self.assertEqual(terminal.exit_code(), 130)

    def test_a_call_waits_for_approval_and_is_made_once(self):
        team = self.write("calling.yaml", CALLING)
        done = self.baton("run", team, "-i", QUESTION, "--record", "r", code=7)
        self.assertIn('caller/1 asks: agent \'caller\' wants to call delete_file with {"path":"a"}', done.stderr)
        self.assertIn("Answer with: baton resume r --answer caller/1=TEXT", done.stderr)
        self.baton("resume", "r", code=7)  # it still waits
        self.baton("resume", "r", "--answer", "caller/1=allow")
        record = self.record("r")
        self.assertEqual(record["state"], "ok")
        self.assertEqual([use["result"] for use in record["agents"][0]["tools"]], ["deleted a"])
        journal = [json.loads(line) for line in (self.folder / "r/journal.ndjson").read_text().splitlines()]
        self.assertEqual([line.get("begun", False) for line in journal if "call" in line], [False, False, True, True])
        self.assertIn("1 of 1 turns are the same", self.baton("compare", "r", "--replay").stdout)

        changed = self.write("changing.yaml", CALLING.replace("enum: [a]", "enum: [a, b]"))
        self.baton("run", changed, "-i", QUESTION, "--answer", 'caller/1={"path": "b"}', "--record", "c")
        self.assertIn("deleted b", self.record("c")["agents"][0]["tools"][0]["result"])
        self.assertIn("1 of 1 turns are the same", self.baton("compare", "c", "--replay").stdout)

        denied = json.loads(self.baton("run", team, "-i", QUESTION, "--answer", "caller/1=deny: keep it", "--json", "-q").stdout)
        self.assertEqual(denied["agents"][0]["tools"][0]["result"], "error: the user does not allow this call: keep it")
        wrong = self.baton("run", self.asking, "-i", QUESTION, "--answer", "solver/1=allow", code=2)
        self.assertIn("answers: unknown turn 'solver'; expected none", wrong.stderr)

    def test_a_person_approves_a_call_on_a_terminal(self):
        terminal = Terminal(self, "run", self.write("calling.yaml", CALLING), "-i", QUESTION)
        shown = terminal.wait_for(PROMPT)
        self.assertIn("wants to call delete_file", shown)
        terminal.say("allow\n", r"result")
        self.assertEqual(terminal.exit_code(), 0)

    def test_the_plan_shows_who_asks(self):
        self.assertIn("asks the host", self.baton("check", self.asking, "--graph").stdout)


if __name__ == "__main__":
    unittest.main()
