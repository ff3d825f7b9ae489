#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Baton and llama.cpp on the same GGUF file, in turn, and prints a Markdown table of medians and ratios.

    python3 tests/bench/llama_peer.py --llama-bin DIR --model FILE [--baton build/release/bin/baton]
        [--pairs 5] [--threads 2] [--only prefill,decode,batch,load,memory] [--depths 0,1024,4096]
        [--sequences 1,4,8] [--behind 512] [--json FILE]

What is measured, in pairs of runs (Baton, llama.cpp, Baton, llama.cpp, ...), each a process of its own:

  prefill  tokens/s of prompts of 512 and 2,048 tokens              baton-lab bench --prefill     llama-bench -p
  decode   tokens/s of one sequence behind 0, 1,024 and 4,096       baton-lab bench --decode      llama-bench -n 32 -d
           tokens; llama.cpp decodes 32 tokens from there on, and
           Baton's step is measured in the middle of them
  batch    tokens/s of 1, 4 and 8 sequences behind --behind tokens  baton-lab bench --decode      llama-batched-bench
  load     seconds from the start of the process to its end, for    baton run                 llama-bench -p -n 0
           the first token of a short prompt; file in page cache
  memory   peak resident memory (ru_maxrss) of a process that       baton run                 llama-bench -pg
           answers a prompt of about 512 tokens with 32 tokens

llama.cpp must be a release build for this machine (-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON), and so must Baton
(preset release). Before the pairs one run of each is made that does not count: it fills the page cache, finds whether
llama.cpp is faster with flash attention on or off for that line, and leaves lines out whose tokens do not fit the
model's context.

The times of a busy machine mean nothing: the script refuses to start while other processes use more CPU than
--max-load cores, and marks each line during whose runs they did. --anyway starts nevertheless, to try the script.
A ratio is Baton's median over llama.cpp's: above 1 is better for tokens/s, below 1 for seconds and bytes.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOPICS = ("prefill", "decode", "batch", "load", "memory")
DECODED = 32   # tokens of each measurement of llama.cpp's decoding
ATTEMPTS = 8   # llama-batched-bench prints from a thread of its own, which may not have printed when the process ends
WORKFLOW = """\
version: 1
name: one_prompt
inputs:
  text: {type: string, required: true}
models: {main: {path: %s}}
defaults: {max_tokens: %d, temperature: 0}
relay: {method: full}
agents:
  writer: {prompt: {user: "{{ text }}"}}
workflow: {topology: single, agents: [writer]}
outputs: {answer: "{{ agent_writer_current }}"}
"""


class Failed(Exception):
    pass


@dataclasses.dataclass
class Ran:
    stdout: str
    seconds: float
    peak_bytes: int
    others: float  # cores that other processes used meanwhile


@dataclasses.dataclass
class Line:
    """One line of the table; run(pair) functions return the value."""
    topic: str
    what: str
    unit: str
    baton: object
    llama: object            # takes "on" or "off": flash attention
    more_is_better: bool = True
    flash: str = "on"
    values: dict = dataclasses.field(default_factory=lambda: {"baton": [], "llama": []})
    others: float = 0.0


