#!/usr/bin/env python3
"""Writes the generated documents from what the runner says of itself; --check only compares. Called by ./dev docs."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATON = ROOT / "build/release/bin/baton"


def output(*arguments: str) -> str:
    return subprocess.run([BATON, *arguments], check=True, capture_output=True, text=True).stdout


def main() -> int:
    head = (ROOT / "docs/yaml.head.md").read_text(encoding="utf-8")
    pages = {"docs/yaml.md": head + output("schema", "--markdown"), "docs/baton.v1.schema.json": output("schema")}
    stale = [path for path, text in pages.items()
             if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in sys.argv:
            print(f"docs: {path} is out of date; run ./dev docs", file=sys.stderr)
        else:
            (ROOT / path).write_text(pages[path], encoding="utf-8")
            print(f"docs: wrote {path}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
