#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How `baton-lab eval` judges answers and compares methods: checks of datasets, paired intervals, equal reuse, and the script
that makes tables of published models.

Usage: cli_eval_test.py RUNNER [unittest options]
"""

import importlib.util
import json
import math
import random
import resource
import subprocess
import sys
import unittest

from runner import Cli, ECHO, ROOT, RUNNER


def wilson(k, n, z=1.959963984540054):
    p = k / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def newcombe(both, first, second, neither):
    n = both + first + second + neither
    p1, p2 = (both + first) / n, (both + second) / n
    (l1, u1), (l2, u2) = wilson(both + first, n), wilson(both + second, n)
    margins, covariance = (both + first) * (second + neither) * (both + second) * (first + neither), both * neither - first * second
    if covariance > 0:
        covariance = max(covariance - n / 2, 0)
    phi = covariance / math.sqrt(margins) if margins else 0
    return (p1 - p2 - math.sqrt((p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2),
            p1 - p2 + math.sqrt((u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2))


class Checks(Cli):
    def setUp(self):
        super().setUp()
        self.echo = self.write("echo.yaml", ECHO)

    def score(self, check, answer, said):
        """One dataset of one line each: the mean accuracy is its score."""
        line = {"id": "q", "inputs": {"said": said}, "check": check}
        if answer is not None:
            line["answer"] = answer
        data = self.write("d.jsonl", json.dumps(line) + "\n")
        return json.loads(self.baton("eval", self.echo, "--dataset", data, "--json", "-q").stdout)["methods"][0]["accuracy"]

    def scores(self, check, *cases):
        """The scores of (answer, said), in one run of the program."""
        lines = [{"id": str(i), "inputs": {"said": said}, "answer": answer, "check": check} for i, (answer, said, _) in enumerate(cases)]
        data = self.write("d.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.baton("eval", self.echo, "--dataset", data, "-q", "--methods", "full", "--resume", "log.jsonl")
        found = {}
        for line in (self.folder / "log.jsonl").read_text().splitlines()[1:]:
            outcome = json.loads(line)
            found[outcome["id"]] = outcome["full"]
        (self.folder / "log.jsonl").unlink()
        for i, (answer, said, expected) in enumerate(cases):
            self.assertAlmostEqual(found[str(i)], expected, msg=f"{check}: {said!r} for {answer!r}")

    def test_number(self):
        self.scores("number", ("18", "She has 16 - 3 = 13, so 18", 1), ("18", "The answer is $18.00.", 1), ("1234", "That makes 1,234 eggs.", 1),
                    ("-5", "It is -5", 1), ("5", "10-5", 1), ("5", "It is -5", 0), ("18", "18, then 19", 0), ("0.5", "it is .5", 1), ("18", "none", 0),
                    ("18", "", 0), ("3", "#### 3\n", 1), ("1,000", "1000", 1))

    def test_choice(self):
        self.scores("choice", ("B", "B", 1), ("B", "b", 1), ("B", "(B)", 1), ("B", "The answer is B.", 1), ("B", "The answer is (B) because A is wrong", 1),
                    ("B", "A is wrong. The answer is: B", 1), ("A", "A dog is an animal, I think C", 0), ("C", "A dog is an animal, I think C", 1),
                    ("B", "BCD", 0), ("B", "", 0), ("A", "Answer: A", 1), ("D", "the correct answer is B", 0))

    def test_a_long_choice(self):
        """Judging takes time in proportion to what the model wrote, whatever words it repeats."""
        long = "answer" * 50_000
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.scores("choice", ("B", "the answer is B " + long, 1), ("B", "(B) " + long.replace("r", "r "), 1), ("B", long + ".\nC", 0))
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(end.ru_utime - begin.ru_utime, 5)

    def test_f1(self):
        self.scores("f1", ("Benjamin Cheney", "Benjamin Cheney", 1), ("Benjamin Cheney", "the Benjamin, Cheney!", 1), ("Benjamin Cheney", "Cheney", 2 / 3),
                    ("Benjamin Cheney", "It was Cheney", 0.4), ("1886", "in 1886", 2 / 3), ("yes", "yes it is", 0), ("yes", "Yes.", 1), ("a b b", "b b b", 0.8),
                    ("1886", "", 0))

    def test_python(self):
        tests = {"python": "assert double(4) == 8\nassert double(0) == 0", "setup": "import math"}
        block = "Here it is:\n```python\n{}\n```\nDone."
        self.assertEqual(self.score(tests, None, block.format("def double(x): return 2 * x")), 1)
        self.assertEqual(self.score(tests, None, "def double(x):\n    return int(math.fsum([x, x]))"), 1)  # no fences; the setup's import
        for wrong in ("def double(x): return x", "def double(x) return 2", "raise SystemExit(0)", "import os; os._exit(0)", "",
                      "import sys\ndef double(x): sys.exit(0)", "def double(x):\n    while True: pass", "double = bytearray(10**10)"):
            self.assertEqual(self.score(tests, None, block.format(wrong)), 0, wrong)

    def test_mistakes(self):
        def line(**changes):
            return {"id": "x", "inputs": {"said": "?"}, "answer": "1", **changes}
        wrong = [(line(check="magic"), "found 'magic'"), (line(check=3), '"check"'), (line(check={"python": 3}), '"python" to be code'),
                 (line(check={"python": " "}), "expected tests"), (line(check={"setup": "x"}), '"check"'), (line(check={"python": "x", "more": 1}), "'more'"),
                 (line(check="number", answer="one"), "expected a number"), (line(check="choice", answer="AB"), "a letter"),
                 (line(check="f1", answer="the"), "at least one word"), ({"id": "x", "inputs": {}, "check": "f1"}, '"answer"')]
        data = self.write("d.jsonl", "".join(json.dumps({**one, "id": str(i)}) + "\n" for i, (one, _) in enumerate(wrong)))
        said = self.baton("eval", self.echo, "--dataset", data, code=3).stderr.splitlines()
        self.assertEqual(len(said), len(wrong))
        for number, (text, (_, expected)) in enumerate(zip(said, wrong), 1):
            self.assertTrue(text.startswith(f"error: d.jsonl:{number}: " if number == 1 else f"d.jsonl:{number}: ") or f"d.jsonl:{number}: " in text, text)
            self.assertIn(expected, text)

    def test_many_mistakes(self):
        data = self.write("d.jsonl", "x\n" * 5000)
        said = self.baton("eval", self.echo, "--dataset", data, code=3).stderr.splitlines()
        self.assertEqual(len(said), 101)
        self.assertIn("d.jsonl:100: ", said[99])
        self.assertEqual(said[100], "only the first 100 errors are shown")

    def test_lines_within_limits(self):
        """A line may be nested and wide within limits; what is beyond is named with its place."""
        begin = '{"id": "x", "answer": "1", "inputs": {"said": '
        for deep, wide, expected in ((62, 1, None), (63, 1, "nested at most 64 deep"), (1_000_000, 1, "nested at most 64 deep"),
                                     (1, 100_000, None), (1, 8_000_001, "at most 8000000 values")):
            line = begin + "[" * deep + ",".join(["0"] * wide) + "]" * deep + "}}"
            data = self.write("d.jsonl", '{"id": "first", "answer": "1", "inputs": {"said": "1"}}\n' + line + "\n")
            said = self.baton("eval", self.echo, "--dataset", data, "--methods", "full", "-q", code=0 if expected is None else 3).stderr
            if expected is not None:
                self.assertIn("d.jsonl:2: byte ", said)
                self.assertIn(expected, said)


class Paired(Cli):
    TEAM = str(ROOT / "workflows/library/binding_team.yaml")
    DATA = str(ROOT / "tests/data/nano_binding_heldout.jsonl")

    def found(self, methods, limit, *more):
        done = self.baton("eval", self.TEAM, "--dataset", self.DATA, "--methods", methods, "--limit", str(limit), "--json", "--floor-limit", "0",
                          "--resume", "log.jsonl", *more)
        return json.loads(done.stdout)["methods"], done.stderr

    def test_intervals_are_those_of_the_questions(self):
        self.assertEqual([round(x, 4) for x in newcombe(36, 12, 2, 0)], [0.0569, 0.3404])  # as published
        (full, direct), said = self.found("full,direct", 40)
        self.assertIn("run, by the file:", said)
        self.assertIn("min_tokens", said)
        outcomes = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()[1:]]
        pairs = [(one["methods"][1]["score"], one["full"]) for one in outcomes]
        self.assertEqual(full["accuracy_interval"], None)
        wins, losses = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
        self.assertGreater(losses, 0)  # direct reuse fails this team
        self.assertEqual((direct["wins"], direct["losses"]), (wins, losses))
        self.assertAlmostEqual(direct["accuracy_difference"], direct["accuracy"] - full["accuracy"])
        expected = newcombe(sum(a and b for a, b in pairs), wins, losses, sum(not a and not b for a, b in pairs))
        for value, other in zip(direct["accuracy_interval"], expected):
            self.assertAlmostEqual(value, other)
        sums = [(sum(sum(turn["kl"]) for turn in one["methods"][1]["distances"].values()),
                 sum(len(turn["kl"]) for turn in one["methods"][1]["distances"].values())) for one in outcomes]
        self.assertAlmostEqual(direct["kl_mean"], sum(kl for kl, _ in sums) / sum(n for _, n in sums))
        chance, means = random.Random(1), []
        for _ in range(2000):
            drawn = chance.choices(sums, k=len(sums))
            means.append(sum(kl for kl, _ in drawn) / sum(n for _, n in drawn))
        means.sort()
        low, high = direct["kl_mean_interval"]
        self.assertAlmostEqual(low, means[50], delta=0.15 * (means[-51] - means[50]))
        self.assertAlmostEqual(high, means[-51], delta=0.15 * (means[-51] - means[50]))
        turns = [turn["kl"] for one in outcomes for turn in one["methods"][1]["distances"].values()]
        self.assertAlmostEqual(direct["turns_within_tolerance"], sum(sum(kl) <= 0.02 * len(kl) for kl in turns) / len(turns))

    def test_every_method_reaches_the_reuse_that_is_asked(self):
        layers = "layers.start=0;layers.detect=1;layers.end=6"
        methods = [f"{name}reuse=0.8" for name in ("epic:", "cacheblend:", "cacheblend:cacheblend_score=cosine;", f"rectify:preset=paper;{layers};",
                                                   f"rectify:{layers};", "rectify:select.score=entropy;" + layers + ";")]
        found, _ = self.found(",".join(["full", *methods]), 4, "--forced-only")
        for method in found[1:]:
            # An answer that was cut off lacks the KV of its last token; each text is rounded down to whole tokens.
            self.assertGreaterEqual(method["kv_reuse_rate"], 0.785, method["params"])
            self.assertLess(method["kv_reuse_rate"], 0.83, method["params"])
            self.assertEqual((method["accuracy"], method["wins"], method["exact_match"]), (None, None, None))
            self.assertGreater(method["kl_mean"], 0)
        self.assertEqual(found[0]["kl_mean"], 0)

    def test_what_cannot_be_reached_is_said(self):
        def said(method, code):
            return self.baton("eval", self.TEAM, "--dataset", self.DATA, "--limit", "1", "--methods", method, code=code).stderr
        beyond = said("cacheblend:reuse=0.95", 2)  # of 10 layers one is computed for every token
        self.assertIn("cannot reuse 0.950", beyond)
        self.assertIn("at most 0.900", beyond)
        self.assertIn("at most 0.800", said("rectify:preset=paper;layers.start=0;layers.detect=2;layers.end=6;reuse=0.9", 2))
        for method in ("direct", "epic", "rectify"):
            self.assertIn("which has 10; expected at most 9", said(f"{method}:layers.start=1;layers.detect=2;layers.end=10", 2))
        for wrong, place in (("direct:reuse=0.8", "no effect on method direct"), ("epic:reuse=0.8;epic_tokens=3", "epic_tokens"), ("epic:reuse=0", "above 0"),
                             ("rectify:preset=paper;select.share=0.2", "preset: paper"), ("lockstep:tolerance=0.1", "expected method auto")):
            self.assertIn(place, said(wrong, 2))


class Tables(Cli):
    """The script of the protocol, on the nano model in place of a published one and made-up data in their formats."""

    def setUp(self):
        super().setUp()
        spec = importlib.util.spec_from_file_location("make_dataset", ROOT / "tests/published/make_dataset.py")
        self.made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.made)

    def test_datasets(self):
        film = {"title": "Sunday Light", "text": "Sunday Light is a 2007 Spanish film directed by José Garci and starring Álex González."}
        person = {"title": "José Garci (director)", "text": "José Garci( born 20 January 1944) is a Spanish director."}
        war = {"title": "A war", "text": "The war (1914–1918) was long."}
        other = {"title": "Thor", "text": "Thor is a 1983 Italian film directed by Tonino Ricci."}
        dead = {"title": "James A", "text": "James A( March 13, 1804 – July 31, 1859) was a minister."}
        self.assertEqual([self.made.birth_year(p) for p in (film, person, war, dead)], [None, "1944", None, "1804"])
        self.assertEqual([self.made.film_year(p) for p in (film, person, war, other)], ["2007", None, None, "1983"])
        self.assertEqual(self.made.name_of(person), "José Garci")
        data = self.folder / "data"
        for name in ("2wikimultihopqa", "gsm8k"):
            (data / name).mkdir(parents=True)
        filler = [{"title": f"t{i}", "text": "Nothing."} for i in range(3057)]
        person["title"] = "José Garci"
        corpus = [film, person, *filler, other, film | {"title": "Later", "text": film["text"].replace("2007", "2009")}, dead, person | {"title": "P"}]
        (data / "2wikimultihopqa/2wikimultihopqa_corpus.json").write_text(json.dumps(corpus))
        tuning, tables = ([json.loads(line) for line in subprocess.run(
            [sys.executable, str(ROOT / "tests/published/make_dataset.py"), "passages", "--part", part, "--data", str(data)], check=True,
            capture_output=True, text=True).stdout.splitlines()] for part in ("tuning", "tables"))
        self.assertEqual([(q["inputs"]["user_question"], q["answer"]) for q in tuning], [("In which year was the director of the film Sunday Light born?", "1944")])
        self.assertEqual({q["answer"] for q in tables}, {"James A", "Thor"})
        for question in tables:
            self.assertEqual(question["inputs"]["passages"].count("\n\n"), 1)
        (data / "gsm8k/test.jsonl").write_text(json.dumps({"question": "?", "answer": "so\n#### 1,018"}) + "\n")
        math_lines = list(self.made.math(data, "tables"))
        self.assertEqual((math_lines[0]["answer"], math_lines[0]["check"]), ("1018", "number"))

    def test_a_table_is_made_and_continued(self):
        models, data = self.folder / "models", self.folder / "data"
        models.mkdir()
        for part in ("train", "test"):
            (data / "gsm8k").mkdir(parents=True, exist_ok=True)
            lines = [{"question": f"Mia has {12 + 7 * i} apples. She buys {3 + i} more apples. How many apples does Mia have?", "answer": f"#### {15 + 8 * i}"}
                     for i in range(6)]
            (data / f"gsm8k/{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (models / "nano.gguf").write_text("not a model")
        command = [sys.executable, str(ROOT / "tests/published/tables.py"), "kl", "--model", "nano", "--team", "math", "--models-dir", str(models), "--data",
                   str(data), "--out", str(self.folder / "out"), "--baton", RUNNER, "--limit", "2", "--set", "defaults.max_tokens=12"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=self.environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("baton-lab eval ended with 4", done.stderr)
        folder = self.folder / "out/nano-math"
        (folder / "nano.gguf").unlink()
        (folder / "nano.gguf").symlink_to(ROOT / "samples/models/nano")
        first = subprocess.run(command, capture_output=True, text=True, timeout=300, env=self.environment(), check=False)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("### nano, team math, 2 questions (fewer than", first.stdout)
        self.assertEqual(first.stdout.count("`epic:reuse="), 3)
        self.assertIn("of direct's", first.stdout)
        content = (folder / "kl-2.jsonl").read_bytes()
        again = subprocess.run(command, capture_output=True, text=True, timeout=300, env=self.environment(), check=False)
        self.assertEqual((again.stdout, (folder / "kl-2.jsonl").read_bytes()), (first.stdout, content))


if __name__ == "__main__":
    unittest.main()
