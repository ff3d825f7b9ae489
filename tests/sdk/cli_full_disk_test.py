#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disks that are full and streams that are closed: errors that name the file and the reason, and nothing half-written.

Every writer meets a limit on the size of files, and a small file system where this process may mount one.

Usage: cli_full_disk_test.py RUNNER [unittest options]     BATON_TEST_NIGHTLY=1: many more sizes
"""

import ctypes
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import unittest

from hub_server import COMMIT, Repository, Server
from runner import Cli, command, QUESTION, ROOT, RUNNER, TEAM

NIGHTLY = os.environ.get("BATON_TEST_NIGHTLY", "0") not in ("", "0")
NANO = ROOT / "samples/models/nano"
REASON = "No space left on device|File too large"
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
LIBC = ctypes.CDLL(None, use_errno=True)
LEARNING = TEAM.replace("defaults:", "relay: {method: anchors, min_tokens: 1}\ndefaults:")


def private_mounts():
    """True when this process, from now on, has mounts that nobody else sees; they end with it."""
    return LIBC.unshare(CLONE_NEWNS) == 0 and LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0


MOUNTS = private_mounts()


class Place:
    """A folder with `room` bytes, by a limit on files or by a file system."""

    def __init__(self, test, folder, room, mounted):
        self.folder, self.mounted, self.room = folder, mounted, room
        folder.mkdir()
        if mounted and LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=4m,mode=755") != 0:
            raise OSError(ctypes.get_errno(), "mount")
        if mounted:
            test.addCleanup(LIBC.umount2, os.fsencode(folder), 2)

    def fill(self):
        """From now on there is no more room."""
        if not self.mounted:
            return
        with open(self.folder / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass
            filler.truncate(max(0, filler.tell() - self.room))

    def empty(self):
        (self.folder / "filler").unlink(missing_ok=True)

    def limit(self):
        """Runs in the child, before the runner."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.room, resource.RLIM_INFINITY))

    def names(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.name != "filler")


