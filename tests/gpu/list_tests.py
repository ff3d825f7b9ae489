#!/usr/bin/env python3
"""list_tests.py BUILD: writes BUILD/bin/gpu_tests.txt, one line (program, tab, test) for each test with the label gpu."""

import json
import pathlib
import subprocess
import sys


def lines_of(listing: dict) -> list[str]:
    """From `ctest --show-only=json-v1`. A test of a Catch2 program is named "room: name of the case"."""
    lines = []
    for test in listing["tests"]:
        labels = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
        if "gpu" not in labels or "command" not in test:
            continue
        lines.append(f"{pathlib.Path(test['command'][0]).name}\t{test['name'].split(': ', 1)[-1]}\n")
    return lines


def main() -> None:
    build = pathlib.Path(sys.argv[1])
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    (build / "bin/gpu_tests.txt").write_text("".join(lines_of(json.loads(listing.stdout))))


if __name__ == "__main__":
    main()
