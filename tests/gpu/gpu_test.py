# SPDX-License-Identifier: Apache-2.0
"""What surrounds the GPU tests, without a GPU: which tests run, what a pack may need, the parts' limits and codes, the
report. Run: gpu_test.py [C++ COMPILER]."""

import json
import math
import os
import pathlib
import shutil
import struct
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

import agent_tables
import bounds
import predictions
import list_tests
import pack
import plots
import published
import random_gguf
import report
import tables

RATES = {"schema": 1, "device": "a GPU", "shape": "nano", "dtype": "bf16", "threads": 1, "params": {"layers": 10},
         "limits": {"gemm_gflops": 1000.0, "bandwidth_gbs": 100.0}, "logits_hash": "",
         "prefill": [{"tokens": 64, "tokens_per_s": 500.0, "share": 0.5}, {"tokens": 256, "tokens_per_s": 800.0, "share": 0.75}],
         "decode": [{"depth": 128, "rows": 4, "tokens_per_s": 2000.0, "share": 0.8, "recording": 0.01}], "methods": [],
         "row_costs": {"depth": 512, "slowdown": 0.1, "knee": 8, "steps": [{"rows": 0, "ms": 1.0}, {"rows": 8, "ms": 1.05}]},
         "load_ms": 30.0, "complete": True}
AGENT = {"agent": 1, "prompt_tokens": 172, "ttft_ms": 20.0, "kv_reuse_rate": 0, "decode_ms_per_token": 1.5,
         "breakdown_ms": {"match": 1.0, "copy": 2.0, "full_layers": 15.0, "detect": 0.5, "sparse_layers": 0.75, "tail": 0.5, "other": 0.25}}
AGENTS = {**RATES, "params": {"layers": 10, "layers_range": [1, 3, 6], "agents": 2, "prefix": 64, "question": 100, "output": 64, "select": 0.18},
          "memory": {"kv_peak_bytes": 2**20, "segments_peak_bytes": 2**21, "weights_bytes": 2**22},
          "methods": [{"method": "full", "agents": [AGENT], "row_ms": 500.0},
                      {"method": "rectify", "agents": [{**AGENT, "ttft_ms": 5.0}], "row_ms": 400.0}]}
HOSTED = {**AGENTS, "methods": [{"method": "rectify", "agents": [{**AGENT, "ttft_ms": 7.5}]},
                                {"method": "anchors", "anchors": 20, "agents": [{**AGENT, "ttft_ms": 9.0}]}]}
PARTS = {"match": 1.0, "copy": 2.0, "full_layers": 3.0, "detect": 0.0, "sparse_layers": 0.5, "tail": 0.25, "other": 0.25}
NANO = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 10, "num_attention_heads": 6, "num_key_value_heads": 2,
        "vocab_size": 1280, "head_dim": 32}
LLAMA_8B = bounds.LLAMA_8B
QWEN_06B = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
            "head_dim": 128, "vocab_size": 151936}


def row(name, *ms, **more):
    """A method of `baton-lab bench`, its agents' first tokens in order."""
    return {"method": name, **more, "agents": [{**AGENT, "agent": i + 1, "prompt_tokens": 100 * (i + 1), "ttft_ms": one, "breakdown_ms": PARTS,
                                                "kv_reuse_rate": 0.5} for i, one in enumerate(ms)], "wall_ms": sum(ms)}


def run_of(shape, layers, cases, **params):
    """A run of `baton-lab bench` with lists."""
    return {**RATES, "shape": shape, "prefill": [], "decode": [], "row_costs": None, "methods": [],
            "params": {"layers": layers, "layers_range": [1, 3, 6], "agents": 3, "prefix": 64, "question": 48, "output": [], "select": 0.18,
                       **params},
            "cases": [{"prefix": prefix, "output": output, "methods": methods} for prefix, output, methods in cases],
            "memory": {"kv_peak_bytes": 2**20, "segments_peak_bytes": 2**21, "weights_bytes": 2**22}}


