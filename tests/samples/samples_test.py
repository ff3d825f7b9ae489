#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the samples as their readers do. Those that were left out for want of a package are skipped.

Usage: samples_test.py FOLDER_OF_THE_PROGRAMS [unittest options]
"""

import os
import pathlib
import subprocess
import sys
import unittest

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "samples"
PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()

HENS = "A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?"
BOOKS = "Noah pays for 2 books at 7 coins each with 75 coins. How many coins does he get back from the shop?"


class Samples(unittest.TestCase):
    def run_sample(self, name, *arguments, said="", code=0):
        program = [str(PROGRAMS / name)]
        if name.endswith(".py"):
            program = [sys.executable, str(SAMPLES / name)]
            if "BATON_LIBRARY" not in os.environ:
                self.skipTest(f"{name}: BATON_LIBRARY names no shared library")
        elif not os.path.exists(program[0]):
            self.skipTest(f"{name}: was left out of the build")
        done = subprocess.run([*program, *arguments], input=said, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout

    def test_hello_team(self):
        for name in ("hello_team", "hello_team_c"):
            with self.subTest(name):
                said = self.run_sample(name, HENS)
                self.assertIn("Analyst: 14, 12, 26. Correct.\nThe answer is 26", said)

    def test_hello_team_python(self):
        said = self.run_sample("hello_team_python/hello_team.py")
        self.assertIn("[Decision Maker]\nAnalyst says 61.", said)
        self.assertTrue(said.endswith("The answer is 61\n"), said)

    def test_chat(self):
        said = self.run_sample("chat", said=f"{HENS}\nAnd again?\n/back\n/back\n/back\n/quit\nunread\n")
        first, second = said.split("tokens read, of which ")[1:]
        self.assertIn("The answer is 26\n", said)
        self.assertTrue(first.startswith("0 were kept"), first)
        self.assertGreater(int(second.split()[0]), 50)
        self.assertIn("(1 remembered)\n> (0 remembered)\n> (0 remembered)\n> ", second)

    def test_event_loop(self):
        said = self.run_sample("event_loop")
        for question, answer in ((HENS, "The answer is 26"), (BOOKS, "The answer is 61")):
            self.assertIn(answer, said.split(question)[1].split("\n\n")[0])
        self.assertIn("how many are there?\ncancelled", said)

    def test_own_tool(self):
        for name in ("own_tool", "own_tool_c", "own_tool_python/own_tool.py"):
            with self.subTest(name):
                said = self.run_sample(name)
                self.assertRegex(said, r"^shop.*: 7\n")
                self.assertIn("a=2*7=14", said)

    def test_a_model_by_an_argument(self):
        nano = str(SAMPLES / "models/nano")
        self.assertIn("The answer is 26", self.run_sample("chat", nano, said=HENS))
        self.assertIn("The answer is 61", self.run_sample("own_tool_c", nano))
        for name in ("chat", "event_loop", "own_tool", "own_tool_c", "hello_team_python/hello_team.py"):
            with self.subTest(name):
                self.assertIn("/no/such/model", self.run_sample(name, "/no/such/model", code=1))


if __name__ == "__main__":
    unittest.main()
