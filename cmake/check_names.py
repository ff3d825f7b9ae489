#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if one name stands for two things: a class or struct that is declared twice; if a test's name has a semicolon,
at which CTest would cut it in two; or if a function is named that follows the locale which a host has set: numbers would
have a comma there. (check_methods.py has what holds for the names of reuse methods.)"""

import collections
import pathlib
import re
import sys

SOURCES = {".h", ".c", ".cpp", ".cu", ".cuh"}
FOLDERS = ["engine", "agents", "workflows", "sdk"]

# A declaration with a body (nested ones are indented), not a qualified definition such as `struct Engine::Impl {`.
DECLARATION = re.compile(r"^(?:template <.*> )?(?:class|struct) (\w+)(?: final)?(?:\s*$|\s*[:{](?!:))")

CUT_NAME = re.compile(r'TEST_CASE\("[^"]*;')

OF_A_LOCALE = re.compile(r"\b(?:std::)?(?:tolower|toupper|isalpha|isalnum|isspace|ispunct|isprint|isupper|islower|atof|"
                         r"strto[dfl]d?|sto[df]|stold|strftime|put_time|get_time|strcoll|strn?casecmp)\(|\{:L\}")


def sources(root: pathlib.Path):
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SOURCES:
                yield file.relative_to(root).as_posix(), file.read_text(encoding="utf-8").splitlines()


def problems(root: pathlib.Path):
    declared = collections.defaultdict(list)
    for path, lines in sources(root):
        for number, line in enumerate(lines, 1):
            if match := DECLARATION.match(line):
                declared[match[1]].append(f"{path}:{number}")
            code = line.split("//")[0]
            if (match := OF_A_LOCALE.search(code)) and not path.startswith("sdk/lab/"):  # a program of its own
                yield f"{path}:{number}: '{match[0]}' follows the host's locale; std::from_chars and fmt do not"
    for file in sorted((root / "tests").rglob("*.cpp")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if CUT_NAME.search(line):
                yield f"{file.relative_to(root)}:{number}: the test's name has a semicolon, at which CTest cuts it"
    for name, places in declared.items():
        if len(places) > 1:
            yield f"{name} is declared {len(places)} times: {', '.join(places)}"


def main() -> int:
    found = list(problems(pathlib.Path(__file__).resolve().parent.parent))
    for problem in found:
        print(f"names: {problem}", file=sys.stderr)
    print(f"names: {len(found)} problems" if found else "names: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
