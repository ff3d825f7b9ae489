#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals at random times: the runner ends with a documented code, leaves whole files or none, and no process behind.

Usage: cli_signals_test.py RUNNER [unittest options]     BATON_TEST_NIGHTLY=1: many more moments
"""

import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from runner import Cli, QUESTION, ROOT, RUNNER, TEAM

NIGHTLY = os.environ.get("BATON_TEST_NIGHTLY", "0") not in ("", "0")
MOMENTS = 400 if NIGHTLY else 10
PR_SET_CHILD_SUBREAPER = 36

# Anchors are written when the runner closes its engine; the tool works until it is stopped.
LEARNING = TEAM.replace("defaults:", "relay: {method: anchors, min_tokens: 1}\ndefaults:")
WITH_TOOL = TEAM.replace("  checker:\n", "  checker:\n    tools: [{python: {from: code, timeout: 20s}}]\n").replace(
    "Solver:\\n", "{{ condition_checker_current }}Solver:\\n").replace("inputs:\n", "inputs:\n  code: {type: string, required: true}\n")
SLEEPS = "code=```python\nimport time\nopen('file', 'w').write('x')\ntime.sleep(%s)\nprint('slept')\n```"


class Signals(Cli):
    def setUp(self):
        super().setUp()
        # What the runner leaves behind becomes a child of this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.chance = random.Random(11)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.write("learning.yaml", LEARNING)
        self.write("tool.yaml", WITH_TOOL)
        begin = time.monotonic()
        self.expected = self.baton("run", self.team, "-i", QUESTION, "-q").stdout
        self.usual = time.monotonic() - begin  # of a run, on this machine

    def environment(self, **changes):
        return super().environment(**{"TMPDIR": str(self.temporary), "XDG_CACHE_HOME": str(self.folder / "cache"), **changes})

    def start(self, *arguments, **more):
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return subprocess.Popen([RUNNER, "run", *arguments], cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, **more)

    def moment(self):
        time.sleep(self.chance.uniform(0, 1.1 * self.usual))

    def adopted(self):
        """Ends without a process of the runner's, or fails."""
        until = time.monotonic() + 5
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    self.assertLess(time.monotonic(), until, "a process of the runner goes on")
                    time.sleep(0.01)
            except ChildProcessError:
                return

    def check_files(self, record, killed=False):
        """What the runner left: whole, or under the names of unfinished files, where it could not remove them."""
        if (self.folder / record).exists():
            run = json.loads((self.folder / record / "run.json").read_text())
            self.assertIn(run["state"], ("ok", "cancelled"))
            lines = [json.loads(line) for line in (self.folder / record / "events.ndjson").read_text().splitlines()]
            self.assertEqual(lines[-1]["type"], "run_finished")
        if killed:
            return
        known = {"tmp", "anchors", "cache", "team.yaml", "learning.yaml", "tool.yaml"}
        left = [p.name for p in self.folder.iterdir() if p.name not in known and not p.name.startswith("out")]
        left += [p.name for p in self.temporary.iterdir()]
        if (self.folder / "anchors").exists():
            left += [p.name for p in (self.folder / "anchors").iterdir() if p.suffix != ".anchors"]
        self.assertEqual(left, [])

    def check_next_run(self):
        self.assertEqual(self.baton("run", self.team, "-i", QUESTION, "-q").stdout, self.expected)

    def check_anchors(self):
        """The file is absent or whole: an unusable one is a warning."""
        done = self.baton("run", "learning.yaml", "-i", QUESTION, "--anchors-dir", "anchors")
        self.assertNotIn(".anchors", done.stderr)

    def test_ends_that_are_asked_for(self):
        codes = set()
        for number in range(MOMENTS):
            sent = self.chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
            learns = self.chance.random() < 0.5
            more = ["learning.yaml", "--anchors-dir", "anchors"] if learns else [self.team]
            process = self.start(*more, "-i", QUESTION, "--record", f"out{number}", "--json")
            self.moment()
            process.send_signal(sent)
            twice = self.chance.random() < 0.4
            if twice:
                time.sleep(self.chance.uniform(0, 0.02))
                process.send_signal(self.chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
            out, said = process.communicate(timeout=120)
            # Before there is a handler, the signal itself ends the program.
            early = (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)
            self.assertIn(process.returncode, (0, 130, *early), said)
            codes.add(process.returncode)
            if out:
                self.assertIn(json.loads(out)["state"], ("ok", "cancelled"))
            if process.returncode == 130 and not twice:
                self.assertEqual(json.loads(out)["state"], "cancelled")
                self.assertTrue((self.folder / f"out{number}/run.json").exists())
            self.check_files(f"out{number}")
            self.adopted()
        self.assertIn(130, codes)
        self.check_anchors()
        self.check_next_run()

    def test_a_command_without_stops_ends_at_the_first_signal(self):
        agents = "".join(f"  a{i}: {{prompt: '{{{{ agent_a0_history_1 }}}}'}}\n" for i in range(100))
        self.write("large.yaml", "version: 1\nmodels: {main: nano}\nagents:\n" + agents + "workflow: {topology: parallel, rounds: 10}\n")
        for command in (["check", "large.yaml", "--graph", "json"], ["check", "--plan", "large.yaml"]):
            process = subprocess.Popen([RUNNER, *command], cwd=self.folder, env=self.environment(),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(process.kill)  # what goes on after a failure would fail the tests that follow, too
            self.assertTrue(process.stdout.read(1))  # and no more: it waits for its reader
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=30), 130)
            process.stdout.close()
            process.stderr.close()

    def test_ignored_hang_up(self):
        process = self.start(self.team, "-i", QUESTION, "-q", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        time.sleep(0.5 * self.usual)
        process.send_signal(signal.SIGHUP)
        self.assertEqual((process.communicate(timeout=120)[0].decode(), process.returncode), (self.expected, 0))

    def test_stopped_and_continued(self):
        for _ in range(max(2, MOMENTS // 4)):
            process = self.start(self.team, "-i", QUESTION, "-q")
            for _ in range(3):
                time.sleep(self.chance.uniform(0, 0.4 * self.usual))
                process.send_signal(signal.SIGSTOP)
                time.sleep(0.05)
                process.send_signal(signal.SIGCONT)
            self.assertEqual((process.communicate(timeout=120)[0].decode(), process.returncode), (self.expected, 0))

    def test_reader_goes_away(self):
        for number in range(max(4, MOMENTS // 3)):
            output = self.chance.choice((["--events", "ndjson"], ["--json"], []))
            process = self.start(self.team, "-i", QUESTION, "--record", f"out{number}", *output)
            time.sleep(self.chance.uniform(0, 0.8 * self.usual))
            process.stdout.close()
            said = process.stderr.read().decode()
            process.wait(timeout=120)
            process.stderr.close()
            self.assertIn(process.returncode, (0, 1), said)
            self.assertNotIn("standard output", said)
            if output != ["--events", "ndjson"]:  # the run was over when its result met nobody
                self.assertTrue((self.folder / f"out{number}/run.json").exists())
            self.check_files(f"out{number}")
        process = self.start(self.team, "-i", QUESTION, "-q")
        time.sleep(0.5 * self.usual)
        process.send_signal(signal.SIGPIPE)  # sent by hand: nothing was lost
        process.communicate(timeout=120)
        self.assertIn(process.returncode, (0, -signal.SIGPIPE))

    def test_killed(self):
        for number in range(MOMENTS):
            more = ["learning.yaml", "--anchors-dir", "anchors"] if self.chance.random() < 0.5 else [self.team]
            process = self.start(*more, "-i", QUESTION, "--record", f"out{number}")
            self.moment()
            process.send_signal(self.chance.choice((signal.SIGKILL, signal.SIGUSR1)))  # the runner has no use for it
            process.communicate(timeout=60)
            self.check_files(f"out{number}", killed=True)
            self.adopted()
            again = self.start(*more, "-i", QUESTION, "--record", f"out{number}", "-q") if number % 4 == 0 else None
            if again:
                said = again.communicate(timeout=120)[1].decode()
                self.assertIn(again.returncode, (0, 2), said)  # 2: the folder is there, and whole
                self.check_files(f"out{number}", killed=True)
        self.check_anchors()
        self.check_next_run()

    def test_while_a_tool_works(self):
        self.assertIn('"slept', self.baton("run", "tool.yaml", "-i", QUESTION, "-i", SLEEPS % 0, "--events", "ndjson", "-q").stdout)
        self.check_files("none")
        for number, sent in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, None) * (20 if NIGHTLY else 1)):
            process = self.start("tool.yaml", "-i", QUESTION, "-i", SLEEPS % 60, "-q", "--record", f"out{number}")
            until = time.monotonic() + 60
            while not any(self.temporary.glob("baton-tool-*")):
                self.assertLess(time.monotonic(), until, "the tool does not begin")
                time.sleep(0.002)
            time.sleep(self.chance.uniform(0, 0.3))
            begin = time.monotonic()
            process.send_signal(sent or signal.SIGINT)
            if sent is None:
                process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[1].decode()
            self.assertLess(time.monotonic() - begin, 15)
            self.assertEqual(process.returncode, -sent if sent == signal.SIGKILL else 130, said)
            self.adopted()
            for folder in self.temporary.iterdir() if sent in (None, signal.SIGKILL) else ():
                self.assertRegex(folder.name, "^baton-tool-")  # SECURITY.md: the last folder stays
                shutil.rmtree(folder)
            self.check_files(f"out{number}")
        self.check_next_run()


if __name__ == "__main__":
    unittest.main()
