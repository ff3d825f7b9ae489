#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the verbs that measure and learn: eval, learn, profile, bench.

Usage: cli_measures_test.py RUNNER [unittest options]
"""

import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

from runner import Cli, LAB, QUESTION, ROOT, RUNNER, TEAM


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
        methods = "direct,epic:epic_tokens=100000,rectify:layers.start=0;layers.detect=1;layers.end=9;select.all=true,rectify:layers.start=1;layers.detect=2;layers.end=6"
        found = json.loads(self.baton("eval", self.team, "--dataset", data, "--methods", methods, "--json", "-q").stdout)
        direct, epic, everything, relay = found["methods"]
        self.assertGreater(found["noise_floor"]["kl_mean"], 0)
        for exact in (epic, everything):  # all recomputed: nothing but full prefill is left
            self.assertEqual((exact["kl_mean"], exact["exact_match"], exact["greedy_agreement"], exact["recomputed_share"]), (0, 1, 1, 1))
        self.assertGreater(direct["kl_mean"], found["noise_floor"]["kl_mean"])
        self.assertGreater(direct["kv_reuse_rate"], 0.9)  # an answer that was cut off lacks the KV of its last token
        self.assertTrue(0.5 < relay["kv_reuse_rate"] < 0.9, relay)
        self.assertEqual(relay["params"], {"agents": 2, "layers.start": "1", "layers.detect": "2", "layers.end": "6"})
        for wrong in ("direct:x", "epic:no_such=1", "telepathy", ":a=1"):
            self.assertIn("--methods", self.baton("eval", self.team, "--dataset", data, "--methods", wrong, code=2).stderr)

    def test_kvcomm_learns_from_question_to_question(self):
        data = self.data(*[{"id": f"q{i}", "inputs": {"question": f"Mia has {100 - i} apples. She buys 7 more apples. How many apples does Mia have?"},
                            "answer": str(107 - i)} for i in range(6)])
        # A gamma of 0 makes an anchor of every text; of two or more, so does a pool of one.
        methods = "full,direct,kvcomm:kvcomm.gamma=1,kvcomm:kvcomm.gamma=0,kvcomm:kvcomm.size=1"
        found = json.loads(self.baton("eval", self.team, "--dataset", data, "--methods", methods, "--jobs", "1", "--json", "-q").stdout)
        _, direct, shares, learns, one = found["methods"]
        self.assertTrue(0 < shares["agent_turn_reuse"] < direct["agent_turn_reuse"], (shares, direct))
        self.assertTrue(0 < shares["kl_mean"], shares)
        for exact in (learns, one):
            self.assertEqual((exact["agent_turn_reuse"], exact["kl_mean"], exact["exact_match"]), (0, 0, 1))
        self.assertGreater(shares["anchors_bytes"], 0)
        for wrong in ("kvcomm:kvcomm.size=0", "kvcomm:kvcomm.top_p=2", "kvcomm:kvcomm.window=0"):
            self.assertIn(wrong.split("=")[0].split(".")[1],
                          self.baton("eval", self.team, "--dataset", data, "--methods", wrong, code=2).stderr)

    def test_teams_of_other_sizes_and_the_parts_of_relay(self):
        data = self.data({"id": "q", "inputs": {"user_question": "Mia has 5 apples. She buys 7 more apples. How many apples does Mia have?"}, "answer": "12"})
        team = str(ROOT / "workflows/library/math_roles.yaml")
        relay = "rectify:select.score=deviation;layers.start=0;layers.detect=1;layers.end=4"
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

    def test_perplexity_of_a_text(self):
        text = self.write("t.txt", "".join(f"Mia has {i} apples. She buys 7 more apples. How many apples does Mia have?\n" for i in range(40)))
        asked = ["perplexity", text, "--model", str(ROOT / "samples/models/nano"), "--context", "64"]
        done = self.baton(*asked, "--json")
        found = json.loads(done.stdout)
        self.assertEqual((found["schema"], found["text"], found["context"], found["bos"]), (1, "t.txt", 64, False))
        self.assertEqual(found["chunks"], found["tokens"] // 64)
        self.assertEqual(found["scored"], 31 * found["chunks"])
        self.assertIn(f"{found['chunks']} of {found['chunks']} chunks", done.stderr)
        self.assertGreater(found["perplexity"], 1)
        self.assertGreater(found["error"], 0)
        two = self.baton(*asked, "--chunks", "2", "-q")
        self.assertRegex(two.stdout, r"perplexity [0-9.]+ \+/- [0-9.]+\n62 of [0-9,]+ tokens scored, in 2 chunks of 64;")
        self.assertEqual(two.stderr, "")
        self.assertIn("t.txt: expected 2048 tokens or more", self.baton(*asked[:-1], "2048", code=2).stderr.replace(",", ""))
        for wrong in (["--context", "3"], ["--context", "10000000"], ["--chunks", "0"], ["--dtype", "f8"], ["--activations", "int8"]):
            self.assertIn(wrong[0], self.baton(*asked, *wrong, code=2).stderr)
        self.assertIn("--model", self.baton("perplexity", text, code=2).stderr)
        self.assertIn("no.txt", self.baton("perplexity", "no.txt", "--model", "nano", code=2).stderr)
        self.assertIn("is now 'baton-lab perplexity TEXT", self.baton("eval", self.team, "--dataset", text, "--perplexity", text, code=2).stderr)
        self.assertIn("file", self.baton("eval", "--dataset", text, code=2).stderr)
        self.assertIn("--dataset", self.baton("eval", self.team, code=2).stderr)

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


class Resume(Cli):
    """eval --resume: an interrupted table is continued, and equals one that was not interrupted."""

    METHODS = "full,direct,epic:epic_tokens=4,rectify,cacheblend"

    def setUp(self):
        super().setUp()
        questions = [f"Mia has {12 + 7 * i} apples. She buys {3 + i} more apples. How many apples does Mia have?" for i in range(12)]
        self.data = self.write("d.jsonl", "".join(json.dumps({"id": f"q{i}", "inputs": {"question": q}, "answer": str(15 + 8 * i)}) + "\n"
                                                  for i, q in enumerate(questions)))
        self.log = self.folder / "log.jsonl"

    def arguments(self, *more, jobs=1):
        return ["eval", self.team, "--dataset", self.data, "--methods", self.METHODS, "--floor-limit", "5", "--json", "--jobs", str(jobs),
                *more]

    def table(self, *more, jobs=1, code=0):
        done = self.baton(*self.arguments(*more, jobs=jobs), code=code)
        if code != 0:
            return done.stderr
        found = json.loads(done.stdout)
        for method in found["methods"]:
            for timed in ("ttft_ms", "wall_ms"):
                self.assertGreater(method.pop(timed), 0)
        return found, done.stderr

    def interrupt(self, lines, jobs):
        """Kills an evaluation when the file has this many lines. Returns how many it then had."""
        process = subprocess.Popen([LAB, *self.arguments("--resume", "log.jsonl", jobs=jobs)], cwd=self.folder, env=self.environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while not self.log.exists() or self.log.read_bytes().count(b"\n") < lines:
            self.assertIsNone(process.poll(), "it ended before it was interrupted")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)
        process.kill()
        process.wait()
        return self.log.read_bytes().count(b"\n")

    def test_killed_and_continued(self):
        whole, _ = self.table()
        self.assertGreater(whole["methods"][1]["kl_mean"], 0)
        for jobs in (1, 3):
            self.log.unlink(missing_ok=True)
            for lines in (2, 5):
                self.assertLess(self.interrupt(lines, jobs), 13)
            with self.log.open("ab") as file:
                file.write(b'{"agents":0,"id":"q11","mod')  # cut while it was written
            before = self.log.read_bytes().count(b"\n")
            continued, said = self.table("--resume", "log.jsonl", jobs=jobs)
            self.assertEqual(continued, whole)
            self.assertIn(f"{before - 1} of 12 questions were finished before", said)
            self.assertEqual(self.log.read_bytes().count(b"\n"), 13)
            content = self.log.read_bytes()
            again, said = self.table("--resume", "log.jsonl", jobs=jobs)  # nothing is left to do
            self.assertEqual(again, whole)
            self.assertEqual(self.log.read_bytes(), content)

    def test_beginning_that_was_cut(self):
        self.table("--limit", "1", "--resume", "log.jsonl")
        content = self.log.read_bytes()
        for length in (0, 1, 30, content.index(b"\n")):
            self.log.write_bytes(content[:length])
            _, said = self.table("--limit", "1", "--resume", "log.jsonl")
            self.assertNotIn("finished before", said)
            self.assertEqual(self.log.read_bytes().split(b"\n")[0], content.split(b"\n")[0])

    def test_other_settings_are_named(self):
        self.table("--limit", "2", "--resume", "log.jsonl")
        content = self.log.read_bytes()
        resumed = ["--limit", "2", "--resume", "log.jsonl"]
        for changed, named in ((["--limit", "3", *resumed[2:]], "limit: 2 in the file, 3 now"), ([*resumed, "--seed", "4"], "seed: null in the file, 4 now"),
                               ([*resumed, "--order", "random"], 'order: "file" in the file, "random" now'),
                               ([*resumed, "--ablation"], "methods: ["), ([*resumed, "--set", "defaults.max_tokens=9"], "set: [] in the file"),
                               ([*resumed, "--agents", "2"], "agents: [] in the file, [2] now")):
            said = self.table(*changed, code=3)
            self.assertIn("log.jsonl: it was begun with other settings:", said)
            self.assertIn(named, said)
            self.assertEqual(said.count(" in the file, "), 1, said)
        with (self.folder / self.data).open("a") as file:
            file.write("\n")
        self.assertIn("dataset: ", self.table(*resumed, code=3))
        self.assertEqual(self.log.read_bytes(), content)
        for method in ("anchors", "kvcomm", "prefix"):
            self.assertIn(f"what method {method} reuses", self.baton("eval", self.team, "--dataset", self.data, "--methods", method, "--resume", "x",
                                                                     code=2).stderr)
        self.assertFalse((self.folder / "x").exists())

    def test_damaged_files(self):
        self.table("--limit", "2", "--resume", "log.jsonl")
        head, first, second = self.log.read_bytes().splitlines()
        line = json.loads(first)

        def changed(**changes):
            return json.dumps({**line, **changes}).encode()

        short = {key: value for key, value in line["methods"][0].items() if key != "exact"}
        for text, place in ((b"notes of mine", ":1: "), (b"notes\nof mine\n", ":1: "), (b'{"baton_eval":1}\n', ":1: "),
                            (head.replace(b":2,", b":3,", 1) + b"\n", "format"), (b"\0" * 100, ":1: "), (b"[" * 100000 + b"\n", ":1: "),
                            (head + b"\n" + b"{\n", ":2: "), (head + b"\n" + first + b"\n" + first + b"\n", ":3: question 'q0' has a line"),
                            (head + b"\n" + changed(methods=[short] * 5) + b"\n", "exact"), (head + b"\n" + changed(methods=3) + b"\n", ":2: "),
                            (head + b"\n" + changed(methods=line["methods"][:2]) + b"\n", "other methods"),
                            (head + b"\n" + changed(agents="x") + b"\n", ":2: "), (head + b"\n" + changed(floor={"checker": {"kl": 1}}) + b"\n", ":2: "),
                            (head + b"\n" + changed(model="another") + b"\n" + second + b"\n", "model another answered"),
                            (head + b"\n" + changed(model="another") + b"\n", "model another answered"),
                            (head + b"\n" + b"[" * 100000 + b"\n", ":2: ")):
            self.log.write_bytes(text)
            said = self.table("--limit", "2", "--resume", "log.jsonl", code=3)
            self.assertIn("--resume log.jsonl", said)
            self.assertIn(place, said)
            self.assertEqual(self.log.read_bytes(), text)
        self.assertIn("--resume", self.table("--resume", "no/such/folder/log.jsonl", code=2))
        self.table("--resume", ".", code=2)


class Learn(Cli):
    """On a copy of the model: what is learned goes beside it."""

    def setUp(self):
        super().setUp()
        self.model = self.folder / "tiny"
        shutil.copytree(ROOT / "samples/models/nano", self.model, ignore=shutil.ignore_patterns("recipe", "baton.levels.json", "baton.corrections.*"))
        self.file = self.model / "baton.corrections.safetensors"
        questions = [f"Mia has {12 + i} apples. She buys 7 more apples. How many apples does Mia have?" for i in range(12)]
        self.data = self.write("d.jsonl", "".join(json.dumps({"id": q, "inputs": {"question": q}, "answer": "?"}) + "\n" for q in questions))

    def environment(self, **changes):
        return {**super().environment(), "XDG_CACHE_HOME": str(self.folder / "cache"), **changes}

    def learn(self, *arguments, code=0):
        return self.baton("learn", self.team, "--set", "relay.min_tokens=1", "--set", "relay.lab.select.score=author", "--model", "./tiny", "--dataset", self.data, "--rank", "16", *arguments,
                          code=code)

    def corrected(self):
        done = self.baton("run", self.team, "--set", "relay.min_tokens=1", "--model", "./tiny", "--relay", "rectify", "--input", QUESTION, "--json")
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
        self.assertIn("unknown input 'problem'", self.baton("learn", self.team, "--model", "./tiny", "--dataset", other, code=2).stderr)
        alone = self.write("alone.yaml", TEAM.split("  checker:")[0] + 'workflow: {topology: chain, agents: [solver]}\noutputs: {answer: "{{ agent_solver_current }}"}\n')
        self.assertIn("nothing was learned", self.baton("learn", alone, "--model", "./tiny", "--dataset", self.data, code=1).stderr)


class Profile(Cli):
    """On a copy of the model: the profile goes beside it."""

    def setUp(self):
        super().setUp()
        self.model = self.folder / "tiny"
        shutil.copytree(ROOT / "samples/models/nano", self.model, ignore=shutil.ignore_patterns("recipe", "baton.levels.json", "baton.profile.*"))

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

    def relay(self, method="rectify", *more, code=0):
        return self.baton("run", self.team, "-i", QUESTION, "--model", "./tiny", "--relay", method, "--set", "relay.min_tokens=1", "--json", *more, code=code)

    def test_first_use_of_relay(self):
        self.relay("rectify")
        self.assertEqual(self.written(), [])  # its layers follow from the model's depth
        short = self.baton("run", self.team, "-i", QUESTION, "--model", "./tiny", "--set", "defaults.max_tokens=16", "--json")
        self.assertNotIn("measuring", short.stderr)  # no answer can be long enough to be relayed
        self.assertEqual(self.written(), [])
        # Nothing is measured before a run: it is exact, and its turns are measured until they tell enough.
        records = []
        while len(records) < 8 and not any(slot["method"] == "rectify" for slot in self.slots(records)):
            records.append(json.loads(self.relay("auto", "--set", "relay.tolerance=100").stdout))
            self.assertLess(records[-1]["measure_ms"], 50)  # reading files
        self.assertGreater(len(records), 3)
        self.assertLess(len(records), 8)
        self.assertEqual(self.slots(records[:1])[0]["reason"], "exact until 3 turns of this model are measured; 0 are")
        for record in records[:-1]:
            self.assertTrue(all(slot["hops"] == 0 for slot in self.slots([record])))
        self.assertRegex(self.slots(records[-1:])[0]["reason"], r"^[3-7] measured turns of this place")
        self.assertTrue(all(record["measured_turns"] >= 0 and record["measured_ms"] >= 0 for record in records))
        cached = self.written()
        self.assertEqual(len(cached), 1)  # a run does not write into the model's folder
        self.assertRegex(cached[0], r"^cache/baton/profiles/[0-9a-f]{32}\.places\.json$")

    def slots(self, records):
        return [slot for record in records for agent in record["agents"] for slot in agent["slots"] if slot["name"].startswith("agent_")]

    def test_levels(self):
        found = json.loads(self.profile("--reading", "levels", "--json").stdout)
        self.assertEqual([level["reuse"] for level in found["levels"]], [0.9, 0.8, 0.7, 0.6, 0.5])
        self.assertEqual(self.written(), [])
        self.assertTrue((self.model / "baton.levels.json").exists())
        self.assertIn("95 % of turns below", self.profile("--reading", "levels", "--dry-run").stdout)
        self.assertIn("--reading levels takes no", self.profile("--reading", "levels", "--author", "./tiny", code=2).stderr)
        record = json.loads(self.relay("auto", "--set", "relay.tolerance=100").stdout)  # the file's levels count at once
        self.assertIsNotNone(record["agents"][-1]["expected_nats"])

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
        file.write_text(json.dumps({**good, "fingerprint": "0" * 32}))  # of other weights: as if there was none
        self.relay()
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
        process = subprocess.Popen([LAB, "profile", "--model", "./tiny", "--handovers", "2000", "--max-tokens", "1000"], cwd=self.folder,
                                   env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        self.assertIn("nothing was written", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.written(), [])


class Bench(Cli):
    SMALL = ["--shape", "nano", "--agents", "3", "--prefix", "32", "--question", "48", "--output", "40", "-q"]
    METHODS = ["full", "prefix", "rectify", "direct", "epic", "cacheblend"]

    def test_activations(self):
        few = [*self.SMALL, "--methods", "full", "--repeat", "1", "--prefill", "8", "--decode", "1x8"]
        f32, bf16, again = (json.loads(self.baton("bench", *few, "--json", "--activations", a).stdout) for a in ("f32", "bf16", "bf16"))
        self.assertEqual((f32["activations"], bf16["activations"]), ("f32", "bf16"))
        self.assertNotEqual(f32["logits_hash"], bf16["logits_hash"])
        self.assertEqual(bf16["logits_hash"], again["logits_hash"])
        self.assertIn("bf16 with bf16 activations, on cpu", self.baton("bench", *few, "--activations", "bf16", "--device", "cpu").stdout)
        self.assertIn("no effect with dtype f32", self.baton("bench", *few, "--activations", "bf16", "--dtype", "f32", code=2).stderr)

    def test_json(self):
        found = json.loads(self.baton("bench", *self.SMALL, "--json").stdout)
        self.assertEqual((found["schema"], found["shape"], found["dtype"], found["activations"]), (1, "nano", "bf16", "f32"))
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
        for method in ("epic", "cacheblend", "rectify"):
            self.assertGreater(last[method], last["prefix"])
            self.assertLess(last[method], last["direct"])

        again = json.loads(self.baton("bench", *self.SMALL, "--json", "--methods", "rectify,full", "--repeat", "1").stdout)
        self.assertEqual(again["logits_hash"], found["logits_hash"])
        self.assertEqual([method["method"] for method in again["methods"]], ["rectify", "full"])
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
        process = subprocess.Popen([LAB, "bench", "--shape", "nano", "--repeat", "1000", "--json", "-q"], cwd=self.folder,
                                   env=self.environment(), stdout=subprocess.PIPE, text=True)
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        found = json.loads(process.communicate(timeout=60)[0])
        self.assertEqual((process.returncode, found["complete"]), (130, False))

    def test_table(self):
        done = self.baton("bench", "--model", str(ROOT / "samples/models/nano"), "--agents", "2", "--prefix", "16", "--question", "24",
                          "--output", "16", "--methods", "full,rectify", "--repeat", "1", "--layers-range", "0,3,7")
        self.assertIn("rectify's layers: 0, 3, 7", done.stdout)
        self.assertRegex(done.stdout, r"\n +2 +68 +rectify .* x ")
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
                                      "full,rectify,anchors", "--anchors", "2", "--json").stdout)
        self.assertEqual((found["params"]["prefix"], found["params"]["output"], found["params"]["select"]), ([16, 64], [24, 40], [0.18, 0.05]))
        self.assertEqual((found["methods"], found["complete"]), ([], True))
        self.assertEqual([(one["prefix"], one["output"]) for one in found["cases"]], [(16, 24), (16, 40), (64, 24), (64, 40)])
        for one in found["cases"]:
            self.assertEqual([(method["method"], method.get("select")) for method in one["methods"]],
                             [("full", None), ("rectify", 0.18), ("rectify", 0.05), ("anchors", None)])
            for method in one["methods"]:
                self.assertEqual([agent["prompt_tokens"] for agent in method["agents"]],
                                 [one["prefix"] + 48 + i * one["output"] + 4 * (i + 2) for i in range(3)])
            full, much, little, anchors = (method["agents"][-1]["kv_reuse_rate"] for method in one["methods"])
            self.assertEqual(full, 0)  # texts of another size are no prefix of these
            self.assertLess(much, little)
            self.assertLess(little, anchors)
        for option in ("prefix", "output", "select"):  # one value: as ever
            one = json.loads(self.baton("bench", *sizes, f"--{option}", "0.2" if option == "select" else "24", "--methods", "rectify", "--json").stdout)
            self.assertEqual(one["params"][option], 0.2 if option == "select" else 24)
            self.assertNotIn("cases", one)
            self.assertNotIn("select", one["methods"][0])
        table = self.baton("bench", *sizes, "--output", "24,40", "--select", "0.18,0.05", "--methods", "rectify").stdout
        self.assertIn("role texts of 128 tokens, answers of 40\n", table)
        self.assertRegex(table, r"\n +3 +\d+ +rectify 0\.05 ")
        self.assertIn("--agents: the last of 3 has a prompt of",
                      self.baton("bench", *sizes, "--output", "24,5000", "--methods", "rectify", code=2).stderr)

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
        found = json.loads(self.baton("bench", *self.SMALL, "--methods", "full,prefix,direct,rectify,lockstep,anchors", "--anchors", "2",
                                      "--row-methods", "none", "--repeat", "1", "--memory", "--json").stdout)
        self.assertNotIn("by_method", json.loads(self.baton("bench", *self.SMALL, "--methods", "full", "--repeat", "1", "--json").stdout)["memory"])
        held = {one.pop("method"): one for one in found["memory"]["by_method"]}
        kv, hidden = 2 * 2 * 10 * 2 * 32, 2 * 192  # keys and values in bf16 of 10 layers with 2 heads of 32; a state of 192
        self.assertEqual(held["full"]["keys_values"], 0)
        for method in ("prefix", "lockstep"):
            self.assertAlmostEqual(held[method]["keys_values"], kv, delta=0.001)
            self.assertEqual((held[method]["hidden"], held[method]["received"], held[method]["anchor"]), (0, 0, 0))
        for method in ("direct", "rectify", "anchors"):
            self.assertAlmostEqual(held[method]["keys_values"], kv, delta=0.001)
            self.assertEqual([held[method][part] for part in ("hidden", "received", "entropy", "ids")], [hidden, 0, 4, 4])
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
                              ("--layers", "3"), ("--decode", "3"), ("--decode", "1x4000"), ("--prefill", "9999"), ("--dtype", "f8"), ("--activations", "f8"), ("--repeat", "0"), ("--device", "abacus")):
            base = {"--shape": "nano", "--agents": "2", "--output": "40", option: value}
            done = self.baton("bench", "-q", *sum(map(list, base.items()), []), code=4 if option == "--device" else 2)
            self.assertIn(value if option == "--device" else option, done.stderr)
            self.assertEqual(done.stdout, "")
        self.assertIn("--agents: the last of 3 has a prompt of", self.baton("bench", *self.SMALL[:-3], "--output", "5000", code=2).stderr)
        self.assertIn("--from-host: expected a GPU, found device 'cpu'", self.baton("bench", *self.SMALL, "--from-host", code=2).stderr)
        self.assertIn("--shape", self.baton("bench", code=2).stderr)
        self.assertIn("--shape", self.baton("bench", "--shape", "nano", "--model", "nano", code=2).stderr)
        self.assertIn("/no/such/model", self.baton("bench", "--model", "/no/such/model", code=4).stderr)


if __name__ == "__main__":
    unittest.main()
