#!/usr/bin/env python3
"""Runs the runner: exit codes, what goes to stdout and to stderr, the JSON's shape, Ctrl-C, the live view.

Usage: cli_test.py RUNNER [unittest options]
"""

import array
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RUNNER = ""

TEAM = """\
version: 1
name: pair
inputs:
  question: {type: string, required: true, description: What to answer}
models: {main: {path: "%s"}}
defaults: {max_tokens: 24}
agents:
  solver:
    role: Solver
    prompt: {system: You are a math expert., user: "Question:\\n{{ question }}"}
  checker:
    role: Checker
    prompt: {user: "{{ question }}\\n\\nSolver:\\n{{ agent_solver_current }}"}
    output: {pattern: "The answer is (-?[0-9]+)"}
workflow: {topology: chain, agents: [solver, checker]}
outputs: {answer: "{{ agent_checker_current }}"}
""" % (ROOT / "samples/models/nano")

# The same over and over: long enough to be interrupted on any machine.
LONG = TEAM.replace("topology: chain,", "topology: chain, rounds: 100,")

QUESTION = "question=Mia has 12 apples. She buys 7 more apples. How many apples does Mia have?"


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.team = self.write("team.yaml", TEAM)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def environment(self, **changes):
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "BATON_MODEL", "BATON_MODEL_PATH")}
        return {**environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **changes}

    def baton(self, *arguments, code=0, **changes):
        done = subprocess.run([RUNNER, *arguments], cwd=self.folder, env=self.environment(**changes), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def in_terminal(self, *arguments, rows=24, columns=80, stdout=None, **changes):
        """Runs with stderr (and stdout, unless given) on a terminal; returns the exit code and what it was sent."""
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = subprocess.Popen([RUNNER, *arguments], cwd=self.folder, env=self.environment(**changes),
                                   stdin=subprocess.DEVNULL, stdout=stdout or child, stderr=child)
        os.close(child)
        seen = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:
                break
            if not part:
                break
            seen += part
        os.close(parent)
        return process.wait(), seen.decode("utf-8")


class Usage(Cli):
    def test_no_verb(self):
        done = self.baton(code=2)
        self.assertEqual(done.stdout, "")
        self.assertIn("run", done.stderr)

    def test_suggestions(self):
        self.assertIn("did you mean 'validate'", self.baton("validte", code=2).stderr)
        self.assertIn("did you mean '--relay'", self.baton("run", self.team, "--relya", "full", code=2).stderr)
        self.assertIn("baton run --help", self.baton("run", code=2).stderr)
        self.assertIn("did you mean 'question'", self.baton("run", self.team, "-i", "questoin=x", "-i", QUESTION, code=2).stderr)

    def test_every_verb_has_help_with_its_name(self):
        verbs = re.findall(r"^  (\w+) ", self.baton("--help").stdout.split("Subcommands:")[1].split("Start here")[0], re.M)
        self.assertIn("eval", verbs)
        for verb in verbs:
            self.assertIn(verb, self.baton(verb, "--help").stdout)

    def test_missing_input_is_named(self):
        done = self.baton("run", self.team, code=2)
        self.assertIn("'question'", done.stderr)
        self.assertIn('--input question="..."', done.stderr)
        self.assertEqual(done.stdout, "")

    def test_unsound_values(self):
        for arguments in (["--timeout", "soon"], ["--set", "x"], ["--input", "x"], ["--input-file", "no.json"], ["--events", "xml"],
                          ["--threads", "-1"], ["--json", "--events", "ndjson"], ["-q", "-v"], ["--input", "question=@no.txt"]):
            self.baton("run", self.team, *arguments, code=2)

    def test_doctor_measures_rows(self):
        found = json.loads(self.baton("doctor", "--model", str(ROOT / "samples/models/nano"), "--json").stdout)
        line = found[-1]
        self.assertEqual(line["check"], "rows ahead")
        self.assertRegex(line["text"], r"^\d+ beside a decoding one lengthen a step by at most 25 %, 512 tokens deep \(0: ")
        self.assertNotIn("rows ahead", self.baton("doctor").stdout)
        self.assertIn("/no/model", self.baton("doctor", "--model", "/no/model", code=4).stderr)


class Files(Cli):
    def test_validate(self):
        self.write("broken.yaml", TEAM.replace("agent_solver_current", "agent_slover_current"))
        done = self.baton("validate", self.team, "broken.yaml", code=3)
        self.assertEqual(done.stdout, "team.yaml: ok: 2 agents, 2 turns\n")
        self.assertRegex(done.stderr, r"broken\.yaml:\d+:\d+: error\[E\d{4}\]")
        self.assertIn("did you mean 'agent_solver_current'", done.stderr)
        items = json.loads(self.baton("validate", "broken.yaml", "--json", code=3).stdout)
        self.assertEqual(items[0]["errors"][0]["line"], 13)
        self.baton("validate", "no.yaml", code=3)

    def test_run_of_a_broken_file(self):
        self.write("broken.yaml", "version: 1\nname: [")
        self.assertEqual(self.baton("run", "broken.yaml", code=3).stdout, "")

    def test_graph_plan_render(self):
        for form in ("ascii", "mermaid", "dot"):
            self.assertIn("checker", self.baton("graph", self.team, "--format", form).stdout)
        json.loads(self.baton("graph", self.team, "--format", "json").stdout)
        self.baton("graph", self.team, "--format", "svg", code=2)

        text = self.baton("plan", self.team, "--input", QUESTION).stdout
        self.assertIn("KV cache", text)
        plan = json.loads(self.baton("plan", self.team, "--json").stdout)
        self.assertEqual(plan["turns"][1]["needs"], [0])
        self.assertIn("agent_solver_current", [slot["name"] for slot in plan["turns"][1]["slots"]])
        self.assertGreater(plan["memory"]["kv_peak_bytes"], 0)

        prompt = json.loads(self.baton("render", self.team, "--agent", "checker", "--input", QUESTION,
                                       "--value", "agent_solver_current=It is 19.", "--json").stdout)
        self.assertTrue(prompt["complete"])
        self.assertIn("It is 19.", prompt["text"])
        self.assertEqual(sum(len(part["tokens"]) for part in prompt["parts"]), len(prompt["tokens"]))
        self.assertIn("did you mean 'checker'", self.baton("render", self.team, "--agent", "cheker", code=2).stderr)

    def test_plan_without_a_model(self):
        done = self.baton("plan", self.team, "--model", "main=/no/such/model")
        self.assertIn("/no/such/model", done.stderr)
        self.assertIn("checker", done.stdout)

    def test_init_gives_a_sound_workflow(self):
        self.baton("init", "mine")
        self.baton("validate", "mine/team.yaml")
        self.assertIn("there already", self.baton("init", "mine", code=2).stderr)

    def test_schema_completion_version_models_doctor(self):
        self.assertIn("draft-07", json.loads(self.baton("schema").stdout)["$schema"])
        script = self.baton("completion", "bash").stdout
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        self.assertIn("--relay", script)
        self.assertIn("baton ", self.baton("version").stdout)
        self.assertIsInstance(json.loads(self.baton("models", "--json").stdout), list)
        checks = {line["check"] for line in json.loads(self.baton("doctor", "--json").stdout)}
        self.assertLessEqual({"device cpu", "memory", "threads", "tool python", "models", "terminal"}, checks)


class Run(Cli):
    def test_results_only_on_stdout(self):
        done = self.baton("run", self.team, "--input", QUESTION)
        self.assertIn("solver: done", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        quiet = self.baton("run", self.team, "--input", QUESTION, "-q")
        self.assertEqual(quiet.stdout, done.stdout)
        self.assertEqual(quiet.stderr, "")

    def test_json_has_every_field(self):
        self.write("in.json", json.dumps({"question": "What is 6 x 7?"}))
        record = json.loads(self.baton("run", self.team, "--input-file", "in.json", "--json", "-q", "--seed", "9").stdout)
        kinds = {"schema": int, "workflow": str, "device": str, "relay": str, "seed": int, "outputs": dict, "wall_ms": float, "agents": list}
        for name, kind in kinds.items():
            self.assertIsInstance(record[name], kind, name)
        self.assertEqual((record["schema"], record["workflow"], record["seed"]), (1, "pair", 9))
        self.assertEqual(set(record["model"]), {"path", "fingerprint"})
        self.assertEqual(set(record["memory"]), {"weights_bytes", "kv_peak_bytes", "segments_peak_bytes", "host_segments_peak_bytes", "anchors_bytes"})
        self.assertEqual(set(record["outputs"]), {"answer"})
        for agent in record["agents"]:
            self.assertLessEqual({"agent", "role", "round", "state", "prompt_tokens", "output_tokens", "output", "kv", "ttft_ms",
                                  "prefill_ms", "decode_ms", "tokens_per_s", "slots"}, set(agent))
            self.assertEqual(set(agent["kv"]), {"entries", "reused", "computed", "ahead", "reuse_rate"})
            self.assertEqual(agent["kv"]["entries"], agent["kv"]["reused"] + agent["kv"]["computed"])
        for slot in record["agents"][1]["slots"]:
            self.assertEqual(set(slot), {"name", "tokens", "method", "reused_tokens", "recomputed_tokens", "ahead_tokens", "kv_reuse_rate", "kv_reuse_bound", "hops", "corrected",
                                     "reason", "anchors"})

    def test_inputs_from_files(self):
        self.write("q.txt", "What is 6 x 7?\n")
        for given, wanted in (("question=@q.txt", "What is 6 x 7?"), ("question=@@q.txt", "@q.txt"), ("question=a=b", "a=b")):
            prompt = json.loads(self.baton("render", self.team, "--agent", "solver", "--input", given, "--json").stdout)
            self.assertIn("Question:\n" + wanted, prompt["text"])

    def test_events(self):
        lines = self.baton("run", self.team, "--input", QUESTION, "--events", "ndjson", "-q").stdout.splitlines()
        types = [json.loads(line)["type"] for line in lines]
        self.assertEqual((types[0], types[-1]), ("run_started", "run_finished"))
        self.assertEqual(types.count("agent_started"), 2)

    def test_record_folder(self):
        self.baton("run", self.team, "--input", QUESTION, "--record", "runs/1", "-q")
        files = {str(p.relative_to(self.folder / "runs")) for p in (self.folder / "runs").rglob("*") if p.is_file()}
        self.assertEqual(files, {"1/run.json", "1/events.ndjson", "1/prompts/solver.txt", "1/prompts/checker.txt"})
        record = json.loads((self.folder / "runs/1/run.json").read_text())
        self.assertIn(record["agents"][0]["output"].strip(), (self.folder / "runs/1/prompts/checker.txt").read_text())
        self.assertIn("already", self.baton("run", self.team, "--input", QUESTION, "--record", "runs/1", code=2).stderr)

    def test_model_and_device_that_are_not_there(self):
        self.assertIn("no-such", self.baton("run", self.team, "--input", QUESTION, "--model", "no-such", code=4).stderr)
        self.assertIn("BATON_MODEL_PATH", self.baton("run", self.team, "-i", QUESTION, "--model", "main=no-such", code=4).stderr)
        self.baton("run", self.team, "--input", QUESTION, "--device", "cuda:99", code=4)
        self.baton("run", self.team, "--input", QUESTION, "--device", "abacus", code=4)

    def test_timeout(self):
        long = self.write("long.yaml", LONG)
        done = self.baton("run", long, "--input", QUESTION, "--timeout", "1ms", "--json", "-q", code=5)
        self.assertEqual(json.loads(done.stdout)["state"], "timeout")

    def test_closed_stdout_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([RUNNER, "run", self.team, "--input", QUESTION, "-q"], cwd=self.folder, stdout=full,
                                  stderr=subprocess.PIPE, env=self.environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)


class Interrupts(Cli):
    def start(self, *more):
        team = self.write("long.yaml", LONG)
        return subprocess.Popen([RUNNER, "run", team, "--input", QUESTION, *more], cwd=self.folder, env=self.environment(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_first_stops_and_keeps(self):
        process = self.start("--events", "ndjson", "--record", "out")
        for line in process.stdout:
            if json.loads(line)["type"] == "token":
                break
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0].splitlines()
        if process.returncode == 0:
            self.skipTest("the run was over before the signal came")
        self.assertEqual(process.returncode, 130)
        self.assertEqual(json.loads(rest[-1])["record"]["state"], "cancelled")
        self.assertEqual(json.loads((self.folder / "out/run.json").read_text())["state"], "cancelled")

    def test_result_under_way_is_written_whole(self):
        process = self.start("--json", "-q")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        held = array.array("i", [0])
        until = time.monotonic() + 60
        while held[0] < 65536 and process.poll() is None and time.monotonic() < until:  # until the pipe is full
            fcntl.ioctl(process.stdout, termios.FIONREAD, held)
            time.sleep(0.005)
        if process.returncode is not None:
            process.communicate()
            self.skipTest("the result fitted into the pipe")
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        self.assertEqual(json.loads(process.communicate(timeout=60)[0])["state"], "cancelled")

    def test_second_ends_though_nobody_reads(self):
        process = self.start("--json", "-q")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        self.assertIn(process.wait(timeout=60), (0, 130, -signal.SIGINT))
        process.communicate()

    def test_at_any_moment_no_partial_files(self):
        chance = random.Random(7)
        for number in range(20):
            process = self.start("--record", f"out{number}", "--json")
            time.sleep(chance.uniform(0, 0.6))
            process.send_signal(signal.SIGINT)
            if number % 2 == 1:
                time.sleep(chance.uniform(0, 0.02))
                process.send_signal(signal.SIGINT)
            out = process.communicate(timeout=60)[0]
            self.assertIn(process.returncode, (0, 130, -signal.SIGINT))  # before the handler is there, the signal itself
            if out:
                json.loads(out)
            folder = self.folder / f"out{number}"
            if folder.exists():
                json.loads((folder / "run.json").read_text())
                for line in (folder / "events.ndjson").read_text().splitlines():
                    json.loads(line)
        self.assertEqual([p for p in self.folder.iterdir() if ".part-" in p.name], [])


class Terminal(Cli):
    def test_live_view_comes_and_goes(self):
        code, seen = self.in_terminal("run", self.team, "--input", QUESTION)
        self.assertEqual(code, 0)
        self.assertEqual(seen.count("\x1b[?25l"), seen.count("\x1b[?25h"))
        self.assertIn("checker", seen)
        self.assertIn("KV computed", seen.split("\x1b[?25h")[1])

    def test_lines_fit(self):
        for columns in (20, 43, 80, 200):
            _, seen = self.in_terminal("run", self.team, "--input", QUESTION, columns=columns)
            live = seen.split("\x1b[?25h")[0]
            for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", live).replace("\r", "\n").split("\n"):
                if "loading" not in line and not line.startswith("warning"):  # warnings stay, and may wrap
                    self.assertLess(len(line), columns, line)

    def test_no_colour_and_dumb(self):
        self.assertNotRegex(self.in_terminal("run", self.team, "--input", QUESTION, NO_COLOR="1")[1], r"\x1b\[[0-9;]*m")
        self.assertNotIn("\x1b", self.in_terminal("run", self.team, "--input", QUESTION, TERM="dumb")[1])

    def test_hostile_text_does_nothing(self):
        hostile = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\x08"
        self.write("q.txt", hostile)
        _, seen = self.in_terminal("render", self.team, "--agent", "solver", "--input", "question=@q.txt")
        self.assertNotRegex(seen, "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]")
        raw = self.baton("render", self.team, "--agent", "solver", "--input", "question=@q.txt").stdout
        self.assertIn("\x1b]0;owned", raw)

    def test_interrupt_puts_the_cursor_back(self):
        team = self.write("long.yaml", LONG)
        # The second Ctrl-C ends the program without waiting for its threads, which is no leak.
        ended_at_once = os.environ.get("TSAN_OPTIONS", "") + ":report_thread_leaks=0"
        parent, child = pty.openpty()
        process = subprocess.Popen([RUNNER, "run", team, "--input", QUESTION], cwd=self.folder, env=self.environment(TSAN_OPTIONS=ended_at_once),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=child)
        os.close(child)
        seen = b""
        signals = 0
        while True:
            if not select.select([parent], [], [], 60)[0]:
                self.fail("nothing more is shown")
            try:
                seen += os.read(parent, 65536)
            except OSError:
                break
            if b"decoding" in seen and signals < 2:
                process.send_signal(signal.SIGINT)
                signals += 1
        os.close(parent)
        self.assertEqual(process.wait(), 130)
        self.assertEqual(seen.count(b"\x1b[?25l"), seen.count(b"\x1b[?25h"))


class Eval(Cli):
    def data(self, *lines):
        return self.write("d.jsonl", "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")

    def test_result(self):
        data = self.data(*[{"id": f"q{i}", "inputs": {"question": f"What is {i} + 2?"}, "answer": str(i + 2)} for i in range(5)])
        done = self.baton("eval", self.team, "--dataset", data, "--limit", "3", "--json", "--jobs", "2")
        found = json.loads(done.stdout)
        self.assertEqual((found["schema"], found["workflow"], found["dataset"], found["questions"]), (1, "pair", "d.jsonl", 3))
        self.assertEqual(found["noise_floor"], {"kl_first_token": None, "kl_mean": None})
        method = found["methods"][0]
        self.assertEqual((method["method"], method["params"]), ("full", {"agents": 2}))
        self.assertEqual(set(method["accuracy_by_agent"]), {"checker"})
        self.assertEqual(method["accuracy"], method["accuracy_by_agent"]["checker"])
        self.assertEqual((method["kv_reuse_rate"], method["agent_turn_reuse"], method["exact_match"]), (0, 0, 1))
        self.assertIn("3 of 3", done.stderr)
        self.baton("eval", self.team, "--dataset", data, "--limit", "2", "--answers", "said.jsonl", "-q")
        said = [json.loads(line) for line in (self.folder / "said.jsonl").read_text().splitlines()]
        self.assertEqual({(line["id"], line["method"]) for line in said}, {("q0", "full"), ("q1", "full")})
        self.assertTrue(all(len(line["tokens"]) == 2 and all(line["tokens"].values()) for line in said))
        self.assertIn("expected 2", self.baton("eval", self.team, "--dataset", data, "--limit", "1", "-v").stderr)

    def test_methods_are_compared_with_full(self):
        data = self.data(*[{"id": f"q{i}", "inputs": {"question": f"Mia has {i} apples. She buys 7 more apples. How many apples does Mia have?"},
                            "answer": str(i + 7)} for i in range(4)])
        methods = "direct,epic:epic_tokens=100000,relay:layers.start=0;layers.detect=1;layers.end=9;select.all=true,relay:layers.start=1;layers.detect=2;layers.end=6"
        found = json.loads(self.baton("eval", self.team, "--dataset", data, "--methods", methods, "--json", "-q").stdout)
        direct, epic, everything, relay = found["methods"]
        self.assertGreater(found["noise_floor"]["kl_mean"], 0)
        for exact in (epic, everything):  # all recomputed: nothing but full prefill is left
            self.assertEqual((exact["kl_mean"], exact["exact_match"], exact["greedy_agreement"], exact["recomputed_share"]), (0, 1, 1, 1))
        self.assertGreater(direct["kl_mean"], found["noise_floor"]["kl_mean"])
        self.assertGreater(direct["kv_reuse_rate"], 0.9)  # an answer that was cut off lacks the KV of its last token
        self.assertTrue(0.5 < relay["kv_reuse_rate"] < 0.9, relay)
        self.assertEqual(relay["params"], {"agents": 2, "layers.start": "1", "layers.detect": "2", "layers.end": "6"})
        for wrong in ("direct:x", "epic:no_such=1", "droidspeak", ":a=1"):
            self.assertIn("--methods", self.baton("eval", self.team, "--dataset", data, "--methods", wrong, code=2).stderr)

    def test_teams_of_other_sizes_and_the_parts_of_relay(self):
        data = self.data({"id": "q", "inputs": {"user_question": "Mia has 5 apples. She buys 7 more apples. How many apples does Mia have?"}, "answer": "12"})
        team = str(ROOT / "workflows/library/math_roles.yaml")
        relay = "relay:select.score=deviation;layers.start=0;layers.detect=1;layers.end=4"
        found = json.loads(self.baton("eval", team, "--dataset", data, "--methods", f"full,{relay}", "--agents", "2,3", "--ablation",
                                      "--sensitivity", "--json", "-q").stdout)
        self.assertEqual(sorted({m["params"]["agents"] for m in found["methods"]}), [2, 3])
        self.assertEqual(set(found["methods"][0]["accuracy_by_agent"]), {"analyst", "decision_maker"})
        two = [m for m in found["methods"] if m["params"]["agents"] == 2]
        self.assertEqual(len(two), 2 + 3 + 8)  # suffix=0 is in both
        layers_alone = next(m for m in two if m["params"].get("select.all"))
        self.assertAlmostEqual(layers_alone["kv_reuse_rate"], 0.6, delta=0.02)  # 4 of 10 layers
        for method in two[1:]:
            self.assertAlmostEqual(method["kv_reuse_bound"], 0.9, delta=0.02)
            self.assertLessEqual(method["kv_reuse_rate"], method["kv_reuse_bound"])
            self.assertGreaterEqual(method["kv_reuse_rate"], layers_alone["kv_reuse_rate"])
        self.assertIn("3 agents\n", self.baton("eval", team, "--dataset", data, "--agents", "3", "-q").stdout)
        self.assertIn("the workflow has 4", self.baton("eval", team, "--dataset", data, "--agents", "5", code=2).stderr)
        by_name = str(ROOT / "workflows/library/math_team.yaml")
        self.assertIn("--agents 2", self.baton("eval", by_name, "--dataset", data, "--agents", "2", code=2).stderr)

    def test_mistakes_have_line_numbers(self):
        good = {"id": "a", "inputs": {"question": "?"}, "answer": "1"}
        data = self.data(good, "{", {"id": "b", "answer": "1"}, good, {"id": "c", "inputs": {}, "answer": []})
        done = self.baton("eval", self.team, "--dataset", data, code=3)
        for line in (2, 3, 4, 5):
            self.assertIn(f"d.jsonl:{line}: ", done.stderr)
        self.assertIn("question 'x'", self.baton("eval", self.team, "--dataset",
                                                 self.data({"id": "x", "inputs": {"q": "?"}, "answer": "1"}), code=3).stderr)
        self.baton("eval", self.team, "--dataset", "no.jsonl", code=2)
        self.baton("eval", self.team, "--dataset", data, "--methods", "full,magic", code=2)


class Learn(Cli):
    """On a copy of the model: what is learned goes beside it."""

    def setUp(self):
        super().setUp()
        self.model = self.folder / "tiny"
        shutil.copytree(ROOT / "samples/models/nano", self.model, ignore=shutil.ignore_patterns("recipe", "baton.corrections.*"))
        self.file = self.model / "baton.corrections.safetensors"
        questions = [f"Mia has {12 + i} apples. She buys 7 more apples. How many apples does Mia have?" for i in range(12)]
        self.data = self.write("d.jsonl", "".join(json.dumps({"id": q, "inputs": {"question": q}, "answer": "?"}) + "\n" for q in questions))

    def environment(self, **changes):
        return {**super().environment(), "XDG_CACHE_HOME": str(self.folder / "cache"), **changes}

    def learn(self, *arguments, code=0):
        return self.baton("learn", self.team, "--set", "relay.min_tokens=1", "--model", "./tiny", "--dataset", self.data, "--rank", "16", *arguments,
                          code=code)

    def corrected(self):
        done = self.baton("run", self.team, "--set", "relay.min_tokens=1", "--model", "./tiny", "--relay", "relay", "--input", QUESTION, "--json")
        slots = [slot for agent in json.loads(done.stdout)["agents"] for slot in agent["slots"]]
        return [slot["corrected"] for slot in slots if slot["name"] == "agent_solver_current"], done.stderr

    def test_learned_corrections_are_used(self):
        self.assertEqual(self.corrected()[0], [False])
        found = json.loads(self.learn("--json", "--dry-run").stdout)
        self.assertEqual((found["schema"], found["failed_runs"], found["files"]), (1, 0, []))
        self.assertFalse(self.file.exists())
        [one] = found["corrections"]  # the solver's answer in the checker's prompt
        self.assertEqual(set(one), {"model", "readers", "slot", "answers", "tokens", "rank", "bytes", "left", "kl_plain", "kl_corrected",
                                    "changed_plain", "changed_corrected", "kept"})
        self.assertEqual((one["readers"], one["slot"], one["answers"], one["rank"]), (["checker"], "agent_solver_current", 10, 16))
        self.assertEqual(found["checked_runs"], 2)
        self.assertEqual(one["kept"], one["kl_corrected"] < one["kl_plain"] and one["changed_corrected"] <= one["changed_plain"])
        self.assertTrue(one["kept"])  # these questions differ in a number only
        done = self.learn()
        self.assertRegex(done.stdout, r"checker +agent_solver_current +10 +\d+ +16 .* % +\d+:\d+\n")
        self.assertIn("wrote", done.stderr)
        self.assertEqual(self.corrected()[0], [True])
        size = self.file.stat().st_size
        self.learn()
        self.assertEqual(self.file.stat().st_size, size)  # in place of those of the same places

    def test_damaged_file_is_left_alone(self):
        self.learn()
        data = bytearray(self.file.read_bytes())
        data[-100] ^= 1
        self.file.write_bytes(data)
        used, warning = self.corrected()
        self.assertEqual(used, [False])
        self.assertIn("damaged", warning)

    def test_mistakes(self):
        self.assertIn("--dataset is required", self.baton("learn", self.team, code=2).stderr)
        self.learn("--rank", "0", code=2)
        other = self.write("other.jsonl", '{"id": "1", "inputs": {"problem": "?"}, "answer": "1"}\n')
        self.assertIn("no input 'problem'", self.baton("learn", self.team, "--model", "./tiny", "--dataset", other, code=2).stderr)
        alone = self.write("alone.yaml", TEAM.split("  checker:")[0] + 'workflow: {topology: chain, agents: [solver]}\noutputs: {answer: "{{ agent_solver_current }}"}\n')
        self.assertIn("nothing was learned", self.baton("learn", alone, "--model", "./tiny", "--dataset", self.data, code=1).stderr)


class Profile(Cli):
    """On a copy of the model: the profile goes beside it."""

    def setUp(self):
        super().setUp()
        self.model = self.folder / "tiny"
        shutil.copytree(ROOT / "samples/models/nano", self.model, ignore=shutil.ignore_patterns("recipe", "baton.profile.*"))

    def environment(self, **changes):
        return {**super().environment(), "XDG_CACHE_HOME": str(self.folder / "cache"), **changes}

    def profile(self, *arguments, code=0, **changes):
        return self.baton("profile", "--model", "./tiny", "--handovers", "3", "--max-tokens", "32", *arguments, code=code, **changes)

    def written(self):
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file() and (".profile" in p.name or "cache" in p.parts))

    def test_json_and_files(self):
        done = self.profile("--json")
        found = json.loads(done.stdout)
        layers = json.loads((self.model / "config.json").read_text())["num_hidden_layers"]
        self.assertEqual(set(found), {"schema", "fingerprint", "layers", "source", "hand_overs", "tokens", "reading", "slope", "level",
                                      "similarity", "similarity_error", "correlation", "correlation_error", "effect"})
        self.assertEqual((found["schema"], found["layers"], found["source"], found["reading"]), (1, layers, "synthetic", "effect"))
        self.assertEqual((len(found["similarity"]), len(found["correlation"])), (layers, layers - 1))
        self.assertAlmostEqual(found["similarity"][0], 1, 4)
        for reading in ("slope", "level"):
            at = found[reading]
            self.assertTrue(0 <= at["start"] < at["detect"] < at["end"] < layers, at)
            self.assertTrue(0 <= at["agreement"] <= 1)
        effect = found["effect"]
        self.assertTrue(0 <= effect["start"] < effect["detect"] < effect["end"] < layers, effect)
        self.assertGreater(effect["kl_direct"], 0)
        self.assertEqual([len(effect[curve]) for curve in ("left_start", "left_end", "left_detect")], [layers] * 3)
        self.assertEqual((self.model / "baton.profile.json").read_text(), done.stdout)
        self.assertIn("</svg>", (self.model / "baton.profile.svg").read_text())
        self.assertEqual(self.written(), ["tiny/baton.profile.json", "tiny/baton.profile.svg"])
        self.assertEqual(self.profile("--json", "--dry-run").stdout, done.stdout)  # the same again
        self.assertEqual(json.loads(self.profile("--json", "--dry-run", "--reading", "level").stdout)["reading"], "level")

    def test_plot(self):
        done = self.profile("--dry-run")
        self.assertEqual(self.written(), [])
        self.assertRegex(done.stdout, r"^tiny: l_s \d+, l_d \d+, l_e \d+ ")
        self.assertIn("Of the KL divergence of direct reuse", done.stdout)
        self.assertIn("measure more with --handovers", done.stdout)  # than three
        self.assertIn("KL left", done.stdout)
        self.assertIn("of the draws give these layers", self.profile("--dry-run", "--reading", "slope").stdout)
        self.assertRegex(done.stdout, "[\u2801-\u28ff]")
        for columns in (20, 40, 200):
            code, seen = self.in_terminal("profile", "--model", "./tiny", "--handovers", "2", "--dry-run", columns=columns, LC_ALL="C")
            self.assertEqual(code, 0)
            self.assertTrue(seen.isascii(), seen)
            plot = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]|\r", "", seen).split("Measured")[0].split("\n")[2:]
            self.assertTrue(all(len(line) <= columns for line in plot), plot)

    def test_real_hand_overs(self):
        data = self.write("d.jsonl", "".join(json.dumps({"id": str(i), "inputs": {"question": f"Mia has {i + 12} apples. She buys 7 more "
                                             "apples. How many apples does Mia have?"}, "answer": str(i + 19)}) + "\n" for i in range(3)))
        found = json.loads(self.profile("--dataset", data, "--workflow", self.team, "--json").stdout)
        self.assertEqual((found["source"], found["hand_overs"]), ("d.jsonl", 3))
        self.profile("--dataset", data, code=2)
        self.profile("--workflow", self.team, code=2)
        self.write("alone.yaml", TEAM.replace("{{ agent_solver_current }}", ""))
        self.assertIn("no answer", self.profile("--dataset", data, "--workflow", "alone.yaml", code=3).stderr)

    def test_models_that_cannot_be_profiled(self):
        self.assertIn("not found", self.baton("profile", "--model", "no_model", code=4).stderr)
        self.profile("--reading", "x", code=2)
        self.profile("--handovers", "0", code=2)
        self.baton("profile", code=2)
        config = json.loads((self.model / "config.json").read_text())
        (self.model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
        self.assertIn("3 layers", self.profile(code=4).stderr)
        self.assertEqual(self.written(), [])

    def relay(self, code=0):
        return self.baton("run", self.team, "-i", QUESTION, "--model", "./tiny", "--relay", "relay", "--set", "relay.min_tokens=1", "--json", code=code)

    def test_first_use_of_relay(self):
        self.relay()
        cached = self.written()
        self.assertEqual(len(cached), 1)  # a run does not write into the model's folder
        self.assertRegex(cached[0], r"^cache/baton/profiles/[0-9a-f]{32}\.json$")
        before = (self.folder / cached[0]).stat()
        self.relay()
        self.assertEqual((self.folder / cached[0]).stat().st_mtime_ns, before.st_mtime_ns)

    def test_hostile_profile(self):
        self.profile()
        file = self.model / "baton.profile.json"
        good = json.loads(file.read_text())
        file.write_text(json.dumps({**good, "slope": {**good["slope"], "end": 10**6}}))
        error = self.relay(code=4).stderr
        self.assertIn("baton.profile.json", error)
        self.assertIn("slope.end", error)
        for broken in ({k: v for k, v in good.items() if k != "effect"}, {**good, "effect": {**good["effect"], "left_end": [1]}}):
            file.write_text(json.dumps(broken))
            self.assertIn("effect", self.relay(code=4).stderr)
        file.write_text(json.dumps({**good, "fingerprint": "0" * 32}))  # of other weights: measured again
        self.relay()
        self.assertTrue(any("cache" in name for name in self.written()))
        file.write_text("{")
        self.profile()  # writes it anew
        self.assertEqual(json.loads(file.read_text())["layers"], good["layers"])

    def test_read_only_model(self):
        if os.geteuid() == 0:
            (self.model / "baton.profile.json").mkdir()  # even root cannot put a file there
        else:
            self.model.chmod(0o555)
            self.addCleanup(self.model.chmod, 0o755)
        self.assertIn("cache", self.profile().stderr)
        self.assertEqual([pathlib.Path(name).suffix for name in self.written()], [".json", ".svg"])

    def test_interrupt_leaves_nothing(self):
        process = subprocess.Popen([RUNNER, "profile", "--model", "./tiny", "--handovers", "2000", "--max-tokens", "1000"], cwd=self.folder,
                                   env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        self.assertIn("nothing was written", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.written(), [])


class Bench(Cli):
    SMALL = ["--shape", "nano", "--agents", "3", "--prefix", "32", "--question", "48", "--output", "40", "-q"]
    METHODS = ["full", "prefix", "direct", "epic", "cacheblend", "relay"]

    def test_json(self):
        found = json.loads(self.baton("bench", *self.SMALL, "--json").stdout)
        self.assertEqual((found["schema"], found["shape"], found["dtype"]), (1, "nano", "bf16"))
        self.assertEqual(found["params"]["agents"], 3)
        self.assertGreater(found["threads"], 0)
        for limit in ("gemm_gflops", "bandwidth_gbs"):
            self.assertGreater(found["limits"][limit], 0)
        for line in found["prefill"] + found["decode"]:
            self.assertGreater(line["tokens_per_s"], 0)
            self.assertGreater(line["share"], 0)
        self.assertEqual([line["rows"] for line in found["decode"]], [1, 4, 16])
        self.assertEqual(found["memory"]["kv_bytes_per_token"], 2 * 2 * 10 * 2 * 32)
        for what in ("segment_bytes_per_token", "kv_peak_bytes", "segments_peak_bytes", "weights_bytes"):
            self.assertGreater(found["memory"][what], 0)
        self.assertEqual([method["method"] for method in found["methods"]], self.METHODS)
        parts = {"match", "copy", "full_layers", "detect", "sparse_layers", "tail", "other"}
        for method in found["methods"]:
            self.assertEqual([agent["prompt_tokens"] for agent in method["agents"]], [88, 132, 176])
            self.assertGreaterEqual(method["wall_ms"], 0.9 * sum(agent["ttft_ms"] for agent in method["agents"][:1]))
            for agent in method["agents"]:
                self.assertEqual(set(agent["breakdown_ms"]), parts)
                self.assertAlmostEqual(sum(agent["breakdown_ms"].values()), agent["ttft_ms"], delta=0.05 * agent["ttft_ms"])
        last = {method["method"]: method["agents"][-1]["kv_reuse_rate"] for method in found["methods"]}
        self.assertEqual(last["full"], 0)
        self.assertAlmostEqual(last["prefix"], 32 / 176, delta=0.001)
        self.assertGreater(last["direct"], 0.9)
        for method in ("epic", "cacheblend", "relay"):
            self.assertGreater(last[method], last["prefix"])
            self.assertLess(last[method], last["direct"])

        again = json.loads(self.baton("bench", *self.SMALL, "--json", "--methods", "relay,full", "--repeat", "1").stdout)
        self.assertEqual(again["logits_hash"], found["logits_hash"])
        self.assertEqual([method["method"] for method in again["methods"]], ["relay", "full"])
        other = json.loads(self.baton("bench", *self.SMALL, "--json", "--methods", "full", "--repeat", "1", "--seed", "2").stdout)
        self.assertNotEqual(other["logits_hash"], found["logits_hash"])

    def test_prefill_and_decode_alone(self):
        found = json.loads(self.baton("bench", "--shape", "nano", "--layers", "4", "--methods", "none", "--prefill", "16,48", "--decode",
                                      "1x32,3x64", "--rows", "--json", "-q").stdout)
        self.assertEqual([line["tokens"] for line in found["prefill"]], [16, 48])
        self.assertEqual([(line["rows"], line["depth"]) for line in found["decode"]], [(1, 32), (3, 64)])
        self.assertEqual((found["methods"], found["complete"]), ([], True))
        self.assertGreater(found["load_ms"], 0)
        self.assertEqual(found["row_costs"]["steps"][0]["rows"], 0)
        self.assertEqual(set(found["row_costs"]), {"depth", "slowdown", "knee", "steps"})
        table = self.baton("bench", "--shape", "nano", "--methods", "none", "--prefill", "16", "--decode", "1x16", "-q").stdout
        self.assertIn("prefill    16 tokens", table)
        self.assertNotIn("first token", table)
        self.assertEqual(json.loads(self.baton("bench", "--shape", "qwen3-0.6b", "--config").stdout)["head_dim"], 128)

    def test_interrupted_json_says_so(self):
        process = subprocess.Popen([RUNNER, "bench", "--shape", "nano", "--repeat", "1000", "--json", "-q"], cwd=self.folder,
                                   env=self.environment(), stdout=subprocess.PIPE, text=True)
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        found = json.loads(process.communicate(timeout=60)[0])
        self.assertEqual((process.returncode, found["complete"]), (130, False))

    def test_table(self):
        done = self.baton("bench", "--model", str(ROOT / "samples/models/nano"), "--agents", "2", "--prefix", "16", "--question", "24",
                          "--output", "16", "--methods", "full,relay", "--repeat", "1", "--layers-range", "0,3,7")
        self.assertIn("relay's layers: 0, 3, 7", done.stdout)
        self.assertRegex(done.stdout, r"\n +2 +68 +relay .* x ")
        self.assertIn("making random weights", self.baton("bench", *self.SMALL[:-1], "--methods", "full", "--repeat", "1").stderr)

    def test_lockstep_runs_the_whole_row(self):
        options = self.SMALL[:-3] + ["--output", "60", "--methods", "full,lockstep", "--repeat", "1", "--slowdown", "2"]
        full, lockstep = json.loads(self.baton("bench", *options, "-q", "--json").stdout)["methods"]
        for method in (full, lockstep):
            self.assertGreater(method["row_ms"], sum(60 * agent["decode_ms_per_token"] for agent in method["agents"]) * 0.9)
        self.assertEqual([agent["prompt_tokens"] for agent in lockstep["agents"]], [agent["prompt_tokens"] for agent in full["agents"]])
        self.assertEqual(lockstep["agents"][0]["ahead_rate"], 0)
        for agent in lockstep["agents"][1:]:
            self.assertGreater(agent["ahead_rate"], 0.3)
            self.assertGreater(agent["text_pass_ms"], 0)
            self.assertAlmostEqual(sum(agent["breakdown_ms"].values()), agent["ttft_ms"], delta=0.05 * agent["ttft_ms"])
        table = self.baton("bench", *options, "-q").stdout
        self.assertIn("lockstep: agent, computed ahead", table)
        self.assertNotIn("to the last token", self.baton("bench", *self.SMALL, "--methods", "full", "--repeat", "1").stdout)

    def test_sizes_and_shares_in_one_process(self):
        sizes = ["--shape", "nano", "--agents", "3", "--question", "48", "--repeat", "1", "--prefill", "16", "--decode", "1x16", "-q"]
        found = json.loads(self.baton("bench", *sizes, "--prefix", "16,64", "--output", "24,40", "--select", "0.18,0.05", "--methods",
                                      "full,relay,anchors", "--anchors", "2", "--json").stdout)
        self.assertEqual((found["params"]["prefix"], found["params"]["output"], found["params"]["select"]), ([16, 64], [24, 40], [0.18, 0.05]))
        self.assertEqual((found["methods"], found["complete"]), ([], True))
        self.assertEqual([(one["prefix"], one["output"]) for one in found["cases"]], [(16, 24), (16, 40), (64, 24), (64, 40)])
        for one in found["cases"]:
            self.assertEqual([(method["method"], method.get("select")) for method in one["methods"]],
                             [("full", None), ("relay", 0.18), ("relay", 0.05), ("anchors", None)])
            for method in one["methods"]:
                self.assertEqual([agent["prompt_tokens"] for agent in method["agents"]],
                                 [one["prefix"] + 48 + i * one["output"] + 4 * (i + 2) for i in range(3)])
            full, much, little, anchors = (method["agents"][-1]["kv_reuse_rate"] for method in one["methods"])
            self.assertEqual(full, 0)  # texts of another size are no prefix of these
            self.assertLess(much, little)
            self.assertLess(little, anchors)
        for option in ("prefix", "output", "select"):  # one value: as ever
            one = json.loads(self.baton("bench", *sizes, f"--{option}", "0.2" if option == "select" else "24", "--methods", "relay", "--json").stdout)
            self.assertEqual(one["params"][option], 0.2 if option == "select" else 24)
            self.assertNotIn("cases", one)
            self.assertNotIn("select", one["methods"][0])
        table = self.baton("bench", *sizes, "--output", "24,40", "--select", "0.18,0.05", "--methods", "relay").stdout
        self.assertIn("role texts of 128 tokens, answers of 40\n", table)
        self.assertRegex(table, r"\n +3 +\d+ +relay 0\.05 ")
        self.assertIn("--agents: the last of 3 has a prompt of",
                      self.baton("bench", *sizes, "--output", "24,5000", "--methods", "relay", code=2).stderr)

    def test_lockstep_without_decoding(self):
        options = [*self.SMALL, "--methods", "full,prefix,lockstep", "--repeat", "1", "--json", "--row-methods"]
        none = json.loads(self.baton("bench", *options, "none").stdout)["methods"]
        for method in none:
            self.assertNotIn("row_ms", method)
            self.assertNotIn("decode_ms_per_token", method["agents"][0])
        first, *later = none[2]["agents"]
        self.assertEqual((first["ahead_rate"], first["text_pass_ms"]), (0, 0))
        for agent in later:  # all but the role text, a prefix, and the last separator
            self.assertAlmostEqual(agent["ahead_rate"], 1 - (32 + 4) / agent["prompt_tokens"], delta=0.001)
            self.assertEqual(agent["ttft_ms"], agent["text_pass_ms"])
        some = json.loads(self.baton("bench", *options, "lockstep,full").stdout)["methods"]
        self.assertEqual([method["method"] for method in some if "row_ms" in method], ["full", "lockstep"])

    def test_memory_by_method(self):
        found = json.loads(self.baton("bench", *self.SMALL, "--methods", "full,prefix,direct,relay,lockstep,anchors", "--anchors", "2",
                                      "--row-methods", "none", "--repeat", "1", "--memory", "--json").stdout)
        self.assertNotIn("by_method", json.loads(self.baton("bench", *self.SMALL, "--methods", "full", "--repeat", "1", "--json").stdout)["memory"])
        held = {one.pop("method"): one for one in found["memory"]["by_method"]}
        kv, hidden = 2 * 2 * 10 * 2 * 32, 2 * 192  # keys and values in bf16 of 10 layers with 2 heads of 32; a state of 192
        self.assertEqual(held["full"]["keys_values"], 0)
        for method in ("prefix", "lockstep"):
            self.assertAlmostEqual(held[method]["keys_values"], kv, delta=0.001)
            self.assertEqual((held[method]["hidden"], held[method]["received"], held[method]["anchor"]), (0, 0, 0))
        for method in ("direct", "relay", "anchors"):
            self.assertAlmostEqual(held[method]["keys_values"], kv, delta=0.001)
            self.assertEqual([held[method][part] for part in ("hidden", "received", "entropy", "ids")], [hidden, 4, 4, 4])
            self.assertGreater(held[method]["cache_recording"], 1.5 * kv)
        self.assertAlmostEqual(held["anchors"]["anchor"], kv + 4 * 32 + 4, delta=10)  # and a head for each anchor
        self.assertEqual(held["direct"]["anchor"], 0)
        self.assertGreaterEqual(held["lockstep"]["ahead"], kv)
        for one in held.values():  # a cache has room for whole blocks of positions
            self.assertGreaterEqual(one["cache"], kv)
            self.assertLess(one["cache"], 2 * kv)

    def test_mistakes_name_the_option(self):
        for option, value in (("--shape", "gpt-5"), ("--row-methods", "magic"), ("--output", "24,0"), ("--select", "0.2,0"), ("--methods", "full,magic"), ("--agents", "0"), ("--agents", "nine"),
                              ("--select", "1.5"), ("--prefix", "0"), ("--layers-range", "1,2"), ("--layers-range", "5,3,8"),
                              ("--layers", "3"), ("--decode", "3"), ("--decode", "1x4000"), ("--prefill", "9999"), ("--dtype", "f8"), ("--repeat", "0"), ("--device", "abacus")):
            base = {"--shape": "nano", "--agents": "2", "--output": "40", option: value}
            done = self.baton("bench", "-q", *sum(map(list, base.items()), []), code=4 if option == "--device" else 2)
            self.assertIn(value if option == "--device" else option, done.stderr)
            self.assertEqual(done.stdout, "")
        self.assertIn("--agents: the last of 3 has a prompt of", self.baton("bench", *self.SMALL[:-3], "--output", "5000", code=2).stderr)
        self.assertIn("--shape", self.baton("bench", code=2).stderr)
        self.assertIn("--shape", self.baton("bench", "--shape", "nano", "--model", "nano", code=2).stderr)
        self.assertIn("/no/such/model", self.baton("bench", "--model", "/no/such/model", code=4).stderr)


if __name__ == "__main__":
    RUNNER = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
