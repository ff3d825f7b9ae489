#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs workflows on llama-server, which this script starts on the loopback (Python package xllamacpp, or a program).

    python3 tests/published/remote.py --bin build/release/bin --models DIR [--model smollm2-135m] [--threads 2]
        [--server BIN/llama-server] [--only PART] [--answer 160] [--repeat 1]

Parts: library (workflows of the library), stream, cancel, restart (the server is killed in mid-run and started again),
many (16 runs at once), chain (four agents that read all before them, with and without prompts sent ahead in turn: first
tokens, wall times, and what the server had in its cache). The answers of chain must be equal, or part where the server
itself gives both tokens nearly the same probability: it rounds differently in other batches. Exit code 1 where something
is not as it should be.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "workflows" / "library"
# Workflows whose agents `choose` are refused; those with tools and data sets have tests of their own.
WORKFLOWS = ["math_single", "math_chain", "math_parallel", "math_star", "math_debate", "extract"]
SLOTS = 4

FOREWORD = " ".join(f"Rule {n}: keep to the facts, and say in plain words what you mean by point {n}." for n in range(1, 7))


def teller(number, name):
    """An agent that reads all before it, and writes as much as it may."""
    parts = "".join(f"\\n\\nPart {n}:\\n{{{{ agent_{who}_current }}}}" for n, who in enumerate(("first", "second", "third")[:number - 1], 1))
    return f"""\
  {name}:
    prompt:
      system: "You tell a long story with others, as teller {number}. {FOREWORD}"
      user: "{{{{ user_question }}}}{parts}\\n\\nWrite part {number}, with many details."
"""


CHAIN = f"""\
version: 1
name: chain
models: {{main: nano}}
defaults: {{max_tokens: 160}}
agents:
{"".join(teller(n, name) for n, name in enumerate(("first", "second", "third", "fourth"), 1))}
workflow: {{topology: chain, agents: [first, second, third, fourth]}}
"""


class Failed(Exception):
    pass


def check(holds, what):
    if not holds:
        raise Failed(what)


def serve(model, port, threads):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.port = port
    params.hostnames = ["127.0.0.1"]
    params.n_parallel = SLOTS
    params.n_ctx = 4096 * SLOTS
    params.n_gpu_layers = 0
    params.warmup = False
    params.verbosity = -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(60)


