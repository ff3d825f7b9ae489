#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the peak memory of `baton run` on published GGUF files.

    python tests/published/memory.py --bin build/release/bin --models DIR [--only NAME] [--threads 2]

Each file answers a short prompt and one of about 500 tokens, 32 tokens each, in a process of its own. At its peak the
process may need the file, the KV cache that the run reports, and 15 % of the file or 64 MiB, whichever is more. Exit code 1:
some file needs more.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MIB = 1 << 20
WORKFLOW = """
version: 1
name: memory
inputs: {{text: {{type: string, required: true}}}}
models: {{main: {{path: {model}}}}}
defaults: {{max_tokens: 32, temperature: 0}}
relay: {{method: full}}
agents: {{writer: {{prompt: {{user: "{{{{ text }}}}"}}}}}}
workflow: {{topology: single, agents: [writer]}}
outputs: {{answer: "{{{{ agent_writer_current }}}}"}}
"""
SENTENCE = "The river number {} runs from the hills to the sea and carries boats of many colours."
PROMPTS = (SENTENCE.format(1), " ".join(SENTENCE.format(number) for number in range(26)))


def measure(baton, workflow, prompt, threads):
    """Returns the record of a run and its peak memory in bytes."""
    command = [baton, "run", workflow, "--input", f"text={prompt}", "--threads", str(threads), "--json", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    record = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"memory: {' '.join(map(str, command))} ended with {process.returncode}")
    return json.loads(record), usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--only", help="a part of the file's name")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    models = [model for model in sorted(options.models.glob("*.gguf")) if (options.only or "") in model.name]
    if not models:
        sys.exit(f"memory: no .gguf file in {options.models}")
    print(f"{'memory in MiB':36} {'file':>6} {'prompt':>7} {'KV cache':>9} {'peak':>6} {'limit':>6}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        workflow = pathlib.Path(folder) / "memory.yaml"
        for model in models:
            workflow.write_text(WORKFLOW.format(model=json.dumps(str(model.resolve()))))
            size = model.stat().st_size
            for prompt in PROMPTS:
                record, peak = measure(options.bin / "baton", workflow, prompt, options.threads)
                kv = record["memory"]["kv_peak_bytes"]
                limit = size + kv + max(0.15 * size, 64 * MIB)
                failed = failed or peak > limit
                print(f"{model.name:36} {size / MIB:6.0f} {record['agents'][0]['prompt_tokens']:7} {kv / MIB:9.1f} "
                      f"{peak / MIB:6.0f} {limit / MIB:6.0f}{'  more than the limit' if peak > limit else ''}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
