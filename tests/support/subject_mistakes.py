# SPDX-License-Identifier: Apache-2.0
"""Seeds mistakes into one subject at a time, and runs the tests of that subject, which must find each.

The subjects are decisions that are tested without a model: admission, the step plan, the look-up of KV, speculation, the
run loop. No file of the tree is changed: a changed source is compiled apart and linked in front of the libraries of a
build folder, together with the subject's test files alone, so that a mistake takes seconds.
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from subject_mistakes_table import SUBJECTS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(command, folder, **more):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **more)


class Program:
    """A small test program: the test files of a subject, and the libraries of the test program that holds them."""

    def __init__(self, build: pathlib.Path, program: str, tests: list[str], work: pathlib.Path):
        self.build, self.tests, self.work = build, tests, work
        self.entries = json.loads((build / "compile_commands.json").read_text())
        line = run(["ninja", "-t", "commands", "-s", f"bin/{program}"], build).stdout
        self.link = self._libraries(shlex.split(line.partition("&& cd ")[0].replace(": && ", "")))
        archives = [word for word in self.link if word.endswith(".a") and not word.startswith("/")]
        made = run(["ninja", "-j1", *archives, "tests/CMakeFiles/baton_test_main.dir/cmake_pch.hxx.gch"], build)
        if made.returncode != 0:
            sys.exit(f"mistakes: the libraries do not build:\n{made.stdout[-3000:]}")

    def _libraries(self, words: list[str]) -> list[str]:
        kept = [word for word in words if not word.endswith(".o")]
        return kept[: kept.index("-o")] + kept[kept.index("-o") + 2 :]

    def _flags(self, file: str) -> list[str]:
        """The compiler and its flags for a file of the tree, or for the group of files that it is compiled in."""
        for entry in self.entries:
            path = pathlib.Path(entry["file"])
            if path == ROOT / file or path.is_relative_to(self.build) and f'"{file}"' in path.read_text().replace(f"{ROOT}/", ""):
                words = shlex.split(entry["command"])
                break
        else:
            sys.exit(f"mistakes: no command compiles {file}")
        if "ccache" in words[0] or "cmake" in words[0]:
            words = words[next(i for i, word in enumerate(words) if re.search(r"(\+\+|clang|gcc)(-\d+)?$", word)) :]
        return words[: words.index("-o")]

    def compile(self, file: str, to: str, overlay: pathlib.Path | None = None) -> str | None:
        """Nothing, or what the compiler says."""
        flags = self._flags(file)
        source = overlay / file if overlay and (overlay / file).is_file() else ROOT / file
        first = [flags[0]] + ([f"-I{overlay}"] if overlay else [])
        made = run([*first, *flags[1:], "-O1", "-w", "-c", str(source), "-o", str(self.work / to)], self.build)
        return None if made.returncode == 0 else made.stderr[-2000:]

    def tests_compiled(self, overlay=None) -> str | None:
        for i, file in enumerate(self.tests):
            if failure := self.compile(file, f"test{i}.o", overlay):
                return failure
        return None

    def failure(self, objects: list[str], names: list[str]) -> str | None:
        """What the first failing test says, or nothing."""
        tests = [str(self.work / f"test{i}.o") for i in range(len(self.tests))]
        out = str(self.work / "program")
        command = [self.link[0], *objects, *tests, *self.link[1:], "-Wl,--allow-multiple-definition", "-o", out]
        made = run(command, self.build)
        if made.returncode != 0:
            sys.exit(f"mistakes: the program is not linked:\n{made.stderr[-2000:]}")
        try:
            done = run([out, *names], self.build, timeout=120)
        except subprocess.TimeoutExpired:
            return "it does not end"
        if done.returncode == 0:
            return None
        said = re.findall(r"^(\S+\.cpp:\d+): FAILED", done.stdout, re.MULTILINE)
        return said[0].replace(f"{ROOT}/", "") if said else f"exit code {done.returncode}"


def check(subject, build: pathlib.Path, chosen) -> int:
    """Returns how many mistakes no test finds."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        program = Program(build, subject.program, subject.tests, work)
        if failure := program.tests_compiled():
            sys.exit(f"mistakes: {subject.name}: the tests do not compile:\n{failure}")
        if failure := program.failure([], []):
            sys.exit(f"mistakes: {subject.name}: a test fails without a mistake: {failure}")
        for number, mistake in enumerate(subject.mistakes, 1):
            if chosen and number not in chosen:
                continue
            source = (ROOT / mistake.file).read_text()
            if source.count(mistake.text) != 1:
                print(f"{number:2} MISSED {mistake.file} holds its text {source.count(mistake.text)} times", flush=True)
                missed += 1
                continue
            overlay = work / "changed"
            (overlay / mistake.file).parent.mkdir(parents=True, exist_ok=True)
            (overlay / mistake.file).write_text(source.replace(mistake.text, mistake.instead))
            header = mistake.file.endswith(".h")
            objects, found = [], program.tests_compiled(overlay) if header else None
            for i, file in enumerate([*([] if header else [mistake.file]), *mistake.also]):
                found = found or program.compile(file, f"changed{i}.o", overlay)
                objects.append(str(work / f"changed{i}.o"))
            if found:
                found = "the compiler: " + found.strip().split("\n")[0]
            else:
                found = program.failure(objects, [])
            (overlay / mistake.file).unlink()
            if header:
                program.tests_compiled()
            missed += not found
            print(f"{number:2} {'found ' if found else 'MISSED'} {mistake.what}\n          {found or mistake.file}", flush=True)
    return missed


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("subject", nargs="*", help="default: all: " + ", ".join(one.name for one in SUBJECTS))
    options.add_argument("--build", default="build/release", help="a configured build folder (default: build/release)")
    options.add_argument("--only", help="numbers of mistakes, from 1, separated by commas")
    options.add_argument("--texts", action="store_true", help="only look whether the texts to be changed are there, once each")
    given = options.parse_args()
    if given.texts:
        stale = [f"{subject.name}: {one.what}: {one.file} holds its text {count} times" for subject in SUBJECTS for one in subject.mistakes
                 if (count := (ROOT / one.file).read_text().count(one.text)) != 1]
        print("\n".join(stale) or "texts: ok")
        return 1 if stale else 0
    missed = 0
    for subject in SUBJECTS:
        if given.subject and subject.name not in given.subject:
            continue
        print(f"{subject.name}: {', '.join(subject.tests)}", flush=True)
        chosen = {int(one) for one in given.only.split(",")} if given.only else set()
        missed += check(subject, (ROOT / given.build).resolve(), chosen)
    print("all mistakes are found" if not missed else f"{missed} mistakes are not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