class Server:
    def __init__(self, options, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.options, self.folder, self.process = options, folder, None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        threads = str(self.options.threads)
        command = [sys.executable, __file__, "--serve", str(self.port), "--model-file", self.options.file, "--threads", threads]
        if self.options.server:
            command = [self.options.server, "-m", self.options.file, "--port", str(self.port), "-np", str(SLOTS), "-c",
                       str(4096 * SLOTS), "-t", threads, "-tb", threads, "--no-warmup"]
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 120
        while True:
            try:
                return self.get("/health")
            except OSError:
                check(self.process.poll() is None and time.monotonic() < end, "the server did not start; see server.log")
                time.sleep(0.1)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def get(self, path, body=None):
        request = urllib.request.Request(self.address + path, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def busy(self):
        return sum(slot["is_processing"] for slot in self.get("/slots"))


class Runner:
    def __init__(self, options, folder):
        self.runner, self.folder = str(pathlib.Path(options.bin).resolve() / "baton"), folder

    def command(self, server, workflow, *arguments):
        return [self.runner, "run", str(workflow), "--set", f"models.main={{endpoint: '{server.address}'}}", "-q", *arguments]

    def run(self, server, workflow, *arguments):
        ran = subprocess.run(self.command(server, workflow, "--json", *arguments), capture_output=True, text=True, timeout=900, cwd=self.folder)
        check(ran.stdout, f"{workflow}: exit code {ran.returncode}: {ran.stderr[-2000:]}")
        return json.loads(ran.stdout)


QUESTION = ["-i", "user_question=How do you boil an egg?"]


def library(options, runner, folder):
    with Server(options, folder) as server:
        for name in WORKFLOWS:
            inputs, limit = QUESTION, ["--set", "defaults.max_tokens=24"]
            if name == "extract":  # its schema needs all the tokens that the workflow gives it
                inputs, limit = ["-i", "message=Two lamps for Anna Berg, please, by Friday."], []
            record = runner.run(server, LIBRARY / f"{name}.yaml", *limit, *inputs)
            check(record["state"] == "ok", f"{name}: {record['error']}")
            check(record["device"] == "server", f"{name}: it ran on {record['device']}")
            check(all(turn["output"] for turn in record["agents"] if turn["state"] == "ok"), f"{name}: an answer is empty")
            print(f"library: {name}: {record['state']}, {len(record['agents'])} turns, "
                  f"{sum(turn['output_tokens'] for turn in record['agents'])} tokens")
        refused = subprocess.run(runner.command(server, LIBRARY / "router.yaml", *QUESTION), capture_output=True, text=True, cwd=folder)
        check(refused.returncode != 0 and "'choose' needs the probabilities" in refused.stderr, f"router was not refused: {refused.stderr}")


def stream(options, runner, folder):
    with Server(options, folder) as server:
        ran = subprocess.run(runner.command(server, LIBRARY / "math_single.yaml", "--set", "defaults.max_tokens=24", "--events", "ndjson",
                                            *QUESTION), capture_output=True, text=True, timeout=600, cwd=folder)
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        tokens = [event for event in events if event.get("type") == "token"]
        finished = [event for event in events if event.get("type") == "agent_finished"]
        check(len(tokens) > 3, f"{len(tokens)} tokens were streamed: {ran.stdout[:500]} {ran.stderr[:500]}")
        text = "".join(token["text"] for token in tokens)
        check(text == finished[0]["record"]["output"], f"the tokens are not the answer: {text}")
        print(f"stream: {len(tokens)} tokens")


def cancel(options, runner, folder):
    with Server(options, folder) as server:
        process = subprocess.Popen(runner.command(server, LIBRARY / "math_single.yaml", "--set", "defaults.max_tokens=3000", "--events",
                                                  "ndjson", *QUESTION), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)
        for line in process.stdout:
            if '"token"' in line:
                break
        check(server.busy() == 1, "the server does not decode")
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        code = process.wait(60)
        check(code != 0, "a run that was cancelled ended well")
        end = time.monotonic() + 20
        while server.busy() and time.monotonic() < end:
            time.sleep(0.1)
        check(server.busy() == 0, "the server goes on decoding for nobody")
        print(f"cancel: exit code {code}, and the server is idle")


def restart(options, runner, folder):
    """The server is killed while the second agent decodes; its attempt fails, and the next one reaches the new server."""
    (folder / "chain.yaml").write_text(CHAIN.replace("retry: 1", "temperature: 0"), encoding="utf-8")
    for attempts in (4, 1):
        with Server(options, folder) as server:
            retry = [part for name in ("first", "second", "third", "fourth")
                     for part in ("--set", f"agents.{name}.retry={{attempts: {attempts}, backoff: 500ms}}")]
            process = subprocess.Popen(runner.command(server, "chain.yaml", *retry, "--events", "ndjson", *QUESTION), stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, cwd=folder)
            for line in process.stdout:
                event = json.loads(line)
                if event.get("type") == "token" and event.get("agent") == "second":
                    break
            server.kill()
            time.sleep(0.5)
            server.start()
            out, error = process.communicate(timeout=600)
            said = out + error
            if attempts > 1:
                check(process.returncode == 0, f"the run did not survive: {said[-2000:]}")
                check("attempt 1 of 4 failed" in said, f"nothing failed: {said[-2000:]}")
            else:
                check(process.returncode != 0 and server.address in said, f"the error names no server: {said[-2000:]}")
            print(f"restart: {attempts} attempts: exit code {process.returncode}")


def many(options, runner, folder):
    with Server(options, folder) as server:
        command = runner.command(server, LIBRARY / "math_chain.yaml", "--json", "--set", "defaults.max_tokens=8", *QUESTION)
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) for _ in range(16)]
        answers = []
        for process in processes:
            out, error = process.communicate(timeout=1800)
            check(process.returncode == 0, f"exit code {process.returncode}: {error[-2000:]}")
            answers.append(json.loads(out)["outputs"]["answer"])
        same = answers.count(max(set(answers), key=answers.count))
        print(f"many: 16 runs of 4 agents on {SLOTS} slots ended well, {same} with the same answer")


# Nats. For the same prompt in one piece and in pieces of 16 tokens the server itself gives log probabilities that differ
# by up to 0.44 (SmolLM2) and 0.21 (Qwen2.5-Coder-0.5B), so that it may exchange two tokens that are nearer.
NEAR = 0.45
STORY = ["-i", "user_question=A story about a lighthouse keeper who finds a map."]


