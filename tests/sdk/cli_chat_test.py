#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs baton chat: from a pipe, and on a terminal as a person does.

Usage: cli_chat_test.py RUNNER [unittest options]
"""

import json
import os
import subprocess
import unittest

from runner import Cli, ROOT, RUNNER, TEAM, Terminal

SOLVER = """\
version: 1
name: solver
inputs:
  question: {type: string, required: true}
  tone: {type: string, default: plain}
models: {main: {path: "%s"}}
defaults: {max_tokens: 12}
agents:
  solver: {prompt: {system: "You are a math expert.", user: "{{ question }}"}}
workflow: {topology: single, agents: [solver]}
""" % (ROOT / "samples/models/nano")

# So many rounds that it is stopped long before its end, on any machine.
SLOW = (SOLVER.replace("max_tokens: 12", "max_tokens: 1500, temperature: 3, seed: 1")
        .replace("topology: single", "topology: chain, rounds: 200"))


PROMPT = r"> \x1b\[0m$"


class Chat(Cli):
    def setUp(self):
        super().setUp()
        self.solver = self.write("solver.yaml", SOLVER)

    def chat(self, *arguments, said="", code=0):
        done = subprocess.run([RUNNER, "chat", *arguments], cwd=self.folder, env=self.environment(), input=said, capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def records(self, *arguments, said):
        return [json.loads(line) for line in self.chat(*arguments, "--json", "-q", said=said).stdout.splitlines()]

    def test_each_line_of_a_pipe_is_a_message(self):
        records = self.records(self.solver, said="What is 6 x 7?\nAnd 2 more?\n/quit is text here\n")
        self.assertEqual([record["inputs"]["question"] for record in records], ["What is 6 x 7?", "And 2 more?", "/quit is text here"])
        self.assertEqual([(turn := record["agents"][0])["history"] and turn["history"]["runs"] for record in records], [None, 1, 2])
        plain = self.chat(self.solver, "-q", said="What is 6 x 7?\nAnd 2 more?\n")
        self.assertEqual(plain.stdout, "".join(record["agents"][0]["output"] + "\n" for record in records[:2]))
        self.assertEqual(plain.stderr, "")
        self.assertEqual(len(self.records(self.solver, said="one \\\ntwo")), 1)

    def test_what_is_lost_is_told_where_no_person_reads_along(self):
        said = "".join(f"Message {number}: tell me about town number {number}.\n" for number in range(12))
        arguments = (self.solver, "--set", "models.main.context=120", "--set", "defaults.max_tokens=30")
        done = self.chat(*arguments, "--json", said=said)
        self.assertIn("warning: agent 'solver': the first ", done.stderr)
        self.assertIn("that it remembered were forgotten\n", done.stderr)
        codes = {one["code"] for line in done.stdout.splitlines() for one in json.loads(line)["warnings"]}
        self.assertIn("history_forgotten", codes)
        self.assertEqual(self.chat(*arguments, "-q", said=said).stderr, "")

    def test_which_input_is_what_is_typed(self):
        self.assertEqual(self.records(self.team, said="What is 6 x 7?\n")[0]["inputs"]["question"], "What is 6 x 7?")
        record = self.records(self.solver, "--message", "tone", "-i", "question=Why?", said="loud\n")[0]
        self.assertEqual(record["inputs"], {"question": "Why?", "tone": "loud"})
        self.assertIn("one of: question, tone", self.chat(self.solver, "-i", "question=Why?", code=2).stderr)
        self.assertIn("its inputs are: question, tone", self.chat(self.solver, "--message", "nothing", code=2).stderr)

    def test_a_session_goes_on_in_another_process(self):
        messages = ["What is 6 x 7?", "And 2 more?", "And 3 more?", "And 4 more?"]
        for relay in ("exact", "rectify"):
            arguments = (self.team, "--relay", relay)
            whole = self.records(*arguments, said="\n".join(messages))
            self.assertEqual(len(whole), 4)
            name = f"{relay}.session"
            parts = self.records(*arguments, "--session", name, said="\n".join(messages[:2]))
            parts += self.records(*arguments, "--session", name, said="\n".join(messages[2:]))
            for one, other in zip(whole, parts):
                self.assertEqual([turn["output"] for turn in one["agents"]], [turn["output"] for turn in other["agents"]])
            self.assertEqual(parts[2]["agents"][0]["history"]["runs"], 2)
        with open(self.folder / "exact.session", "r+b") as file:
            file.seek(200)
            file.write(b"?")
        self.assertIn("exact.session: it is damaged", self.chat(self.team, "--session", "exact.session", said="x", code=2).stderr)

    def test_a_message_that_fails_does_not_end_the_chat(self):
        done = self.chat(self.solver, "-q", said="x" * 20_000 + "\nWhat is 6 x 7?\n", code=2)
        self.assertIn("context", done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1)

    def test_on_a_terminal(self):
        terminal = Terminal(self, "chat", self.solver, "--session", "talk.session")
        terminal.wait_for(PROMPT)
        terminal.say("What is 6 x 7?\n", r"of which 0 were kept(.|\n)*" + PROMPT)
        shown = terminal.say("And 2 more?\n", r"were kept(.|\n)*" + PROMPT)
        self.assertNotIn("of which 0 were kept", shown)
        self.assertIn("What is 6 x 7?", terminal.say("/history\n", PROMPT))
        self.assertIn("1 message so far", terminal.say("/back\n", PROMPT))
        self.assertIn("from 0 to 1 runs, found 7", terminal.say("/back 7\n", PROMPT))
        self.assertIn("expected a number", terminal.say("/back x\n", PROMPT))
        self.assertIn("unknown command '/nope'", terminal.say("/nope\n", PROMPT))
        self.assertIn("/again", terminal.say("/help\n", PROMPT))
        for _ in range(2):  # the second time in place of the first
            terminal.say("/again\n", r"were kept(.|\n)*" + PROMPT)
        self.assertIn("written to other.session", terminal.say("/save other.session\n", PROMPT))
        os.write(terminal.end, b"/quit\n")
        self.assertEqual(terminal.exit_code(), 0)
        self.assertTrue((self.folder / "talk.session").exists())
        again = Terminal(self, "chat", self.solver, "--session", "other.session")
        self.assertIn("2 messages so far", again.wait_for(PROMPT))
        os.write(again.end, b"\x04")
        self.assertEqual(again.exit_code(), 0)

    def test_control_characters_of_a_model_or_a_person_do_nothing(self):
        terminal = Terminal(self, "chat", self.solver)
        terminal.wait_for(PROMPT)
        terminal.say("What\x1b]0;owned\x07 is 6?\n", r"were kept(.|\n)*" + PROMPT)
        self.assertNotIn("\x1b]0;", terminal.say("/history\n", PROMPT))

    def test_ctrl_c_stops_the_answer_and_then_the_chat(self):
        self.write("slow.yaml", SLOW)
        terminal = Terminal(self, "chat", "slow.yaml", "--session", "slow.session")
        terminal.wait_for(PROMPT)
        os.write(terminal.end, b"What is 6 x 7?\n")
        terminal.wait_for(r"\n.")
        self.assertIn("the message is forgotten", terminal.say("\x03", PROMPT))
        self.assertIn("nothing was said yet", terminal.say("/history\n", PROMPT))
        os.write(terminal.end, b"\x03")
        self.assertEqual(terminal.exit_code(), 130)


if __name__ == "__main__":
    unittest.main()