def busy_seconds():
    """CPU seconds of the machine that were not idle, with those stolen by its host."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def idle_load(seconds=2.0):
    begin = busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - begin) / seconds


def run(command, environment=None):
    """Runs a program to its end. Raises Failed with what it said."""
    command = [str(word) for word in command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        busy, begin = busy_seconds(), time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=environment)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        others = (busy_seconds() - busy - usage.ru_utime - usage.ru_stime) / max(seconds, 0.05)
        out.seek(0), errors.seek(0)
        said = errors.read().decode(errors="replace")
        if process.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit code {process.returncode}\n{said[-1500:].strip()}")
        return Ran(out.read().decode(errors="replace"), seconds, usage.ru_maxrss * 1024, max(others, 0.0))


class Baton:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.prompt_tokens = {}

    def bench(self, *arguments):
        options = self.options
        ran = run([options.baton.with_name("baton-lab"), "bench", "--model", options.model, "--methods", "none", "--threads", options.threads,
                   "--device", "cpu", "--dtype", options.dtype, "--activations", options.activations, "--json", "-q", *arguments])
        return json.loads(ran.stdout), ran

    def prefill(self, tokens):
        found, ran = self.bench("--prefill", tokens, "--decode", "1x1")
        return found["prefill"][0]["tokens_per_s"], ran

    def decode(self, rows, depth):
        found, ran = self.bench("--prefill", 1, "--decode", f"{rows}x{depth}")
        return found["decode"][0]["tokens_per_s"], ran

    def answer(self, words, tokens):
        """The prompt is as many words; most tokenizers make one token of each, and the chat template adds some."""
        workflow = self.folder / f"answer_{words}_{tokens}.yaml"
        workflow.write_text(WORKFLOW % (json.dumps(str(self.options.model)), tokens), encoding="utf-8")
        ran = run([self.options.baton, "run", workflow, "--input", "text=" + " ".join(["the"] * words), "--threads",
                   self.options.threads, "--device", "cpu", "--json"])
        self.prompt_tokens[words] = json.loads(ran.stdout)["agents"][0]["prompt_tokens"]
        return ran


class Llama:
    def __init__(self, options):
        self.options = options
        self.environment = {**os.environ, "LD_LIBRARY_PATH": f"{options.llama_bin}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    def program(self, name, *arguments):
        return run([self.options.llama_bin / name, "-m", self.options.model, "-t", self.options.threads, *arguments],
                   self.environment)

    def bench(self, flash, *arguments):
        ran = self.program("llama-bench", "-fa", flash, "-r", 1, "-ngl", 0, "-o", "json", *arguments)
        return json.loads(ran.stdout), ran

    def prefill(self, flash, tokens):
        found, ran = self.bench(flash, "-p", tokens, "-n", 0)
        return found[0]["avg_ts"], ran

    def decode(self, flash, depth):
        found, ran = self.bench(flash, "-p", 0, "-n", DECODED, "-d", depth)
        return found[0]["avg_ts"], ran

    def batch(self, flash, rows):
        behind = self.options.behind
        room = -(-(behind + DECODED) // 256) * 256  # of a sequence; otherwise contexts that are rounded down leave sizes out
        for _ in range(ATTEMPTS):
            ran = self.program("llama-batched-bench", "-fa", flash, "-ngl", 0, "-c", rows * room, "-npp", behind, "-ntg", DECODED,
                               "-npl", rows, "--output-format", "jsonl")
            lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
            if lines:
                return lines[-1]["speed_tg"], ran
        raise Failed(f"llama-batched-bench printed no measurement in {ATTEMPTS} runs")

    def load(self, flash, tokens):
        _, ran = self.bench(flash, "-p", tokens, "-n", 0, "--no-warmup")
        return ran.seconds, ran

    def memory(self, flash, tokens):
        _, ran = self.bench(flash, "-p", 0, "-n", 0, "-pg", f"{tokens},{DECODED}", "--no-warmup")
        return ran.peak_bytes / 2**20, ran


def lines_of(baton, llama, options):
    short, long = 4, 480  # words
    lines = []
    for tokens in (512, 2048):
        lines.append(Line("prefill", f"prefill of {tokens:,} tokens", "tokens/s", lambda n=tokens: baton.prefill(n),
                          lambda flash, n=tokens: llama.prefill(flash, n)))
    for depth in options.depths:
        lines.append(Line("decode", f"decode behind {depth:,} tokens", "tokens/s", lambda d=depth: baton.decode(1, d + DECODED // 2),
                          lambda flash, d=depth: llama.decode(flash, d)))
    for rows in options.sequences:
        lines.append(Line("batch", f"decode of {rows} sequence{'s' if rows > 1 else ''} behind {options.behind}", "tokens/s",
                          lambda n=rows: baton.decode(n, options.behind + DECODED // 2), lambda flash, n=rows: llama.batch(flash, n)))

    def seconds(words):
        ran = baton.answer(words, 1)
        return ran.seconds, ran

    def mebibytes(words):
        ran = baton.answer(words, DECODED)
        return ran.peak_bytes / 2**20, ran

    lines.append(Line("load", "start to first token and end", "s", lambda: seconds(short),
                      lambda flash: llama.load(flash, baton.prompt_tokens[short]), False))
    lines.append(Line("memory", "peak memory", "MiB", lambda: mebibytes(long),
                      lambda flash: llama.memory(flash, baton.prompt_tokens[long]), False))
    return [line for line in lines if line.topic in options.topics]


def prepare(line):
    """Runs that do not count. Returns why the line is left out, or nothing."""
    try:
        line.baton()
    except Failed as error:
        if "the context of" in str(error):
            return "the model's context is shorter"
        raise
    found = {flash: line.llama(flash)[0] for flash in ("on", "off")}
    line.flash = (max if line.more_is_better else min)(found, key=found.get)
    return None


def measure(lines, options):
    for pair in range(options.pairs):
        for line in lines:
            print(f"pair {pair + 1} of {options.pairs}: {line.what}", file=sys.stderr, flush=True)
            for side, function in (("baton", line.baton), ("llama", lambda: line.llama(line.flash))):
                value, ran = function()
                line.values[side].append(value)
                line.others = max(line.others, ran.others)


def digits(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def spread(values):
    return f"{digits(statistics.median(values))} ({digits(min(values))} to {digits(max(values))})"


def ratio(line):
    return statistics.median(line.values["baton"]) / statistics.median(line.values["llama"])


def table(lines, options):
    out = ["| measurement | unit | Baton | llama.cpp | ratio | flash attention |", "| --- | --- | --- | --- | --- | --- |"]
    for line in lines:
        mark = " (!)" if line.others > options.max_load else ""
        out.append(f"| {line.what}{mark} | {line.unit} | {spread(line.values['baton'])} | {spread(line.values['llama'])} | "
                   f"{ratio(line):.2f} | {line.flash} |")
    return "\n".join(out)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bin", type=pathlib.Path, required=True, metavar="DIR",
                        help="folder of llama-bench and llama-batched-bench")
    parser.add_argument("--model", type=pathlib.Path, required=True, metavar="FILE", help="the .gguf file that both open")
    parser.add_argument("--baton", type=pathlib.Path, default=pathlib.Path("build/release/bin/baton"), metavar="BIN")
    parser.add_argument("--pairs", type=int, default=5, help="measured pairs; fewer than 5 are for trying the script")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="bf16", help="--dtype of baton-lab bench")
    parser.add_argument("--activations", default="f32", help="--activations of baton-lab bench")
    parser.add_argument("--only", default=",".join(TOPICS), metavar="A,B", help="of " + ", ".join(TOPICS))
    parser.add_argument("--depths", default="0,1024,4096", metavar="N,N", help="tokens that `decode` stands behind")
    parser.add_argument("--sequences", default="1,4,8", metavar="N,N", help="sequences that `batch` decodes together")
    parser.add_argument("--behind", type=int, default=512, metavar="N", help="tokens that each sequence of `batch` has")
    parser.add_argument("--max-load", type=float, default=0.15, metavar="CORES",
                        help="CPU that other processes may use (0.15 of a core)")
    parser.add_argument("--anyway", action="store_true", help="start on a busy machine too")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write every value")
    options = parser.parse_args()
    options.topics = options.only.split(",")
    for topic in options.topics:
        if topic not in TOPICS:
            parser.error(f"--only: unknown '{topic}'; expected some of {', '.join(TOPICS)}")
    for name in ("depths", "sequences"):
        given = getattr(options, name)
        if not all(number.isdecimal() for number in given.split(",")):
            parser.error(f"--{name}: {given}: expected whole numbers, as 0,1024")
        setattr(options, name, [int(number) for number in given.split(",")])
    if min(options.pairs, options.threads, options.behind, *options.sequences) < 1:
        parser.error("--pairs, --threads, --sequences and --behind: expected 1 or more")
    programs = ["llama-bench"] + ["llama-batched-bench"] * ("batch" in options.topics)
    for path in (*(options.llama_bin / name for name in programs), options.baton, options.model):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    options.llama_bin, options.baton, options.model = (path.resolve() for path in (options.llama_bin, options.baton, options.model))
    return options


def refuse_busy_machine(options):
    load = idle_load()
    if load > options.max_load:
        print(f"other processes use {load:.2f} cores; at most {options.max_load} are allowed (--max-load)", file=sys.stderr)
        if not options.anyway:
            sys.exit(3)


def main():
    options = parse()
    refuse_busy_machine(options)
    with tempfile.TemporaryDirectory() as folder:
        lines, left_out = [], []
        for line in lines_of(Baton(options, pathlib.Path(folder)), Llama(options), options):
            print(f"preparing: {line.what}", file=sys.stderr, flush=True)
            why = prepare(line)
            if why:
                left_out.append((line.what, why))
            else:
                lines.append(line)
        measure(lines, options)
    print(f"{options.model.name}, {options.threads} threads, medians of {options.pairs} pairs (smallest to largest)\n")
    print(table(lines, options))
    for what, why in left_out:
        print(f"\nLeft out: {what}: {why}.")
    busy = [line.what for line in lines if line.others > options.max_load]
    if busy:
        print(f"\n(!) Other processes used more than {options.max_load} cores during these runs: the times are not to be reported.")
    if options.json:
        options.json.write_text(json.dumps({"schema": 1, "model": options.model.name, "threads": options.threads, "lines": [
            {"what": line.what, "unit": line.unit, "flash_attention": line.flash, "other_cores": line.others, **line.values}
            for line in lines]}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(str(error))
