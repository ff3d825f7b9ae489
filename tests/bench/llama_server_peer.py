#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one team on Baton and its prompts on llama-server, in turn, on the same GGUF file, and prints a Markdown table.

    python3 tests/bench/llama_server_peer.py --server BIN/llama-server --model FILE --dataset code.jsonl
        [--workflow tests/published/teams/code.yaml] [--baton build/release/bin/baton] [--questions 8] [--threads 2]
        [--relay auto,prefix] [--context 4096] [--json FILE]

For each question, each method of --relay runs the team in a process of its own. Then each server answers the prompts of
the last of these runs, one after another, with as many tokens as the team wrote (without an end token): the same
prompts and the same answer lengths, greedy. Servers run all the time, and have answered one prompt before:

  one slot           -np 1: each prompt continues what it has in common with the one before
  4 slots, unified   -np 4 --kv-unified: the slot with the longest common beginning
  one slot, shifted  -np 1 --cache-reuse 64: pieces of 64 tokens and more are reused elsewhere, shifted (approximate)
  one slot, drafts   -np 1 --spec-type ngram-simple: drafts from earlier text, as Baton has them

First token is the mean over the agents that read others, from the end of the text before to the first token; Baton's
wall time does not include loading, as the servers' does not. Workflows whose agents run one after another only. Baton's
ratios are the server's time over Baton's, medians over the questions, next to the best server of each column.

The script refuses to start while other processes use the machine; --anyway starts nevertheless, to try it.
"""

import argparse
import contextlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from llama_peer import Failed, refuse_busy_machine, run  # noqa: E402

SERVERS = {
    "one slot": ["-np", "1"],
    "4 slots, unified": ["-np", "4", "--kv-unified"],
    "one slot, shifted": ["-np", "1", "--cache-reuse", "64"],
    "one slot, drafts": ["-np", "1", "--spec-type", "ngram-simple"],
}
START_SECONDS = 300


class Server:
    def __init__(self, options, arguments, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.log = open(folder / f"server-{self.address.rsplit(':', 1)[1]}.log", "wb")
        self.process = subprocess.Popen(
            [options.server, "-m", options.model, "-t", str(options.threads), "-ngl", "0", "-c", str(options.context), "--host",
             "127.0.0.1", "--port", self.address.rsplit(":", 1)[1], *arguments],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                said = pathlib.Path(self.log.name).read_text(errors="replace")[-1500:].strip()
                raise Failed(f"{options.server} {' '.join(arguments)}: did not start\n{said}")
            time.sleep(0.2)

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.address + "/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def complete(self, prompt, tokens):
        """Returns the seconds until the first token, until the end, and the numbers of prompt and of cached tokens."""
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": True, "stream": True}
        request = urllib.request.Request(self.address + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
        begin, first, last = time.monotonic(), None, {}
        with urllib.request.urlopen(request) as stream:
            for line in stream:
                if not line.startswith(b"data: "):
                    continue
                last = json.loads(line[len(b"data: "):])
                if first is None:
                    first = time.monotonic() - begin
                if last.get("stop"):
                    break
        if first is None or not last.get("stop"):
            raise Failed(f"{self.address}: the answer has no end: {last}")
        timings = last["timings"]
        return first, time.monotonic() - begin, timings["prompt_n"] + timings["cache_n"], timings["cache_n"]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def turn_name(turn):
    return turn["turn"]


def run_team(options, method, question, folder):
    """Returns the run's record and the prompts of its turns."""
    inputs, record = folder / "inputs.json", folder / f"record-{time.monotonic_ns()}"
    inputs.write_text(json.dumps(question["inputs"]), encoding="utf-8")
    ran = run([options.baton, "run", options.workflow, "--model", options.model, "--threads", options.threads, "--device", "cpu",
               "--relay", method, "--input-file", inputs, "--record", record, "--json", "-q"])
    found = json.loads(ran.stdout)
    prompts = [(record / "prompts" / f"{turn_name(turn)}.txt").read_text(encoding="utf-8") for turn in found["agents"]]
    return found, prompts


def summary(firsts, wall, tokens):
    return {"first_ms": 1000 * statistics.mean(firsts), "wall_s": wall, "tokens": tokens}


