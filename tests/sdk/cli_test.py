#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the runner: exit codes, what goes to stdout and to stderr, the JSON's shape, Ctrl-C, the live view.

Usage: cli_test.py RUNNER [unittest options]
"""

import array
import calendar
import fcntl
import json
import os
import pty
import random
import re
import resource
import select
import signal
import subprocess
import termios
import time
import unittest

from runner import Cli, LONG, QUESTION, ROOT, RUNNER, TEAM


class Usage(Cli):
    def test_no_verb(self):
        done = self.baton(code=2)
        self.assertEqual(done.stdout, "")
        self.assertIn("run", done.stderr)

    def test_suggestions(self):
        self.assertIn("did you mean 'check'", self.baton("chekc", code=2).stderr)
        self.assertIn("did you mean '--relay'", self.baton("run", self.team, "--relya", "full", code=2).stderr)
        self.assertIn("baton run --help", self.baton("run", code=2).stderr)
        self.assertIn("--relay: exakt: expected one of full, prefix, lockstep, exact, rectify, anchors, droidspeak, auto, verified", (relay := self.baton("run", self.team, "--relay", "exakt", code=2).stderr))
        self.assertIn("did you mean 'exact'?", relay)
        self.assertIn("did you mean 'question'", self.baton("run", self.team, "-i", "questoin=x", "-i", QUESTION, code=2).stderr)

    def test_what_is_unknown_is_answered_with_what_there_is(self):
        self.assertIn("unknown input 'x'; the workflow has: question", self.baton("run", self.team, "-i", "x=1", "-i", QUESTION, code=2).stderr)
        self.assertIn("unknown input 'x'; the workflow has: question", self.baton("check", self.team, "--render", "solver", "-i", "x=1", code=2).stderr)
        unknown = self.baton("run", self.team, "--zzzzzz", code=2).stderr
        for option in ("--input", "--relay", "--record"):
            self.assertIn(option, unknown.split("The options are: ")[1])
        self.assertLessEqual(max(map(len, unknown.splitlines())), 100)
        narrow = self.in_terminal("run", self.team, "--zzzzzz", columns=50)[1].replace("\r", "")
        self.assertLessEqual(max(map(len, re.sub("\x1b[^m]*m", "", narrow).splitlines())), 50)
        self.assertIn("check", self.baton("zzzzzz", code=2).stderr.split("The verbs are: ")[1])
        mian = self.baton("run", self.team, "-i", QUESTION, "--model", "mian=/tmp", code=3).stderr
        self.assertIn("unknown model 'mian'", mian)
        self.assertIn("did you mean 'main'?", mian)

    def test_every_verb_has_help_with_its_name(self):
        text = self.baton("--help").stdout
        verbs = re.findall(r"^  (\w+) ", text.split("Options:")[1].split("Start here")[0], re.M)
        self.assertEqual((len(verbs), len(set(verbs))), (12, 12))
        groups = re.findall(r"^([A-Z].*):$", text.split("Options:")[1].split("Start here")[0], re.M)
        self.assertEqual(groups, ["Run workflows", "Check and show workflows", "Recorded runs", "Models", "Baton itself"])
        self.assertIn("6 verification failed, 7 suspended", text)
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

    def test_hostile_inputs_are_refused(self):
        self.write("deep.json", "[" * 1_000_000)
        done = self.baton("run", self.team, "--input-file", "deep.json", code=2)
        self.assertIn("--input-file deep.json: expected a JSON object: byte 65: expected lists and objects nested at most 64 deep",
                      done.stderr)

    def test_doctor_tests_a_device(self):
        found = json.loads(self.baton("doctor", "--device", "cpu", "--json").stdout)
        test = next(line for line in found if line["check"] == "self-test cpu")
        self.assertEqual(test["verdict"], "ok")
        self.assertRegex(test["text"], r"^23 of 23 parts give what the CPU gives")
        self.assertIn("device 'gpu7'", self.baton("doctor", "--device", "gpu7", code=4).stderr)

    def test_doctor_measures_rows(self):
        found = json.loads(self.baton("doctor", "--model", str(ROOT / "samples/models/nano"), "--json").stdout)
        line = found[-1]
        self.assertEqual(line["check"], "rows ahead")
        self.assertRegex(line["text"], r"^\d+ prompt rows in a decode step lengthen it by at most 67 %, 512 tokens deep \(0: ")
        self.assertNotIn("rows ahead", self.baton("doctor").stdout)
        self.assertIn("/no/model", self.baton("doctor", "--model", "/no/model", code=4).stderr)


class Files(Cli):
    def test_validate(self):
        self.write("broken.yaml", TEAM.replace("agent_solver_current", "agent_slover_current"))
        done = self.baton("check", self.team, "broken.yaml", code=3)
        self.assertEqual(done.stdout, "team.yaml: ok: 2 agents, 2 turns\n")
        self.assertRegex(done.stderr, r"broken\.yaml:\d+:\d+: error\[E\d{4}\]")
        self.assertIn("did you mean 'agent_solver_current'", done.stderr)
        items = json.loads(self.baton("check", "broken.yaml", "--json", code=3).stdout)
        self.assertEqual(items[0]["errors"][0]["line"], 13)
        self.baton("check", "no.yaml", code=3)

    def test_run_of_a_broken_file(self):
        self.write("broken.yaml", "version: 1\nname: [")
        self.assertEqual(self.baton("run", "broken.yaml", code=3).stdout, "")

    def test_graph_plan_render(self):
        for form in ("ascii", "mermaid", "dot"):
            self.assertIn("checker", self.baton("check", self.team, "--graph", form).stdout)
        json.loads(self.baton("check", self.team, "--graph", "json").stdout)
        self.baton("check", self.team, "--graph", "svg", code=2)

        text = self.baton("check", "--plan", self.team, "--input", QUESTION).stdout
        self.assertIn("KV cache", text)
        plan = json.loads(self.baton("check", "--plan", self.team, "--json").stdout)
        self.assertEqual(plan["turns"][1]["needs"], [0])
        self.assertIn("agent_solver_current", [slot["name"] for slot in plan["turns"][1]["slots"]])
        self.assertGreater(plan["memory"]["kv_peak_bytes"], 0)

        prompt = json.loads(self.baton("check", self.team, "--render", "checker", "--input", QUESTION,
                                       "--value", "agent_solver_current=It is 19.", "--json").stdout)
        self.assertTrue(prompt["complete"])
        self.assertIn("It is 19.", prompt["text"])
        self.assertEqual(sum(len(part["tokens"]) for part in prompt["parts"]), len(prompt["tokens"]))
        self.assertIn("did you mean 'checker'", self.baton("check", self.team, "--render", "cheker", code=2).stderr)

    def test_plan_without_a_model(self):
        done = self.baton("check", "--plan", self.team, "--model", "main=/no/such/model")
        self.assertIn("/no/such/model", done.stderr)
        self.assertIn("checker", done.stdout)

    def test_init_gives_a_sound_workflow(self):
        self.baton("init", "mine")
        self.baton("check", "mine/team.yaml")
        self.assertIn("exists already", self.baton("init", "mine", code=2).stderr)
        for model in (str(ROOT / "samples/models/nano"), "hf:org/name:Q4_K_M", 'odd "quoted" ${env:HOME} \\ name'):
            folder = f"of_{abs(hash(model))}"
            self.baton("init", folder, "--model", model)
            text = (self.folder / folder / "team.yaml").read_text()
            self.assertNotIn("@", text.replace("@FILE", ""))
            self.baton("check", f"{folder}/team.yaml")

    def test_schema_version_models_doctor(self):
        self.assertIn("draft-07", json.loads(self.baton("check", "--schema").stdout)["$schema"])
        self.assertTrue((ROOT / "docs/yaml.md").read_text().endswith(self.baton("check", "--schema", "--markdown").stdout))
        self.assertIn("baton ", self.baton("--version").stdout)

    def test_old_names_say_the_new_ones(self):
        for old, new in (("validate", "baton check FILE"), ("plan", "baton check FILE --plan"), ("graph", "--graph"), ("render", "--render"),
                         ("explain", "baton check --explain"), ("schema", "baton check --schema"), ("trace", "baton report DIR --trace"),
                         ("diff", "baton compare"), ("replay", "--replay"), ("version", "baton --version"), ("bench", "baton-lab bench"),
                         ("eval", "baton-lab eval"), ("load", "baton-lab load"), ("learn", "baton-lab learn"), ("profile", "baton-lab profile")):
            said = subprocess.run([RUNNER, old, "x"], capture_output=True, text=True, check=False)
            self.assertEqual((said.returncode, said.stdout), (2, ""))
            self.assertIn(new, said.stderr)
        self.assertIn("--trace otlp|URL|FILE", self.baton("report", "x", "--to", "y", code=2).stderr)
        self.assertIn("--render AGENT", self.baton("check", self.team, "--agent", "solver", code=2).stderr)
        self.assertIsInstance(json.loads(self.baton("models", "--json").stdout), list)
        checks = {line["check"] for line in json.loads(self.baton("doctor", "--json").stdout)}
        self.assertLessEqual({"device cpu", "memory", "threads", "tool python", "models", "terminal",
                              "sandbox system calls", "sandbox Landlock", "sandbox namespaces", "sandbox limits"}, checks)


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
        kinds = {"schema": int, "version": str, "date": str, "workflow": str, "device": str, "threads": int, "relay": str, "seed": int,
                 "inputs": dict, "outputs": dict, "engines": dict, "load_ms": float, "measure_ms": float, "wall_ms": float, "agents": list}
        for name, kind in kinds.items():
            self.assertIsInstance(record[name], kind, name)
        self.assertEqual((record["schema"], record["workflow"], record["seed"]), (1, "pair", 9))
        self.assertEqual(set(record["model"]), {"path", "fingerprint"})
        self.assertEqual(set(record["memory"]), {"weights_bytes", "kv_peak_bytes", "segments_peak_bytes", "host_segments_peak_bytes", "anchors_bytes"})
        self.assertEqual(set(record["outputs"]), {"answer"})
        self.assertEqual(record["inputs"], {"question": "What is 6 x 7?"})
        self.assertEqual(self.baton("--version").stdout, f"baton {record['version']}\n")
        self.assertRegex(record["date"], r"^20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d\.\d{3}Z$")
        self.assertLess(abs(calendar.timegm(time.strptime(record["date"][:19], "%Y-%m-%dT%H:%M:%S")) - time.time()), 600)
        self.assertGreater(record["threads"], 0)
        self.assertGreater(record["load_ms"], 0)
        for agent in record["agents"]:
            self.assertLessEqual({"agent", "role", "round", "state", "prompt_tokens", "output_tokens", "output", "truncated", "kv", "ttft_ms",
                                  "prefill_ms", "decode_ms", "tokens_per_s", "slots"}, set(agent))
            self.assertEqual(set(agent["kv"]), {"entries", "reused", "computed", "ahead", "reuse_rate", "stored_tokens", "stored_ms"})
            self.assertEqual(agent["kv"]["entries"], agent["kv"]["reused"] + agent["kv"]["computed"])
        for slot in record["agents"][1]["slots"]:
            self.assertEqual(set(slot), {"name", "tokens", "method", "reused_tokens", "recomputed_tokens", "ahead_tokens", "kv_reuse_rate", "kv_reuse_bound", "hops", "corrected",
                                     "reason", "anchors"})

    def test_a_later_process_reads_what_an_earlier_one_computed(self):
        self.write("kept.yaml", TEAM.replace("outputs:", "relay: {method: prefix, store: {disk: kv, budget: 64MiB}}\noutputs:"))
        long = "question=" + "Mia has 12 apples. She buys 7 more apples. " * 20
        records = [json.loads(self.baton("run", file, "-i", long, "--json", "-q").stdout) for file in ("kept.yaml", "kept.yaml", self.team)]
        first, second, bare = ([agent["kv"] for agent in record["agents"]] for record in records)
        self.assertEqual([kv["stored_tokens"] for kv in first], [0, 0])
        for kv, before in zip(second, first):
            self.assertGreaterEqual(kv["stored_tokens"], 128)
            self.assertLess(kv["computed"], before["computed"])
        self.assertEqual(records[0]["outputs"], records[1]["outputs"])
        self.assertEqual({kv["stored_tokens"] for kv in bare}, {0})
        files = list((self.folder / "kv").rglob("*.kv"))
        self.assertTrue(files)
        for file in files:
            file.write_bytes(file.read_bytes()[:-1])
        done = self.baton("run", "kept.yaml", "-i", long, "--json")
        self.assertEqual(json.loads(done.stdout)["outputs"], records[0]["outputs"])
        self.assertIn("were damaged and are removed", done.stderr)

    def test_a_store_that_cannot_be_used_is_told_and_left_out(self):
        self.write("file", "")
        self.write("kept.yaml", TEAM.replace("outputs:", "relay: {store: {disk: file}}\noutputs:"))
        self.assertIn("no KV of ", self.baton("run", "kept.yaml", "-i", QUESTION, "-q").stderr)
        self.assertIn("'disk'", self.baton("check", self.write("none.yaml", TEAM.replace("outputs:", "relay: {store: {budget: 1GiB}}\noutputs:")),
                                           code=3).stderr)

    def test_saved_prefill_is_that_of_the_tokens_that_were_not_computed(self):
        said = re.compile(r"about ([0-9.]+) (ms|s) of prefill saved \(([0-9,]+) prompt tokens not computed\)")
        long = "Mia has 12 apples. She buys 7 more apples. " * 8
        self.write("same.yaml", TEAM.replace("system: You are a math expert., ", "").replace(
            "{{ question }}\\n\\nSolver", "Question:\\n{{ question }}\\n\\nSolver"))
        done = self.baton("run", "same.yaml", "--input", f"question={long}", "--relay", "prefix", "--record", "out")
        record = json.loads((self.folder / "out/run.json").read_text())
        solver, checker = record["agents"]
        self.assertEqual((solver["kv"]["reused"], solver["kv"]["ahead"]), (0, 0))
        self.assertGreater(checker["kv"]["reused"], 0)
        not_computed = checker["kv"]["reused"] / checker["kv"]["entries"] * checker["prompt_tokens"]
        shown = said.search(done.stderr)
        self.assertTrue(shown, done.stderr)
        self.assertEqual(int(shown[3].replace(",", "")), round(not_computed))
        expected = not_computed * solver["prefill_ms"] / solver["prompt_tokens"]
        self.assertAlmostEqual(float(shown[1]) * (1000 if shown[2] == "s" else 1), expected, delta=0.06 * expected + 0.6)
        full = self.baton("run", "same.yaml", "--input", f"question={long}", "--relay", "full")
        self.assertNotIn("saved", full.stderr)

    def test_outputs_keep_the_order_of_the_file(self):
        outputs = 'outputs: {zebra: "Z {{ question }}", apple: "A {{ question }}", mango: "{{ agent_checker_current }}"}'
        self.write("order.yaml", TEAM.replace("inputs:\n", "inputs:\n  tone: {default: calm}\n")
                   .replace('outputs: {answer: "{{ agent_checker_current }}"}', outputs))
        lines = self.baton("run", "order.yaml", "-i", "question=Q", "-q", "--threads", "2").stdout
        self.assertLess(lines.index("zebra: Z Q"), lines.index("apple: A Q"))
        self.assertLess(lines.index("apple: A Q"), lines.index("mango: "))
        record = json.loads(self.baton("run", "order.yaml", "-i", "question=Q", "-q", "--json", "--threads", "2").stdout)
        self.assertEqual(list(record["outputs"]), ["zebra", "apple", "mango"])
        self.assertEqual(list(record["inputs"].items()), [("tone", "calm"), ("question", "Q")])
        self.assertEqual(record["threads"], 2)

    def test_an_answer_that_is_cut_off_is_no_secret(self):
        cut = self.baton("run", self.team, "--input", QUESTION, "--set", "defaults.max_tokens=3", "--json")
        self.assertEqual([agent["truncated"] for agent in json.loads(cut.stdout)["agents"]], [True, True])
        for agent in ("solver", "checker"):
            self.assertIn(f"warning: agent '{agent}': the answer was cut off after 3 tokens, its max_tokens", cut.stderr)
        events = self.baton("run", self.team, "--input", QUESTION, "--set", "defaults.max_tokens=3", "--events", "ndjson", "-q").stdout
        warnings = [line["message"] for line in map(json.loads, events.splitlines()) if line["type"] == "warning"]
        self.assertEqual(len([warning for warning in warnings if "cut off" in warning]), 2)
        whole = self.baton("run", self.team, "--input", QUESTION, "--set", "defaults.max_tokens=400", "--json")
        self.assertEqual([agent["truncated"] for agent in json.loads(whole.stdout)["agents"]], [False, False])
        self.assertNotIn("cut off", whole.stderr)

    def test_answers_are_values(self):
        scores = "[{score: {type: integer, minimum: 3, maximum: 9}, why: {type: string, maxLength: 20}}]"
        self.write("judged.yaml", TEAM.replace("pattern: \"The answer is (-?[0-9]+)\", required: false",
                                               "schema: {properties: %s, required: [score, why]}" % scores[1:-1])
                   .replace("defaults: {max_tokens: 24}", "defaults: {max_tokens: 90}\nrelay: {method: rectify, min_tokens: 1}")
                   .replace("workflow: {topology: chain, agents: [solver, checker]}", """\
  reader: {prompt: "{{ agent_checker_answer.score }} {{ agent_checker_answer }}"}
