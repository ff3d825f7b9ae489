"""What surrounds the GPU tests, without a GPU: which tests run, what a pack may need, the parts' limits and codes, the
report. Run: gpu_test.py [C++ COMPILER]."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPILER = sys.argv.pop(1) if len(sys.argv) > 1 else "c++"
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import list_tests
import pack
import plots
import report
import tables

RATES = {"schema": 1, "device": "a GPU", "shape": "nano", "dtype": "bf16", "threads": 1, "params": {"layers": 10},
         "limits": {"gemm_gflops": 1000.0, "bandwidth_gbs": 100.0}, "logits_hash": "",
         "prefill": [{"tokens": 64, "tokens_per_s": 500.0, "share": 0.5}, {"tokens": 256, "tokens_per_s": 800.0, "share": 0.75}],
         "decode": [{"depth": 128, "rows": 4, "tokens_per_s": 2000.0, "share": 0.8, "recording": 0.01}], "methods": [],
         "row_costs": {"depth": 512, "slowdown": 0.1, "knee": 8, "steps": [{"rows": 0, "ms": 1.0}, {"rows": 8, "ms": 1.05}]},
         "load_ms": 30.0, "complete": True}
AGENT = {"agent": 1, "prompt_tokens": 172, "ttft_ms": 20.0, "kv_reuse_rate": 0, "decode_ms_per_token": 1.5}
AGENTS = {**RATES, "params": {"layers": 10, "prefix": 64, "question": 100, "output": 64},
          "methods": [{"method": "full", "agents": [AGENT], "row_ms": 500.0},
                      {"method": "relay", "agents": [{**AGENT, "ttft_ms": 5.0}], "row_ms": 400.0}]}
PEER = {"schema": 1, "engine": "Transformers 0", "device": "a GPU", "shape": "nano", "load_ms": 1.0,
        "prefill": [{"tokens": 64, "tokens_per_s": 250.0, "cache": "static"}],
        "decode": [{"depth": 128, "rows": 4, "tokens_per_s": 500.0, "cache": "static"}],
        "methods": [{"method": "full", "agents": [{"agent": 1, "prompt_tokens": 172, "ttft_ms": 40.0, "cache": "dynamic"}]}]}


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text, executable=False):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if executable:
            file.chmod(0o755)
        return file


class Lists(unittest.TestCase):
    def test_tests_with_the_label_gpu(self):
        def test(name, labels):
            return {"name": name, "command": ["/b/bin/baton_test_cuda", name.replace(",", "\\,")], "properties": [{"name": "LABELS", "value": labels}]}
        listing = {"tests": [test("a, b: c", ["cuda", "gpu"]), test("d", ["cpu"]), {"name": "no command", "properties": []}]}
        self.assertEqual(list_tests.lines_of(listing), ["baton_test_cuda\ta, b: c\n"])


class Pack(Folder):
    def test_what_a_program_may_need(self):
        elf = "Dynamic Section:\n  NEEDED               libm.so.6\n  NEEDED               libfmt.so.9\n  SONAME  x\n"
        self.assertEqual(pack.needed(elf), ["libm.so.6", "libfmt.so.9"])
        self.assertEqual(pack.unexpected(["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libcuda.so.1", "libcublasLt.so.13"]), [])
        for library in ("libstdc++.so.6", "libgcc_s.so.1", "libhwy.so.1", "libcudart.so.13", "libcublasXt.so.1", "libcfoo.so"):
            self.assertEqual(pack.unexpected([library]), [library])

    def test_glibc(self):
        self.assertEqual(pack.newest_glibc("GLIBC_2.2.5 x\n GLIBC_2.34 y\nGLIBC_2.9 GLIBCXX_3.4.30"), "2.34")
        self.assertEqual(pack.newest_glibc(""), "none")

    def test_too_large_and_not_clean(self):
        program = self.write("p.cpp", "#include <string>\nint main(int c, char** v) { return std::string(v[0]).size() == 1u + c; }\n")
        (self.folder / "build/bin").mkdir(parents=True)
        subprocess.run([COMPILER, program, "-o", self.folder / "build/bin/baton"], check=True)
        self.write("build/bin/gpu_tests.txt", "")
        wrong = pack.make(self.folder / "build", ROOT, self.folder / "out", 0.5)
        self.assertIn("baton needs libstdc++.so.6", wrong)
        self.assertIn("are more than 0.5", wrong[-1])
        self.assertEqual(pack.make(self.folder / "build", ROOT, self.folder / "out", 60), [f"{self.folder / 'out'} is not empty"])
        subprocess.run([COMPILER, "-static-libstdc++", "-static-libgcc", program, "-o", self.folder / "build/bin/baton"], check=True)
        self.assertEqual(pack.make(self.folder / "build", ROOT, self.folder / "second", 60), [])
        self.assertTrue(os.access(self.folder / "second/run.sh", os.X_OK))


class Measure(Folder):
    """measure.sh with programs that only pretend."""

    def setUp(self):
        super().setUp()
        for name in ("tests/gpu", "tests/data", "samples/models", "workflows/library"):
            (self.folder / name).mkdir(parents=True)
        for name in ("report.py", "tables.py", "plots.py"):
            shutil.copy(HERE / name, self.folder / "tests/gpu")
        (self.folder / "rates.json").write_text(json.dumps(AGENTS))
        self.runner("ok    device cuda:0  a GPU")
        self.write("bin/gpu_tests.txt", "test_a\tone, with a comma\ntest_b\ttwo\n")
        self.write("bin/test_a", f'#!/bin/sh\necho ran; echo "SKIPPED: too old"\n', True)
        self.write("bin/test_b", "#!/bin/sh\nexit 0\n", True)

    def runner(self, device, bench="cat {}/rates.json"):
        self.write("bin/baton", f'#!/bin/sh\ncase $1 in doctor) echo "{device}" ;; bench) {bench.format(self.folder)} ;; *) exit 9 ;; esac\n', True)

    def measure(self, *options, code, env=os.environ):
        done = subprocess.run([str(HERE / "measure.sh"), "--bin", self.folder / "bin", "--root", self.folder, "--out", self.folder / "out",
                               *options], capture_output=True, text=True, cwd="/", timeout=60, env={**env, "PYTHON": "/nonexistent"})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def states(self):
        return {part["part"]: part["state"] for part in json.loads((self.folder / "out/results.json").read_text())["parts"]}

    def test_no_gpu(self):
        self.runner("warn  device cuda   no driver (the CPU is used)")
        said = self.measure(code=4).stderr
        self.assertIn("No usable GPU: no driver\n", said)
        self.assertIn("one, with a comma", said)

    def test_all_well(self):
        done = self.measure("--only", "tests,shapes,launch,peer", code=0)
        self.assertIn("ran", (self.folder / "out/parts/tests-test_a.txt").read_text())
        self.assertIn("1 SKIPPED: too old", done.stderr)
        self.assertEqual(self.states()["tests-test_b"], "ok")
        self.assertEqual(self.states()["peer"], "not run")
        self.assertIn("# Measured on a GPU", done.stdout)
        self.assertTrue((self.folder / "out/prefill.svg").exists())

    def test_a_failure_does_not_stop_the_others(self):
        self.write("bin/test_a", "#!/bin/sh\necho wrong number; exit 3\n", True)
        said = self.measure("--only", "tests,load", code=1).stderr
        self.assertIn("wrong number", said)
        self.assertEqual(self.states(), {"tests-test_a": "failed", "tests-test_b": "ok", "load-nano": "ok"})

    def test_under_the_sanitizer(self):
        said = self.write("tools/compute-sanitizer", '#!/bin/sh\necho "$@"\n', True).parent
        with_it = {**os.environ, "PATH": f"{said}:{os.environ['PATH']}"}
        self.measure("--only", "sanitize", "--sanitize", code=0, env=with_it)
        self.assertEqual(set(self.states()), {f"{tool}-test_{x}" for tool in ("memcheck", "racecheck") for x in "ab"})
        self.assertIn("--tool racecheck --error-exitcode 9", (self.folder / "out/parts/racecheck-test_a.txt").read_text())

    def test_limits(self):
        self.runner("ok    device cuda:0  a GPU", bench="exec sleep 30")
        said = self.measure("--only", "shapes", "--budget", "6", code=1).stderr
        self.assertIn("no end within", said)
        self.assertIn("the 6 seconds are over", said)

    def test_mistakes(self):
        for options in (["--device", "abacus"], ["--budget", "soon"], ["--frobnicate"], ["--bin", "/nonexistent"], ["--out"]):
            self.measure(*options, code=2)


class Report(Folder):
    def results(self):
        return {"schema": 1, "machine": [], "parts": [{"part": "x", "state": "ok", "seconds": "1", "why": ""}], "rates": [RATES],
                "agents": [AGENTS], "peer": [PEER], "launch_ms_per_layer": 0.0125, "load": RATES, "team": {},
                "agreement": {"questions": 2, "runs_equal": 0.5, "answers_equal": 0.75, "tokens_before_first_difference": 0.9}}

    def test_tables(self):
        text = tables.markdown(self.results())
        self.assertIn("| nano | 64 | 500.0 | 50.0 % | 250.0 | 2.00 x |", text)
        self.assertIn("| nano | 256 | 800.0 | 75.0 % |  |  |", text)
        self.assertIn("| nano | 4 | 128 | 2,000 | 2.000 | 80.0 % | 1.0 % | 500.0 (static) | 4.00 x |", text)
        self.assertIn("| 1 | 172 | 20.0 | 5.0 (4.00 x) | 40.0 | 2.00 x |", text)
        self.assertIn("12.5 µs", text)
        self.assertIn("8 (at most 10 % slower)", text)
        for line in text.splitlines():
            if line.startswith("|"):
                self.assertTrue(line.endswith("|"), line)

    def test_nothing_measured(self):
        nothing = report.collect(self.folder)
        self.assertEqual(tables.markdown(nothing).splitlines()[0], "# Measured on no device")
        self.assertEqual(plots.all_plots(nothing), {})

    def test_cut_off_results(self):
        self.write("parts/rates-a.json", json.dumps(RATES))
        self.write("parts/rates-b.json", '{"schema": 1, "pre')
        self.write("parts/rates-c.json", json.dumps({**RATES, "prefill": [], "decode": [], "complete": False, "row_costs": None}))
        found = report.collect(self.folder)
        self.assertEqual(len(found["rates"]), 2)
        tables.markdown(found), plots.all_plots(found)

    def test_plots_are_svg(self):
        made = plots.all_plots(self.results())
        self.assertEqual(set(made), {"prefill", "rows", "first-token-nano"})
        for svg in made.values():
            self.assertEqual(xml.dom.minidom.parseString(svg).documentElement.tagName, "svg")
        self.assertIn("Transformers, full", made["first-token-nano"])

    def test_agreement(self):
        def answers(name, *lines):
            return self.write(name, "".join(json.dumps({"id": i, "method": "full", "tokens": t}) + "\n" for i, t in lines))
        ours = answers("a", ("q1", {"x": [1, 2, 3, 4]}), ("q2", {"x": [5], "y": [6, 7, 8]}))
        theirs = answers("b", ("q1", {"x": [1, 2, 9]}), ("q2", {"x": [5], "y": [6, 7, 8]}), ("q3", {"x": [1]}))
        self.assertEqual(report.agreement(ours, theirs), {"questions": 2, "runs_equal": 0.5, "answers_equal": 2 / 3,
                                                          "tokens_before_first_difference": 6 / 8})
        self.assertIsNone(report.agreement(ours, self.folder / "none"))


if __name__ == "__main__":
    unittest.main()
