# SPDX-License-Identifier: Apache-2.0
"""Seeds mistakes into the code, one at a time, and runs the test that must find each.

The tracked and new files of the working tree are copied to a folder, built once there, and then with one mistake at a
time. A mistake is found when the named test fails, or reports a broken rule.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile


def _run(command, folder, **more):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **more)


def _copy_tree(root, to):
    files = _run(["git", "ls-files", "-co", "--exclude-standard"], root).stdout.split("\n")
    for name in filter(None, files):
        if (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes((root / name).read_bytes())


class _Copy:
    def __init__(self, folder, target, jobs):
        self.folder, self.target, self.jobs = folder, target, jobs

    def configure(self):
        _run(["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"], self.folder)

    def build(self):
        made = _run(["cmake", "--build", "build", "--target", self.target] + (["-j", self.jobs] if self.jobs else []),
                    self.folder, stdin=subprocess.DEVNULL, start_new_session=True)
        return None if made.returncode == 0 else (made.stdout + made.stderr)[-3000:]

    def cases(self, name):
        """The whole name of a case, or the beginning of several."""
        names = _run([f"build/bin/{self.target}", "--list-test-names-only"], self.folder).stdout.split("\n")
        found = [one for one in names if one == name] or [one for one in names if name in one]
        if not found:
            sys.exit(f"mutants: no test is named '{name}'")
        return found

    def first_failure(self, name, environment=()):
        """What the first failing case of this name says, or nothing."""
        for case in self.cases(name):
            try:
                done = _run([f"build/bin/{self.target}", case.replace(",", "\\,")], self.folder, timeout=300,
                            env=os.environ | dict(environment))
            except subprocess.TimeoutExpired:
                return f"{case}: it does not end"
            if done.returncode != 0:
                said = [line for line in (done.stdout + done.stderr).split("\n")
                        if "strict runtime:" in line or "FAILED" in line or "due to" in line]
                return f"{case}: {(said or ['exit code %d' % done.returncode])[0]}"
        return None


def main(description, target, base, mutants, without=None):
    """mutants: what goes wrong, the file below `base`, the text and what stands in its place, the test that finds it.
    without: a name and the environment of a second run of the tests, which says what they find without a tool.
    Exits with code 1 when a mistake is not found, or when a test fails without a mistake."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", help="numbers of mistakes, from 1, separated by commas")
    options.add_argument("--build", help="the folder for the copy; kept (default: a temporary one)")
    options.add_argument("--jobs", help="compilers that run at once (default: one per core)")
    given = options.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as temporary:
        copy = _Copy(pathlib.Path(given.build or temporary).resolve(), target, given.jobs)
        _copy_tree(root, copy.folder)
        copy.configure()
        if failure := copy.build():
            sys.exit(f"mutants: it does not build without a mistake:\n{failure}")
        chosen = range(len(mutants)) if not given.only else [int(one) - 1 for one in given.only.split(",")]
        missed, missed_without = [], []
        for name in sorted({mutants[i][4] for i in chosen}):
            if failure := copy.first_failure(name):
                sys.exit(f"mutants: a test fails without a mistake: {failure}")
        for i in chosen:
            what, file, text, instead, test = mutants[i]
            path = copy.folder / base / file
            source = path.read_text()
            if source.count(text) != 1:
                sys.exit(f"mutants: {file} holds the text of mistake {i + 1} {source.count(text)} times")
            path.write_text(source.replace(text, instead))
            failure = copy.build()
            found = "the compiler" if failure else copy.first_failure(test)
            found_without = without is None or failure or copy.first_failure(test, without[1])
            path.write_text(source)
            print(f"{i + 1:2} {'found' if found else 'MISSED':6} {what}\n          {found or test}", flush=True)
            if found and not found_without:
                print(f"          not without {without[0]}", flush=True)
            if not found:
                missed.append(i + 1)
            if not found_without:
                missed_without.append(i + 1)
        print(f"{len(list(chosen)) - len(missed)} of {len(list(chosen))} mistakes found")
        if without is not None:
            print(f"{len(missed_without)} are not found without {without[0]}: {missed_without}")
        sys.exit(1 if missed else 0)