GRID = run_of("nano", 10, [(64, 32, [row("full", 10.0, 20.0, 40.0), row("prefix", 10.0, 15.0, 30.0), row("rectify", 10.0, 5.0, 8.0),
                                     row("lockstep", 10.0, 1.0, 2.0), row("anchors", 10.0, 4.0, 10.0, anchors=20)])])
SCALING = run_of("nano", 10, [(64, output, [row("full", 10.0, 20.0, 40.0), row("rectify", 10.0, 5.0, 8.0, select=0.18),
                                            row("rectify", 10.0, 2.5, 4.0, select=0.05)]) for output in (256, 512, 6144)], select=[0.18, 0.05])
ANCHORS = run_of("nano", 10, [(64, tokens, [row("anchors", 10.0, tokens / 100, anchors=count) for count in (5, 25)])
                              for tokens in (1024, 4096)], agents=2)
HELD = {"method": "rectify", "cache": 4441.2, "cache_recording": 4420.0, "ahead": 0, "keys_values": 2560, "hidden": 384, "received": 4,
        "entropy": 4, "ids": 4, "anchor": 0}
MEMORY = {**run_of("nano", 10, []), "memory": {"kv_peak_bytes": 2**20, "segments_peak_bytes": 2**21, "weights_bytes": 2**22, "by_method": [
    HELD, {**HELD, "method": "anchors", "anchor": 2692}]}}
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