workflow:
  topology: graph
  rounds: 3
  until: agent_checker_answer.score >= 3 and round == 2
  steps: [{agent: solver}, {agent: checker}, {agent: reader, when: agent_checker_answer.score > 2}]""")
                   .replace("{{ agent_checker_current }}\"}", "{{ agent_checker_answer.score }}\"}"))
        run = json.loads(self.baton("run", "judged.yaml", "-i", QUESTION, "--json").stdout)
        answers = [json.loads(a["answer"]) for a in run["agents"] if a["agent"] == "checker" and a["state"] == "ok"]
        self.assertEqual(len(answers), 2)  # the third round is left out
        self.assertEqual(run["outputs"], {"answer": str(answers[-1]["score"])})
        for reader in [a for a in run["agents"] if a["agent"] == "reader" and a["state"] == "ok"]:
            part, whole = reader["slots"]
            self.assertEqual((part["name"], part["reused_tokens"]), ("agent_checker_answer.score", 0))
            self.assertEqual(whole["reason"], "decoded by checker" + ("" if reader["round"] == 1 else "#2"))
            self.assertGreater(whole["reused_tokens"], 0)
        self.assertIn("until: unknown placeholder 'agent_cheker_answer'",
                      self.baton("check", "judged.yaml", "--set", "workflow.until=\"agent_cheker_answer.score > 3\"", code=3).stderr)

    def test_research_keys_are_of_the_laboratory(self):
        self.write("layers.yaml", TEAM + "relay: {method: rectify, layers: {start: 1, detect: 2, end: 3}}\n")
        wrong = self.baton("run", "layers.yaml", "--input", QUESTION, code=3).stderr
        self.assertRegex(wrong, r"layers\.yaml:\d+:\d+: error\[E0401\]")
        self.assertIn("`relay.layers` is now `relay.lab.layers`, which baton-lab accepts", wrong)
        self.write("layers.yaml", TEAM + "relay: {lab: {preset: paper}}\n")
        wrong = self.baton("run", "layers.yaml", "--input", QUESTION, code=3).stderr
        self.assertIn("`relay.lab` is for research: run this file with baton-lab", wrong)

    def test_inputs_from_files(self):
        self.write("q.txt", "What is 6 x 7?\n")
        for given, wanted in (("question=@q.txt", "What is 6 x 7?"), ("question=@@q.txt", "@q.txt"), ("question=a=b", "a=b")):
            prompt = json.loads(self.baton("check", self.team, "--render", "solver", "--input", given, "--json").stdout)
            self.assertIn("Question:\n" + wanted, prompt["text"])

    def test_events(self):
        lines = self.baton("run", self.team, "--input", QUESTION, "--events", "ndjson", "-q").stdout.splitlines()
        types = [json.loads(line)["type"] for line in lines]
        self.assertEqual((types[0], types[-1]), ("run_started", "run_finished"))
        self.assertEqual(types.count("agent_started"), 2)

    def test_record_folder(self):
        self.baton("run", self.team, "--input", QUESTION, "--record", "runs/1", "-q")
        files = {str(p.relative_to(self.folder / "runs")) for p in (self.folder / "runs").rglob("*") if p.is_file()}
        self.assertEqual(files, {"1/run.json", "1/events.ndjson", "1/graph.json", "1/journal.ndjson", "1/prompts/solver.txt", "1/prompts/solver.ids.json", "1/prompts/checker.txt", "1/prompts/checker.ids.json"})
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

    def test_closed_files_take_nothing_from_the_run(self):
        for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
            record = self.folder / f"closed{len(closed)}"
            done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", RUNNER, "run", str(self.team), "--input", QUESTION, "--record", str(record)],
                                  cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment())
            self.assertEqual(done.returncode, 0 if closed == "2>&-" else 1, closed)  # 1: nobody got the result
            if closed == ">&-":
                self.assertIn(b"could not write to standard output", done.stderr)
            self.assertEqual(json.loads((record / "run.json").read_text())["state"], "ok")


class Exhaustion(Cli):
    """A run within an address space that is too small ends with an error, whatever does not fit."""

    def test_small_address_spaces(self):
        codes = set()
        for mebibytes in range(64, 257, 16):
            limits = lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
            done = subprocess.run([RUNNER, "run", self.team, "-q", "--input", QUESTION, "--threads", "4"], cwd=self.folder,
                                  env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=60, preexec_fn=limits)
            codes.add(done.returncode)
            if done.returncode:
                self.assertIn(done.returncode, (1, 4), f"{mebibytes} MiB: {done.stderr}")
                self.assertRegex(done.stderr, "memory|thread")
        self.assertTrue(codes & {1, 4})


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

    def test_the_result_is_shown_once(self):
        answer = json.loads(self.baton("run", self.team, "--input", QUESTION, "--json").stdout)["outputs"]["answer"].strip()
        _, seen = self.in_terminal("run", self.team, "--input", QUESTION)
        after = seen.split("\x1b[?25h")[1].replace("\r", "")
        self.assertEqual(after.count(answer.split("\n")[-1]), 1, after)
        self.assertIn("(the result below)", after)
        with open(self.folder / "out.txt", "w") as out:  # elsewhere than the answers: both
            _, seen = self.in_terminal("run", self.team, "--input", QUESTION, stdout=out)
        self.assertIn(answer.split("\n")[-1], seen)
        self.assertEqual((self.folder / "out.txt").read_text().strip(), answer)

    def test_an_answer_that_is_cut_off_is_marked(self):
        _, seen = self.in_terminal("run", self.team, "--input", QUESTION, "--set", "defaults.max_tokens=3", NO_COLOR="1")
        after = seen.split("\x1b[?25h")[1].replace("\r", "")
        self.assertIn("cut off after 3 tokens", after)
        self.assertRegex(after, r"checker +cut off ")
        self.assertIn("warning: agent 'checker': the answer was cut off after 3 tokens, its max_tokens", seen)
        _, seen = self.in_terminal("run", self.team, "--input", QUESTION, "--set", "defaults.max_tokens=3")
        self.assertIn("\x1b[33mwarning: \x1b[0m", seen)

    def test_the_table_fits(self):
        for columns in (40, 60, 80):
            _, seen = self.in_terminal("run", self.team, "--input", QUESTION, columns=columns, NO_COLOR="1")
            table = seen[seen.rindex("\nagent "):].replace("\r", "")
            self.assertRegex(table, r"(?m)^checker ")
            self.assertIn("in all", table)
            self.assertIn("to load", " ".join(table.split()))
            for line in table.split("\n"):
                self.assertLess(len(line), columns, line)

    def test_lines_fit(self):
        for columns in (20, 43, 80, 200):
            _, seen = self.in_terminal("run", self.team, "--input", QUESTION, columns=columns)
            live = seen.split("\x1b[?25h")[0]
            for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", live).replace("\r", "\n").split("\n"):
                if not line.startswith("warning"):  # warnings stay, and may wrap
                    self.assertLess(len(line), columns, line)

    def test_no_colour_and_dumb(self):
        self.assertNotRegex(self.in_terminal("run", self.team, "--input", QUESTION, NO_COLOR="1")[1], r"\x1b\[[0-9;]*m")
        self.assertNotIn("\x1b", self.in_terminal("run", self.team, "--input", QUESTION, TERM="dumb")[1])

    def test_hostile_text_does_nothing(self):
        hostile = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\x08"
        self.write("q.txt", hostile)
        _, seen = self.in_terminal("check", self.team, "--render", "solver", "--input", "question=@q.txt")
        self.assertNotRegex(seen, "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]")
        raw = self.baton("check", self.team, "--render", "solver", "--input", "question=@q.txt").stdout
        self.assertIn("\x1b]0;owned", raw)

    def test_input_from_standard_input(self):
        command = [RUNNER, "check", str(self.team), "--render", "solver", "--input", "question=@-"]
        done = subprocess.run(command, input="How many\napples?\n", capture_output=True, text=True, timeout=60,
                              cwd=self.folder, env=self.environment())
        self.assertIn("Question:\nHow many\napples?<|im_end|>", done.stdout, done.stderr)
        done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60,
                              cwd=self.folder, env=self.environment())
        self.assertEqual((done.returncode, done.stderr), (2, "baton: standard input is empty, or was read; expected the value of an input (@-)\n"))

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


if __name__ == "__main__":
    unittest.main()
