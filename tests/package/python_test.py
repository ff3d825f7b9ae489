#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package over the C interface, with the shipped model. BATON_LIBRARY names a library outside of the package.

    python_test.py [FOLDER_OF_THE_PACKAGE]
"""

import json
import pathlib
import sys
import tempfile
import unittest

if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv.pop(1))
import baton

QUESTION = {"user_question": "A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?"}

TEAM = """
version: 1
models: {main: {path: nano}}
inputs: {user_question: {type: string, required: true}}
defaults: {max_tokens: 8}
agents:
  writer:
    prompt: {user: "{{ user_question }}"}
  reader:
    prompt: {user: "{{ condition_reader_current }}"}
    tools: [{count: {from: agent_writer_current, unit: bytes}}]
workflow: {topology: chain, agents: [writer, reader]}
outputs: {answer: "{{ agent_reader_current }}", writer: "{{ agent_writer_current }}"}
"""

ASKING = """
version: 1
models: {main: {path: nano}}
agents:
  approval: {ask: "Send it?", output: {enum: ["yes", "no"]}}
workflow: {topology: single, agents: [approval]}
outputs: {answer: "{{ agent_approval_current }}"}
"""


class Binding(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = baton.Engine(device="cpu")
        cls.team = baton.Workflow.load("math_team")

    def test_a_run_is_typed_events_and_outputs(self):
        run = self.engine.start(self.team, QUESTION)
        events = list(run)
        self.assertIsInstance(events[0], baton.RunStarted)
        self.assertIsInstance(events[-1], baton.RunFinished)
        self.assertEqual(type(events[-1]).__mro__[1], baton.Event)
        written = "".join(event.text for event in events if isinstance(event, baton.Token) and event.agent == "analyst")
        record = run.record()
        self.assertEqual(written.strip(), record["agents"][0]["output"].strip())
        self.assertIn("The answer is 26", run.outputs()["answer"])
        handed_on = {(event.from_agent, event.to) for event in events if isinstance(event, baton.Relayed)}
        self.assertIn(("analyst", "inspector"), handed_on)

    def test_a_workflow_describes_itself(self):
        self.assertEqual(self.team.describe()["name"], "math-team")
        self.assertIn("analyst", self.team.graph("mermaid"))

    def test_errors_are_exceptions(self):
        with self.assertRaises(baton.WorkflowError) as caught:
            baton.Workflow.parse("version: 1\nname: [")
        self.assertGreater(caught.exception.mistakes[0]["line"], 0)
        with self.assertRaisesRegex(baton.UsageError, "user_question"):
            self.engine.start(self.team)
        with self.assertRaises(baton.ResourceError):
            baton.Engine(model="/no/such/model")

    def test_functions_of_the_host_are_tools(self):
        calls = []

        def count(call):
            calls.append((call.text, call.options))
            if len(calls) > 1:
                raise ValueError("once is enough")
            return str(len(call.text))

        workflow = baton.Workflow.parse(TEAM, tools=baton.Tools().add("count", count))
        outputs = self.engine.run(workflow, QUESTION, seed=1)
        self.assertEqual(calls, [(outputs["writer"], {"unit": "bytes"})])
        run = self.engine.start(workflow, QUESTION)
        called = next(event for event in run if isinstance(event, baton.ToolCalled))
        self.assertFalse(called.ok)
        self.assertIn("once is enough", called.result)

    def test_a_run_that_needs_an_answer_says_so(self):
        workflow = baton.Workflow.parse(ASKING)
        run = self.engine.start(workflow, QUESTION)
        asked = next(event for event in run if isinstance(event, baton.Asked))
        self.assertEqual((asked.agent, asked.question, asked.choices), ("approval", "Send it?", ["yes", "no"]))
        with self.assertRaises(baton.RunSuspended):
            run.outputs()
        self.assertEqual(self.engine.run(workflow, QUESTION, answers={"approval": "yes"}), {"answer": "yes"})

    def test_a_run_is_recorded(self):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place) / "runs/1"
            run = self.engine.start(self.team, QUESTION, record=folder)
            outputs = run.outputs()
            self.assertEqual((run.record_error(), json.loads((folder / "run.json").read_text())["outputs"]), ("", outputs))

    def test_an_event_of_a_later_library_keeps_its_fields(self):
        event = baton.event_of('{"type": "warmed_up", "degrees": 40}')
        self.assertIs(type(event), baton.Event)
        self.assertEqual(event.fields["degrees"], 40)
        self.assertEqual(baton.event_of('{"type": "warning", "message": "m", "later": 1}').message, "m")

    def test_a_run_that_is_stopped_says_so(self):
        run = self.engine.start(self.team, QUESTION)
        run.stop()
        with self.assertRaises(baton.RunFailed):
            run.wait()
        self.assertEqual(run.record()["state"], "cancelled")

    def test_a_run_that_is_dropped_ends(self):
        run = self.engine.start(self.team, QUESTION)
        next(run)
        del run


if __name__ == "__main__":
    unittest.main()
