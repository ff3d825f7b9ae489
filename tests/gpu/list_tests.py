#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""list_tests.py BUILD: writes BUILD/bin/gpu_tests.txt, one line (program, tab, test) for each test with the label gpu."""

import json
import pathlib
import subprocess
import sys


def lines_of(listing: dict) -> list[str]:
    """From `ctest --show-only=json-v1`. The first argument of a Catch2 program is the name of the case, its commas escaped."""
    lines = []
    for test in listing["tests"]:
        labels = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
        if "gpu" not in labels or len(test.get("command", [])) < 2:
            continue
        program, case = test["command"][:2]
        lines.append(pathlib.Path(program).name + "\t" + case.replace("\\,", ",") + "\n")
    return lines


def main() -> None:
    build = pathlib.Path(sys.argv[1])
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    (build / "bin/gpu_tests.txt").write_text("".join(lines_of(json.loads(listing.stdout))))


if __name__ == "__main__":
    main()
