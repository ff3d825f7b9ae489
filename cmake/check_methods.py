#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a reuse method leaks: if code outside its room reads the id or a trait of a method, or names `anchors`.

A method's room is its folder below engine/reuse/. The registry and the laboratory (sdk/lab/, engine/learning/) may name
methods. All other code calls the functions of the headers of engine/reuse/ itself; it may name the exact ways in which a
part of a prompt is obtained (full, prefix, lockstep), and the step loop the data of the calibration (engine/reuse/auto/).
"""

import argparse
import pathlib
import re
import sys

import cpp_reader

FOLDERS = ["engine", "agents", "workflows", "sdk"]
SUFFIXES = {".h", ".c", ".cpp", ".cu", ".cuh", ".css", ".js", ".html", ".yaml"}
MAY_NAME = re.compile(r"engine/reuse/|engine/registry\.|engine/learning/|sdk/lab/")  # methods, their ids and traits
ROOM = re.compile(r"engine/reuse/(lab/)?anchors/")

# What the tree still holds; each number may only go down: to no reads, and 12 files.
ALLOWED = {"reads of a method's id or trait": 0, "files that mean the method anchors": 12}

# Files and lines in which the word is none of the method's.
OTHER_MEANING = [
    (re.compile(r"engine/reuse/lab/kvcomm/.*"), re.compile(r".")),  # KVComm's own
    (re.compile(r"workflows/format/yaml\w*\.(h|cpp)"), re.compile(r".")),  # anchors of YAML
    (re.compile(r".*"), re.compile(r"text-anchor")),  # of a text in an SVG picture
    (re.compile(r"sdk/report/timeline\.cpp"), re.compile(r".")),
    (re.compile(r"engine/text/.*"), re.compile(r".")),  # of regular expressions
]
NOT_TRAITS = {"name", "summary", "alias"}  # of a method, which anything may print


def traits(root: pathlib.Path) -> list[str]:
    """The data members of `Method`, wherever engine/reuse/ declares it."""
    for file in sorted((root / "engine/reuse").glob("*.h")):
        for one in cpp_reader.read(file.name, file.read_text(encoding="utf-8")).classes:
            if one.path == "Method":
                return [field.name for field in one.fields if field.name and field.name not in NOT_TRAITS]
    return []


def names(root: pathlib.Path) -> list[str]:
    """The names of the methods. `auto` is also a device and a language of servers."""
    return sorted({"full", "prefix", "lockstep", *rooms(root)} - {"auto"})


def patterns(root: pathlib.Path) -> re.Pattern:
    parts = [r"\bMethodId\b", r"\bMethod(?:Traits)?::[A-Z]\w*::", r"\bMethodTraits\b", r"(?:\.|->)traits\b", r"\bown<"]
    parts.append(r"\bmethod(?:_|\(\))?->name\s*[=!]=")
    if found := traits(root):
        parts.append(r"\bmethod(?:_|\(\))?(?:\.|->)(?:" + "|".join(found) + r")\b")
    if found := names(root):
        quoted = '"(?:' + "|".join(found) + ')"'
        parts.append(r"(?:==|!=)\s*" + quoted + "|" + quoted + r"\s*(?:==|!=)|\b(?:find_method|method_of)\(" + quoted)
    if found := rooms(root):
        parts.append(r"\b(?:" + "|".join(found) + r")_method\(")
        parts.append(r'#include "engine/reuse/(?:lab|exact|' + "|".join(found) + ")/")
    return re.compile("|".join(parts))


def rooms(root: pathlib.Path) -> list[str]:
    """The folders of methods; not that of the exact ways, which all code may name."""
    folders = [*(root / "engine/reuse").glob("*"), *(root / "engine/reuse/lab").glob("*")]
    return sorted({folder.name for folder in folders if folder.is_dir()} - {"lab", "exact"})


def files(root: pathlib.Path):
    for top in FOLDERS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SUFFIXES:
                yield file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")


def reads(root: pathlib.Path):
    """(place, line) of each read of an id or a trait outside the rooms."""
    pattern = patterns(root)
    for path, text in files(root):
        if MAY_NAME.match(path):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = line.partition("//")[0]
            if path.startswith("engine/loop/") and '#include "engine/reuse/auto/' in code:
                continue
            if pattern.search(code):
                yield f"{path}:{number}", line.strip()


def means_anchors(path: str, line: str) -> bool:
    if "anchor" not in line.lower():
        return False
    return not any(where.fullmatch(path) and what.search(line) for where, what in OTHER_MEANING)


def anchor_files(root: pathlib.Path):
    """(file, number of lines) of the files outside its room that mean the method `anchors`."""
    for path, text in files(root):
        if not ROOM.match(path) and "anchor" in text.lower():
            lines = [line for line in text.splitlines() if means_anchors(path, line)]
            if lines:
                yield path, len(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--list", action="store_true", help="print each place")
    given = options.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    places, meaning = list(reads(root)), list(anchor_files(root))
    found = {"reads of a method's id or trait": len(places), "files that mean the method anchors": len(meaning)}
    failed = any(count > ALLOWED[what] for what, count in found.items())
    if given.list or failed:
        for place, line in places:
            print(f"methods: {place}: {line}")
        for path, count in meaning:
            print(f"methods: {path}: {count} lines name anchors")
    print("methods: " + ", ".join(f"{count} {what} (allowed: {ALLOWED[what]})" for what, count in found.items()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