def measure(options, questions, servers, folder):
    """Returns {configuration: [summary of each question]}."""
    found = {}
    for number, question in enumerate(questions):
        for method in options.relay:
            print(f"question {number + 1} of {len(questions)}: {method}", file=sys.stderr, flush=True)
            record, prompts = run_team(options, method, question, folder)
            turns = record["agents"]
            found.setdefault(f"Baton, {method}", []).append(
                summary([turn["ttft_ms"] / 1000 for turn in turns[1:]], record["wall_ms"] / 1000, sum(turn["output_tokens"] for turn in turns)))
        for name, server in servers.items():
            print(f"question {number + 1} of {len(questions)}: {name}", file=sys.stderr, flush=True)
            firsts, wall = [], 0.0
            for turn, prompt in zip(turns, prompts):
                first, seconds, tokens, _ = server.complete(prompt, turn["output_tokens"])
                if abs(tokens - turn["prompt_tokens"]) > 2 + 0.01 * turn["prompt_tokens"]:  # answers are cut into tokens anew
                    raise Failed(f"{name}: {tokens} prompt tokens instead of {turn['prompt_tokens']}")
                firsts.append(first)
                wall += seconds
            found.setdefault(name, []).append(summary(firsts[1:], wall, sum(turn["output_tokens"] for turn in turns)))
    return found


def table(found):
    """Ratios are medians over questions of the best server's time by Baton's."""
    best = {key: min((name for name in found if not name.startswith("Baton")),
                     key=lambda name: statistics.median(row[key] for row in found[name])) for key in ("first_ms", "wall_s")}

    def ratio(rows, key):
        return statistics.median(other[key] / row[key] for other, row in zip(found[best[key]], rows))

    out = ["| configuration | first token, ms | wall, s | tokens written | first token, earlier by | wall, shorter by |",
           "| --- | --- | --- | --- | --- | --- |"]
    for name, rows in found.items():
        medians = [statistics.median(row[key] for row in rows) for key in ("first_ms", "wall_s")]
        ratios = [f"{ratio(rows, key):.2f}" for key in ("first_ms", "wall_s")] if name.startswith("Baton") else ["", ""]
        out.append(f"| {name} | {medians[0]:,.0f} | {medians[1]:.1f} | {sum(row['tokens'] for row in rows):,} | {ratios[0]} | {ratios[1]} |")
    return "\n".join(out)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=pathlib.Path, required=True, metavar="FILE", help="llama-server, a release build")
    parser.add_argument("--model", type=pathlib.Path, required=True, metavar="FILE", help="the .gguf file that both open")
    parser.add_argument("--dataset", type=pathlib.Path, required=True, metavar="FILE", help="lines of `baton-lab eval`'s datasets")
    parser.add_argument("--workflow", type=pathlib.Path, default=pathlib.Path("tests/published/teams/code.yaml"), metavar="FILE")
    parser.add_argument("--baton", type=pathlib.Path, default=pathlib.Path("build/release/bin/baton"), metavar="BIN")
    parser.add_argument("--questions", type=int, default=8, metavar="N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--relay", default="auto,prefix", metavar="A,B", help="methods of Baton; the last one's prompts go to the servers")
    parser.add_argument("--context", type=int, default=4096, metavar="N", help="tokens that a server has room for")
    parser.add_argument("--max-load", type=float, default=0.15, metavar="CORES")
    parser.add_argument("--anyway", action="store_true", help="start on a busy machine too")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write every value")
    options = parser.parse_args()
    options.relay = options.relay.split(",")
    for path in (options.server, options.model, options.dataset, options.workflow, options.baton):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    options.server, options.model, options.baton = (path.resolve() for path in (options.server, options.model, options.baton))
    if options.questions < 1 or options.threads < 1:
        parser.error("--questions and --threads: expected 1 or more")
    return options


def main():
    options = parse()
    refuse_busy_machine(options)
    with options.dataset.open(encoding="utf-8") as lines:
        questions = [json.loads(line) for line in lines if line.strip()][:options.questions]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as ends:
        folder, servers = pathlib.Path(name), {}
        for server, arguments in SERVERS.items():
            servers[server] = Server(options, arguments, folder)
            ends.callback(servers[server].stop)
            servers[server].complete("A first prompt that is not measured.", 8)
        found = measure(options, questions, servers, folder)
    print(f"{options.model.name}, {options.workflow.stem}, {len(questions)} questions, {options.threads} threads\n")
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps({"schema": 1, "model": options.model.name, "configurations": found}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(str(error))
