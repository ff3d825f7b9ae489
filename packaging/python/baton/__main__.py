# SPDX-License-Identifier: Apache-2.0
"""The program `baton`, which is in the wheel, in place of this process."""

import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).parent / "bin" / "baton"
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
