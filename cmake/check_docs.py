#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where a document names a path that does not exist, links to nothing, or has a line that is too long.

A path is a word that begins with a source folder of this project. `engine/kv/segment` may stand for `segment.h` and
`segment.cpp`, and `*` or NAME for anything. Paths of the past (CHANGELOG.md) are not checked. Rows of tables may be long.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_COLUMNS = 120
PAST = {"CHANGELOG.md"}
FOLDERS = ["engine", "agents", "workflows", "sdk", "tests", "cmake", "docs", "samples"]
PATH = re.compile(rf"(?<![\w/.~$@-])(?:{'|'.join(FOLDERS)})/[\w*/.-]*[\w*/]")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def exists(path: str) -> bool:
    path = path.rstrip("/").replace("NAME", "*")
    return any(True for pattern in [path, path + ".*"] for _ in ROOT.glob(pattern))


def anchors_of(text: str) -> set[str]:
    """The anchors that a host makes of a page's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_link(page: pathlib.Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return False
    name, _, anchor = target.partition("#")
    file = (page.parent / name) if name else page
    if not file.exists():
        return True
    return bool(anchor) and file.suffix == ".md" and anchor not in anchors_of(file.read_text(encoding="utf-8"))


def problems():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE, text=True).stdout.split()
    for name in sorted(listed):
        page = ROOT / name
        if not page.exists():
            continue
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > MAX_COLUMNS and not line.startswith("|"):
                yield f"{name}:{number}: has {len(line)} columns; at most {MAX_COLUMNS} are allowed"
            for target in LINK.findall(line):
                if broken_link(page, target):
                    yield f"{name}:{number}: links to '{target}', which does not exist"
            if name not in PAST:
                for path in PATH.findall(line):
                    if not exists(path):
                        yield f"{name}:{number}: names '{path}', which does not exist"


def main() -> int:
    found = list(problems())
    for problem in found:
        print(f"docs: {problem}", file=sys.stderr)
    print(f"docs: {len(found)} problems" if found else "docs: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
