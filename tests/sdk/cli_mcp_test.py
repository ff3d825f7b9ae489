#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs workflows with good MCP servers over stdio and HTTP, and with ones made with the protocol's own SDK.

Usage: cli_mcp_test.py RUNNER [unittest options]
"""

import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import unittest

from mcp_case import ADD, echo, Mcp, PASSED_ON, PLACE, PROGRAM, PROMPT, RESOURCE, SECRET, SHORT
from mcp_servers import HOSTILE, HttpServer, MARKERS
from runner import RUNNER


class Servers(Mcp):
    """Good servers."""

    def test_tools_resources_and_prompts(self):
        done = self.good(self.program("good"), ADD, echo("{{ question }}"), RESOURCE, PROMPT)
        expected = ["7", "7", "The document x.", "Please review: x\nGladly."]
        self.assertEqual(done.results, [(True, text) for text in expected])
        self.assertEqual(done.record["outputs"]["answer"], "\n".join(expected))
        self.assertEqual([tool["tool"] for tool in done.record["agents"][0]["tools"]], ["mcp"] * 4)
        server, = done.record["servers"]
        self.assertGreater(server.pop("start_ms"), 0)
        self.assertEqual(server, {"name": "docs", "title": "docs 1.2", "tools": 4, "error": ""})
        self.assertEqual(done.stderr, "")

    def test_placeholders_in_each_place(self):
        tool = {"mcp": {"server": "docs", "tool": "add", "arguments": {"a": "{{ question }}", "b": 4}}}
        resource = {"mcp": {"server": "docs", "resource": "docs://{{ question }}/all"}}
        prompt = {"mcp": {"server": "docs", "prompt": "review", "arguments": {"code": "{{ question }}"}}}
        self.assertEqual(self.good(self.program("good"), tool, resource, prompt).results, [
            (True, "11"), (True, "The document 7/all.\n[docs://picture, which is not text]"),
            (True, "Please review: 7\nGladly.")])

    def test_arguments_have_the_types_of_the_schema(self):
        words = {"mcp": {"server": "docs", "tool": "add", "arguments": {"a": "3 }", "b": 4}}}
        done = self.good(self.program("good"), words, echo(12), echo("true"))
        self.assertEqual(done.results, [
            (False, 'error: expected two integers, found {"a": "3 }", "b": 4}'), (True, "12"), (True, "true")])

    def test_what_a_server_calls_an_error_is_a_result(self):
        unknown = {"mcp": {"server": "docs", "tool": "nothing"}}
        absent = {"mcp": {"server": "docs", "resource": "file:///etc/passwd"}}
        done = self.good(self.program("good"), unknown, absent, {"mcp": {"server": "docs", "prompt": "other"}}, ADD)
        errors = (("no tool nothing", -32602), ("no resource file:///", -32002))
        for (ok, text), (what, code) in zip(done.results, errors):
            self.assertFalse(ok)
            self.assertRegex(text, rf"^error: MCP server 'docs': it answered '[a-z/]+' with: {what}.*\(code {code}\)$")
            self.check_line(text)
        self.assertEqual(done.results[3], (True, "7"))

    def test_hostile_text_stays_text(self):
        """Not expanded, not cut, no other's: neither in the record nor where it is another agent's text."""
        hostile = {"mcp": {"server": "docs", "tool": "hostile"}}
        done = self.good(self.program("good"), hostile, echo("after {{ question }}"))
        self.assertEqual(done.results, [(True, HOSTILE), (True, "after 7")])
        self.assertEqual(done.record["outputs"]["answer"], HOSTILE + "\nafter 7")
        self.assertEqual([c for c in done.stdout if ord(c) < 32 and c != "\n"], [])
        # As an argument of a further call, and an input that looks like the file's own.
        file = self.workflow(self.program("good"), hostile)
        path = self.folder / file
        second = json.dumps([echo("[{{ agent_reader_current }}] {{ question }}")])
        text = path.read_text().replace("single, agents: [reader]", "chain, agents: [reader, second]")
        path.write_text(text.replace("workflow:", f"  second: {{tools: {second}}}\nworkflow:"))
        asked = "{{ agent_second_current }} ${env:HOME} \"}, " + MARKERS
        begin = time.monotonic()
        done = self.result(self.start(file, "-q", "-i", "question=" + asked), begin)
        self.assertEqual((done.code, done.left), (0, []), done.stderr)
        self.assertEqual(done.record["agents"][1]["output"], f"[{HOSTILE}] {asked}")

    def test_versions_and_servers_with_little(self):
        self.assertEqual(self.good(self.program("older-version")).results, [(True, "7")])
        done = self.good(self.program("no-tools"), ADD, RESOURCE)
        self.assertEqual(done.record["servers"][0]["tools"], 0)
        self.assertEqual(done.results[1], (True, "The document x."))

    def test_environment_folder_and_files_of_a_program(self):
        """Only what every program gets and what the file gives; no file of the runner's, and no signal blocked."""
        server = self.program("good", env={"OWN": "a ${env:TOKEN} b", "LANG": "de", "EMPTY": ""})
        environment = self.environment(TOKEN=SECRET, OPENAI_API_KEY="k", BATON_CANARY="x", LANG="C.UTF-8",
                                       LD_LIBRARY_PATH="/none")
        reading, writing = os.pipe()
        done = self.good(server, PLACE, env=environment, pass_fds=(reading, writing))
        os.close(reading)
        os.close(writing)
        place = json.loads(done.results[0][1])
        self.assertEqual(place["environment"], {
            **{name: value for name, value in environment.items() if name in PASSED_ON},
            "OWN": f"a {SECRET} b", "LANG": "de", "EMPTY": ""})
        self.assertEqual(place["files"], ["0", "1", "2"])
        self.assertEqual(int(place["blocked"], 16), 0)
        self.assertTrue(place["group"])  # Ctrl-C on a terminal is for the runner, which ends the program in its way
        self.assertEqual(place["folder"], str(self.folder.resolve()))
        self.assertNotIn(SECRET, done.stderr)
        self.assertNotIn(SECRET, json.dumps(done.record["servers"]))

    def test_a_variable_that_is_not_set(self):
        server = self.program("good", env={"OWN": "${env:NOT_SET_ANYWHERE}"})
        done = self.go(server)
        self.assertEqual((done.code, self.logs()), (3, {}))
        self.assertIn("NOT_SET_ANYWHERE", done.stderr)

    def test_programs_beside_the_file(self):
        """A relative path is one from the file's folder, wherever the runner is started."""
        (self.folder / "flows").mkdir()
        (self.folder / "flows/server").write_text(f"#!/bin/sh\nexec {sys.executable} -S {PROGRAM} \"$@\"\n")
        (self.folder / "flows/server").chmod(0o755)
        log = self.folder / "log"
        for command in (["./server", "good", str(log)], ["sh", "server", "good", str(log)]):
            file = self.workflow({"command": command}, PLACE, name="flows/flow.yaml")
            begin = time.monotonic()
            done = self.result(self.start(file, "-q"), begin)
            self.assertEqual((done.code, done.left), (0, []), done.stderr)
            self.assertEqual(json.loads(done.results[0][1])["folder"], str((self.folder / "flows").resolve()))

    def test_standard_streams_that_are_closed(self):
        for streams in ("<&-", "<&- 2>&-", "2>&-"):
            file = self.workflow(self.program("good"))
            words = [RUNNER, "run", file, "-i", "question=7", "-q", "--allow-servers"]
            done = subprocess.run(["sh", "-c", f'exec "$0" "$@" {streams}', *words], cwd=self.folder,
                                  env=self.environment(), stdout=subprocess.PIPE, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (0, b"7\n"), streams)
            self.assertEqual(self.left(self.noted()), [])

    def test_many_servers_start_at_the_same_time(self):
        slow = {f"bad{i}": self.program("hangs-at-start", timeout=SHORT, required=False) for i in range(4)}
        done = self.good({**slow, "docs": self.program("good")}, ADD)
        self.assertEqual(done.results, [(True, "7")])
        self.assertLess(done.seconds, 7)  # one after the other: at least 8


