#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to hand on an answer without the thinking before it.

    python tests/published/thinking_handover.py LAB MODEL.gguf --data DIR [--limit N] [--threads N] [--json FILE]

LAB is `baton-lab`; DIR as for make_dataset.py (GSM8K). The published model does not think: a copy of its file gets a
chat template that opens a thinking, and the solver of teams/thinking.yaml is told to think first. Forced to the same
thinking and answers, full prefill is compared with hand-overs of the answer alone, twice: behind the thinking, and by
a solver that does not think (whose answers are others). Needs the package `gguf`.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
TEAM = HERE / "teams" / "thinking.yaml"
METHODS = "full,lockstep,rectify:reuse=0.8,rectify:reuse=0.9,auto"
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and m.reasoning_content and loop.last %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif %}{% endif %}"""
COLUMNS = ["kl_first_token", "kl_mean", "greedy_agreement", "kv_reuse_rate", "ttft_ms", "questions"]


def thinking_copy(model, folder):
    copy = folder / f"thinking-{model.name}"
    template = folder / "template.jinja"
    template.write_text(TEMPLATE)
    code = "from gguf.scripts.gguf_new_metadata import main; main()"
    subprocess.run([sys.executable, "-c", code, "--chat-template-file", template, "--force", model, copy], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return copy


def evaluate(arguments, model, dataset, settings):
    command = [arguments.lab, "eval", TEAM, "--dataset", dataset, "--methods", METHODS, "--forced-only", "--json",
               "--threads", str(arguments.threads), "--device", "cpu"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, BATON_MODEL=str(model)))
    if done.returncode != 0:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--limit", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    tables = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        dataset = folder / "math.jsonl"
        made = subprocess.run([sys.executable, HERE / "make_dataset.py", "math", "--part", "tables", "--data",
                               arguments.data, "--limit", str(arguments.limit)], capture_output=True, text=True,
                              check=True)
        dataset.write_text(made.stdout)
        model = thinking_copy(arguments.model, folder)
        for title, settings in (("behind its thinking", []), ("no thinking", ["agents.solver.think=false"])):
            tables[title] = evaluate(arguments, model, dataset, settings)
            print(f"{arguments.model.name}, the solver's answer, {title}")
            print(f"{'method':24}" + "".join(f"{column:>18}" for column in COLUMNS))
            for row in tables[title]["methods"]:
                settings_text = ", ".join(f"{key}={value}" for key, value in row["params"].items() if key != "agents")
                values = (row.get(column) for column in COLUMNS)
                cells = "".join(f"{value:18.5g}" if isinstance(value, (int, float)) else f"{'-':>18}" for value in values)
                print(f"{row['method'] + ' ' + settings_text:24.24}{cells}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()
