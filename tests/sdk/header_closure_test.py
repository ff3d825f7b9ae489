#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that includes <baton/baton.h> reads few lines of ours, and none of those that have a use of their own.

    header_closure_test.py FOLDER...    the folders that hold the public headers
"""

import pathlib
import re
import sys
import unittest

FOLDERS = [pathlib.Path(folder) for folder in sys.argv[1:]]
MAX_LINES = 950
INCLUDE = re.compile(r"^\s*#\s*include\s*<(baton/[^>]+)>", re.M)


def closure(header):
    """The text of every header of ours that an include of `header` reads, by name."""
    texts, waiting = {}, [header]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            texts[name] = next(folder / name for folder in FOLDERS if (folder / name).is_file()).read_text()
            waiting += INCLUDE.findall(texts[name])
    return texts


class HeaderClosure(unittest.TestCase):
    def test_one_header_is_small(self):
        texts = closure("baton/baton.h")
        self.assertIn("baton/run_record.h", texts)
        self.assertLess(sum(text.count("\n") for text in texts.values()), MAX_LINES)

    def test_headers_of_their_own(self):
        own = {f"baton/{name}.h" for name in ("preview", "rates", "session", "system", "turns")}
        self.assertEqual(own & set(closure("baton/baton.h")), set())
        for header in own:
            self.assertIn(header, closure(header))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