class Permission(Mcp):
    """Nothing is started that was not allowed, and nothing by a verb that only looks."""

    def test_a_run_that_was_not_allowed(self):
        web = {"url": f"http://me:{SECRET}@127.0.0.1:9/mcp?key={SECRET}", "headers": {"Authorization": SECRET}}
        file = self.workflow({"docs": self.program("good"), "web": web})
        for more in ((), ("--json",), ("--events", "ndjson"), ("--record", "record")):
            done = self.baton("run", file, "-i", "question=7", *more, code=2)
            for words in ("docs: " + sys.executable, "web: http://127.0.0.1:9/mcp", "--allow-servers"):
                self.assertIn(words, done.stderr)
            self.assertEqual((done.stdout, len(done.stderr.splitlines())), ("", 1))
            self.assertNotIn(SECRET, done.stderr)
        self.assertEqual(self.logs(), {})
        self.assertFalse((self.folder / "record").exists())

    def test_verbs_that_only_look(self):
        file = self.workflow(self.program("good"))
        for question in ([], ["--graph"], ["--plan"]):
            self.baton("check", file, *question)
        self.assertEqual(self.logs(), {})

    def test_a_run_that_cannot_begin(self):
        """A missing input, and a file with an error, are known before a server is started."""
        file = self.workflow(self.program("good"))
        self.baton("run", file, "--allow-servers", code=2)
        wrong = self.workflow(self.program("good"), {"mcp": {"server": "doc", "tool": "add"}})
        self.assertIn("no server 'doc'", self.baton("run", wrong, "--allow-servers", "-i", "question=7", code=3).stderr)
        self.assertEqual(self.logs(), {})

    def test_control_characters_in_a_command(self):
        server = {"command": ["./no\x1b[31m\n\u009bprogram", "\a"]}
        file = self.workflow(server)
        for code, more in ((2, ()), (4, ("--allow-servers",))):
            done = self.baton("run", file, "-i", "question=7", "-q", *more, code=code)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.check_line(done.stderr.rstrip("\n"))
            self.assertIn("docs", done.stderr)


