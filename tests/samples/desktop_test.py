#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the sample desktop as a person does, on a screen of its own: types a question, presses Return, reads the answer
off a picture of the screen, and cancels a long run. Exit code 77 where something that this needs is missing.

Usage: desktop_test.py PROGRAM PICTURE.png      (writes the picture)
"""

import contextlib
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

NEEDED = {"Xvfb": "xvfb", "xdotool": "xdotool", "tesseract": "tesseract-ocr"}
QUESTION = "A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?"

# So many rounds that it is cancelled long before its end, on any machine.
SLOW = """\
version: 1
name: slow
inputs: {question: {type: string, required: true}}
models: {main: nano}
defaults: {max_tokens: 1500, temperature: 3, seed: 1}
agents: {talker: {prompt: {user: "{{ question }}"}}}
workflow: {topology: chain, rounds: 200}
outputs: {answer: "{{ agent_talker_current }}"}
"""


def skip(why):
    print(f"desktop: skipped: {why}")
    sys.exit(77)


class Screen:
    """A screen that nobody sees, kept in a file in the format XWD."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        end, other = os.pipe()
        self.server = subprocess.Popen(["Xvfb", "-displayfd", str(other), "-screen", "0", "960x720x24", "-nolisten", "tcp", "-nocursor",
                                        "-noreset",  # else it begins anew, deaf for a moment, when its last window has gone
                                        "-fbdir", folder], pass_fds=[other], stderr=subprocess.DEVNULL)
        os.close(other)
        with os.fdopen(end) as said:
            number = said.readline().strip()
        if not number:
            raise SystemExit("desktop: Xvfb did not start")
        self.environment = {**os.environ, "DISPLAY": ":" + number, "QT_QPA_PLATFORM": "xcb"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()

    def do(self, *command):
        done = subprocess.run(["xdotool", *map(str, command)], env=self.environment, capture_output=True, text=True, timeout=60)
        return done.stdout.strip()

    def wait_for(self, title):
        """The id of the window with this title."""
        found = eventually(lambda: self.do("search", "--onlyvisible", "--name", f"^{title}$"), f"a window '{title}'")
        return found.splitlines()[0]

    def rows(self):
        """The screen's rows of pixels, each with blue, green, red and a byte of padding."""
        data = (self.folder / "Xvfb_screen0").read_bytes()
        header = struct.unpack(">25I", data[:100])  # XWDFile.h: its size, ..., width, height, ..., bytes of a row, ..., colours
        width, height, row_bytes, colours = header[4], header[5], header[12], header[19]
        begin = header[0] + 12 * colours
        return [data[begin + y * row_bytes:begin + y * row_bytes + 4 * width] for y in range(height)]

    def picture(self, path):
        """Writes what the screen shows as PNG, and returns how many colours it has."""
        rows = self.rows()
        colours = {row[x:x + 3] for row in rows for x in range(0, len(row), 4)}
        plain = bytearray()
        for row in rows:
            pixels = bytearray(len(row) // 4 * 3)
            pixels[0::3], pixels[1::3], pixels[2::3] = row[2::4], row[1::4], row[0::4]
            plain += b"\0" + pixels
        chunks = [(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]) // 4, len(rows), 8, 2, 0, 0, 0)),
                  (b"IDAT", zlib.compress(bytes(plain), 9)), (b"IEND", b"")]
        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n")
            for name, body in chunks:
                file.write(struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)))
        return len(colours)

    @contextlib.contextmanager
    def shown(self, *command):
        window = subprocess.Popen(list(map(str, command)), env=self.environment)
        try:
            yield window
        finally:
            window.kill()
            window.wait()


def read(picture):
    """The text in a picture."""
    done = subprocess.run(["tesseract", picture, "-", "--psm", "11"], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def eventually(check, what, seconds=60):
    """What `check` returns as soon as it is true."""
    due = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > due:
            raise SystemExit(f"desktop: expected {what} within {seconds} s")
        time.sleep(0.1)
    return found


def answered(screen, picture):
    """The text on the screen, where it has the answer and those of the agents."""
    screen.picture(picture)
    text = read(picture)
    return text if text.count("The answer is 26") >= 4 and "Decision Maker" in text else None


def main():
    program, picture = sys.argv[1:]
    if not os.path.exists(program):
        skip("Qt 6 was not found when the samples were configured (package qt6-base-dev)")
    for tool, package in NEEDED.items():
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed (package {package})")

    with tempfile.TemporaryDirectory() as folder, Screen(folder) as screen:
        with screen.shown(program):
            window = screen.wait_for("math-team: ready")
            eventually(lambda: screen.picture(picture) > 20, "a window on the screen")
            if "The answer is" in read(picture):
                raise SystemExit("desktop: expected no answer before a question")
            screen.do("windowfocus", "--sync", window)
            screen.do("key", "ctrl+a")
            screen.do("type", "--delay", 2, QUESTION)
            screen.do("key", "Return")
            screen.wait_for("math-team: ok")
            text = eventually(lambda: answered(screen, picture), "the answer and those of its agents in the picture", 20)
            print(text)

        slow = pathlib.Path(folder) / "slow.yaml"
        slow.write_text(SLOW)
        with screen.shown(program, "", slow) as shown:
            window = screen.wait_for("slow: ready")
            screen.do("windowfocus", "--sync", window)
            screen.do("key", "Return")
            screen.wait_for("slow: running")
            time.sleep(1)
            screen.do("key", "Tab")  # Run cannot be pressed now
            screen.do("key", "space")
            screen.wait_for("slow: cancelled")
            screen.do("mousemove", "--window", window, 300, 22, "click", 1)
            screen.do("key", "Return")
            screen.wait_for("slow: running")
            screen.do("key", "ctrl+q")  # in the middle of a run
            if shown.wait(timeout=60) != 0:
                raise SystemExit(f"desktop: expected exit code 0, found {shown.returncode}")
    print("desktop: ok")


if __name__ == "__main__":
    main()
