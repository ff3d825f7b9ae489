#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs workflows with MCP servers: good ones, ones that do each thing wrong, and ones made with the protocol's own SDK.

Usage: cli_mcp_test.py RUNNER [unittest options]
"""

import concurrent.futures
import importlib.util
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unicodedata
import unittest

from mcp_servers import HOSTILE, HttpServer, MARKERS
from runner import Cli, ROOT, RUNNER

PROGRAM = str(pathlib.Path(__file__).resolve().parent / "mcp_servers.py")
NANO = ROOT / "samples/models/nano"
SHORT = "2s"  # the time of a server that is going to need it
LONG = "30s"  # of one that is ended for what it sends, which takes a sanitizer's build a while
PASSED_ON = {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"}
SECRET = "tiny-secret-81"

# Without a prompt, an agent needs no model.
FILE = """\
version: 1
inputs: {{question: string}}
models: {{main: {{path: "{model}"}}}}
mcp: {servers}
agents:
  reader: {{tools: {steps}}}
workflow: {{topology: single, agents: [reader]}}
"""

ADD = {"mcp": {"server": "docs", "tool": "add", "arguments": {"a": 3, "b": 4}}}
PLACE = {"mcp": {"server": "docs", "tool": "place"}}
RESOURCE = {"mcp": {"server": "docs", "resource": "docs://x"}}
PROMPT = {"mcp": {"server": "docs", "prompt": "review", "arguments": {"code": "x"}}}


def echo(text):
    return {"mcp": {"server": "docs", "tool": "echo", "arguments": {"text": text}}}


def lives(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Done:
    """A run that is over."""

    def __init__(self, code, stdout, stderr, seconds, started, left):
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
        self.seconds = seconds
        self.started = started  # how many processes its servers were
        self.left = left  # processes of its servers that live on

    @property
    def record(self):
        return json.loads(self.stdout)

    @property
    def results(self):
        return [(tool["ok"], tool["result"]) for tool in self.record["agents"][0]["tools"]]


class Mcp(Cli):
    numbers = itertools.count()

    def environment(self, **changes):
        environment = super().environment(**changes)
        return {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}

    def program(self, mode, **more):
        """A server over standard input and output. What it notes goes into a file of its own."""
        log = self.folder / f"log{next(self.numbers)}"
        return {"command": [sys.executable, "-S", PROGRAM, mode, str(log)], **more}

    def workflow(self, servers, *steps, name=None):
        """Writes a file; `servers`: by name, or the only one, which is called docs."""
        servers = {"docs": servers} if {"command", "url"} & set(servers) else servers
        name = name or f"flow{next(self.numbers)}.yaml"
        (self.folder / name).parent.mkdir(exist_ok=True)
        return self.write(name, FILE.format(model=NANO, servers=json.dumps(servers), steps=json.dumps(steps or (ADD,))))

    def logs(self):
        return {path: path.read_text().splitlines() for path in self.folder.glob("log*")}

    def noted(self, logs=None):
        """The processes of servers."""
        return [line.split()[1] for path, lines in self.logs().items() if logs is None or path in logs
                for line in lines if line.startswith("process")]

    def left(self, noted):
        """Those that live on; they are ended here."""
        until = time.monotonic() + 2
        while any(map(lives, noted)) and time.monotonic() < until:
            time.sleep(0.01)
        left = [process for process in noted if lives(process)]
        for process in left:
            os.kill(int(process), signal.SIGKILL)
        return left

    def start(self, file, *arguments, **more):
        return subprocess.Popen([RUNNER, "run", file, "-i", "question=7", "--allow-servers", "--json", *arguments],
                                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **{"env": self.environment(), **more})

    def result(self, process, begin, patience=25, logs=None):
        try:
            out, said = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            out, said = process.communicate()
            said += f"\nthe runner did not end within {patience} seconds"
        seconds = time.monotonic() - begin
        noted = self.noted(logs)
        return Done(process.returncode, out, said, seconds, len(noted), self.left(noted))

    def go(self, servers, *steps, arguments=("-q",), **more):
        """Runs a workflow whose agent has these steps."""
        before = set(self.logs())
        file = self.workflow(servers, *steps)
        begin = time.monotonic()
        process = self.start(file, *arguments, **more)
        declared = servers.values() if not {"command", "url"} & set(servers) else [servers]
        logs = {pathlib.Path(one["command"][-1]) for one in declared if "command" in one} - before
        return self.result(process, begin, logs=logs)

    def ask(self, servers, tools, patience=25):
        """Runs an agent with a model, which may call the tools."""
        file = self.workflow(servers)
        path = self.folder / file
        agents = f'  asker: {{prompt: "{{{{ question }}}}", tools: [{tools}], max_tokens: 1}}\n'
        text = path.read_text().replace("agents: [reader]", "agents: [asker]")
        path.write_text(text.replace("workflow:", agents + "workflow:"))
        begin = time.monotonic()
        return self.result(self.start(file, "-q"), begin, patience)

    def needs_addresses(self):
        """Baton can be built without libcurl, and has then no HTTP."""
        if "this build of Baton connects to no address" in self.go({"url": "http://127.0.0.1:9/mcp"}).stderr:
            self.skipTest("this build of Baton connects to no address")

    def check_line(self, text):
        """That a terminal may be shown it: one line, and no control characters."""
        odd = [c for c in text if unicodedata.category(c) in ("Cc", "Zl", "Zp") or c in "\ufffe\uffff"]
        self.assertEqual(odd, [], repr(text))

    def check_said(self, done):
        for line in done.stderr.splitlines():
            self.check_line(line)

    def good(self, *arguments, **more):
        done = self.go(*arguments, **more)
        self.assertEqual((done.code, done.left), (0, []), done.stderr)
        self.assertEqual(done.record["state"], "ok")
        return done


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
        for verb in ("validate", "graph", "plan"):
            self.baton(verb, file)
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
        # The pages of the tools have no end: those that came count.
        self.assertEqual(self.good(self.program("endless-pages")).record["servers"][0]["tools"], 1)

    def test_results_that_are_no_results(self):
        for mode in ("no-object", "no-content", "odd-content"):
            with self.subTest(mode=mode):
                done = self.good(self.program(mode), ADD, ADD)
                self.assertLess(done.seconds, self.LIMIT)
                self.assertEqual(done.results[0], done.results[1])
                self.assertEqual(done.results[0][0], mode != "no-object")
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
        self.assertEqual(done.record["servers"][0]["tools"], 5)  # add, any, no_schema, recursive, unknown
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