# What fails at the start, and what the error says behind the name of the server.


class Addresses(Mcp):
    """Good servers over HTTP."""

    def setUp(self):
        super().setUp()
        self.needs_addresses()

    def test_answers_of_both_types(self):
        for mode in ("good", "events", "no-session"):
            with self.subTest(mode=mode), HttpServer(mode) as server:
                web = {"url": server.url, "headers": {"Authorization": "Bearer ${env:TOKEN}", "X-Other": "b"}}
                done = self.good(web, ADD, RESOURCE, PROMPT, echo("\u00e9\u4f60\n {{ question }}"),
                                 env=self.environment(TOKEN=SECRET))
                self.assertEqual(done.results, [(True, text) for text in (
                    "7", "The document x.", "Please review: x\nGladly.", "\u00e9\u4f60\n 7")])
                of, = done.record["servers"]
                self.assertEqual((of["title"], of["tools"], of["error"]), ("docs 1.2", 4, ""))
                self.assertNotIn(SECRET, done.stdout + done.stderr)
                self.assertLess(done.seconds, 8)  # the streams stay open
                methods = [method for method, _, _ in server.requests]
                self.assertEqual(methods, ["POST"] * (len(methods) - 1) + [methods[-1]])
                self.assertEqual(methods[-1], "POST" if mode == "no-session" else "DELETE")
                for number, (_, headers, _) in enumerate(server.requests):
                    self.assertEqual((headers["authorization"], headers["x-other"]), (f"Bearer {SECRET}", "b"))
                    session = "session-7" if number and mode != "no-session" else None
                    version = "2025-11-25" if self.after_start(server, number) else None
                    self.assertEqual(headers.get("mcp-session-id"), session, server.requests[number])
                    self.assertEqual(headers.get("mcp-protocol-version"), version, server.requests[number])
                    self.assertEqual(headers["accept"], "application/json, text/event-stream")
                self.assertEqual(len(server.messages("notifications/initialized")), 1)
                pongs = [message["id"] for _, _, message in server.requests if message and "result" in message]
                self.assertEqual(sorted(pongs), sorted(f"ping-{i + 1}" for i in range(server.pings)))
                self.assertEqual(server.pings, 7 if mode == "events" else 0)  # initialize, two pages, four steps

    def after_start(self, server, number):
        """Whether the version was agreed on when this request was sent: behind the answer to `initialize`."""
        sent = [message.get("method") if message else None for _, _, message in server.requests[:number + 1]]
        return "notifications/initialized" in sent

    def test_the_first_of_two_answers_counts(self):
        with HttpServer("twice") as server:
            self.assertEqual(self.good({"url": server.url}).results, [(True, "7")])

    def test_what_stands_in_an_address_is_not_shown(self):
        with HttpServer("status-at-start") as server:
            address = server.url.replace("http://", f"http://me:{SECRET}@") + f"?key={SECRET}#{SECRET}"
            done = self.go({"url": address, "headers": {"X-Key": SECRET}})
            self.assertEqual(done.code, 4)
            self.assertIn(f"MCP server 'docs' ({server.url}): ", done.stderr)
            self.assertNotIn(SECRET, done.stdout + done.stderr)

    def test_nobody_there(self):
        with socket.socket() as taken:  # bound, and nobody listens
            taken.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
            done = self.go({"url": address})
        self.assertEqual(done.code, 4)
        self.assertRegex(done.stderr, rf"MCP server 'docs' \({address}\): .*onnect")


