#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets a published model call the tools of MCP servers, good ones and ones that hang, die and flood, over stdio and HTTP.

    python tests/published/servers.py --baton build/release/bin/baton --model MODEL.gguf

Prints each call with its result and its time, and what the record says of each server. Exit code 1: a run does not end well, a
call of a good server has no result, or one of a bad server has no error. --model: Qwen2.5-Coder-1.5B-Instruct or larger, which
calls the tool that it is told to call.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/sdk"))
from mcp_servers import HttpServer  # noqa: E402: behind the path

PROGRAM = str(ROOT / "tests/sdk/mcp_servers.py")
# Mode of the server over stdio and over HTTP, and whether a call is to have a result.
MODES = [("good", True), ("hangs-in-call", False), ("dies-in-call", False), ("floods-output", False)]
ADDRESSES = [("json", True), ("events", True), ("hangs-in-call", False), ("status-500", False), ("floods-events", False)]

FILE = """\
version: 1
inputs: {question: string}
models: {main: %s}
mcp: {docs: %s}
defaults: {max_tokens: 80, temperature: 0}
agents:
  caller: {prompt: "{{ question }}", tools: [{mcp: docs, only: [add]}], calls: {max: 2, timeout: 3s}}
workflow: {topology: single, agents: [caller]}
"""
QUESTION = "Call the tool add with a = 17 and b = 25, and tell me its result."


def run(options, folder, server):
    file = folder / "team.yaml"
    file.write_text(FILE % (json.dumps(str(options.model.resolve())), json.dumps(server)))
    begin = time.monotonic()
    done = subprocess.run([options.baton, "run", file, "-i", f"question={QUESTION}", "--allow-servers", "--json", "-q"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout), time.monotonic() - begin


def judged(name, record, seconds, good):
    """Prints a run; returns whether it is as it has to be."""
    agent, server = record["agents"][0], record["servers"][0]
    print(f"{name}: {record['state']} in {seconds:.1f} s; server '{server['title']}', {server['error'] or 'runs to the end'}")
    for call in agent["tools"]:
        print(f"  {call['tool']}({call['arguments']}) in {call['wall_ms']:.0f} ms: {call['result']}")
    print(f"  answer: {agent['output']!r}")
    called = [call for call in agent["tools"] if call["tool"] == "add"]
    results = [call["result"] for call in called if call["ok"]]
    return record["state"] == "ok" and bool(called) and (results == ["42"] * len(called) if good else not results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    options = parser.parse_args()
    options.baton = os.path.abspath(options.baton)
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for mode, good in MODES:
            server = {"command": [sys.executable, "-S", PROGRAM, mode, str(folder / mode)], "timeout": "5s"}
            if not judged(f"stdio {mode}", *run(options, folder, server), good):
                wrong.append(f"stdio {mode}")
        for mode, good in ADDRESSES:
            with HttpServer(mode) as server:
                if not judged(f"HTTP {mode}", *run(options, folder, {"url": server.url, "timeout": "5s"}), good):
                    wrong.append(f"HTTP {mode}")
    print("as it has to be" if not wrong else "wrong: " + ", ".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
