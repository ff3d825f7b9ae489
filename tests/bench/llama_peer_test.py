#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama_peer.py with programs in place of both that print what they are told."""

import contextlib
import io
import json
import pathlib
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import llama_peer  # noqa: E402

BATON = """\
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
if arguments[0] == "run":
    print(json.dumps({"agents": [{"prompt_tokens": 30 if "the the the the the" not in " ".join(arguments) else 510}]}))
elif value("--decode").endswith("4112"):
    sys.exit("--decode: a depth of 4112 tokens; the context of 2048 leaves room for 2047")
else:
    rows = int(value("--decode").split("x")[0])
    print(json.dumps({"prefill": [{"tokens_per_s": 200.0}], "decode": [{"tokens_per_s": 30.0 * rows}]}))
"""
LLAMA_BENCH = """\
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
assert value("-r") == "1" and value("-ngl") == "0" and value("-t") == "3", arguments
print(json.dumps([{"avg_ts": 100.0 if value("-fa") == "off" else 50.0}]))
"""
LLAMA_BATCH = """\
arguments = sys.argv[1:]
rows = int(arguments[arguments.index("-npl") + 1])
print("main: something else")
seen = pathlib.Path(__file__ + f".{rows}")
if seen.exists():  # the first time it loses its output
    print(json.dumps({"pl": rows, "speed_tg": 20.0 * rows}))
seen.touch()
"""


class LlamaPeer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, body in (("baton", BATON), ("baton-lab", BATON), ("llama-bench", LLAMA_BENCH), ("llama-batched-bench", LLAMA_BATCH)):
            self.program(name, body)
        (self.folder / "m.gguf").write_text("")
        self.load = 0.0
        before = llama_peer.idle_load
        llama_peer.idle_load = lambda: self.load
        self.addCleanup(setattr, llama_peer, "idle_load", before)

    def program(self, name, body):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\nimport json, pathlib, sys\n{body}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_it(self, *more):
        out, errors = io.StringIO(), io.StringIO()
        arguments = ["llama_peer.py", "--llama-bin", self.folder, "--model", self.folder / "m.gguf", "--baton", self.folder / "baton",
                     "--threads", "3", "--pairs", "2", "--max-load", "1000", *more]
        before, sys.argv = sys.argv, [str(word) for word in arguments]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                llama_peer.main()
        finally:
            sys.argv = before
        return out.getvalue(), errors.getvalue()

    def test_table(self):
        out, _ = self.run_it("--json", self.folder / "out.json")
        self.assertIn("| prefill of 512 tokens | tokens/s | 200.0 (200.0 to 200.0) | 100.0 (100.0 to 100.0) | 2.00 | off |", out)
        self.assertIn("| decode behind 1,024 tokens | tokens/s | 30.0 (30.0 to 30.0) | 100.0 (100.0 to 100.0) | 0.30 | off |", out)
        self.assertIn("| decode of 8 sequences behind 512 | tokens/s | 240.0 (240.0 to 240.0) | 160.0 (160.0 to 160.0) | 1.50 | on |", out)
        self.assertIn("Left out: decode behind 4,096 tokens: the model's context is shorter.", out)
        self.assertRegex(out, r"\| peak memory \| MiB \| \d")
        self.assertRegex(out, r"\| start to first token and end \| s \| \d")
        lines = json.loads((self.folder / "out.json").read_text())["lines"]
        self.assertTrue(all(len(line["baton"]) == len(line["llama"]) == 2 for line in lines))
        self.assertEqual(len(lines), 9)

    def test_only(self):
        out, _ = self.run_it("--only", "batch")
        self.assertEqual(sum(line.startswith("| decode of") for line in out.splitlines()), 3)
        self.assertNotIn("prefill", out)
        out, _ = self.run_it("--only", "batch,decode", "--sequences", "2,3", "--behind", "64", "--depths", "7")
        self.assertIn("| decode of 3 sequences behind 64 |", out)
        self.assertIn("| decode behind 7 tokens |", out)
        self.assertEqual(sum(line.startswith("| decode") for line in out.splitlines()), 3)
        for wrong in (("--only", "speed"), ("--sequences", "1,x"), ("--sequences", "0"), ("--behind", "0")):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                self.run_it(*wrong)

    def test_a_busy_machine_is_refused(self):
        self.load = 1001.0
        with self.assertRaises(SystemExit) as refused:
            self.run_it("--only", "prefill")
        self.assertEqual(refused.exception.code, 3)
        out, said = self.run_it("--only", "prefill", "--anyway")
        self.assertIn("other processes use 1001.00 cores", said)
        self.assertIn("prefill of 512", out)
        out, _ = self.run_it("--only", "prefill", "--max-load", "-1", "--anyway")
        self.assertIn("| prefill of 512 tokens (!) |", out)
        self.assertIn("not to be reported", out)

    def test_a_program_that_fails_is_named(self):
        self.program("llama-bench", "sys.exit('no such model')")
        with self.assertRaises(llama_peer.Failed) as failed:
            self.run_it("--only", "prefill")
        self.assertIn("llama-bench", str(failed.exception))
        self.assertIn("no such model", str(failed.exception))
        self.program("llama-batched-bench", "print('nothing')")
        with self.assertRaises(llama_peer.Failed) as failed:
            self.run_it("--only", "batch")
        self.assertIn("llama-batched-bench printed no measurement", str(failed.exception))


if __name__ == "__main__":
    unittest.main()
