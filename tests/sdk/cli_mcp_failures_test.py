#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs workflows with MCP servers that do each thing wrong, and interrupts ones that hang.

Usage: cli_mcp_failures_test.py RUNNER [unittest options]
"""

import concurrent.futures
import json
import re
import signal
import sys
import time
import unittest

from mcp_case import ADD, echo, LONG, Mcp, NANO, PROGRAM, PROMPT, RESOURCE, SECRET, SHORT
from mcp_servers import HttpServer

AT_START = (
    ("hangs-at-start", "it gave no answer to 'initialize' in time"),
    ("dies-at-start", "it ended with exit code 3; it wrote: line of before no index .*line"),
    ("other-version", "it speaks version '1999-01-01.*; expected 2025-11-25"),
    ("no-version", "it speaks version ''"),
    ("no-list", "the answer to 'tools/list' has no list of tools"),
)

# What fails in a call: the result is an error, and the run goes on. `ended`: the server's error in the record.
IN_CALL = (
    ("hangs-in-call", "it gave no answer to 'tools/call' in time", ""),
    ("stubborn", "it gave no answer to 'tools/call' in time", ""),
    ("dies-in-call", "it ended with exit code 4; it wrote: Traceback: .*line", "it ended with exit code 4"),
    ("dies-in-call-with-child", "it ended with exit code 4; it wrote: Traceback: .*line", "it ended with exit code 4"),
    ("killed-in-call", "it was killed by signal 9", "it was killed by signal 9"),
    ("closes-output", "it closed its output", "it closed its output"),
    ("floods-output", "it sent 16 MiB that nobody asked for", "it sent 16 MiB"),
    ("floods-pings", "(it does not read its input|it sent 16 MiB that nobody asked for)", "it "),
    ("long-line", "it sent a message of more than 16 MiB", "it sent a message of more than 16 MiB"),
    ("no-json", "it gave no answer to 'tools/call' in time", ""),
    ("other-id", "it gave no answer to 'tools/call' in time", ""),
    ("text-id", "it gave no answer to 'tools/call' in time", ""),
    ("deep", "it gave no answer to 'tools/call' in time", ""),
)

AT_START_HTTP = (
    ("hangs-at-start", "it gave no answer in time"),
    ("status-at-start", "it answered with status 401: no index .*line"),
    ("other-version", "it speaks version '1999-01-01.*; expected 2025-11-25"),
    ("no-list", "the answer to 'tools/list' has no list of tools"),
)

IN_CALL_HTTP = (
    ("hangs-in-call", "it gave no answer in time", ""),
    ("hangs-in-body", "its answer did not come in time", ""),
    ("breaks-off", ".+", ""),
    ("no-answer", ".+", ""),
    ("long-body", "it answers with more than 16 MiB", ""),
    ("long-event", "it answers with more than 16 MiB", ""),
    ("floods-events", "it answers with more than 16 MiB", ""),
    ("endless-comments", "its answer did not come in time", ""),
    ("stream-without-answer", "its answer holds no message that answers the request", ""),
    ("unheard-pings", "its answer did not come in time", ""),
    ("no-json", "its answer holds no message that answers the request", ""),
    ("deep", "its answer holds no message that answers the request", ""),
    ("other-id", "its answer holds no message that answers the request", ""),
    ("status-500", "it answered with status 500: no index .*line", ""),
    ("status-400", r"it answered with status 400: no index .*line.*\(code -32600\)", ""),
    ("accepted", "its answer has the type ''", ""),
    ("lost-session", "it has ended the session", "it has ended the session"),
    ("redirect", "it answered with status 307", ""),
    ("wrong-type", "its answer has the type 'text/html", ""),
)


class ServerFailures(Mcp):
    """Servers that do something wrong. Each run ends in time, says what was wrong, and leaves no process behind."""

    # The time of the server, a second for its end by itself and another after SIGTERM; the rest is for busy machines.
    LIMIT = 8

    @staticmethod
    def time_of(mode):
        return LONG if mode.startswith(("floods", "long")) else SHORT

    def each(self, cases, run, check, programs):
        """Runs the cases four at a time; most of them wait."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda case: run(case[0]), cases))
        for case, one in zip(cases, done):
            with self.subTest(mode=case[0]):
                processes = 2 if case[0] in ("stubborn", "dies-in-call-with-child") else 1
                self.assertEqual((one.started, one.left), (processes if programs else 0, []), "processes live on")
                self.assertLess(one.seconds, self.LIMIT if self.time_of(case[0]) == SHORT else 25, one.stderr)
                self.check_said(one)
                check(one, *case[1:])

    def check_start(self, cases, shown, run, programs=True):
        def check(done, words):
            self.assertEqual(done.code, 4, done.stderr)
            self.assertEqual((done.record["state"], done.record["error_kind"]), ("failed", "resources"))
            error = rf"MCP server 'docs' \({shown}\): .*{words}"
            self.assertRegex(done.record["error"], "^" + error)
            self.check_line(done.record["error"])
            self.assertEqual([server["error"] for server in done.record["servers"]], [done.record["error"]])
            self.assertEqual([(one["state"], one["tools"]) for one in done.record["agents"]], [("skipped", [])])
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertRegex(done.stderr, error)

        self.each(cases, run, check, programs)

    def check_calls(self, cases, run, programs=True):
        def check(done, words, ended):
            self.assertEqual((done.code, done.record["state"]), (0, "ok"), done.stderr)
            ok, text = done.results[0]
            self.assertFalse(ok)
            self.assertRegex(text, f"^error: MCP server 'docs': .*{words}")
            self.check_line(text)
            server, = done.record["servers"]
            self.assertRegex(server["error"], f"^{ended}" if ended else "^$")
            self.assertEqual((server["title"], server["tools"]), ("docs 1.2", 4))

        self.each(cases, run, check, programs)

    def test_programs_that_do_not_start(self):
        shown = re.escape(f"{sys.executable} -S {PROGRAM} ")[:120] + ".*"
        self.check_start(AT_START, shown, lambda mode: self.go(self.program(mode, timeout=self.time_of(mode))))

    def test_programs_that_cannot_be_started(self):
        (self.folder / "plain").write_text("no program")
        for command, words in ((["./absent"], "No such file"), (["no-such-program-anywhere"], "No such file"),
                               (["./plain"], "Permission denied"), (["/"], "Permission denied")):
            done = self.go({"command": command})
            self.assertEqual(done.code, 4, done.stderr)
            self.assertRegex(done.stderr, rf"MCP server 'docs' \({command[0]}\): cannot start '{command[0]}': {words}")

    def test_programs_that_fail_in_a_call(self):
        self.check_calls(IN_CALL, lambda mode: self.go(self.program(mode, timeout=self.time_of(mode))))

    def test_programs_that_are_odd_but_answer(self):
        for mode in ("twice", "floods-errors", "hostile-title"):
            with self.subTest(mode=mode):
                done = self.good(self.program(mode, timeout="20s"), ADD, echo("next"))
                self.assertEqual(done.started, 5 if mode == "floods-errors" else 1)
                self.assertEqual(done.results, [(True, "7"), (True, "next")])
                self.assertLess(done.seconds, self.LIMIT)
                self.check_said(done)
                self.check_line(done.record["servers"][0]["title"])
    def test_pages_of_tools_that_have_no_end(self):
        """Those that came count, and what is left out is told."""
        for mode, tools, words in (("endless-pages", 1, "it gives the cursor 'again' a second time"),
                                   ("small-pages", 128, "there are 128 tools before it")):
            with self.subTest(mode=mode):
                done = self.good(self.program(mode))
                self.assertEqual(done.record["servers"][0]["tools"], tools)
                found = [one for one in done.record["warnings"] if words in one["message"]]
                self.assertEqual([(one["code"], one["count"]) for one in found], [("tools_left_out", 1)])

    def test_results_that_are_no_results(self):
        no_list = "error: the server's result has no list 'content', found "
        for mode, ok, begin in (("no-object", False, "error: the server's result is not an object"),
                                ("no-content", False, no_list), ("text-content", False, no_list),
                                ("nothing", False, no_list), ("null-content", False, no_list),
                                ("text-without-text", False, "error: the server's result has content of type 'text'"),
                                ("error-without-words", False, "error: the tool failed without a message"),
                                ("error-as-text", False, "error: 7"), ("structured", True, '{"sum":7}'),
                                ("empty-content", True, ""), ("odd-content", True, "")):
            with self.subTest(mode=mode):
                done = self.good(self.program(mode), ADD, ADD)
                self.assertLess(done.seconds, self.LIMIT)
                self.assertEqual(done.results[0], done.results[1])
                self.assertEqual(done.results[0][0], ok)
                self.assertTrue(done.results[0][1].startswith(begin), done.results[0][1])
        # Without `tell` a tool that fails fails its turn.
        text = (self.folder / self.workflow(self.program("error-as-text"))).read_text()
        self.write("strict.yaml", text.replace(", calls: {on_error: tell}", ""))
        done = self.baton("run", "strict.yaml", "--allow-servers", "-q", "-i", "question=x", code=1)
        self.assertIn("agent 'reader' failed: tool 'mcp' failed: 7", done.stderr)
        done = self.good(self.program("no-contents"), RESOURCE, PROMPT)
        self.assertEqual(done.results, [
            (False, f"error: MCP server 'docs': the answer to '{method}' has no list '{key}'")
            for method, key in (("resources/read", "contents"), ("prompts/get", "messages"))])

    def test_a_program_that_does_not_read_a_long_request(self):
        (self.folder / "long.txt").write_text("x" * (1 << 20))
        done = self.go(self.program("never-reads", timeout=SHORT), echo("{{ question }}"), ADD,
                       arguments=("-q", "-i", "question=@long.txt"))
        self.assertEqual((done.code, done.left), (0, []), done.stderr)
        self.assertLess(done.seconds, self.LIMIT)
        self.assertEqual(done.results[0], (False, "error: MCP server 'docs': it does not read its input"))
        self.assertEqual(done.results[1], done.results[0])

    def test_a_program_that_writes_while_a_long_request_comes(self):
        """Neither side waits for the other: the runner reads while it writes, also where a ping is to be answered."""
        (self.folder / "long.txt").write_text("x" * (1 << 20))
        done = self.good(self.program("talks-before-reading", timeout="6s"), echo("{{ question }}"),
                         arguments=("-q", "-i", "question=@long.txt"))
        self.assertEqual((done.results[0][0], len(done.results[0][1])), (True, 1 << 20))

    def test_tools_that_a_model_cannot_have(self):
        done = self.good(self.program("many-tools"), RESOURCE, arguments=())
        self.assertEqual(done.record["servers"][0]["tools"], 128)
        self.assertIn("warning: MCP server 'docs': tool 'tool_128' is left out: there are 128 before it", done.stderr)
        done = self.good(self.program("hostile-tools"), ADD, arguments=())
        self.assertEqual(done.record["servers"][0]["tools"], 4)  # add, no_schema, recursive, unknown
        self.assertIn("tool 'any' is left out: its schema: ", done.stderr)
        left_out = [line for line in done.stderr.splitlines() if "a tool is left out, whose name is '" in line]
        self.assertEqual(len(left_out), 14)
        self.check_said(done)
        self.assertEqual(done.results, [(True, "7")])

    def test_hostile_descriptions_in_a_prompt(self):
        """A model is told of the tools as of any text: what looks like a marker of its format is not one."""
        def tokens(description):
            servers = {"docs": self.program("described", env={"DESCRIPTION": description})}
            done = self.ask(servers, "{mcp: docs}", patience=60)
            self.assertEqual((done.code, done.left), (0, []), done.stderr)
            return done.record["agents"][0]["prompt_tokens"]

        special = json.loads((NANO / "tokenizer.json").read_text())["added_tokens"]
        marker = next(one["content"] for one in special if one["special"])
        plain = tokens("")
        self.assertGreater(tokens(marker * 8), plain + 8 * 2)  # one each, were they special

    def test_tools_that_a_server_does_not_have(self):
        done = self.ask({"docs": self.program("good")}, "{mcp: docs, only: [add, absent]}")
        self.assertEqual((done.code, done.left), (4, []), done.stderr)
        self.assertIn("MCP server 'docs' has no tool 'absent'; it has: add, echo, place, hostile", done.stderr)

    def test_a_server_that_is_not_required(self):
        web = {"url": "http://127.0.0.1:9/mcp", "required": False}
        servers = {"bad": self.program("dies-at-start", required=False), "web": web, "docs": self.program("good")}
        lost = {"mcp": {"server": "bad", "tool": "add", "arguments": {"a": 1, "b": 2}}}
        done = self.good(servers, lost, ADD, arguments=())
        self.assertEqual(done.results, [(False, "error: MCP server 'bad' does not run"), (True, "7")])
        errors = [server["error"] for server in done.record["servers"]]
        self.assertEqual(errors[2], "")
        for error, words in zip(errors, (r"MCP server 'bad' \(.*\): it ended with exit code 3",
                                         r"MCP server 'web' \(http://127.0.0.1:9/mcp\): ")):
            self.assertRegex(error, "^" + words)
            self.assertRegex(done.stderr, f"(?m)^warning: {words}.*; the run goes on without it$")
        self.check_said(done)
        # The other way round: what one that is required lacks ends those that have started.
        servers["bad"].pop("required")
        done = self.go(servers, ADD)
        self.assertEqual((done.code, done.left, done.record["agents"][0]["state"]), (4, [], "skipped"))

    def test_addresses_that_do_not_start(self):
        self.needs_addresses()

        def run(mode):
            with HttpServer(mode) as server:
                return self.go({"url": server.url, "timeout": self.time_of(mode)})
        self.check_start(AT_START_HTTP, "http://127.0.0.1:[0-9]+/mcp", run, programs=False)

    def test_addresses_that_fail_in_a_call(self):
        self.needs_addresses()
        with HttpServer("good") as other:
            def run(mode):
                with HttpServer(mode, elsewhere=other.url) as server:
                    return self.go({"url": server.url, "timeout": self.time_of(mode), "headers": {"X-Key": SECRET}})
            self.check_calls(IN_CALL_HTTP, run, programs=False)
            self.assertEqual(other.requests, [])  # a redirect is not followed

    def test_an_address_that_answers_answers_with_requests(self):
        """An answer to a ping gets an answer with a ping, and so on: the runner does not go along without end."""
        self.needs_addresses()
        with HttpServer("nested-pings") as server:
            done = self.go({"url": server.url, "timeout": SHORT})
            self.assertLess(done.seconds, self.LIMIT)
            self.assertLess(server.pings, 50)
        self.assertEqual(done.code, 0, done.stderr)
        self.assertEqual(done.results, [
            (False, "error: MCP server 'docs': 'tools/call': its answer did not come in time")])


