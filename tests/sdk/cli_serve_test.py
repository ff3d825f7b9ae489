#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs baton serve as its users do: what it says, what it refuses, and how it ends.

Usage: cli_serve_test.py RUNNER [unittest options]
"""

import json
import re
import signal
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from runner import Cli, RUNNER, TEAM

ASKS = TEAM.replace("    role: Checker\n", "").replace('prompt: {user: "{{ question }}\\n\\nSolver:\\n{{ agent_solver_current }}"}',
                                                         'ask: "Is this right? {{ agent_solver_current }}"')
TWO = TEAM.replace("inputs:\n", "inputs:\n  tone: {type: string, required: true}\n").replace("Question:", "Question, {{ tone }}:")
CHAT = "/v1/chat/completions"


class Serve(Cli):
    def serve(self, *arguments, **changes):
        process = subprocess.Popen([RUNNER, "serve", *arguments, "--port", "0"], cwd=self.folder, env=self.environment(**changes),
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        line = process.stderr.readline()
        self.assertRegex(line, r"^serving .* at http://\S+ with")
        return process, re.search(r"http://\S+", line)[0], line

    def ask(self, url, path, body=None, key=None):
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        request = urllib.request.Request(url + path, json.dumps(body).encode() if body else None, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def question(self, model, **more):
        return {"model": model, "messages": [{"role": "user", "content": "What is 6 x 7?"}], **more}

    def test_a_workflow_answers_under_the_name_of_its_file_or_another(self):
        self.write("other.yaml", TEAM)
        process, url, line = self.serve("team.yaml", "second=other.yaml")
        self.assertIn("serving team, second at http://127.0.0.1:", line)
        self.assertIn("without a key", line)
        answers = []
        for model in ("team", "second"):
            status, text = self.ask(url, CHAT, self.question(model))
            self.assertEqual(status, 200, text)
            answers.append(json.loads(text)["choices"][0]["message"]["content"])
        printed = self.baton("run", "team.yaml", "-q", "-i", "question=What is 6 x 7?").stdout
        self.assertEqual(answers[0].rstrip("\n"), printed.rstrip("\n"))
        process.terminate()
        log = process.stderr.read()
        self.assertEqual(process.wait(60), 0)
        self.assertRegex(log, r"POST /v1/chat/completions second 200 \d")
        self.assertNotIn("6 x 7", log)

    def test_inputs_of_the_command_and_of_the_request(self):
        self.write("two.yaml", TWO)
        done = self.baton("serve", "two.yaml", code=2)
        self.assertIn("name it with --message two=INPUT, one of: tone, question", done.stderr)
        process, url, _ = self.serve("two.yaml", "--message", "question")
        status, text = self.ask(url, CHAT, self.question("two"))
        self.assertEqual((status, json.loads(text)["error"]["code"]), (400, "missing_value"))
        status, text = self.ask(url, CHAT, self.question("two", baton={"inputs": {"tone": "math"}}))
        self.assertEqual(status, 200, text)
        process, url, _ = self.serve("two.yaml", "-i", "tone=math")
        self.assertEqual(self.ask(url, CHAT, self.question("two"))[0], 200)

    def test_what_cannot_be_served(self):
        self.write("asks.yaml", ASKS)
        for arguments, message in [(["team.yaml", "team.yaml"], "two workflows are called 'team'"),
                                   (["asks.yaml"], "its step 'checker' asks a person"),
                                   (["team.yaml", "--address", "0.0.0.0"], "no key is given"),
                                   (["team.yaml", "--address", "somewhere"], "expected an IPv4 or IPv6 address"),
                                   (["team.yaml", "--key-file", "none"], "cannot read none"),
                                   (["team.yaml", "--message", "x=question"], "unknown workflow 'x'"),
                                   (["team.yaml", "-i", "x=y"], "no workflow has this input"),
                                   (["a b=team.yaml"], "cannot be the name of a model")]:
            with self.subTest(arguments):
                self.assertIn(message, self.baton("serve", *arguments, code=2).stderr)

    def test_keys_come_from_a_file_and_the_environment_and_are_not_shown(self):
        file = self.folder / "keys"
        file.write_text("# ours\nfirst-key-1\n")
        file.chmod(0o644)
        process = subprocess.Popen([RUNNER, "serve", "team.yaml", "--key-file", "keys", "--port", "0", "--address", "0.0.0.0"],
                                   cwd=self.folder, env=self.environment(BATON_SERVE_KEY="second-key-2"), stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        lines = process.stderr.readline() + process.stderr.readline()
        self.assertIn("every user of this machine can read the keys in keys", lines)
        self.assertIn("with 2 keys", lines)
        url = re.search(r"http://\S+", lines)[0]
        self.assertEqual([self.ask(url, "/health", key=key)[0] for key in (None, "first-key-1", "second-key-2", "other-key-3")],
                         [401, 200, 200, 401])
        process.terminate()
        log = process.stderr.read()
        self.assertEqual(process.wait(60), 0)
        for key in ("first-key", "second-key", "other-key"):
            self.assertNotIn(key, lines + log)

    def test_a_stop_lets_a_request_end_and_a_second_one_does_not(self):
        long = TEAM.replace("max_tokens: 24", "max_tokens: 400, temperature: 3, seed: 1").replace("topology: chain,",
                                                                                                   "topology: chain, rounds: 100,")
        self.write("long.yaml", long)
        process, url, _ = self.serve("long.yaml", "--drain", "60s")
        request = urllib.request.Request(url + CHAT, json.dumps(self.question("long", stream=True)).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            reply.readline()
            process.send_signal(signal.SIGTERM)
            self.assertIn("stopping: 1 requests may end within 60 s", process.stderr.readline())
            time.sleep(0.3)
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(30), 130)


if __name__ == "__main__":
    unittest.main()
