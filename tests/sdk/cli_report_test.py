#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the verb report: the page of real runs, of hostile records and of damaged ones.

Usage: cli_report_test.py RUNNER [unittest options]
"""

import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import unittest

from records import Records
from runner import LONG, QUESTION, ROOT, TEAM

VOID = {"meta", "br", "hr", "img", "link", "input"}  # tags without an end


class Page(html.parser.HTMLParser):
    """The tags of a page, which must be balanced; texts by the id of the element they are in."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.mistakes = [], [], {}, []
        self.feed(text)
        self.close()
        self.mistakes += [f"<{tag}> stays open" for tag, _ in self.open]

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append((tag, dict(attributes).get("id")))

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.mistakes.append(f"</{tag}> at {self.getpos()} closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        for _, name in self.open:
            if name:
                self.texts[name] = self.texts.get(name, "") + data

    def of_class(self, name):
        return [attributes for _, attributes in self.tags if name in (attributes.get("class") or "").split()]


class Report(Records):
    def page(self, folder, *more):
        """The page, after what every page must be."""
        done = self.baton("report", str(folder), *more)
        self.assertEqual(done.stderr, "")
        text = (folder / "report.html").read_text(encoding="utf-8")
        page = Page(text)
        self.assertEqual(page.mistakes, [])
        script = re.search(r"<script>(.*)</script>", text, re.S)[1]
        self.assertNotRegex(text.replace(script, ""), r"(?i)https?:|@import|<script[^>]|<img|<link|<iframe|\burl\((?!#)")
        self.assertFalse([t for t, a in page.tags if any(key.startswith("on") for key in a)])
        for tag, attributes in page.tags:
            self.assertTrue((attributes.get("href") or "#").startswith("#"), attributes)
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertLessEqual({a["href"][1:] for _, a in page.tags if "href" in a}, set(ids))
        policy = [a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
        self.assertEqual(len(policy), 1)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self.assertEqual([tag for tag, _ in page.tags].count("script"), 1)
        self.assertIn("default-src 'none'", policy[0])
        self.assertIn(f"script-src 'sha256-{digest}';", policy[0])
        return text, page

    def rows(self, text):
        """Of the timeline: per turn its bars as (kind, begin, end) in percent."""
        rows = []
        for row in re.findall(r'<g class="row">(.*?)</g>', text, re.S):
            bars = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" y="[\d.]+" width="([\d.]+)%"', row)
            rows.append([(kind, float(x), float(x) + float(width)) for kind, x, width in bars])
        return rows

    def test_of_a_real_run(self):
        team = str(ROOT / "workflows/library/math_team.yaml")
        question = "user_" + QUESTION
        self.baton("run", team, "--input", question, "--record", "run", "-q", BATON_MODEL=str(ROOT / "samples/models/nano"))
        folder = self.folder / "run"
        record = json.loads((folder / "run.json").read_text())
        done = self.baton("report", "run")
        self.assertEqual(done.stdout, "run/report.html\n")
        first = (folder / "report.html").read_bytes()
        text, page = self.page(folder)  # over the earlier page
        self.assertEqual(first.replace(b"baton report run", b"baton report " + str(folder).encode()), text.encode())
        self.assertEqual({p.name for p in folder.iterdir()}, {"run.json", "events.ndjson", "graph.json", "journal.ndjson", "prompts", "report.html"})

        self.assertIn(record["outputs"]["answer"].strip(), page.texts["outputs"])
        self.assertIn("run/report.html", done.stdout)
        for number, agent in enumerate(record["agents"], 1):
            self.assertIn(agent["agent"], page.texts["timeline"])
            self.assertIn(agent["output"].strip(), page.texts[f"text-{number}"])
            prompt = (folder / f"prompts/{agent['agent']}.txt").read_text()
            self.assertIn(prompt.strip(), page.texts[f"text-{number}"])
            for slot in agent["slots"]:
                self.assertIn(slot["name"], page.texts[f"reuse-{number}"])
                self.assertIn(slot["reason"], page.texts[f"reuse-{number}"])
        self.assertIn("baton report " + str(folder), text)

        rows = self.rows(text)
        self.assertEqual(len(rows), 4)
        events = [json.loads(line) for line in (folder / "events.ndjson").read_text().splitlines()]
        ends = {e["record"]["agent"]: e["t_ms"] for e in events if e["type"] == "agent_finished"}
        whole = max(record["wall_ms"], *ends.values())
        for row, agent in zip(rows, record["agents"]):
            first = next(e["t_ms"] for e in events if e["type"] == "token" and e["agent"] == agent["agent"])
            self.assertIn("decode", [kind for kind, _, _ in row])
            self.assertEqual(row[0][1], 0)
            for (_, _, end), (_, begin, _) in zip(row, row[1:]):
                self.assertAlmostEqual(end, begin, delta=0.002)  # a bar begins where the one before it ends
            self.assertLessEqual(row[-1][2], 100.001)
            decoding = sum(end - begin for kind, begin, end in row if kind == "decode")
            # The event of the first token may come late; the record then knows better.
            expected = max(ends[agent["agent"]] - first, agent["decode_ms"])
            self.assertAlmostEqual(decoding, 100 * expected / whole, delta=0.1)
        for before, after in zip(rows, rows[1:]):  # a chain: nobody begins to compute before the one before it ended
            self.assertGreaterEqual([b for b in after if b[0] != "wait"][0][1], before[-1][2] - 1)
        self.assertEqual(len(page.of_class("arrived")), 3 + 2 + 1 + 2)  # and two in the legend

    def test_events_have_times(self):
        folder = self.record()
        for lines in ((folder / "events.ndjson").read_text(), self.baton("run", self.team, "--input", QUESTION, "--events", "ndjson", "-q").stdout):
            events = [json.loads(line) for line in lines.splitlines()]
            times = [event["t_ms"] for event in events]
            self.assertEqual(times, sorted(times))
            self.assertAlmostEqual(times[-1], events[-1]["record"]["wall_ms"], delta=500)
            first = next(event for event in events if event["type"] == "token")
            self.assertGreaterEqual(first["t_ms"] + 1, events[-1]["record"]["agents"][0]["ttft_ms"])

    def test_parts_of_a_prompt_add_up(self):
        slots = [self.slot("a", tokens=40, method="prefix", reused_tokens=40, recomputed_tokens=0, kv_reuse_rate=1.0),
                 self.slot("b", tokens=100, method="rectify", reused_tokens=70, recomputed_tokens=30, kv_reuse_rate=0.5, kv_reuse_bound=0.75,
                           hops=2, corrected=True, reason="decoded by c"),
                 self.slot("c", tokens=60, method="lockstep", recomputed_tokens=60, ahead_tokens=45),
                 self.slot("d", tokens=20, method="anchors", recomputed_tokens=20,
                           anchors={"anchors": 3, "ambiguity": 0.25, "distance": 0.5, "predicted_error": 0.125})]
        kv = {"entries": 2500, "reused": 900, "computed": 1600, "ahead": 500, "reuse_rate": 0.36}
        text, page = self.page(self.made([self.turn("solver", prompt_tokens=250, slots=slots, kv=kv)]))
        table = re.findall(r"<tr>(.*?)</tr>", text[text.index('id="reuse-1"'):text.index('id="texts"')], re.S)
        cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in table]
        plain = [[re.sub("<[^>]*>", "", cell) for cell in row] for row in cells if row]
        # number, name, tokens, exact prefix, ahead, reused, recomputed, in full
        self.assertEqual([row[:8] for row in plain],
                         [["1", "a", "40", "40", "0", "0", "0", "0"], ["2", "b", "100", "0", "0", "70", "30", "0"],
                          ["3", "c", "60", "0", "45", "0", "0", "15"], ["4", "d", "20", "0", "0", "0", "20", "0"],
                          ["", "own text", "30", "0", "5", "0", "0", "25"]])
        self.assertEqual(plain[1][8:10], ["50\u00a0% of 75\u00a0%", "rectify"])
        self.assertIn("2 approximate hand-overs before this one; corrected", plain[1][10])
        self.assertIn("3 anchors, ambiguity 0.25, distance 0.5, expected error 0.125", plain[3][10])
        bar = text[text.index('id="reuse-1"'):].split("</svg>\n</div>")[0]
        widths = [float(w) for w in re.findall(r'<rect class="\w+" x="[\d.]+%" y="0" width="([\d.]+)%"', bar.split("<table>")[0])]
        self.assertAlmostEqual(sum(widths), 100, delta=0.1)

    def test_results_of_calls_are_not_called_answers(self):
        use = {"tool": "find", "arguments": "{}", "code": "", "ok": True, "wall_ms": 1.0}
        uses = [dict(use, result="no", ok=False, generation=1), dict(use, result="two", generation=2), dict(use, result="three", generation=2)]
        turns = [self.turn("direct", output="two\nthree", tools=uses), self.turn("writer", output="two and three", tools=uses)]
        _, page = self.page(self.made(turns))
        self.assertIn("Results of its calls, which took ", page.texts["text-1"])
        self.assertNotIn("Answer, ", page.texts["text-1"])
        self.assertIn("Answer, ", page.texts["text-2"])

    def test_hostile_texts_stay_texts(self):
        evil = "</script></pre></style><img src=x onerror=alert(1)><svg onload=x>&lt;\x00\x1b[31m\x07\u202egnp.exe\u2066\u200f\"'`]]>--><!--"
        folder = self.made(
            [self.turn("solver", role=evil, output=evil * 3, answer=evil, error=evil, slots=[self.slot(evil, reason=evil, method=evil)])],
            [{"type": "warning", "message": evil}, {"type": "tool_called", "agent": "solver", "round": 1, "tool": evil, "ok": False, "result": evil,
              "wall_ms": 5.0, "t_ms": 5.0}, {"type": "agent_started", "agent": "solver", "role": evil, "round": 1, "prompt_tokens": 1, "t_ms": 6.0},
             {"type": "agent_finished", "record": {"agent": "solver", "round": 1}, "t_ms": 50.0}],
            workflow=evil, state="failed", error=evil, error_kind="agent", device=evil, relay=evil, outputs={evil: evil}, model={"path": evil, "fingerprint": evil})
        (folder / "prompts/solver.txt").write_bytes(evil.encode() + b"\xff\xfe\xc3(\xe2\x82 \xf0\x9f")
        text, page = self.page(folder)
        self.assertFalse([c for c in text if (ord(c) < 0x20 and c not in "\n\t") or c in "\u202e\u2066\u200f\x7f"])
        for place in ("outputs", "warnings", "text-1", "reuse-1", "timeline-picture"):
            self.assertIn("<img src=x onerror=alert(1)>", page.texts[place], place)
        self.assertIn("␀", page.texts["text-1"])

    def test_long_texts_and_many_turns_are_cut(self):
        long = "<&'\"" * 300_000  # the worst to write: each becomes five characters
        turns = [self.turn("solver", round=number, output=long if number < 30 else "x") for number in range(1, 3001)]
        folder = self.made(turns, outputs={"answer": long})
        (folder / "prompts/solver.txt").write_text("é" * 1_000_000)
        text, page = self.page(folder)
        self.assertLess(len(text), 40_000_000)
        self.assertIn("65,536 of 1,200,000 bytes", page.texts["outputs"])
        self.assertIn("65,536 of 2,000,000 bytes", page.texts["text-1"])
        self.assertNotIn("\ufffd", page.texts["text-1"])
        self.assertIn("first 500 of 3,000 turns", page.texts["turns"])
        self.assertIn("30,000", page.texts["turns"])  # the sum is of all

    def test_a_graph_that_no_run_has_is_not_drawn(self):
        turns = [self.turn("solver", state="skipped", round=number) for number in range(1, 20_000)] + [self.turn("reader", slots=[self.slot("a")] * 1000)]
        edge = {"from": "solver#19999", "to": "reader", "slots": ["a"]}
        graph = {"schema": 1, "turns": [{"agent": turn["agent"], "round": turn["round"], "decides": True,
                                         "id": turn["agent"] if turn["round"] == 1 else f"{turn['agent']}#{turn['round']}"} for turn in turns]}
        folder = self.made(turns)
        (folder / "graph.json").write_text(json.dumps({**graph, "edges": [edge] * 100_000}))
        self.page(folder)  # in time: nobody looks for the answer anew for each line
        turns = turns[:2] + turns[-1:]
        graph["turns"] = graph["turns"][:2] + graph["turns"][-1:]
        folder = self.made(turns)
        for edges in ([{**edge, "from": "solver"}] * 6000, [{**edge, "from": "solver", "slots": ["a"] * 20_000}]):
            (folder / "graph.json").write_text(json.dumps({**graph, "edges": edges}))
            self.assertIn("too large to draw", self.page(folder)[1].texts["team"])
        (folder / "graph.json").write_text(json.dumps({**graph, "edges": [{**edge, "from": "solver"}]}))
        text, page = self.page(folder)
        self.assertNotIn("too large", page.texts["team"])
        self.assertLess(len(text), 2_000_000)

    def test_the_end_of_a_round_of_many_turns(self):
        agents = "".join(f"  m{i}: {{prompt: x{i}}}\n" for i in range(12))
        self.write("many.yaml", f"version: 1\nmodels: {{main: {{path: \"{ROOT}/samples/models/nano\"}}}}\ndefaults: {{max_tokens: 1}}\n"
                                f"agents:\n{agents}workflow: {{topology: parallel, rounds: 3}}\n")
        self.baton("run", "many.yaml", "-i", "user_question=x", "--record", "many", "-q")
        graph = json.loads((self.folder / "many/graph.json").read_text())
        self.assertEqual((graph["edges"], [len(one["to"]) for one in graph["barriers"]]), ([], [12, 12]))
        text, page = self.page(self.folder / "many")
        self.assertEqual(len(page.of_class("node")), 36)
        self.assertEqual(set(re.findall(r'<path class="(\w+)" d="M', text.split('<div class="canvas')[1])), {"order"})
        for wrong in ({"from": ["m0"], "to": ["nobody"]}, {"from": ["m0"], "to": []}, {"from": ["m0#2"], "to": ["m1"]}):
            (self.folder / "many/graph.json").write_text(json.dumps({**graph, "barriers": [wrong]}))
            self.assertIn("graph.json: barriers[0]", self.baton("report", "many", code=3).stderr)

    def test_outputs_stand_in_the_order_of_the_record(self):
        outputs = {"zebra": "first", "apple": "second", "outputs": "third"}
        hidden = [self.turn("solver", extra={"outputs": {"mango": "no output"}})]
        text, page = self.page(self.made(agents=hidden, outputs=outputs, inputs={"question": "?"}, date="2026-01-31T12:00:00Z",
                                         version="0.1.0", threads=3, load_ms=1500.0))
        shown = page.texts["outputs"]
        places = [shown.index(name) for name in ("zebra", "first", "apple", "second", "third")]
        self.assertEqual(places, sorted(places))
        self.assertNotIn("mango", shown)
        for fact in ("2026-01-31T12:00:00Z", "0.1.0", "3 threads", "1.5 s"):
            self.assertIn(fact, page.texts["settings"])

    def test_probabilities_of_choices(self):
        team = self.write("choosing.yaml", re.sub("output: {pattern.*}", "output: {choose: [right, wrong]}", TEAM))
        folder = self.record(team=team)
        turn = json.loads((folder / "run.json").read_text())["agents"][1]
        self.assertEqual(list(turn["probabilities"]), ["right", "wrong"])
        self.assertAlmostEqual(sum(turn["probabilities"].values()), 1.0)
        best = max(turn["probabilities"], key=turn["probabilities"].get)
        self.assertEqual([turn["output"], turn["answer"]], [best, best])
        _, page = self.page(folder)
        self.assertIn(f"probabilities: {best} {100 * turn['probabilities'][best]:.1f} %, ", page.texts["text-2"])
        evil = "<b>\x00"
        _, page = self.page(self.made([self.turn("solver", probabilities={evil: 0.25, "b": 0.75})]))
        self.assertIn("probabilities: b 75.0 %, <b>␀ 25.0 %", page.texts["text-1"])
        self.baton("report", str(self.made([self.turn("solver", probabilities={"b": 1.5})])), code=3)

    def test_calls_of_a_model(self):
        use = {"tool": "look<b>", "arguments": '{"at":"<i>"}', "code": "print(1)", "ok": False, "result": "nothing\x07", "wall_ms": 20.0, "generation": 1}
        turn = self.turn("solver", tools=[use] * 60, ttft_ms=0.0, prefill_ms=0.0)
        moment = {"agent": "solver", "round": 1}
        events = [{"type": "agent_started", "role": "Role", "prompt_tokens": 10, "t_ms": 10.0, **moment}, {"type": "token", "id": 1, "text": "a", "t_ms": 20.0, **moment},
                  {"type": "tool_called", **use, "t_ms": 60.0, **moment}, {"type": "token", "id": 1, "text": "b", "t_ms": 70.0, **moment},
                  {"type": "agent_finished", "record": turn, "t_ms": 100.0}]
        text, page = self.page(self.made([turn], events))
        shown = page.texts["text-1"]
        for part in ("Tools, 60 uses", "look<b>", '{"at":"<i>"}', "print(1)", "nothing␇", "The first 50 of 60."):
            self.assertIn(part, shown)
        self.assertEqual([kind for kind, _, _ in self.rows(text)[0]], ["wait", "first", "decode", "tool", "decode"])
        self.baton("report", str(self.made([self.turn("solver", tools=[{**use, "ok": "yes"}])])), code=3)

    def test_runs_that_did_not_end_well(self):
        long = self.write("long.yaml", LONG)
        folder = self.record("--timeout", "400ms", team=long, code=5, name="timeout")
        text, page = self.page(folder)
        self.assertIn("✕ timeout", text)
        self.assertIn("took longer than 400 ms", page.texts["run"])
        self.assertEqual(len(self.rows(text)), 200)
        broken = self.write("broken.yaml", TEAM.replace("checker:\n", "checker:\n    retry: {attempts: 2, backoff: 30ms}\n")
                            .replace("The answer is (-?[0-9]+)", "never said").replace("required: false", "required: true"))
        folder = self.record(team=broken, code=1, name="failed")
        text, page = self.page(folder)
        self.assertIn("✕ failed", text)
        self.assertIn("agent 'checker' failed: the output does not match", page.texts["run"])
        kinds = [kind for kind, _, _ in self.rows(text)[1]]
        self.assertIn("decode", kinds[:kinds.index("pause")])  # a busy machine may leave no time before the first token
        self.assertEqual(kinds[-1], "decode")
        self.assertIn("decoding, attempt 1:", page.texts["timeline"])
        self.assertIn("decoding, attempt 2:", page.texts["timeline"])
        self.assertIn("attempt 1 of 2 failed", page.texts["warnings"])
        folder = self.made([self.turn("solver", state="cancelled", output_tokens=0, output="", kv={"entries": 0, "reused": 0, "computed": 0, "reuse_rate": 0})],
                           [], state="cancelled", error="stopped")
        text, page = self.page(folder)
        self.assertIn("■ cancelled", page.texts["run"])
        self.assertIn("stopped", page.texts["run"])

    def test_without_times_or_prompts(self):
        folder = self.record()
        lines = [json.loads(line) for line in (folder / "events.ndjson").read_text().splitlines()]
        for line in lines:
            del line["t_ms"]
        (folder / "events.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
        text, page = self.page(folder)
        self.assertIn("events carry no times", page.texts["timeline"])
        self.assertEqual(self.rows(text), [])
        (folder / "events.ndjson").unlink()
        (folder / "prompts/solver.txt").unlink()
        text, page = self.page(folder)
        self.assertIn("events.ndjson is missing", page.texts["timeline"])
        self.assertIn("not in the record", page.texts["text-1"])
        self.assertIn("solver", page.texts["turns"])

    def test_times_that_make_no_sense(self):
        event = lambda kind, t, **more: {"type": kind, "agent": "solver", "round": 1, "t_ms": t, **more}
        folder = self.made(events=[event("agent_started", 90), event("token", 20), event("token", 1e14), event("agent_started", 3),
                                   {"type": "agent_finished", "record": {"agent": "solver", "round": 1}, "t_ms": 0}, {"type": "new_kind"}])
        for row in self.rows(self.page(folder)[0]):
            for (_, _, end), (_, begin, _) in zip(row, row[1:]):
                self.assertLessEqual(end, begin + 1e-6)
            self.assertLessEqual(row[-1][2], 100.001)

    def test_a_graph_in_which_an_agent_works_twice(self):
        events = [{"type": "agent_started", "agent": "solver", "round": 1, "t_ms": 1}]
        text, page = self.page(self.made([self.turn("solver"), self.turn("solver")], events))
        self.assertIn("twice in a round", page.texts["timeline"])
        self.assertIn("text-2", page.texts)

    def test_damaged_records(self):
        whole = self.record()
        good = (whole / "run.json").read_text()

        def expect(message, change=None, text=None, code=3):
            record = json.loads(good)
            if change:
                change(record)
            (whole / "run.json").write_bytes((json.dumps(record) if text is None else text).encode("utf-8", "surrogateescape"))
            done = self.baton("report", str(whole), code=code)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(message, done.stderr)
            self.assertFalse((whole / "report.html").exists())

        def setting(path, value):
            def change(record):
                for part in path[:-1]:
                    record = record[part]
                record[path[-1]] = value
            return change

        expect("run.json: schema: expected 1, found 2", setting(["schema"], 2))
        expect("run.json: schema: expected", setting(["schema"], "1"))
        expect("state: expected one of ok, failed, cancelled, timeout, suspended, found the text 'fine'", setting(["state"], "fine"))
        expect("error_kind: expected one of agent, resources, host, input, found the text 'x'", setting(["error_kind"], "x"))
        expect("agents[0].finish_reason: expected one of eos, stop, length", setting(["agents", 0, "finish_reason"], "<b>"))
        expect("agents: expected a list, found an object", setting(["agents"], {}))
        expect("agents[1]: expected an object, found 3", setting(["agents", 1], 3))
        expect("agents[1].prompt_tokens: expected a whole number from 0 to 10^12, found -1", setting(["agents", 1, "prompt_tokens"], -1))
        expect("agents[1].prompt_tokens: expected a whole number", setting(["agents", 1, "prompt_tokens"], 10**30))
        expect("agents[0].ttft_ms: expected a number from 0 to 10^15, found the text 'soon'", setting(["agents", 0, "ttft_ms"], "soon"))
        expect("agents[0].agent: expected an id", setting(["agents", 0, "agent"], "../../etc/passwd"))
        expect("agents[0].turn: expected the id of a turn", setting(["agents", 0, "turn"], "../../etc/passwd"))
        expect("agents[0].turn: expected the id of a turn", setting(["agents", 0, "turn"], "solver#/.."))
        expect("agents[0].round: expected a whole number from 1", setting(["agents", 0, "round"], 0))
        expect("agents[1].slots[0].kv_reuse_rate: expected a number from 0 to 1, found 1.5", setting(["agents", 1, "slots", 0, "kv_reuse_rate"], 1.5))
        expect("agents[1].slots[0].name: expected a text, found nothing", lambda record: record["agents"][1]["slots"][0].pop("name"))
        expect("outputs.answer: expected a text, found null", setting(["outputs", "answer"], None))
        expect("wall_ms: expected a number", setting(["wall_ms"], None))
        expect("found the end of the text within it", text=good[:len(good) // 2])
        expect("found the end of the text within it", text="")
        expect("found something else at byte", text=good.replace('"wall_ms": ', '"wall_ms": NaN', 1))
        expect("a number that is too large", text='{"schema": 1e999}')
        expect("found something else at byte", text="\udcff\udcfe" + good)
        expect("expected a JSON object, found a list", text="[]")
        expect("byte 17: expected lists and objects nested at most 16 deep", text="[" * 100_000)
        expect("expected at most 8000000 values", text="[" + "0," * 8_000_001 + "0]")
        (whole / "run.json").write_text(good)
        (whole / "events.ndjson").write_text('{"type":"run_started","t_ms":1}\n{"type":"tok')
        self.assertIn("events.ndjson:2: expected a JSON object", self.baton("report", "run", code=3).stderr)
        (whole / "events.ndjson").write_text('{"type":"token","agent":"solver","round":1,"t_ms":"x"}\n')
        self.assertIn("events.ndjson:1: t_ms: expected a number", self.baton("report", "run", code=3).stderr)

    def test_not_a_record(self):
        (self.folder / "empty").mkdir()
        self.assertIn("found no run.json", self.baton("report", "empty", code=3).stderr)
        self.assertIn("expected a folder", self.baton("report", "no_such", code=2).stderr)
        self.assertIn("it is not a folder", self.baton("report", self.team, code=2).stderr)
        self.baton("report", code=2)
        os.symlink("loop", self.folder / "loop")
        self.assertIn("loop", self.baton("report", "loop", code=2).stderr)
        folder = self.made()
        secret = self.folder / "secret.txt"
        secret.write_text("not for the page")
        for name in ("prompts/solver.txt", "events.ndjson", "run.json"):
            kept = (folder / name).read_bytes() if (folder / name).exists() else None
            for make, found in ((lambda path: os.symlink(secret, path), "a symbolic link"), (os.mkfifo, "a pipe or a device"), (os.mkdir, "a folder")):
                if (folder / name).exists():
                    (folder / name).unlink()
                make(folder / name)
                self.assertIn(f"{name}: expected a regular file, found {found}", self.baton("report", "made", code=3).stderr)
                (folder / name).rmdir() if found == "a folder" else (folder / name).unlink()
            if kept is not None:
                (folder / name).write_bytes(kept)
        (folder / "prompts").rmdir()
        os.symlink(self.folder, folder / "prompts")
        self.baton("report", "made", code=3)

    def graph(self, folder, turns, edges, **changes):
        turns = [{"id": agent, "agent": agent, "round": 1, "decides": False, **({"when": when} if when else {})} for agent, when in turns]
        graph = {"schema": 1, "turns": turns, "edges": edges, **changes}
        (folder / "graph.json").write_text(json.dumps(graph))

    def test_the_picture_of_the_team(self):
        slot = self.slot("agent_solver_current", method="rectify", reused_tokens=3, recomputed_tokens=1)
        folder = self.made([self.turn("solver"), self.turn("checker", slots=[slot]), self.turn("judge", state="skipped", error="not needed")])
        edges = [{"from": "solver", "to": "checker", "slots": ["agent_solver_current"]}, {"from": "checker", "to": "judge", "slots": []}]
        self.graph(folder, [("solver", ""), ("checker", ""), ("judge", "'<b>' in x")], edges, until="it is <i>")
        text, page = self.page(folder)
        self.assertEqual(re.findall(r'<path class="(\w+)" d="M', text.split('<div class="canvas')[1]), ["approximate", "order"])
        for part in ("rectify", "when '<b>' in x", "it is <i>", "not needed", "solver to checker"):
            self.assertIn(part, page.texts["team"])
        self.assertEqual(len(page.of_class("node")), 3)
        places = [tuple(map(int, re.findall(r"(?:left|top):(\d+)px", node["style"]))) for node in page.of_class("node")]
        self.assertEqual(len({top for _, top in places}), 3)  # one below the other

        def expect(message, *graph, **changes):
            self.graph(folder, *graph, **changes)
            self.assertIn("graph.json: " + message, self.baton("report", "made", code=3).stderr)

        turns = [("solver", ""), ("checker", ""), ("judge", "")]
        expect("turns: expected 3 turns, as run.json", turns[:2], [])
        expect("turns[2].agent: expected 'judge', as run.json", [*turns[:2], ("x", "")], [])
        expect("edges[0].to: expected a turn behind that of 'from'", turns, [{"from": "judge", "to": "solver", "slots": []}])
        expect("edges[0].from: expected the id of a turn", turns, [{"from": "nobody", "to": "solver", "slots": []}])
        expect("edges[0].slots: expected a list of texts", turns, [{"from": "solver", "to": "judge", "slots": [1]}])
        expect("schema: expected 1", turns, [], schema=2)
        (folder / "graph.json").unlink()
        self.assertIn("graph.json is missing", self.page(folder)[1].texts["team"])

    def test_two_runs_next_to_each_other(self):
        first = self.record("--relay", "full", name="full")
        second = self.record("--set", "agents.checker.max_tokens=3", name="short")
        self.assertEqual(self.baton("compare", "full", "short", "--html").stdout, "short/comparison.html\n")
        text = (second / "comparison.html").read_text()
        page = Page(text)
        self.assertEqual(page.mistakes, [])
        solver, checker = (turn["output"] for turn in json.loads((first / "run.json").read_text())["agents"])
        self.assertIn("The same answer", page.texts["text-1"])
        self.assertIn("The answers differ", page.texts["text-2"])
        self.assertEqual(page.texts["text-1"].count(solver.strip()), 1)
        self.assertIn(checker.strip(), page.texts["text-2"])
        self.assertIn("question the same", page.texts["inputs"])
        self.assertIn("answer differs", page.texts["outputs"])
        for part in ("relay method", "wall time", "generated tokens"):
            self.assertIn(part, page.texts["sums"])
        self.assertIn("checker", page.texts["turns"])
        self.assertIn("baton compare full short --html", text)
        self.assertIn("2", self.baton("compare", "full", "short", "full", code=2).stderr)
        self.assertIn("is now 'baton compare full short --html FILE'", self.baton("report", "full", "short", code=2).stderr)

    def differences(self, first, second):
        for name, output in (("a", first), ("b", second)):
            self.made([self.turn("solver", output=output)]).rename(self.folder / name)
        page = self.baton("compare", "a", "b", "--html", "-").stdout
        for name in ("a", "b"):
            shutil.rmtree(self.folder / name)
        return [re.findall(r"<(del|ins)>(.*?)</", side, re.S) for side in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.S)]

    def test_words_that_differ_are_marked(self):
        self.assertEqual(self.differences("one two three\nsame", "one 2 three\nsame"), [[("del", "two")], [("ins", "2")]])
        self.assertEqual(self.differences("a\nb\nc", "a\nc"), [[("del", "b\n")], []])
        self.assertEqual(self.differences("x", "x"), [[]])
        self.assertEqual(self.differences("", "<b>"), [[("ins", "&lt;b&gt;")]])
        many = "".join(f"{i} {i * i}\n" for i in range(5000))
        self.assertEqual(self.differences(many, many.replace("\n500 ", "\nfive ")), [[("del", "500")], [("ins", "five")]])
        # Too long to be compared word by word.
        self.assertEqual([len(side) for side in self.differences("a b " * 10_000, "b c " * 10_000)], [1, 1])

    def test_where_the_page_goes(self):
        folder = self.record()
        self.assertEqual(self.baton("report", "run", "-o", "page.html").stdout, "page.html\n")
        page = (self.folder / "page.html").read_text()
        self.assertFalse((folder / "report.html").exists())
        self.assertEqual(self.baton("report", "run", "-o", "-").stdout, page.replace(" --output page.html", " --output -"))
        mine = self.write("mine.html", "<p>mine</p>")
        self.assertIn("not a report", self.baton("report", "run", "-o", mine, code=2).stderr)
        self.assertEqual((self.folder / mine).read_text(), "<p>mine</p>")
        os.symlink("page.html", self.folder / "link.html")
        self.baton("report", "run", "-o", "link.html", code=2)
        self.baton("report", "run", "-o", "no/such/page.html", code=1)
        self.assertIn("/dev/full", self.baton("report", "run", "-o", "/dev/full", code=2).stderr)
        os.mkfifo(self.folder / "pipe")
        self.baton("report", "run", "-o", "pipe", code=2)
        self.assertFalse([name for name in os.listdir(self.folder) if "part" in name])

    def test_the_same_record_makes_the_same_page(self):
        self.record()
        self.assertEqual(self.baton("report", "run", "-o", "-").stdout, self.baton("report", "run", "-o", "-").stdout)


if __name__ == "__main__":
    unittest.main()