REFERENCE = """\
import sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("docs", version="1.2")

@server.tool()
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

@server.tool()
def fails(text: str) -> str:
    raise ValueError("no " + text)

@server.resource("docs://{name}")
def document(name: str) -> str:
    return f"The document {name}."

@server.prompt()
def review(code: str) -> str:
    return f"Please review: {code}"

server.run(sys.argv[1], **({"port": int(sys.argv[2])} if len(sys.argv) > 2 else {}))
"""


def has_reference():
    """Looks for the module without importing it, which takes a second."""
    package = importlib.util.find_spec("mcp")
    return package is not None and (pathlib.Path(package.origin).parent / "server/mcpserver").is_dir()


@unittest.skipUnless(has_reference(), "the protocol's own SDK for Python is not installed (package mcp, 2.0 or later)")
class ReferenceSdk(Mcp):
    """Servers made with the protocol's own SDK."""

    def check(self, server):
        fails = {"mcp": {"server": "docs", "tool": "fails", "arguments": {"text": "{{ question }}"}}}
        done = self.good(server, ADD, RESOURCE, PROMPT, fails)
        self.assertEqual(done.results[:3], [(True, "7"), (True, "The document x."), (True, "Please review: x")])
        self.assertFalse(done.results[3][0])
        self.assertRegex(done.results[3][1], "^error: .*fails")
        server, = done.record["servers"]
        self.assertEqual((server["title"], server["tools"], server["error"]), ("docs 1.2", 2, ""))
        self.assertEqual(done.stderr, "")

    def test_program(self):
        self.write("server.py", REFERENCE)
        self.check({"command": [sys.executable, "server.py", "stdio"]})

    def test_address(self):
        self.needs_addresses()
        self.write("server.py", REFERENCE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([sys.executable, "server.py", "streamable-http", str(port)], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                self.assertLess(time.monotonic(), until, "the server does not start")
                time.sleep(0.05)
        self.check({"url": f"http://127.0.0.1:{port}/mcp"})


if __name__ == "__main__":
    unittest.main()
