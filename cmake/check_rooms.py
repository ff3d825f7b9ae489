#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where a source folder holds too many concepts of its own, or a source file is too long.

A concept is a header with its sources: `bpe.h`, `bpe.cpp` and `bpe_parse.cpp` are one, as is a source without a header.
"""

import collections
import pathlib
import sys

FOLDERS = ["engine", "agents", "workflows", "sdk"]
HEADERS = {".h", ".cuh"}
SOURCES = {".c", ".cpp", ".cu"}
MAX_CONCEPTS = 25
MAX_LINES = 450


def concept_of(stem: str, headers: set[str]) -> str:
    """The longest header name that a source's name begins with, cut at an underscore; else the source's own name."""
    words = stem.split("_")
    for count in range(len(words), 0, -1):
        if "_".join(words[:count]) in headers:
            return "_".join(words[:count])
    return stem


def problems(root: pathlib.Path):
    files = collections.defaultdict(list)
    for top in FOLDERS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in HEADERS | SOURCES:
                files[file.parent].append(file)
    for folder, members in files.items():
        name = folder.relative_to(root).as_posix()
        headers = {file.stem for file in members if file.suffix in HEADERS}
        concepts = headers | {concept_of(file.stem, headers) for file in members if file.suffix in SOURCES}
        if len(concepts) > MAX_CONCEPTS:
            yield f"{name}: holds {len(concepts)} concepts of its own; at most {MAX_CONCEPTS} are allowed"
        for file in members:
            lines = len(file.read_text(encoding="utf-8").splitlines())
            if lines > MAX_LINES:
                yield f"{name}/{file.name}: has {lines} lines; at most {MAX_LINES} are allowed"


def main() -> int:
    found = list(problems(pathlib.Path(__file__).resolve().parent.parent))
    for problem in found:
        print(f"rooms: {problem}", file=sys.stderr)
    print(f"rooms: {len(found)} problems" if found else "rooms: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
