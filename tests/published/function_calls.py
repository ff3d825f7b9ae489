#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Right calls of tools, of 100 tasks (function_calls/tasks.jsonl), by one model in Baton and in llama.cpp's server.

    python tests/published/function_calls.py --model qwen2.5-coder-1.5b.gguf [--baton build/release/bin/baton]
        [--peer] [--limit N] [--threads 2] [--verbose] [--json FILE]

Every task is one question to a model that is offered 1 to 6 tools, greedy, with at most 256 tokens. Only the model's
first output counts. A task is right when the output calls exactly the expected tools with exactly the expected
arguments: numbers by value, texts letter by letter, lists in order, several calls in any order, `{"any": [...]}` one of
these values, null: absent. No call is right where none is expected.

Baton answers twice, with calls decoded under the tools' schemas and free. --peer: the package xllamacpp answers the same
questions on the same file, through its server's chat completions with `tools` and its defaults. Its answers are judged
twice: by the calls that the server returns, and also by calls read off its text, where that is nothing but calls in a
block or alone, which Baton reads as calls and the server returns as text.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
TOOLS = json.loads((HERE / "function_calls/tools.json").read_text())
TASKS = [json.loads(line) for line in (HERE / "function_calls/tasks.jsonl").read_text().splitlines()]
MAX_TOKENS = 256


def same(expected, found, absent=False):
    if isinstance(expected, dict) and set(expected) == {"any"}:
        return any(absent if one is None else not absent and same(one, found) for one in expected["any"])
    if absent:
        return False
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = set(expected) | set(found)
        return all(key in expected and same(expected[key], found.get(key), key not in found) for key in keys)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    return expected == found


def right(task, calls):
    """calls: [(name, arguments)]; arguments that are no object are None."""
    left = list(calls)
    for one in task["expect"]:
        fits = [call for call in left if call[0] == one["name"] and same(one["arguments"], call[1])]
        if not fits:
            return False
        left.remove(fits[0])
    return not left


def arguments_of(text):
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def workflow(model, tasks, enforce):
    names = sorted({name for task in tasks for name in task["tools"]})
    return {
        "version": 1,
        "inputs": {},
        "models": {"main": str(model)},
        "relay": "exact",
        "defaults": {"max_tokens": MAX_TOKENS},
        "tools": {name: {**TOOLS[name], "python": "print('done')"} for name in names},
        "agents": {
            task["id"]: {
                "prompt": task["question"],
                "tools": [{"call": name} for name in task["tools"]],
                "calls": {"max": 8, "direct": True, "enforce": enforce},
            }
            for task in tasks
        },
        "workflow": {"topology": "parallel", "max_parallel": 1},
        "outputs": {"none": ""},
    }


def by_baton(baton, model, tasks, enforce, threads):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "tasks.yaml"
        file.write_text(json.dumps(workflow(model, tasks, enforce)))  # JSON is YAML
        done = subprocess.run([baton, "run", file, "--json", "--threads", str(threads)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = {}
    for agent in json.loads(done.stdout)["agents"]:
        uses = [use for use in agent["tools"] if use["generation"] == 1]
        found[agent["agent"]] = [(use["tool"], arguments_of(use["arguments"])) for use in uses]
    return found


# The peer's process: it is killed when it is no longer needed, since its server ignores other ways to be ended.

def serve(model, threads):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = 4096
    params.n_parallel = 1
    params.warmup = False
    params.use_jinja = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity = -1
    server = xllamacpp.Server(params)
    for line in sys.stdin:
        request = urllib.request.Request(server.listening_address + "/v1/chat/completions", line.encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                found = json.load(answer)["choices"][0]["message"]
        except urllib.error.HTTPError as error:  # an output that it cannot read as what its grammar allows
            found = {"content": "", "error": error.read().decode()}
        print(json.dumps(found), file=answers, flush=True)
    os._exit(0)


def bare_calls(text):
    """The calls of an output that is nothing but calls, as Baton reads them."""
    text = (text or "").strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json").strip()
    decoder, calls = json.JSONDecoder(), []
    try:
        while text:
            value, end = decoder.raw_decode(text)
            calls += value if isinstance(value, list) else [value]
            text = text[end:].strip(" \t\r\n,")
        return [(call["name"], call.get("arguments", {})) for call in calls if call["name"] in TOOLS]
    except (ValueError, TypeError, KeyError):
        return []


def by_peer(model, tasks, threads):
    process = subprocess.Popen([sys.executable, __file__, "--serve", str(model), str(threads)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    strict, lenient = {}, {}
    try:
        for task in tasks:
            tools = [{"type": "function", "function": {"name": name, **TOOLS[name]}} for name in task["tools"]]
            body = {"messages": [{"role": "user", "content": task["question"]}], "tools": tools, "temperature": 0.0,
                    "max_tokens": MAX_TOKENS, "parallel_tool_calls": True}
            process.stdin.write(json.dumps(body) + "\n")
            process.stdin.flush()
            message = json.loads(process.stdout.readline())
            calls = [(call["function"]["name"], arguments_of(call["function"]["arguments"]))
                     for call in message.get("tool_calls") or []]
            strict[task["id"]] = calls
            lenient[task["id"]] = calls or bare_calls(message.get("content"))
    finally:
        process.kill()
    return {"llama-server": strict, "llama-server, bare calls read": lenient}


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2], int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--baton", default="build/release/bin/baton")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--limit", type=int, default=len(TASKS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="print the tasks that are not right")
    parser.add_argument("--json", help="a file for all calls")
    options = parser.parse_args()
    tasks = TASKS[: options.limit]
    found = {"Baton, constrained": by_baton(options.baton, options.model, tasks, True, options.threads),
             "Baton, free": by_baton(options.baton, options.model, tasks, False, options.threads)}
    if options.peer:
        found.update(by_peer(options.model, tasks, options.threads))
    kinds = {"one call": lambda n: n == 1, "two calls": lambda n: n == 2, "no call": lambda n: n == 0}
    print(f"{options.model.name}, right of {len(tasks)} tasks\n")
    print("| | all | " + " | ".join(kinds) + " |\n| --- | --- " + "| --- " * len(kinds) + "|")
    for name, calls in found.items():
        counts = []
        for fits in [lambda n: True, *kinds.values()]:
            of_kind = [task for task in tasks if fits(len(task["expect"]))]
            counts.append(f"{sum(right(task, calls[task['id']]) for task in of_kind)} of {len(of_kind)}")
        print(f"| {name} | " + " | ".join(counts) + " |")
    if options.verbose:
        for task in tasks:
            for name, calls in found.items():
                if not right(task, calls[task["id"]]):
                    print(f"{task['id']} {name}: {task['question']}\n  expected {task['expect']}\n  found    {calls[task['id']]}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
