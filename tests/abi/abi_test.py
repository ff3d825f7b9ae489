#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shared library exports, and which headers are installed, is what the lists in this folder say.

    abi_test.py LIBRARY FOLDER...             the folders that hold the public headers
    abi_test.py LIBRARY FOLDER... --update    writes the lists
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Functions that the compiler may also write into an object that includes a header: which, depends on the compiler.
INLINE = set("WVu")
FUNCTION = re.compile(r"^(?!using|template|inline|constexpr|typedef|#)[\w:][^\n(=]*?[\s*&](\w+)\(", re.M)


def exported(library):
    """What a program can link: names with parameters, without those of inline functions."""
    lines = subprocess.run(["nm", "-D", "--defined-only", "-C", library], check=True, stdout=subprocess.PIPE,
                           text=True).stdout.splitlines()
    symbols = [line.split(maxsplit=2)[1:] for line in lines]
    return sorted({name for kind, name in symbols if kind not in INLINE or name.startswith("typeinfo")})


def headers(folders):
    return sorted(file.relative_to(folder).as_posix() for folder in folders for file in folder.glob("baton/*.h"))


def declared(folders):
    """Names of functions outside of classes that the headers declare."""
    texts = [re.sub("//.*", "", file.read_text()) for folder in folders for file in folder.glob("baton/*.h")]
    return {name for text in texts for name in FUNCTION.findall(text)}


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--update"]
    library, folders = arguments[0], [pathlib.Path(folder) for folder in arguments[1:]]
    found = {"symbols.txt": exported(library), "headers.txt": headers(folders)}
    if "--update" in sys.argv:
        for name, lines in found.items():
            (HERE / name).write_text("".join(f"{line}\n" for line in lines))
        return 0

    failed = False
    for name, lines in found.items():
        stored = (HERE / name).read_text().splitlines()
        for sign, difference in (("-", set(stored) - set(lines)), ("+", set(lines) - set(stored))):
            for line in sorted(difference):
                print(f"{sign} {line}")
                failed = True
    if failed:
        print("abi: the interface has changed: '-' is in the lists of tests/abi and no longer there, '+' is new.\n"
              "Programs that were built before do not start without what was removed. If the change is meant, give it a\n"
              f"line in CHANGELOG.md, and write the lists again:\n  python3 {' '.join(sys.argv)} --update")
    names = set(re.findall(r"(\w+)(?:\[abi:\w+\])?(?:\(|$)", "\n".join(found["symbols.txt"]), re.M))
    for name in sorted(declared(folders) - names):
        print(f"abi: a public header declares {name}(), which the library does not export: add it to sdk/exports.map")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