class ServerInterrupts(Mcp):
    """The run's time and Ctrl-C end what servers keep waiting."""

    def wait_for(self, condition):
        until = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def interrupted(self, servers, reached, sent=signal.SIGINT, *arguments):
        process = self.start(self.workflow(servers), "-q", *arguments)
        self.addCleanup(process.kill)
        self.wait_for(reached)
        time.sleep(0.1)
        begin = time.monotonic()
        process.send_signal(sent)
        done = self.result(process, begin)
        self.assertEqual((done.code, done.left), (130, []), done.stderr)
        self.assertLess(done.seconds, 3)
        self.assertEqual(done.record["state"], "cancelled")
        self.check_said(done)

    def in_logs(self, word):
        return lambda: any(word in line for lines in self.logs().values() for line in lines)

    def test_in_a_call(self):
        for sent in (signal.SIGINT, signal.SIGTERM):
            for path in self.logs():
                path.unlink()
            self.interrupted(self.program("hangs-in-call"), self.in_logs("call"), sent)

    def test_in_a_call_of_a_stubborn_program(self):
        self.interrupted(self.program("stubborn"), self.in_logs("call"))

    def test_at_the_start(self):
        self.interrupted(self.program("hangs-at-start"), self.in_logs("process"))

    def test_addresses(self):
        self.needs_addresses()
        for mode in ("hangs-at-start", "hangs-in-call", "endless-comments", "hangs-in-body", "unheard-pings"):
            method = "initialize" if mode == "hangs-at-start" else "tools/call"
            with self.subTest(mode=mode), HttpServer(mode) as server:
                self.interrupted({"url": server.url}, lambda: server.messages(method))

    def test_the_time_of_the_run(self):
        for mode in ("hangs-at-start", "hangs-in-call"):
            with self.subTest(mode=mode):
                done = self.go(self.program(mode, timeout="60s"), arguments=("-q", "--timeout", "2s"))
                self.assertEqual((done.code, done.record["state"], done.left), (5, "timeout", []), done.stderr)
                self.assertLess(done.seconds, 6)


if __name__ == "__main__":
    unittest.main()
