#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a text of about 300,000 characters for perplexity_peer.py and distance_peer.py, from public sources.

    python tests/published/make_text.py OUT.txt [--passages FILE]

Sources in turn, 10,000 characters of each: modules of Python's standard library, the licences that Debian installs, and
the passages of 2WikiMultihopQA (a JSON list of objects with `title` and `text`), where FILE holds them.
"""

import argparse
import json
import pathlib
import sysconfig

MODULES = ("argparse", "ast", "asyncio/tasks", "calendar", "csv", "decimal", "difflib", "heapq", "inspect", "shutil", "textwrap")
LICENCES = ("GPL-3", "Apache-2.0", "MPL-2.0", "GFDL-1.3", "Artistic", "LGPL-2.1", "CC0-1.0")
PIECE = 10_000  # characters
TOTAL = 300_000


def sources(passages):
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    found = [
        "\n".join((library / f"{name}.py").read_text() for name in MODULES if (library / f"{name}.py").exists()),
        "\n".join(path.read_text() for path in (pathlib.Path("/usr/share/common-licenses") / name for name in LICENCES) if path.exists()),
    ]
    if passages:
        found.append("\n\n".join(f"{one['title']}\n{one['text']}" for one in json.loads(passages.read_text())))
    return found


def in_turn(texts):
    pieces = []
    for begin in range(0, TOTAL, PIECE):
        pieces += [text[begin : begin + PIECE] for text in texts]
    return "\n".join(piece for piece in pieces if piece)[:TOTAL]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--passages", type=pathlib.Path)
    options = parser.parse_args()
    options.out.write_text(in_turn(sources(options.passages)))


if __name__ == "__main__":
    main()
