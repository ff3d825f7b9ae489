#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if two sources of a folder give one name to two things that only one of them is to see.

The sources of a folder are compiled together (baton_unity in cmake/BatonTargets.cmake), so that the names in their
anonymous namespaces must differ: constants, classes, and functions of equal parameters.
"""

import collections
import pathlib
import sys

import check_classes
import cpp_reader

SUFFIXES = {".cpp"}


def hidden_names(source: cpp_reader.Source):
    """(namespace, name and parameters, line) of what a source hides from others."""
    for name, namespace, line in source.variables:
        if name:
            yield namespace, name, line
    for one in source.classes:
        if one.outer is None and not one.is_local:
            yield one.namespace, one.name, one.line
    for function in source.functions:
        if not function.qualifiers and function.has_body:
            types = " ".join("".join(type_of(parameter.tokens)) + "," for parameter in function.parameters)
            yield function.namespace, f"{function.name}({types})", function.line


def type_of(tokens: list[str]) -> list[str]:
    """A parameter without its name and its default value."""
    kept = tokens[: tokens.index("=")] if "=" in tokens else list(tokens)
    if len(kept) > 1 and kept[-1][0].isalpha() and kept[-2] != "::" and kept[-1] not in cpp_reader.NOT_NAMES:
        kept.pop()
    return kept


def problems(sources: list[cpp_reader.Source]):
    seen = collections.defaultdict(list)
    for source in sources:
        if pathlib.PurePath(source.file).suffix in SUFFIXES:
            for namespace, name, line in hidden_names(source):
                if "" in namespace.split("::"):
                    seen[check_classes.folder_of(source.file), namespace, name].append((source.file, line))
    for (_, _, name), places in seen.items():
        if len({file for file, _ in places}) > 1:
            yield f"{name} is in {' and '.join(f'{file}:{line}' for file, line in places)}"


def main() -> int:
    found = list(problems(check_classes.read_tree(pathlib.Path(__file__).resolve().parent.parent)))
    for problem in found:
        print(f"unity: {problem}", file=sys.stderr)
    print(f"unity: {len(found)} names are used twice" if found else "unity: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
