#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares perplexities of published GGUF files with those of llama.cpp's llama-perplexity.

    python tests/published/perplexity_peer.py --bin build/release/bin --llama-bin DIR --models DIR
        [--only NAME] [--text FILE] [--chunks 20] [--context 512] [--dtype bf16] [--threads 2] [--within 0.005]

The text is this project's documentation, unless --text names another. For every file both programs measure the same
chunks of it. A file passes when the two perplexities differ by at most --within, as a fraction of llama.cpp's, and both
score the same number of chunks. llama.cpp's value is the one it prints behind its last chunk, with four digits.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(word) for word in command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done


def ours(options, model, text):
    done = run([options.bin / "baton-lab", "perplexity", text, "--model", model.resolve(), "--context", options.context,
                "--chunks", options.chunks, "--dtype", options.dtype, "--threads", options.threads, "--device", "cpu",
                "--json", "-q"])
    found = json.loads(done.stdout)
    return found["perplexity"], found["error"], found["chunks"]


def theirs(options, model, text):
    libraries = {**os.environ, "LD_LIBRARY_PATH": f"{options.llama_bin}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    done = run([options.llama_bin / "llama-perplexity", "-m", model, "-f", text, "-c", options.context, "--chunks",
                options.chunks, "-t", options.threads, "-ngl", "0"], env=libraries)
    said = done.stdout + done.stderr
    running = re.findall(r"\[(\d+)\]([0-9.]+),", said)  # after each chunk
    if not running:
        sys.exit(f"llama-perplexity printed no perplexity:\n{said[-2000:]}")
    error = re.search(r"Final estimate: PPL = [0-9.]+ \+/- ([0-9.]+)", said)
    return float(running[-1][1]), float(error[1]) if error else float("nan"), int(running[-1][0])


def documentation(folder):
    """The project's documentation as one text, in an order that does not depend on the file system."""
    files = sorted((ROOT / "docs").rglob("*.md"))
    text = folder / "documentation.txt"
    text.write_text("\n".join(file.read_text(encoding="utf-8") for file in files), encoding="utf-8")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the program baton")
    parser.add_argument("--llama-bin", type=pathlib.Path, required=True, help="folder of llama-perplexity")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder of .gguf files")
    parser.add_argument("--only", default="", help="a part of the name of the files to measure")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f32"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--within", type=float, default=0.005)
    options = parser.parse_args()
    models = sorted(path for path in options.models.glob("*.gguf") if options.only in path.name)
    if not models:
        sys.exit(f"no .gguf file in {options.models}")
    passed = True
    print("| file | chunks | Baton | llama.cpp | difference |\n| --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        text = options.text.resolve() if options.text else documentation(pathlib.Path(folder))
        for model in models:
            mine, mine_error, mine_chunks = ours(options, model, text)
            peer, peer_error, peer_chunks = theirs(options, model, text)
            apart = mine / peer - 1
            print(f"| {model.name} | {mine_chunks} | {mine:.4f} +/- {mine_error:.4f} | {peer:.4f} +/- {peer_error:.4f} | "
                  f"{100 * apart:+.3f} % |", flush=True)
            if mine_chunks != peer_chunks:
                print(f"{model.name}: {mine_chunks} chunks and {peer_chunks} of the peer's", file=sys.stderr)
            passed &= abs(apart) <= options.within and mine_chunks == peer_chunks
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
