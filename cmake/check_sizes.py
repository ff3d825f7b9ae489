#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if the tree grows: source files, verbs of the runner, keys of a workflow file's `relay:`.

Keys are those of the reference in docs/yaml.md, which `./dev docs --check` compares with the code: the keys of `relay:`
and of the maps in it, without `lab:`, which belongs to the laboratory.
"""

import pathlib
import re
import sys

FOLDERS = ["engine", "agents", "workflows", "sdk"]
SUFFIXES = {".h", ".c", ".cpp", ".cu", ".cuh"}

# What each may be at most.
ALLOWED = {"source files": 500, "source files for each 1,000 lines": 6.0, "verbs": 12, "keys under relay:": 15}

VERB = re.compile(r'\badd_(?:subcommand|verb)\(\s*"([a-z-]+)"')
SECTION = re.compile(r"^### `?([\w.]+)`?.*\n((?:(?!##).*\n)*)", re.MULTILINE)
KEY = re.compile(r"^\| `(\w+)` \| (.*?) \|", re.MULTILINE)
MAP = re.compile(r"\ba map \(([\w.]+)\)")


def verbs(root: pathlib.Path) -> set[str]:
    found = set()
    for folder in ("sdk/cli", "sdk/console"):
        for file in (root / folder).rglob("*.cpp"):
            found.update(VERB.findall(file.read_text(encoding="utf-8")))
    return found


def relay_keys(reference: str) -> list[str]:
    """`relay.method`, `relay.layers`, `relay.layers.start`, ..."""
    sections = {name: KEY.findall(text) for name, text in SECTION.findall(reference)}

    def keys_of(section: str, path: str):
        for key, value in sections.get(section, []):
            if key == "lab":
                continue
            yield f"{path}.{key}"
            for inner in MAP.findall(value):
                yield from keys_of(inner, f"{path}.{key}")

    return list(keys_of("relay", "relay"))


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    files = [file for top in FOLDERS for file in (root / top).rglob("*") if file.suffix in SUFFIXES]
    lines = sum(file.read_bytes().count(b"\n") for file in files)
    keys = relay_keys((root / "docs/yaml.md").read_text(encoding="utf-8"))
    found = {
        "source files": len(files),
        "source files for each 1,000 lines": round(len(files) / lines * 1000, 2),
        "verbs": len(verbs(root)),
        "keys under relay:": len(keys),
    }
    grown = [what for what, count in found.items() if count > ALLOWED[what]]
    for what in grown:
        print(f"sizes: {found[what]} {what}; at most {ALLOWED[what]} are allowed", file=sys.stderr)
    print("sizes: " + ", ".join(f"{count} {what}" for what, count in found.items()))
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
