# SPDX-License-Identifier: Apache-2.0
"""What tests of the runner share: the runner, which is the first argument of the test program, and a folder to run it in."""

import atexit
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RUNNER = str(pathlib.Path(sys.argv.pop(1)).resolve())
LAB = str(pathlib.Path(RUNNER).with_name("baton-lab"))
LAB_VERBS = ("bench", "eval", "learn", "load", "perplexity", "profile")

# What `auto` has measured in earlier runs of whoever runs the tests would decide in them.
CACHE = tempfile.mkdtemp()
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)

TEAM = """\
version: 1
name: pair
inputs:
  question: {type: string, required: true, description: What to answer}
models: {main: {path: "%s"}}
defaults: {max_tokens: 24}
agents:
  solver:
    role: Solver
    prompt: {system: You are a math expert., user: "Question:\\n{{ question }}"}
  checker:
    role: Checker
    prompt: {user: "{{ question }}\\n\\nSolver:\\n{{ agent_solver_current }}"}
    output: {pattern: "The answer is (-?[0-9]+)", required: false}
workflow: {topology: chain, agents: [solver, checker]}
outputs: {answer: "{{ agent_checker_current }}"}
""" % (ROOT / "samples/models/nano")

# The same over and over: long enough to be interrupted on any machine.
LONG = TEAM.replace("topology: chain,", "topology: chain, rounds: 100,")

QUESTION = "question=Mia has 12 apples. She buys 7 more apples. How many apples does Mia have?"

# One agent and one token; the answer is what the question gives.
ECHO = """\
version: 1
name: echo
inputs: {said: {type: string, required: true}}
models: {main: {path: "%s"}}
defaults: {max_tokens: 1}
agents: {writer: {prompt: {user: "hello"}}}
outputs: {answer: "{{ said }}"}
""" % (ROOT / "samples/models/nano")


def command(*arguments):
    """The program that has the verb, with its arguments."""
    return [LAB if arguments and arguments[0] in LAB_VERBS else RUNNER, *arguments]


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.team = self.write("team.yaml", TEAM)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def environment(self, **changes):
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "BATON_MODEL", "BATON_MODEL_PATH")}
        return {**environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "XDG_CACHE_HOME": CACHE, **changes}

    def baton(self, *arguments, code=0, **changes):
        done = subprocess.run(command(*arguments), cwd=self.folder, env=self.environment(**changes), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def in_terminal(self, *arguments, rows=24, columns=80, stdout=None, **changes):
        """Runs with stderr (and stdout, unless given) on a terminal; returns the exit code and what it was sent."""
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = subprocess.Popen(command(*arguments), cwd=self.folder, env=self.environment(**changes),
                                   stdin=subprocess.DEVNULL, stdout=stdout or child, stderr=child)
        os.close(child)
        seen = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:
                break
            if not part:
                break
            seen += part
        os.close(parent)
        return process.wait(), seen.decode("utf-8")


class Terminal:
    """A runner on a terminal of its own."""

    def __init__(self, test, *arguments):
        self.test = test
        self.shown = ""
        self.process, self.end = pty.fork()
        if self.process == 0:
            os.chdir(test.folder)
            os.execve(command(*arguments)[0], command(*arguments), test.environment())
        test.addCleanup(self.close)

    def wait_for(self, pattern):
        """What was shown since the last call, as soon as it holds the pattern."""
        end = time.monotonic() + 60
        text = ""
        while time.monotonic() < end:
            if not select.select([self.end], [], [], 0.1)[0]:
                continue
            try:
                text += os.read(self.end, 65536).decode(errors="replace")
            except OSError:
                break
            if re.search(pattern, text):
                self.shown += text
                return text
        self.test.fail(f"{pattern!r} was not shown: {text!r}")

    def say(self, text, pattern):
        os.write(self.end, text.encode())
        return self.wait_for(pattern)

    def exit_code(self):
        while True:
            try:
                if not os.read(self.end, 65536):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])

    def close(self):
        try:
            os.kill(self.process, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(self.end)
