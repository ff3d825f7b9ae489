#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the README as a newcomer does: pulls a published model from a hub on this machine into an empty home, and runs the
README's team on it.

    python tests/published/newcomer.py --bin build/release/bin --models DIR [--only NAME] [--within 120]

The commands and the team are those of README.md, word for word; the hub gives the smallest .gguf file of the folder under
the name that the README pulls. Prints what each command took. Exit code 1: a command failed, or all of them together took
longer than --within seconds.
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/sdk"))

from hub_server import Repository, Server  # noqa: E402


def from_readme():
    """The team, the question, and the commands that pull a model and run the team on it."""
    text = (ROOT / "README.md").read_text()
    team = re.search(r"```yaml\n(.*?)```", text, re.S)
    question = re.search(r'question="([^"]+)"', text)
    pull = re.search(r"^    (baton pull ([^\s:]+):(\S+))$", text, re.M)
    run = re.search(r"^    (baton run team\.yaml --model hf:.*)$", text, re.M)
    if not (team and question and pull and run):
        sys.exit("README.md: expected a team, a question, 'baton pull ORG/NAME:QUANTISATION' and 'baton run team.yaml --model hf:...'")
    return team[1], question[1], pull, run[1]


def environment(folder, bin_folder, hub, question):
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TERM") if name in os.environ}
    return {**kept, "HOME": str(folder), "PATH": f"{bin_folder.resolve()}:/usr/bin:/bin", "HF_ENDPOINT": hub, "question": question}


def follow(options, model):
    team, question, pull, run = from_readme()
    cdn = Server()
    hub = Server(cdn)
    hub.add(pull[2], Repository({f"{model.stem}-{pull[3].lower()}.gguf": model.read_bytes()}))
    total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "team.yaml").write_text(team)
        for command in (pull[1], run):
            begun = time.monotonic()
            done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environment(folder, options.bin, hub.url, question),
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
            seconds = time.monotonic() - begun
            total += seconds
            print(f"{seconds:7.1f} s  {shlex.split(command)[1]:4}  exit code {done.returncode}", flush=True)
            if options.verbose or done.returncode != 0 or not done.stdout.strip():
                print(f"$ {command}\n{done.stdout}{done.stderr}")
            if done.returncode != 0 or not done.stdout.strip():
                return False
    hub.close()
    cdn.close()
    print(f"{total:7.1f} s  from the first command to the last answer, {model.name}")
    return total <= options.within


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the program baton")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder of .gguf files")
    parser.add_argument("--only", default="", help="a part of the name of the file to give")
    parser.add_argument("--within", type=float, default=120.0, help="seconds")
    parser.add_argument("--verbose", action="store_true", help="print what the commands print")
    options = parser.parse_args()
    models = sorted((path for path in options.models.glob("*.gguf") if options.only in path.name), key=lambda path: path.stat().st_size)
    if not models:
        sys.exit(f"no .gguf file in {options.models}")
    sys.exit(0 if follow(options, models[0]) else 1)


if __name__ == "__main__":
    main()
