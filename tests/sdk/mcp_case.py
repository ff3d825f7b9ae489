# SPDX-License-Identifier: Apache-2.0
"""What tests of MCP servers share: a workflow with servers, a run of it, and what is left behind."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unicodedata

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
  reader: {{tools: {steps}, calls: {{on_error: tell}}}}
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