class FullDisk(Cli):
    def setUp(self):
        super().setUp()
        self.write("learning.yaml", LEARNING)
        self.write("two.jsonl", "".join(json.dumps({"id": f"q{i}", "inputs": {"question": f"What is {i} x 7?"}, "answer": str(7 * i)}) + "\n"
                                        for i in range(4)))

    def environment(self, **changes):
        return super().environment(**{"XDG_CACHE_HOME": str(self.folder / "cache"), "HF_HOME": str(self.folder / "hf"), **changes})

    def places(self, *sizes, more=()):
        sizes = (*sizes, *(more if NIGHTLY else ()))
        for mounted in (False, True) if MOUNTS else (False,):
            for room in sizes:
                yield Place(self, self.folder / f"{'mounted' if mounted else 'limited'}_{room}", room, mounted)

    def within(self, place, *arguments, **changes):
        return subprocess.run(command(*arguments), cwd=self.folder, env=self.environment(**changes), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, preexec_fn=place.limit)

    def assert_failed(self, done, code, *names):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, REASON)
        for name in names:
            self.assertIn(str(name), done.stderr)

    def test_record_folder(self):
        expected = self.baton("run", self.team, "-i", QUESTION, "-q").stdout
        for place in self.places(0, 2000, 4096, more=range(500, 20000, 1300)):
            place.fill()
            done = self.within(place, "run", self.team, "-i", QUESTION, "-q", "--record", str(place.folder / "runs/1"))
            self.assertEqual(done.stdout, expected)  # the result does not go with its record
            if done.returncode == 0:
                json.loads((place.folder / "runs/1/run.json").read_text())
                continue
            self.assert_failed(done, 1, "--record", place.folder / "runs/1")
            journal = place.folder / "runs/1.journal"
            if journal.exists():
                self.assertRegex(done.stderr, "baton resume|turns from here on would be run again")
                self.assertEqual(journal.read_text()[-1], "\n")
            else:
                self.assertIn(place.names(), ([], ["runs"]))
            later = ["resume"] if journal.exists() else ["run", self.team, "-i", QUESTION, "--record"]
            place.empty()
            self.baton(*later, str(place.folder / "runs/1"), "-q")
            self.assertEqual(json.loads((place.folder / "runs/1/run.json").read_text())["state"], "ok")

    def test_anchors(self):
        expected = self.baton("run", "learning.yaml", "-i", QUESTION, "-q").stdout
        warned = 0
        for place in self.places(0, 5000, more=(1, 100, 4096, 20000, 50000)):
            place.fill()
            arguments = ["run", "learning.yaml", "-i", QUESTION, "--anchors-dir", str(place.folder / "anchors")]
            done = self.within(place, *arguments)
            self.assertEqual((done.returncode, done.stdout), (0, expected), done.stderr)
            if re.search(REASON, done.stderr):  # else it learned nothing in the little time that it had
                warned += 1
                self.assertRegex(done.stderr, f"warning: .*{place.folder}/anchors.*({REASON})|warning: .*({REASON}).*{place.folder}/anchors")
            self.assertIn(place.names(), ([], ["anchors"]))
            place.empty()
            self.assertNotIn(".anchors", self.baton(*arguments).stderr)
            self.assertEqual([name for name in place.names() if "/" in name and not name.endswith(".anchors")], [])
        self.assertGreater(warned, 0)

    def model_without_measurements(self):
        model = self.folder / "model"
        model.mkdir(exist_ok=True)
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
            if not (model / name).exists():
                shutil.copy(NANO / name, model / name)
        return str(model)

    def test_cache_of_what_was_measured(self):
        model = self.model_without_measurements()
        for relay in ("{method: rectify, min_tokens: 1}",):  # the layers of preset paper are measured and kept
            self.write("measured.yaml", TEAM.replace("defaults:", f"relay: {relay}\ndefaults:"))
            self.write("one.jsonl", json.dumps({"id": "q", "inputs": {"question": "hello"}, "answer": "1"}) + "\n")
            arguments = ["eval", "measured.yaml", "--dataset", "one.jsonl", "--model", f"main={model}", "--floor-limit", "0", "--methods", "full,rectify:preset=paper",
                         "--json", "-q"]

            def answers(done):
                self.assertEqual(done.returncode, 0, done.stderr)
                return [(row["method"], row["accuracy"], row["kl_mean"], row["kv_reuse_rate"]) for row in json.loads(done.stdout)["methods"]]

            expected = answers(self.baton(*arguments))
            self.assertEqual(len(list((self.folder / "cache").rglob("*.json"))), 1)
            shutil.rmtree(self.folder / "cache")
            for place in self.places(0, more=(100,)):
                place.fill()
                done = self.within(place, *arguments, XDG_CACHE_HOME=str(place.folder / "cache"))
                self.assertEqual(answers(done), expected)
                self.assertEqual([name for name in place.names() if "." in name], [])  # the next process measures again
                shutil.rmtree(place.folder, ignore_errors=True) if not place.mounted else LIBC.umount2(os.fsencode(place.folder), 2)
                place.folder.rmdir() if place.folder.exists() else None

    def test_profile(self):
        model = pathlib.Path(self.model_without_measurements())
        for place in self.places(0, more=(300, 2000)):
            there = place.folder / "model"
            if not place.mounted:
                shutil.copytree(model, there)
            else:
                there.mkdir()
                for file in model.iterdir():
                    (there / file.name).symlink_to(file)
            before = place.names()
            place.fill()
            done = self.within(place, "profile", "--model", str(there), "--handovers", "2", "--reading", "slope",
                               XDG_CACHE_HOME=str(place.folder / "cache"))
            if place.room == 0:
                self.assert_failed(done, 4, place.folder)
            self.assertEqual([name for name in place.names() if name not in before and name != "cache" and name != "cache/baton"
                              and name != "cache/baton/profiles" and name != "model/baton.profile.json"], [])
            if (there / "baton.profile.json").exists():
                json.loads((there / "baton.profile.json").read_text())

    def test_pull(self):
        data = b"GGUF" + bytes(range(256)) * 6000
        server = Server()
        self.addCleanup(server.close)
        server.add("org/one", Repository({"one-Q8_0.gguf": data}))
        for place in self.places(0, 500_000, more=(1, 4096, 1_000_000)):
            place.fill()
            settings = {"HF_ENDPOINT": server.url, "HF_HOME": str(place.folder / "hf"), "HOME": str(self.folder)}
            done = self.within(place, "pull", "org/one", "--retries", "0", **settings)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertRegex(done.stderr, f"{REASON}|are needed in {place.folder}")
            self.assertIn(str(place.folder), done.stderr)
            self.assertEqual([name for name in place.names() if name.endswith(".gguf")], [])
            self.assertEqual([path for path in place.folder.rglob("blobs/*") if not path.name.endswith((".incomplete", ".etag"))], [])
            place.empty()
            path = self.baton("pull", "org/one", **settings).stdout.strip()
            self.assertEqual(pathlib.Path(path).read_bytes(), data)
            self.assertEqual([name for name in place.names() if ".incomplete" in name], [])

    @unittest.skipUnless(MOUNTS, "this process may not mount a small file system")
    def test_pull_without_an_end(self):
        """A file whose size nobody states ends before the disk is full."""
        server = Server()
        self.addCleanup(server.close)
        server.add("org/one", Repository({"one-Q8_0.gguf": b"GGUF"}))
        server.knows_blobs = server.knows_tree = False

        def endless(handler):
            handler.send_response(200)
            handler.send_header("ETag", '"x"')
            handler.send_header("Connection", "close")
            handler.end_headers()
            try:
                while handler.command != "HEAD":
                    handler.wfile.write(b"x" * 10_000)
            except OSError:
                pass
            handler.close_connection = True
        server.override["/org/one/resolve/%s/one-Q8_0.gguf" % COMMIT] = endless
        place = Place(self, self.folder / "small", 0, mounted=True)
        done = self.within(place, "pull", "org/one", HF_ENDPOINT=server.url, HF_HOME=str(place.folder / "hf"), HOME=str(self.folder))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stderr, r"one-Q8_0\.gguf: its size was not announced, and it has more than the 3\.[56] MiB that it may take in ")
        self.assertEqual([name for name in place.names() if ".incomplete" in name or name.endswith(".gguf")], [])

    def test_eval(self):
        arguments = ["eval", self.team, "--dataset", "two.jsonl", "--methods", "full,direct", "--floor-limit", "0", "--jobs", "1", "-q"]
        self.baton(*arguments, "--resume", "whole.jsonl", "--answers", "answers.jsonl")
        lines = (self.folder / "whole.jsonl").read_text().splitlines()
        identity = lambda text: [(line.get("id"), line.get("method")) for line in map(json.loads, text.splitlines())]
        for place in self.places(0, len(lines[0]) + len(lines[1]) + 200, more=range(100, 6000, 700)):
            place.fill()
            for option, whole in (("--resume", "whole.jsonl"), ("--answers", "answers.jsonl")):
                file = place.folder / whole
                done = self.within(place, *arguments, option, str(file))
                if done.returncode != 0:
                    self.assertIn(done.returncode, (1, 2), done.stderr)  # 2: it cannot be begun
                    self.assert_failed(done, done.returncode, option, file)
                text = file.read_text() if file.exists() else ""
                self.assertTrue(text == "" or text.endswith("\n"), text[-100:])
                self.assertEqual(identity(text), identity((self.folder / whole).read_text())[:len(text.splitlines())])
                file.unlink(missing_ok=True)
            file = place.folder / "whole.jsonl"
            self.within(place, *arguments, "--resume", str(file))
            place.empty()
            self.baton(*arguments, "--resume", str(file))
            self.assertEqual(identity(file.read_text()), identity((self.folder / "whole.jsonl").read_text()))

    def test_report_and_init(self):
        self.baton("run", self.team, "-i", QUESTION, "-q", "--record", "runs")
        self.baton("init", "mine")
        for place in self.places(0, 1000, 4096, more=range(300, 40000, 2700)):
            page = place.folder / "page.html"
            self.baton("report", "runs", "-o", str(page))
            earlier = page.read_text()
            place.fill()
            for _ in range(2):
                done = self.within(place, "report", "runs", "-o", str(page))
                if done.returncode != 0:
                    self.assert_failed(done, 1, page)
                self.assertIn(page.read_text() if page.exists() else earlier, (earlier,))
                page.unlink(missing_ok=True)
                place.fill()
            team = place.folder / "mine/team.yaml"
            done = self.within(place, "init", str(place.folder / "mine"))
            if done.returncode != 0:
                self.assertIn(done.returncode, (1, 2) if place.mounted else (1,), done.stderr)  # 2: no folder can be made
                self.assert_failed(done, done.returncode, place.folder / "mine")
            for name in ("team.yaml", "baton.v1.schema.json"):
                if (team.parent / name).exists():
                    self.assertEqual((team.parent / name).read_text(), (self.folder / "mine" / name).read_text())
            self.assertLessEqual(set(place.names()), {"mine", "mine/team.yaml", "mine/baton.v1.schema.json"})


