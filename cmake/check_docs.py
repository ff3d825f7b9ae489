#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a document names a path that does not exist, links to nothing, has a line that is too long, or
one that Markdown cannot read.

A path is a word that begins with a source folder of this project. `engine/kv/segment` may stand for `segment.h` and
`segment.cpp`, and `*`, NAME or METHOD for anything. Paths of the past (CHANGELOG.md) are not checked. Rows of tables may
be long. Pages that tend to grow have limits, below.
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
MARKED_SECTION = "<!["  # Markdown takes it for HTML, in code too, and the site cannot be built
LINK = re.compile(r"\]\(([^)\s]+)\)")
MAX_PERFORMANCE_LINES = 600  # what is left goes to docs/performance/
MAX_GLOSSARY_WORDS = 30
MAX_DECISION_PAGES = 20  # living pages by subject; docs/decisions/archive.md has the history


def exists(path: str) -> bool:
    path = path.rstrip("/").replace("NAME", "*").replace("METHOD", "*")
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


def too_long():
    lines = len((ROOT / "docs/performance.md").read_text(encoding="utf-8").splitlines())
    if lines > MAX_PERFORMANCE_LINES:
        yield f"docs/performance.md: has {lines} lines; at most {MAX_PERFORMANCE_LINES} are allowed"
    words = len(re.findall(r"\*\*[^*]+\*\*", (ROOT / "docs/glossary.md").read_text(encoding="utf-8")))
    if words > MAX_GLOSSARY_WORDS:
        yield f"docs/glossary.md: has {words} words; at most {MAX_GLOSSARY_WORDS} are allowed"
    pages = len([page for page in (ROOT / "docs/decisions").glob("*.md") if page.name != "archive.md"])
    if pages > MAX_DECISION_PAGES:
        yield f"docs/decisions: has {pages} pages; at most {MAX_DECISION_PAGES} are allowed"


def problems():
    yield from too_long()
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE, text=True).stdout.split()
    for name in sorted(listed):
        page = ROOT / name
        if not page.exists():
            continue
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > MAX_COLUMNS and not line.startswith("|"):
                yield f"{name}:{number}: has {len(line)} columns; at most {MAX_COLUMNS} are allowed"
            if MARKED_SECTION in line:
                yield f"{name}:{number}: has '{MARKED_SECTION}', which Markdown takes for HTML; write it otherwise"
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
