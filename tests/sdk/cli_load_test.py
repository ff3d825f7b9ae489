#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a workflow under load: what is measured, and what is refused.

Usage: cli_load_test.py RUNNER [unittest options]
"""

import json
import os
import signal
import unittest
import xml.etree.ElementTree

from runner import Cli, ECHO, ROOT, Terminal

BINDING = str(ROOT / "workflows/library/binding_team.yaml")
HELD_OUT = str(ROOT / "tests/data/nano_binding_heldout.jsonl")
AGENTS = 4


class Load(Cli):
    def points(self, *arguments):
        return json.loads(self.baton("load", *arguments, "--json", "-q").stdout)["points"]

    def curves(self, file):
        """The points of each curve of a picture."""
        lines = xml.etree.ElementTree.parse(self.folder / file).iterfind(".//{http://www.w3.org/2000/svg}polyline")
        return [[[float(number) for number in point.split(",")] for point in line.get("points").split()] for line in lines]

    def echo(self, questions):
        self.write("echo.yaml", ECHO)
        lines = [json.dumps({"id": str(i), "inputs": {"said": f"number {i}"}, "answer": "x"}) for i in range(questions)]
        self.write("echo.jsonl", "\n".join(lines) + "\n")
        return "echo.yaml", "--dataset", "echo.jsonl"

    def test_every_method_and_rate_is_measured_over_the_same_answers(self):
        points = self.points(BINDING, "--dataset", HELD_OUT, "--rates", "300,600", "--methods", "full,direct,rectify:reuse=0.8",
                             "--runs", "4", "--warm-up", "1", "--same-answers")
        self.assertEqual([(p["offered_per_minute"], p["method"]) for p in points],
                         [(rate, method) for rate in (300, 600) for method in ("full", "direct", "rectify:reuse=0.8")])
        for rate in (0, 3):  # other questions at the other rate
            self.assertEqual(len({p["output_tokens"] for p in points[rate:rate + 3]}), 1)
        for point in points:
            self.assertEqual(point["failed_runs"], 0)
            self.assertGreater(point["output_tokens"], 4 * AGENTS)
            for times in (point["ttft_ms"], point["run_ms"]):
                self.assertLessEqual(0 < times["median"] and times["median"], times["p95"])
            self.assertLess(point["ttft_ms"]["median"], point["run_ms"]["median"])

    def test_runs_arrive_at_the_rate(self):
        echo = self.echo(60)
        slow, = self.points(*echo, "--rates", "300", "--methods", "full", "--runs", "60", "--warm-up", "0", "--seed", "3")
        # 59 gaps of 200 ms on average: their sum has a standard deviation of 13 %.
        self.assertGreater(slow["finished_per_minute"], 300 * 0.6)
        self.assertLess(slow["finished_per_minute"], 300 * 1.6)
        overloaded, = self.points(*echo, "--rates", "1000000", "--methods", "full", "--runs", "60", "--warm-up", "0")
        self.assertGreater(overloaded["finished_per_minute"], 2 * slow["finished_per_minute"])
        self.assertLess(overloaded["finished_per_minute"], 1_000_000 / 2)
        self.assertGreater(overloaded["run_ms"]["median"], slow["run_ms"]["median"])

    def test_the_table_has_a_line_for_each(self):
        lines = self.baton("load", *self.echo(9), "--rates", "600,1200", "--methods", "full,direct", "--runs", "4", "--warm-up", "1",
                           "-q", "--svg", "echo.svg").stdout.splitlines()
        self.assertEqual(len(lines), 2 + 4)
        self.assertEqual([line.split()[:2] for line in lines[2:]],
                         [["600", "full"], ["600", "direct"], ["1200", "full"], ["1200", "direct"]])
        points = self.curves("echo.svg")
        self.assertEqual([len(curve) for curve in points], [2] * 8)  # of two methods: 95 % and median, of both times
        for curve in points:
            self.assertLess(curve[0][0], curve[1][0])  # the rates
        for upper, middle in zip(points[::2], points[1::2]):  # y grows downwards
            self.assertTrue(all(high[1] <= median[1] for high, median in zip(upper, middle)))

    def test_a_run_that_fails_is_counted_and_named(self):
        self.echo(4)
        self.write("fails.yaml", ECHO.replace("agents: {writer: {", 'agents: {writer: {output: {pattern: "no (such) text"}, '))
        done = self.baton("load", "fails.yaml", "--dataset", "echo.jsonl", "--rates", "600", "--methods", "full", "--runs", "4",
                          "--warm-up", "0", "-q", code=1)
        self.assertIn("4 failed: ", done.stdout)
        self.assertEqual(done.stdout.splitlines()[2].split()[2:7], ["0.0", "-", "-", "-", "-"])

    def test_what_does_not_fit_is_refused(self):
        echo = self.echo(5)
        refused = [
            (["--rates", "10", "--runs", "3"], "expected 6 questions, since none runs twice"),
            (["--rates", "10", "--runs", "2", "--relay", "full"], "load takes the methods to measure from --methods"),
            (["--rates", "10", "--runs", "2", "--methods", "fast"], "--methods fast"),
            (["--rates", "10", "--runs", "2", "--methods", "full:x"], "expected KEY=VALUE"),
            (["--rates", "0"], "expected runs a minute"),
            (["--rates", "nan"], "expected runs a minute"),
            (["--rates", "5,9,5"], "--rates: 5 is there twice"),
            (["--rates", "5", "--methods", "full,full"], "--methods: full is there twice"),
            ([], "--rates"),
        ]
        for options, said in refused:
            self.assertIn(said, self.baton("load", *echo, *options, code=2).stderr, options)

    def test_an_interrupt_ends_it_soon_with_what_was_measured(self):
        self.echo(9)
        terminal = Terminal(self, "load", "echo.yaml", "--dataset", "echo.jsonl", "--rates", "6000,0.01", "--methods", "full",
                            "--runs", "4", "--warm-up", "1", "--svg", "echo.svg")
        terminal.wait_for(r"full at 0\.01 a minute")  # which takes hours
        os.kill(terminal.process, signal.SIGINT)
        self.assertEqual(terminal.exit_code(), 130)
        self.assertEqual([len(curve) for curve in self.curves("echo.svg")], [1] * 4)


if __name__ == "__main__":
    unittest.main()