def check_answers(server, folder, records):
    """Later agents read other texts once an answer is another one."""

    def ids_of(text):
        return server.get("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]

    for mine, theirs in zip(*(records[relay]["agents"] for relay in ("prefix", "lockstep"))):
        if mine["output"] == theirs["output"]:
            continue
        common = os.path.commonprefix([ids_of(mine["output"]), ids_of(theirs["output"])])
        prompt = ids_of((folder / "prefix" / "prompts" / f"{mine['agent']}.txt").read_text(encoding="utf-8"))
        check(abs(len(prompt) - mine["prompt_tokens"]) < 8, f"{mine['agent']}: its prompt has {len(prompt)} tokens")
        answer = server.get("/completion", {"prompt": prompt + common, "n_predict": 1, "n_probs": 2, "temperature": 0.0,
                                            "cache_prompt": False})
        first, second = (one["logprob"] for one in answer["completion_probabilities"][0]["top_logprobs"])
        print(f"{mine['agent']}: the answers part after {len(common)} tokens, where two are {first - second:.3f} nats apart")
        check(first - second < NEAR, f"{mine['agent']}: {mine['output']!r} and {theirs['output']!r}")
        return mine["agent"]
    return None


def chain(options, runner, folder):
    (folder / "chain.yaml").write_text(CHAIN.replace("160", str(options.answer)), encoding="utf-8")
    firsts, walls = [], []
    for repeat in range(options.repeat):
        records = {}
        for relay in ("prefix", "lockstep"):
            with Server(options, folder) as server:  # with an empty cache
                place = folder / relay
                shutil.rmtree(place, ignore_errors=True)
                records[relay] = runner.run(server, "chain.yaml", "--set", f"relay={relay}", "--record", place, *STORY)
                check(records[relay]["state"] == "ok", f"{relay}: {records[relay]['error']}")
                if relay == "lockstep":
                    parted = check_answers(server, folder, records)
        print(f"{'agent':8} {'prompt':>7} {'in cache: prefix':>17} {'lockstep':>9} {'of it ahead':>12} {'first token: prefix':>20} {'lockstep':>9}")
        for before, ahead in zip(records["prefix"]["agents"], records["lockstep"]["agents"]):
            kv = ahead["kv"]
            print(f"{ahead['agent']:8} {ahead['prompt_tokens']:7} {before['kv']['reused']:17} {kv['reused'] + kv['ahead']:9} {kv['ahead']:12} "
                  f"{before['ttft_ms']:17.0f} ms {ahead['ttft_ms']:6.0f} ms")
        for turn in records["lockstep"]["agents"][1:]:
            reasons = [slot["reason"] for slot in turn["slots"] if slot["ahead_tokens"] > 0]
            check(reasons and all("exact up to the server's numerics" in reason for reason in reasons), f"{turn['agent']}: {turn['slots']}")
        check(all(turn["kv"]["ahead"] == 0 for turn in records["prefix"]["agents"]), "prefix sent prompts ahead")
        firsts.append(ratio(records, lambda record: sum(turn["ttft_ms"] for turn in record["agents"][1:])))
        walls.append(ratio(records, lambda record: record["wall_ms"]))
        print(f"chain: first tokens of the readers {firsts[-1]:.2f} x, wall {walls[-1]:.2f} x" + (f"; other texts after {parted}" if parted else ""))
    print(f"chain: medians of {options.repeat}: first tokens {statistics.median(firsts):.2f} x, wall {statistics.median(walls):.2f} x")


def ratio(records, of):
    return of(records["lockstep"]) / of(records["prefix"])


PARTS = {"library": library, "stream": stream, "cancel": cancel, "restart": restart, "many": many, "chain": chain}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--models", default=os.environ.get("BATON_TEST_MODELS", "."))
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--server", help="a llama-server; without it that of the package xllamacpp")
    parser.add_argument("--answer", type=int, default=160, help="tokens of each answer of chain, at most")
    parser.add_argument("--repeat", type=int, default=1, help="pairs of runs of chain")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--model-file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.model_file, options.serve, options.threads)
    options.file = str(pathlib.Path(options.models).resolve() / f"{options.model}.gguf")
    failed = 0
    for name in options.only or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                PARTS[name](options, Runner(options, pathlib.Path(folder)), pathlib.Path(folder))
            except (Failed, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED: {name}: {error}", file=sys.stderr)
    print(f"remote: {failed} of {len(options.only or PARTS)} parts failed" if failed else "remote: ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
