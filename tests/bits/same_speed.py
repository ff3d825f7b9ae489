#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of two builds on the same models, in turn: ratios of tokens per second, after over before.

    same_speed.py --before DIR --after DIR --models DIR [--pairs 9] [--prefill 256] [--decode 1x128] [MODEL...]

Each pair runs both builds, in alternating order. Of the ratios of the pairs it prints the median and the interval that
holds the median of such ratios with at least 95 % (order statistics: of nine pairs the second to the eighth). Nothing
else may run on the machine. Exit status 1: an interval lies below 0.99.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys


def program(folder: pathlib.Path) -> str:
    lab = folder / "baton-lab"
    return str(lab if lab.exists() else folder / "baton")


def measure(binary: str, model: pathlib.Path, prefill: str, decode: str) -> dict[str, float]:
    found = json.loads(subprocess.run(
        [binary, "bench", "--model", str(model), "--methods", "none", "--prefill", prefill, "--decode", decode, "--json",
         "-q"], check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {"prefill": found["prefill"][0]["tokens_per_s"], "decode": found["decode"][0]["tokens_per_s"]}


def interval(ratios: list[float]) -> tuple[float, float]:
    ordered, n = sorted(ratios), len(ratios)
    cut = 0  # how many may be dropped at each end
    tail = 0.5**n
    while cut + 1 < n / 2 and 2 * (tail + math.comb(n, cut + 1) * 0.5**n) <= 0.05:
        cut += 1
        tail += math.comb(n, cut) * 0.5**n
    return ordered[cut], ordered[n - 1 - cut]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, type=pathlib.Path)
    parser.add_argument("--after", required=True, type=pathlib.Path)
    parser.add_argument("--models", required=True, type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--prefill", default="256")
    parser.add_argument("--decode", default="1x128")
    parser.add_argument("names", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    models = [model for model in sorted(options.models.glob("*.gguf")) if not options.names or model.stem in options.names]
    builds = [program(options.before), program(options.after)]
    slower = 0
    for model in models:
        ratios = {"prefill": [], "decode": []}
        for pair in range(options.pairs):
            order = [0, 1] if pair % 2 == 0 else [1, 0]
            found = {}
            for build in order:
                found[build] = measure(builds[build], model, options.prefill, options.decode)
            for kind, list_of in ratios.items():
                list_of.append(found[1][kind] / found[0][kind])
        for kind, list_of in ratios.items():
            low, high = interval(list_of)
            slower += high < 0.99
            print(f"{model.stem} {kind}: {statistics.median(list_of):.3f} ({low:.3f} to {high:.3f}), {len(list_of)} pairs", flush=True)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
