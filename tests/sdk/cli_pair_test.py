#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs teams of two models, and finds what one recomputes of the other's KV.

Usage: cli_pair_test.py RUNNER [unittest options]
"""

import json
import random
import shutil
import unittest

from runner import Cli, QUESTION, ROOT, TEAM

NANO = ROOT / "samples/models/nano"


def make_sibling(folder, seed=7):
    """The nano model with weights that are off by up to 3 %."""
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(NANO / name, folder)
    stored = (NANO / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(stored[:8], "little")
    weights = stored[begin:]
    noise = int.from_bytes(random.Random(seed).randbytes(len(weights)), "little")
    noise &= int.from_bytes(b"\x03\x00" * (len(weights) // 2), "little")  # the last two bits of bf16
    changed = (int.from_bytes(weights, "little") ^ noise).to_bytes(len(weights), "little")
    (folder / "model.safetensors").write_bytes(stored[:begin] + changed)


class Pair(Cli):
    def setUp(self):
        super().setUp()
        make_sibling(self.folder / "sibling")
        two = TEAM.replace("models: {main: {path:", "models: {other: {path: sibling}, main: {path:")
        two = two.replace("defaults: {", "defaults: {model: main, ").replace("role: Solver\n", "role: Solver\n    model: other\n")
        self.team = self.write("two.yaml", two)
        self.cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}

    def run_team(self, method, *more):
        return json.loads(self.baton("run", self.team, "--input", QUESTION, "--relay", method, "--set", "relay.min_tokens=1", *more,
                                     "--json", **self.cache).stdout)

    def profile(self):
        """Finds the group of layers that the team's reader recomputes; its file."""
        self.baton("profile", "--model", str(NANO), "--author", "sibling", "--handovers", "2", "--max-tokens", "24", "--step", "5", **self.cache)
        (file,) = (self.folder / "cache/baton/profiles").glob("*.json")
        return file

    def answers(self, record):
        return [agent["output"] for agent in record["agents"]]

    def slot(self, record):
        return next(slot for slot in record["agents"][1]["slots"] if slot["name"] == "agent_solver_current")

    def test_a_reader_recomputes_a_group_of_layers(self):
        full = self.run_team("full")
        self.assertNotEqual(self.answers(full)[0], "")
        self.assertEqual([agent["model"] for agent in full["agents"]], ["other", "main"])
        self.profile()
        some = self.slot(self.run_team("droidspeak"))
        self.assertEqual((some["method"], some["hops"]), ("droidspeak", 0))
        self.assertEqual(some["reason"], "decoded by solver, of another model")
        slot = self.slot(self.run_team("rectify"))
        self.assertEqual((slot["method"], slot["reused_tokens"]), ("full", 0))
        self.assertEqual(slot["reason"], "decoded by solver, of another model")

    def test_baselines_are_of_the_laboratory(self):
        for setting in ("relay.method=direct", "relay.method=epic", "relay.lab.layers.start=0", "relay.layers.start=0"):
            self.assertIn("error[E04", self.baton("run", self.team, "--input", QUESTION, "--set", setting, code=3).stderr)

    def test_the_laboratory_finds_the_group_and_a_run_reads_it(self):
        missing = self.baton("run", self.team, "--input", QUESTION, "--relay", "droidspeak", code=4, **self.cache).stderr
        self.assertRegex(missing, r"run `baton-lab profile --model \S+ --author \S*sibling` once")
        file = self.profile()
        pair = json.loads(file.read_text())
        self.assertEqual((pair["schema"], pair["layers"]), (1, 10))
        self.assertEqual(file.name, f"{pair['author']}-{pair['reader']}.json")
        self.assertTrue(0 <= pair["start"] < pair["end"] < 10)
        rate = self.slot(self.run_team("droidspeak"))["kv_reuse_rate"]
        self.assertAlmostEqual(rate, 1 - (pair["end"] - pair["start"] + 1) / 10, delta=0.03)
        timed = self.slot(self.run_team("droidspeak", "--set", "relay.ttft=1h"))  # its engine's first prompt
        self.assertEqual(timed["reason"], f"layers {pair['start']} to {pair['end']} recomputed")
        file.write_text(file.read_text().replace('"layers": 10', '"layers": "ten"'))
        failed = self.baton("run", self.team, "--input", QUESTION, "--relay", "droidspeak", code=4, **self.cache)
        self.assertIn(f'{file}: "layers" is "ten"', failed.stderr)

    def test_profile(self):
        options = ("profile", "--model", str(NANO), "--author", "sibling", "--handovers", "2", "--max-tokens", "24", "--step", "5")
        done = self.baton(*options, "--json", **self.cache)
        pair = json.loads(done.stdout)
        self.assertEqual([(p["start"], p["end"]) for p in pair["points"]], [(0, 4), (0, 9), (5, 9)])
        self.assertEqual(pair["points"][1]["left"], 0)  # all layers are the reader's own
        (file,) = (self.folder / "cache/baton/profiles").glob("*.json")
        self.assertEqual(file.read_text(), done.stdout)
        self.assertIn(f"wrote {file}", done.stderr)
        file.unlink()
        shown = self.baton(*options, "--dry-run", **self.cache).stdout
        self.assertIn("nano reads what sibling wrote: layers", shown)
        self.assertIn("KL left", shown)
        self.assertFalse(file.exists())
        self.assertIn("--author", self.baton("profile", "--model", str(NANO), "--step", "5", code=2).stderr)
        self.assertIn("not in range", self.baton(*options, "--left", "2", code=2).stderr.lower())

    def test_kv_that_does_not_fit_is_computed(self):
        tokenizer = self.folder / "sibling/tokenizer.json"
        tokenizer.write_text(tokenizer.read_text() + " ")
        slot = self.slot(self.run_team("droidspeak"))
        self.assertEqual((slot["method"], slot["reused_tokens"]), ("full", 0))
        failed = self.baton("profile", "--model", str(NANO), "--author", "sibling", code=4, **self.cache)
        self.assertIn("cannot hand KV over: their tokenizers differ", failed.stderr)


if __name__ == "__main__":
    unittest.main()
