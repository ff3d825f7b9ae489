# SPDX-License-Identifier: Apache-2.0
"""Proves that a reuse method is a room that can be deleted: deletes it in a copy of the tree, builds, and runs the tests.

Deleted are the method's folders below engine/reuse/ and sdk/lab/, the lines of the registries that name it, its tests
and its section of docs/methods.md. Its tests are: folders and files of its name; files that include its headers; test
cases that name it in code or in a string; cases of mistakes in workflow files that name it. Then the programs and the
tests of the engine, the workflows and the SDK are built and run. The copy is build/deletable; the next method builds
there what differs.
"""

import argparse
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys

METHODS = ["anchors", "droidspeak", "epic", "cacheblend", "kvcomm", "verified"]
REGISTRIES = ["engine/registry.cpp", "engine/reuse/lab/lab_methods.cpp", "sdk/lab/bench_agents.cpp"]
PROGRAMS = re.compile(r"^bin/(baton|baton-lab|baton_test_(?:engine|loop|reuse|learning|workflows|sdk)\w*)$")
CASE = re.compile(r"^(?:TEST_CASE|TEMPLATE_TEST_CASE|SCENARIO)\(", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def run(command, folder, **more):
    return subprocess.run(command, cwd=folder, text=True, **more)


def copy_tree(root: pathlib.Path, to: pathlib.Path):
    """Makes `to` hold the tracked and new files of `root`; a file that is equal keeps its time."""
    listed = run(["git", "ls-files", "-co", "--exclude-standard"], root, capture_output=True).stdout.split("\n")
    wanted = {name for name in listed if name and (root / name).is_file()}
    for name in wanted:
        target = to / name
        content = (root / name).read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(root / name, target)
    for file in to.rglob("*"):
        name = file.relative_to(to).as_posix()
        if file.is_file() and not name.startswith("build/") and name not in wanted:
            file.unlink()
    for folder in sorted((f for f in to.rglob("*") if f.is_dir()), reverse=True):
        if not folder.relative_to(to).as_posix().startswith("build") and not any(folder.iterdir()):
            folder.rmdir()


def mention(method: str) -> re.Pattern:
    """The method in code: its name in a string, its identifiers. `anchors` also names Anchor, AnchorStore, ..."""
    stem = method[:-1] if method.endswith("s") else method
    word = rf"\b{stem.capitalize()}(?:[A-Z]\w*|s)?\b|::{method}\b|\b{stem}_\w+\b|\bk{stem.capitalize()}\w*\b"
    return re.compile(rf'"(?:[^"\\\n]|\\.)*\b{method}\b(?:[^"\\\n]|\\.)*"|R"[^"]*\b{method}\b[^"]*"|{word}')


def case_end(text: str, begin: int) -> int:
    """Behind the test case that begins at `begin`: its last line is `}`."""
    end = text.find("\n}\n", begin)
    return len(text) if end < 0 else end + 3


def without_cases(text: str, named: re.Pattern) -> tuple[str, int]:
    """A C++ test file without the test cases that name a method, and how many they were."""
    kept, at, count = [], 0, 0
    for found in CASE.finditer(text):
        if found.start() < at:
            continue
        end = case_end(text, found.start())
        if named.search(COMMENT.sub("", text[found.start() : end])):
            kept.append(text[at : found.start()])
            at, count = end, count + 1
    kept.append(text[at:])
    return "".join(kept), count


def delete(root: pathlib.Path, method: str) -> list[str]:
    """Deletes the method from a tree; says what."""
    said, headers = [], set()
    for folder in sorted([*(root / "engine/reuse").rglob(method), root / "sdk/lab" / method]):
        if folder.is_dir():
            headers.update(file.relative_to(root).as_posix() for file in folder.rglob("*.h"))
            shutil.rmtree(folder)
            said.append(f"folder {folder.relative_to(root)}")
    if not said:
        sys.exit(f"deletable: engine/reuse/ has no folder '{method}'")
    lines = 0
    for pattern in REGISTRIES:
        for file in root.glob(pattern):
            text = file.read_text()
            # Entries of a list, of which a line may have several; else whole lines.
            rest, entries = re.subn(rf"[ \t]*&{method}_method\(\),", "", text)
            kept = [line for line in rest.splitlines(True) if not re.search(rf"/{method}/|\b{method}_method\(", line)]
            if rest != text or len(kept) != len(text.splitlines()):
                lines += entries + len(rest.splitlines()) - len(kept)
                file.write_text("".join(kept))
    said.append(f"{lines} entries and lines of registries")
    said += delete_tests(root, method, headers)
    page = root / "docs/methods.md"
    text = page.read_text()
    shorter = re.sub(rf"(?im)^## `?{method}`?\n(?:(?!## ).*\n)*", "", text)
    said.append("its section of docs/methods.md" if shorter != text else "no section of docs/methods.md")
    page.write_text(shorter)
    return said


def delete_tests(root: pathlib.Path, method: str, headers: set[str]) -> list[str]:
    named, files, cases = mention(method), [], 0
    for folder in [f for f in (root / "tests").rglob(method) if f.is_dir()]:
        files += [folder.relative_to(root).as_posix() + "/"]
        shutil.rmtree(folder)
    for file in sorted((root / "tests").rglob("*.cpp")):
        text = file.read_text()
        included = set(re.findall(r'^#include "([^"]+)"', text, re.MULTILINE))
        if re.match(rf"{method}\w*_test$", file.stem) or included & headers:
            file.unlink()
            files.append(file.relative_to(root).as_posix())
            continue
        shorter, count = without_cases(text, named)
        if count:
            file.write_text(shorter)
            cases += count
    for file in sorted((root / "tests/workflows/format/errors").glob("*.yaml")):
        expected = file.with_suffix(".txt")
        if any(re.search(rf"\b{method}\b", f.read_text()) for f in (file, expected) if f.is_file()):
            file.unlink()
            expected.unlink(missing_ok=True)
            cases += 1
    return [f"tests: {', '.join(files) or 'no file'}, {cases} cases elsewhere"]


def build_and_run(copy: pathlib.Path, jobs: str | None) -> str | None:
    """Nothing, or what failed."""
    environment = os.environ | {"CCACHE_BASEDIR": str(copy), "CCACHE_NOHASHDIR": "1"}
    made = run(["cmake", "--preset", "release"], copy, capture_output=True, env=environment)
    if made.returncode != 0:
        return "it is not configured:\n" + (made.stdout + made.stderr)[-3000:]
    listed = run(["ninja", "-C", "build/release", "-t", "targets", "all"], copy, capture_output=True).stdout
    programs = sorted({line.partition(":")[0] for line in listed.split("\n") if PROGRAMS.match(line.partition(":")[0])})
    made = run(["cmake", "--build", "build/release", "--target", *programs]
               + (["-j", jobs] if jobs else []), copy, capture_output=True, env=environment)  # fmt: skip
    if made.returncode != 0:
        errors = [line for line in (made.stdout + made.stderr).split("\n") if "error" in line or "undefined" in line]
        return "it does not build:\n" + "\n".join(errors[:40] or [(made.stdout + made.stderr)[-3000:]])
    tests = [p for p in programs if "_test_" in p]
    if any("workflows" in p for p in tests):  # docs/yaml.md lists the keys of the methods that are there
        run(["build/release/bin/baton_test_workflows", "write the reference"], copy, capture_output=True)
    for program in tests:
        done = run([f"build/release/{program}"], copy, capture_output=True)
        print(f"  {program.removeprefix('bin/')}: {(done.stdout.strip().split(chr(10)) or [''])[-1]}", flush=True)
        if done.returncode != 0:
            return f"{program}:\n{(done.stdout + done.stderr)[-4000:]}"
    return None


def main() -> int:
    options = argparse.ArgumentParser(prog="./dev deletable", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    options.add_argument("method", nargs="*", metavar="METHOD", help=f"default: {', '.join(METHODS)}, one after another")
    options.add_argument("--in-turn", action="store_true", help="one of them: another every day")
    options.add_argument("--jobs", help="compilers that run at once (default: one per core)")
    options.add_argument("--only-delete", action="store_true", help="make the copy and delete, without a build")
    given = options.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    methods = given.method or METHODS
    if given.in_turn:
        methods = [METHODS[datetime.date.today().toordinal() % len(METHODS)]]
    failed = []
    for method in methods:
        copy = root / "build/deletable"
        copy.mkdir(parents=True, exist_ok=True)
        copy_tree(root, copy)
        print(f"{method}: deleted: {'; '.join(delete(copy, method))}", flush=True)
        if given.only_delete:
            continue
        failure = build_and_run(copy, given.jobs)
        print(f"{method}: {'can be deleted' if failure is None else 'cannot be deleted: ' + failure}", flush=True)
        failed += [method] if failure else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
