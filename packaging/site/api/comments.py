# SPDX-License-Identifier: Apache-2.0
"""Doxygen's input filter: the headers' comments in its notation.

    // ... at the head of a file           the file's description
    int a;  // ...                         a's description, with the lines below that go on
    /// ...                                as it is
    namespace baton::inline v1             namespace baton
"""

import re
import sys

TRAILING = re.compile(r"^(\s*[^\s/].*?[;,{})\w]\s+)//(?!/) (?!NOLINT)(.*)$")
COMMENT = re.compile(r"^(\s*)//(?!/) ?(.*)$")


def filtered(lines):
    head, column = True, None
    for number, line in enumerate(lines):
        comment = COMMENT.match(line)
        if number == 0 and comment:  # the licence
            yield ""
        elif head and comment:
            yield ("/// @file\n/// " if number == 1 else "/// ") + comment[2]
        elif column is not None and comment and len(comment[1]) == column:
            yield f"{comment[1]}///< {comment[2]}"
        else:
            head, column = False, None
            if trailing := TRAILING.match(line):
                column = len(trailing[1])
                line = f"{trailing[1]}///< {trailing[2]}"
            yield line.replace("namespace baton::inline v1", "namespace baton")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print("\n".join(filtered(header.read().splitlines())))