class Streams(Cli):
    """Standard streams that are full, or closed from the start."""

    def setUp(self):
        super().setUp()
        self.write("one.jsonl", json.dumps({"id": "q", "inputs": {"question": "What is 6 x 7?"}, "answer": "42"}) + "\n")
        self.baton("run", self.team, "-i", QUESTION, "-q", "--record", "runs")
        self.run_verb = ["run", self.team, "-i", QUESTION, "-q"]

    def verbs(self):
        return [self.run_verb, [*self.run_verb, "--json"], [*self.run_verb, "--events", "ndjson"], ["check", self.team],
                ["check", "--plan", self.team], ["check", self.team, "--graph"], ["check", self.team, "--render", "solver", "-i", QUESTION],
                ["report", "runs", "-o", "-"], ["report", "runs"], ["models"], ["models", "--json"], ["doctor"], ["check", "--schema"],
                ["completion", "bash"], ["--version"], ["--help"], ["run", "--help"],
                ["eval", self.team, "--dataset", "one.jsonl", "--methods", "full", "-q"]]

    def test_full_stdout(self):
        for verb in self.verbs():
            with self.subTest(verb=verb), open("/dev/full", "w") as full:
                done = subprocess.run(command(*verb), cwd=self.folder, stdout=full, stderr=subprocess.PIPE, env=self.environment(), text=True)
                self.assertEqual(done.returncode, 1)
                self.assertIn("could not write to standard output: No space left on device", done.stderr)

    def test_a_file_as_stdout_that_may_not_grow(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        with open(self.folder / "out.json", "w") as out:
            done = subprocess.run([RUNNER, *self.run_verb, "--json"], cwd=self.folder, stdout=out, stderr=subprocess.PIPE,
                                  env=self.environment(), text=True, preexec_fn=limit)
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not write to standard output: File too large", done.stderr)

    def test_full_stderr(self):
        expected = self.baton(*self.run_verb).stdout
        with open("/dev/full", "w") as full:
            done = subprocess.run([RUNNER, *self.run_verb[:-1]], cwd=self.folder, stdout=subprocess.PIPE, stderr=full,
                                  env=self.environment(), text=True)
        self.assertEqual((done.returncode, done.stdout), (0, expected))

    def test_closed_at_the_start(self):
        writers = {"init": ["init", "made"], "report": ["report", "runs", "-o", "page.html"],
                   "eval": ["eval", self.team, "--dataset", "one.jsonl", "--methods", "full", "--resume", "log.jsonl", "--answers", "said.jsonl"]}
        open_files = {}
        for closed in ("", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            for name, verb in writers.items():
                with self.subTest(verb=name, closed=closed):
                    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command(*verb)], cwd=self.folder, env=self.environment(),
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    lost = name != "init" and closed in (">&-", "<&- >&- 2>&-")  # what it prints
                    self.assertEqual(done.returncode, 1 if lost else 0, done.stderr)
            found = {"team": (self.folder / "made/team.yaml").read_text(), "page": (self.folder / "page.html").read_text(),
                     "said": (self.folder / "said.jsonl").read_text(),
                     "log": [sorted(json.loads(line)) for line in (self.folder / "log.jsonl").read_text().splitlines()]}
            open_files = open_files or found
            self.assertEqual(found, open_files)
            shutil.rmtree(self.folder / "made")
            for name in ("page.html", "said.jsonl", "log.jsonl"):
                (self.folder / name).unlink()


if __name__ == "__main__":
    unittest.main()