class RandomGguf(Folder):
    def header(self, tokens=300):
        """The beginning of a GGUF file of the architecture qwen2."""
        def text(value):
            return struct.pack("<Q", len(value)) + value.encode()
        pairs = [text("general.architecture") + struct.pack("<I", 8) + text("qwen2"),
                 text("qwen2.block_count") + struct.pack("<II", 4, 99),
                 text("qwen2.rope.freq_base") + struct.pack("<If", 6, 1e6),
                 text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, tokens) + b"".join(text(f"t{i}") for i in range(tokens))]
        return struct.pack("<4sIQQ", b"GGUF", 3, 7, len(pairs)) + b"".join(pairs)

    def test_a_file_of_another_shape(self):
        shape = random_gguf.Shape(2, 512, 768, 8, 2, 64)
        out = self.folder / "out.gguf"
        random_gguf.write(random_gguf.Metadata(self.header() + b"tensors"), shape, out)
        data = out.read_bytes()
        made = random_gguf.Metadata(data)
        self.assertEqual(made.pairs["qwen2.block_count"], struct.pack("<II", 4, 2))
        self.assertEqual(made.vocabulary(), 300)
        at, end, found = made.end, 0, {}
        for _ in range(struct.unpack("<Q", data[8:16])[0]):
            size = struct.unpack_from("<Q", data, at)[0]
            name = data[at + 8:at + 8 + size].decode()
            at += 8 + size
            rank = struct.unpack_from("<I", data, at)[0]
            dims = struct.unpack_from(f"<{rank}Q", data, at + 4)
            kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * rank)
            at += 16 + 8 * rank
            self.assertEqual((offset % 32, offset), (0, end), name)
            weights, block = random_gguf.BLOCK[kind]
            self.assertEqual(dims[0] % weights, 0, name)
            end = random_gguf.padded(offset + math.prod(dims) // weights * block)
            found[name] = kind
        self.assertEqual(len(found), 2 * 12 + 3)
        self.assertEqual((found["blk.0.attn_q.weight"], found["output.weight"]), (random_gguf.Q4_K, random_gguf.Q6_K))
        self.assertEqual(len(data), random_gguf.padded(at) + end)

    def test_scales_are_finite(self):
        for kind, at in ((random_gguf.Q4_K, 0), (random_gguf.Q6_K, 208)):
            size = random_gguf.BLOCK[kind][1]
            blocks = random_gguf.tile(kind)
            scales = {struct.unpack_from("<e", blocks, i * size + at)[0] for i in range(random_gguf.TILE)}
            self.assertEqual(len(scales), 1)
            self.assertTrue(0 < scales.pop() < 1e-3)

    def test_a_file_that_is_cut_off(self):
        with self.assertRaisesRegex(SystemExit, "ends within its metadata"):
            random_gguf.Metadata(self.header()[:-5])


class Pack(Folder):
    def test_what_a_program_may_need(self):
        elf = "Dynamic Section:\n  NEEDED               libm.so.6\n  NEEDED               libfmt.so.9\n  SONAME  x\n"
        self.assertEqual(pack.needed(elf), ["libm.so.6", "libfmt.so.9"])
        self.assertEqual(pack.unexpected(["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libcuda.so.1", "libgcc_s.so.1", "libcublasLt.so.13"]), [])
        for library in ("libstdc++.so.6", "libhwy.so.1", "libcudart.so.13", "libcublasXt.so.1", "libcfoo.so"):
            self.assertEqual(pack.unexpected([library]), [library])

    def test_symbols_of_a_newer_glibc(self):
        table = ("0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34) pthread_once\n"
                 "0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) free\n"
                 "0000000000000000  w   D  *UND*\t0000000000000000  Base        __gmon_start__\n"
                 "0000000000000000      DF *UND*\t0000000000000000  GLIBC_2.9   pipe2\n"
                 "0000000000000000      DF *UND*\t0000000000000000 (GLIBCXX_3.4.30) _ZSt4cout\n")
        self.assertEqual(pack.newer_than("2.31", table), ["pthread_once (2.34)"])
        self.assertEqual(pack.newer_than("2.8", table), ["pthread_once (2.34)", "pipe2 (2.9)"])

    def test_too_large_and_not_clean(self):
        program = self.write("p.cpp", "#include <string>\nint main(int c, char** v) { return std::string(v[0]).size() == 1u + c; }\n")
        (self.folder / "build/bin").mkdir(parents=True)
        subprocess.run([COMPILER, program, "-o", self.folder / "build/bin/baton"], check=True)
        shutil.copy(self.folder / "build/bin/baton", self.folder / "build/bin/baton-lab")
        self.write("build/bin/gpu_tests.txt", "")
        wrong = pack.make(self.folder / "build", ROOT, self.folder / "out", 0.5, "2.0")
        self.assertIn("baton needs libstdc++.so.6", wrong)
        self.assertIn("are more than 0.5", wrong[-1])
        self.assertRegex("\n".join(wrong), r"baton needs a C library newer than 2.0: .*__libc_start_main")
        self.assertEqual(pack.make(self.folder / "build", ROOT, self.folder / "out", 60, "9"), [f"{self.folder / 'out'} is not empty"])
        subprocess.run([COMPILER, "-static-libstdc++", "-static-libgcc", program, "-o", self.folder / "build/bin/baton"], check=True)
        shutil.copy(self.folder / "build/bin/baton", self.folder / "build/bin/baton-lab")
        self.assertEqual(pack.make(self.folder / "build", ROOT, self.folder / "second", 60, "9"), [])
        self.assertTrue(os.access(self.folder / "second/run.sh", os.X_OK))


class Measure(Folder):
    """measure.sh with programs that only pretend."""

    def setUp(self):
        super().setUp()
        for name in ("tests/gpu", "tests/data", "samples/models", "workflows/library"):
            (self.folder / name).mkdir(parents=True)
        for name in pack.DATA:  # what a pack has is enough
            if name.startswith("tests/gpu/") and name.endswith(".py"):
                shutil.copy(ROOT / name, self.folder / "tests/gpu")
        (self.folder / "rates.json").write_text(json.dumps(AGENTS))
        self.runner("ok    device cuda:0  a GPU")
        self.write("bin/gpu_tests.txt", "test_a\tone, with a comma\ntest_b\ttwo\n")
        self.write("bin/test_a", f'#!/bin/sh\necho ran; echo "SKIPPED: too old"\n', True)
        self.write("bin/test_b", "#!/bin/sh\nexit 0\n", True)

    def runner(self, device, bench="cat {}/rates.json"):
        self.write("bin/baton", f'#!/bin/sh\ncase $1 in doctor) echo "{device}" ;; bench) {bench.format(self.folder)} ;; *) exit 9 ;; esac\n', True)
        self.write("bin/baton-lab", f'#!/bin/sh\ncase $1 in doctor) echo "{device}" ;; bench) {bench.format(self.folder)} ;; *) exit 9 ;; esac\n', True)

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

    def test_parts_in_order_of_importance(self):
        self.measure("--only", "agents,grid,scaling,hosted,anchors,memory", code=0)
        self.assertEqual(list(self.states()), ["agents-llama-3.1-8b", "agents-qwen3-0.6b", "scaling-qwen3-0.6b", "grid-llama-3.1-8b",
                                               "memory-qwen3-0.6b", "memory-llama-3.1-8b", "anchors-llama-3.1-8b", "hosted-llama-3.1-8b"])
        self.assertEqual(set(self.states().values()), {"ok"})
        usage = subprocess.run([str(HERE / "measure.sh"), "--help"], capture_output=True, text=True, check=True).stdout
        for part in ("tests", "shapes", "agents", "launch", "load", "scaling", "grid", "peer", "team", "memory", "anchors", "hosted", "sanitize"):
            self.assertIn(part, usage)

    def test_sizes_of_the_papers(self):
        self.write("bin/baton", '#!/bin/sh\n[ "$1" = doctor ] && echo "ok    device cuda:0  a GPU" || echo "$@"\n', True)
        self.write("bin/baton-lab", '#!/bin/sh\n[ "$1" = doctor ] && echo "ok    device cuda:0  a GPU" || echo "$@"\n', True)
        self.assertNotIn("measure.sh: line", self.measure("--only", "agents,grid,scaling,anchors,memory,hosted,team", code=0).stderr)
        asked = {file.stem: file.read_text() for file in (self.folder / "out/parts").glob("*.json")}
        for name, options in (("agents-llama-3.1-8b", "--agents 5 --prefix 512 --question 1000 --output 512"),
                              ("agents-llama-3.1-8b", "--methods full,prefix,direct,epic,cacheblend,rectify,lockstep,anchors --anchors 2,5,10,20"),
                              ("agents-qwen3-0.6b", "--agents 5 --prefix 128 --question 1000 --output 1000"), ("agents-qwen3-0.6b", "--select 0.18 "),
                              ("grid-llama-3.1-8b", "--agents 3 --prefix 64,256,1024 --question 1000 --output 128,512,1024"),
                              ("scaling-qwen3-0.6b", "--output 256,512,1024,2048,4096,6144"), ("scaling-qwen3-0.6b", "--select 0.18,0.05"),
                              ("anchors-llama-3.1-8b", "--output 1024,2048,4096"), ("anchors-llama-3.1-8b", "--anchors 5,10,15,20,25"),
                              ("team-cuda", "--methods full,prefix,lockstep,rectify:select.score=entropy --floor-limit"), ("team-cpu", "--methods full --floor-limit"),
                              ("hosted-llama-3.1-8b", "--agents 5 --prefix 512 --question 1000 --output 512"), ("hosted-llama-3.1-8b", "--from-host"),
                              ("memory-qwen3-0.6b", "--memory"), ("memory-llama-3.1-8b", "--memory")):
            self.assertIn(options, asked[name])

    def test_limits(self):
        self.runner("ok    device cuda:0  a GPU", bench="exec sleep 30")
        said = self.measure("--only", "shapes", "--budget", "6", code=1).stderr
        self.assertIn("no end within", said)
        self.assertIn("the 6 seconds are over", said)

    def test_mistakes(self):
        for options in (["--device", "abacus"], ["--budget", "soon"], ["--frobnicate"], ["--bin", "/nonexistent"], ["--out"]):
            self.measure(*options, code=2)


class Bounds(unittest.TestCase):
    """By hand, or as docs and papers print them."""

    def test_operations(self):
        one = bounds.Shape({"hidden_size": 2, "intermediate_size": 3, "num_hidden_layers": 4, "num_attention_heads": 2,
                            "num_key_value_heads": 1, "vocab_size": 7})
        self.assertEqual((one.D, one.row_flops(), one.pair_flops(), one.logits_flops()), (1, 4 * 2 * 2 + 4 * 2 + 6 * 2 * 3, 8, 28))
        self.assertEqual(one.row_flops(keys_and_values=False), one.row_flops() - 8)
        self.assertEqual(bounds.exact_flops(one, 0, 3), 4 * (3 * 60 + 6 * 8) + 28)
        self.assertEqual(bounds.exact_flops(one, 2, 3), 4 * (60 + 3 * 8) + 28)
        llama = bounds.Shape(LLAMA_8B)  # all parameters but the table of embeddings, twice
        self.assertAlmostEqual((llama.L * llama.row_flops() + llama.logits_flops()) / 2e9, 7.5, delta=0.01)

    def test_layout_is_that_of_the_bench(self):
        reused, separators = bounds.layout(32, 48, 40, 3)
        self.assertEqual(reused, [(36, 84), (88, 128), (132, 172)])
        self.assertEqual(separators, [(32, 36), (84, 88), (128, 132), (172, 176)])

    def test_rectify_is_full_prefill_where_it_recomputes_all(self):
        shape = bounds.Shape(NANO)
        behind_role = bounds.exact_flops(shape, 32, 176)
        kept = (48 + 40 + 40) * 4 * shape.C * shape.K * shape.D  # keys and values of the first layer
        self.assertAlmostEqual(bounds.rectify_flops(shape, [0, 1, 9], 1.0, 32, 48, 40, 3), behind_role - kept)

    def test_bound(self):
        shape = bounds.Shape(QWEN_06B)
        much, little = ([bounds.rectify_bound(shape, [2, 3, 19], share, 128, 1000, output, 3) for output in (256, 1024, 6144)]
                        for share in (0.18, 0.05))
        for bound in much:  # 18 of 28 layers of 18 %: not more than this, and the separators take little of it
            self.assertLess(bound, 28 / 18 / 0.18 + 0.2)
            self.assertGreater(bound, 8)
        self.assertTrue(20 < little[0] < little[1] < little[2] < 28 / 18 / 0.05 + 1)

    def test_memory(self):
        llama, qwen = bounds.Shape(LLAMA_8B), bounds.Shape(QWEN_06B)
        for shape, kv, raw, state in ((llama, 128, 64, 8), (qwen, 112, 56, 2)):  # KiB, as printed
            held = bounds.memory(shape, "rectify", True)
            self.assertEqual(bounds.memory(shape, "full", True)["cache"], kv * 1024)
            self.assertEqual(held["kept"], (kv + state) * 1024 + 12)
            self.assertEqual(held["cache_recording"], (kv + raw + state) * 1024 + 8 * shape.K)
            self.assertEqual(bounds.memory(shape, "anchors", False)["anchor"], kv * 1024 + 132)
            self.assertEqual(bounds.memory(shape, "rectify", False)["kept"], kv * 1024 + 12)


class Published(unittest.TestCase):
    def test_lengths(self):
        for line in published.FIRST_TOKENS.values():
            self.assertEqual({len(values) for values in line.values()}, {5})
        self.assertEqual((len(published.GRID), min(published.GRID.values()), max(published.GRID.values())), (20, 2.24, 6.72))
        self.assertEqual((len(published.ANCHORS), published.ANCHORS[25, 4096]), (15, 18.113))

    def test_beside_ours_for_their_set_up_alone(self):
        def text(shape, layers, output):
            one = {**AGENTS, "shape": shape, "params": {"layers": layers, "prefix": 512, "question": 1000, "output": output},
                   "methods": [row("full", 1.5, 2.5), row("epic", 9.0, 9.0), row("anchors", 8.0, 8.0, anchors=2), row("anchors", 7.0, 7.0, anchors=5)]}
            return agent_tables.beside(one)
        self.assertIn("| 2 | 2.5 | 7.0 | 192.4 | 38.0 | 51.0 | 8.3 | 4.1 |", text("llama-3.1-8b", 32, 512))
        for other in (("nano", 10, 512), ("llama-3.1-8b", 4, 512), ("llama-3.1-8b", 32, 256)):
            self.assertEqual(text(*other), "")

    def test_in_the_tables(self):
        grid = {**GRID, "shape": "llama-3.1-8b", "params": {**GRID["params"], "layers": 32, "question": 1000},
                "cases": [{**GRID["cases"][0], "prefix": 1024, "output": 1024}, {**GRID["cases"][0], "prefix": 100}]}
        text = agent_tables.grid({"grid": [grid]})
        self.assertIn("| 6.72 x |\n", text)
        self.assertIn("|  |\n", text)  # nothing is printed for a role of 100
        anchors = {**ANCHORS, "shape": "llama-3.1-8b", "params": {**ANCHORS["params"], "layers": 32}}
        self.assertIn("| 4096 | 25 | 1.00 | 2.00 | 37.96 | 40.96 | 18.113 |", agent_tables.anchors({"anchors": [anchors]}))
        scaling = {**SCALING, "shape": "qwen3-0.6b", "params": {**SCALING["params"], "layers": 28}}
        text = agent_tables.scaling({"scaling": [scaling], "configs": {}})
        self.assertIn("| 3,890 | 1,080 | 420 |\n", text)
        self.assertIn("| 512 |", text)
        for unlike in (agent_tables.grid({"grid": [GRID]}), agent_tables.anchors({"anchors": [ANCHORS]}),
                       agent_tables.scaling({"scaling": [SCALING], "configs": {}})):
            self.assertNotIn("published", unlike)


class Report(Folder):
    def results(self):
        return {"schema": 1, "machine": [], "parts": [{"part": "x", "state": "ok", "seconds": "1", "why": ""}], "rates": [RATES],
                "agents": [AGENTS], "grid": [GRID], "scaling": [SCALING], "anchors": [ANCHORS], "memory": [MEMORY], "hosted": [HOSTED],
                "configs": {"nano": NANO}, "peer": [PEER], "launch_ms_per_layer": 0.0125, "load": RATES, "team": {},
                "agreement": {"questions": 2, "runs_equal": 0.5, "answers_equal": 0.75, "tokens_before_first_difference": 0.9}}

    def test_tables(self):
        text = tables.markdown(self.results())
        self.assertIn("| nano | 64 | 500.0 | 50.0 % | 250.0 | 2.00 x |", text)
        self.assertIn("| nano | 256 | 800.0 | 75.0 % |  |  |", text)
        self.assertIn("| nano | 4 | 128 | 2,000 | 2.000 | 80.0 % | 1.0 % | 500.0 (static) | 4.00 x |", text)
        self.assertIn("| 1 | 172 | 20.0 | 5.0 (4.00 x) | 40.0 | 2.00 x |", text)
        self.assertIn("| full | 20.00 | 1.00 | 2.00 | 15.00 | 0.50 | 0.75 | 0.50 | 0.25 | 0.0 % |", text)
        # Of 3 agents: full over the method and prefix over it at the last, the mean over all.
        self.assertIn("| 64 | 32 | 300 | 40.0 | 30.0 | 5.00 x | 3.75 x | 3.33 x | 20.00 x | 15.00 x | 13.67 x | 4.00 x | 3.00 x | 3.33 x |", text)
        bound = [bounds.rectify_bound(bounds.Shape(NANO), [1, 3, 6], share, 64, 48, 6144, 3) for share in (0.18, 0.05)]
        self.assertIn(f"| 12,288 | 300 | 40.00 | 8.00 | 5.00 x | {bound[0]:.1f} x | 4.00 | 10.00 x | {bound[1]:.1f} x | 23.33 | 7.67 | 5.50 |", text)
        self.assertIn("| 4096 | 25 | 1.00 | 2.00 | 37.96 | 40.96 |", text)
        self.assertIn("| rectify | 4,441 | 4,224 | 4,420 | 4,240 | 2,956 | 2,956 |  |  |  | 2,560 | 384 | 4 | 4 | 4 |", text)
        self.assertIn("| anchors | 4,441 | 3,840 | 4,420 | 4,240 | 2,956 | 2,956 | 2,692 | 2,692 |", text)
        self.assertIn("| rectify | 7.50 | 2.00 | 5.00 | 2.50 |", text)
        self.assertIn("| anchors 20 | 9.00 | 2.00 |  |  |", text)
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

    def test_cut_off_rows_of_agents(self):
        half = {**row("lockstep", 1.0), "agents": []}
        cut = run_of("nano", 10, [(64, 32, [row("full", 1.0, 2.0), half]), (64, 64, [])], complete=False)
        cut["cases"].append({"prefix": 64, "output": 128, "methods": [], "error": "no room"})
        for part in ("grid", "scaling", "anchors", "memory"):
            self.write(f"parts/{part}-nano.json", json.dumps({**cut, "complete": False}))
        self.write("parts/agents-nano.json", json.dumps({**AGENTS, "methods": [row("full", 1.0, 2.0), half, row("rectify", 1.0)]}))
        found = report.collect(self.folder)
        self.assertEqual([method["method"] for method in found["agents"][0]["methods"]], ["full"])
        text = tables.markdown(found)
        self.assertIn("cut short", text)
        self.assertIn("Role 64, answers 128: no room", text)
        plots.all_plots(found)

    def test_plots_hold_their_numbers(self):
        made = plots.all_plots(self.results())
        for name, words in (("grid-nano", ["rectify, role 64", "lockstep, role 64", "anchors 20, role 64"]),
                            ("scaling-over-full-nano", ["rectify 18 %", "rectify 5 %: bound", ">512<", ">12288<"]),
                            ("anchors-nano", ["matching, 25", "copying, 5"]),
                            ("memory-nano", ["one anchor (host)", ">2.9<"]), ("first-token-parts-nano", ["copying, rotating", ">20.0<"])):
            for word in words:
                self.assertIn(word, made[name])

    def test_places_are_within_the_plot(self):
        for name, svg in plots.all_plots(self.results()).items():
            document = xml.dom.minidom.parseString(svg).documentElement
            width, height = map(float, document.getAttribute("viewBox").split()[2:])
            for dot in document.getElementsByTagName("circle"):
                x, y = float(dot.getAttribute("cx")), float(dot.getAttribute("cy"))
                self.assertTrue(plots.LEFT <= x <= plots.WIDTH - plots.RIGHT and plots.TOP <= y <= height - plots.BOTTOM, (name, x, y))
            for box in document.getElementsByTagName("rect"):
                self.assertLessEqual(float(box.getAttribute("x") or 0) + float(box.getAttribute("width")), width, name)
            along = [float(t.getAttribute("x")) for t in document.getElementsByTagName("text")
                     if t.getAttribute("text-anchor") == "middle" and float(t.getAttribute("y")) == height - plots.BOTTOM + 18]
            self.assertTrue(all(right - left > 25 for left, right in zip(along, along[1:])), (name, along))

    def test_plots_are_svg(self):
        made = plots.all_plots(self.results())
        self.assertEqual(set(made), {"prefill", "rows", "first-token-nano", "first-token-parts-nano", "grid-nano", "scaling-nano",
                                     "scaling-over-full-nano", "anchors-nano", "memory-nano"})
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


class Predictions(unittest.TestCase):
    def test_they_follow_from_bytes_and_operations(self):
        h100, h200 = predictions.DEVICES[:2]
        shape = predictions.LLAMA_8B
        for quantised, bits in ((False, 16), (True, predictions.Q4_K_BITS)):
            read = predictions.weight_bytes(shape, bits) / (h100.gigabytes * 1e9)
            step = predictions.decode(h100, shape, quantised, 1, 1024)
            self.assertGreater(step, read)  # no step is faster than its weights are read
            self.assertLess(step, 2 * read + predictions.launches(shape))
            self.assertLess(predictions.decode(h200, shape, quantised, 1, 1024), step)
            peak = shape.L * 2048 * shape.row_flops() / (h100.teraflops * 1e12)
            self.assertGreater(predictions.prefill(h100, shape, quantised, 0, 2048), peak)
            found = predictions.first_tokens(h100, shape, quantised)
            self.assertEqual(sorted(found, key=found.get), ["lockstep", "rectify", "prefix", "full"])


if __name__ == "__main__":
    unittest.main()
