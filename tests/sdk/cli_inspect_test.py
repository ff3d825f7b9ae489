#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs that look at a workflow and run nothing: what they show, and what errors suggest.

Usage: cli_inspect_test.py RUNNER [unittest options]
"""

import json
import re
import unittest

from runner import Cli, QUESTION, ROOT, TEAM

DOCUMENT = "The river rises in the hills and turns the wheels of three mills. " * 12


class Explain(Cli):
    def test_explain(self):
        text = self.baton("check", "--explain", "E0304").stdout
        for part in ("E0304: A prompt names an output that cannot exist", "What to do: ", "agents: [judge, solver]",
                     "agents: [solver, judge]"):
            self.assertIn(part, text)
        self.assertEqual(self.baton("check", "--explain", "304").stdout, text)
        self.assertEqual(self.baton("check", "--explain", "e0304", "E0101").stdout, text + "\n" + self.baton("check", "--explain", "E0101").stdout)
        listed = re.findall(r"^E[0-9]{4}", self.baton("check", "--explain").stdout, re.MULTILINE)
        self.assertEqual(listed, re.findall(r"^\| (E[0-9]{4}) ", (ROOT / "docs/yaml.md").read_text(), re.MULTILINE))
        self.assertRegex(self.baton("check", "--explain", "E0411", code=2).stderr, "unknown error code 'E0411'; did you mean .*E0410.*E0412")
        self.assertIn("'baton check --explain' lists all codes", self.baton("check", "--explain", "banana", code=2).stderr)
        code, shown = self.in_terminal("check", "--explain", "E0304", columns=40)
        self.assertEqual(code, 0)
        prose = [line for line in shown.replace("\r", "").split("\n") if not line.startswith("    ")]
        self.assertLessEqual(max(map(len, prose)), 40)

    def test_errors_name_explain_once_and_on_a_terminal_only(self):
        self.write("broken.yaml", TEAM.replace("agent_solver_current", "agent_slover_current").replace("topology: chain", "topology: ring"))
        for verb in (["check"], ["check", "--plan"]):
            self.assertNotIn("baton check --explain", self.baton(*verb, "broken.yaml", code=3).stderr)
            code, shown = self.in_terminal(*verb, "broken.yaml")
            self.assertEqual(code, 3)
            self.assertEqual(shown.count("baton check --explain"), 1)
            self.assertIn("baton check --explain E0203 E0404", shown)
        shown = self.in_terminal("check", "broken.yaml", "broken.yaml")[1]
        self.assertEqual(shown.count("baton check --explain"), 1)


class Plan(Cli):
    def test_begins_with_a_summary(self):
        text = self.baton("check", "--plan", self.team, "--input", QUESTION).stdout
        plan = json.loads(self.baton("check", "--plan", self.team, "--input", QUESTION, "--json").stdout)
        prompt = sum(turn["prompt_tokens"] for turn in plan["turns"])
        self.assertRegex(text.split("\n")[0], rf"^pair: 2 turns of 2 agents; at most {prompt} prompt tokens and 48 output tokens, ")
        self.assertNotIn("without texts that have no bound", text)
        self.assertIn("without texts that have no bound", self.baton("check", "--plan", self.team).stdout.split("\n")[0])

    def estimated(self, team, *more):
        return json.loads(self.baton("check", "--plan", team, "--input", QUESTION, "--estimate", "--threads", "1", "--json", *more).stdout)["estimate"]

    def test_estimates_the_time_on_this_machine(self):
        team = self.write("longer.yaml", TEAM.replace("max_tokens: 24", "max_tokens: 120"))
        factors = []
        for _ in range(3):  # a machine that does something else meanwhile makes either slow
            times = self.estimated(team)
            run = json.loads(self.baton("run", team, "--input", QUESTION, "--threads", "1", "--no-drafts", "--json", "-q").stdout)
            written = sum(turn["prompt_ms"] + turn["answer_ms"] * agent["output_tokens"] / 120 for turn, agent in zip(times["turns"], run["agents"]))
            factors.append(max(written / run["wall_ms"], run["wall_ms"] / written))
        self.assertLess(min(factors), 3, factors)
        self.assertAlmostEqual(times["total_ms"], sum(turn["prompt_ms"] + turn["answer_ms"] for turn in times["turns"]))
        self.assertLess(times["least_total_ms"], times["total_ms"])
        text = self.baton("check", "--plan", team, "--input", QUESTION, "--estimate", "--threads", "1").stdout
        self.assertRegex(" ".join(text.split()), r"estimate: at most about .* on this machine, .* if all that can be handed over costs nothing; measured now on cpu.*: nano computes ")
        self.assertRegex(text, r"  time     at most about .*: .* for the prompt \(.* where \d+ tokens are reused or computed ahead\), .* for the answer")
        self.assertIn("--device requires --estimate", self.baton("check", "--plan", team, "--device", "cpu", code=2).stderr)
        self.baton("check", "--plan", team, "--estimate", "--model", "no-such", code=4)

    def test_estimates_turns_at_the_same_time(self):
        parallel = "workflow: {topology: parallel, agents: [solver, checker, third]}"
        agents = "agents:\n  third: {prompt: '{{ question }}'}"
        team = self.write("parallel.yaml", TEAM.replace("workflow: {topology: chain, agents: [solver, checker]}", parallel)
                          .replace("agents:", agents, 1).replace("\\n\\nSolver:\\n{{ agent_solver_current }}", ""))
        times = self.estimated(team)
        steps = {step["sequences"]: step["ms"] for step in times["rates"][0]["decode_steps"]}
        self.assertEqual(list(steps), [1, 3])
        self.assertAlmostEqual(times["total_ms"], sum(turn["prompt_ms"] for turn in times["turns"]) + 24 * steps[3])
        alone = self.estimated(team, "--set", "workflow.max_parallel=1")
        self.assertEqual([step["sequences"] for step in alone["rates"][0]["decode_steps"]], [1])
        self.assertAlmostEqual(alone["total_ms"], sum(turn["prompt_ms"] + turn["answer_ms"] for turn in alone["turns"]))

    def test_warns_of_prompts_that_do_not_fit(self):
        self.write("small.yaml", TEAM.replace('{path: "', '{context: 64, path: "'))
        plan = json.loads(self.baton("check", "--plan", "small.yaml", "--input", QUESTION, "--json").stdout)
        self.assertEqual(len(plan["warnings"]), 2, plan["warnings"])
        self.assertIn("solver may not fit: up to ", plan["warnings"][0])
        self.assertIn("the context of its model has 64", plan["warnings"][0])
        plan = json.loads(self.baton("check", "--plan", "small.yaml", "--input", f"question={DOCUMENT}", "--json").stdout)
        self.assertRegex(plan["warnings"][0], "the prompt of solver cannot fit: [0-9]+ tokens of it are known")
        self.assertIn("\nwarning: the prompt of solver", self.baton("check", "--plan", "small.yaml", "--input", f"question={DOCUMENT}").stdout)
        self.assertEqual(json.loads(self.baton("check", "--plan", self.team, "--input", QUESTION, "--json").stdout)["warnings"], [])

    def test_warns_of_inputs_that_stay_empty(self):
        self.write("style.yaml", TEAM.replace("inputs:\n", "inputs:\n  style: {required: false}\n").replace(
            "{{ question }}", "{{ question }} {{ style }}"))
        plan = json.loads(self.baton("check", "--plan", "style.yaml", "--input", QUESTION, "--json").stdout)
        self.assertIn("{{ style }} stays empty", plan["warnings"][0])
        plan = json.loads(self.baton("check", "--plan", "style.yaml", "--input", QUESTION, "--input", "style=short", "--json").stdout)
        self.assertEqual(plan["warnings"], [])

    def test_hints_say_how_much_less_there_is_to_compute(self):
        self.write("readers.yaml", TEAM.replace("{{ question }}\\n\\nSolver", "Check this.\\n{{ question }}\\n\\nSolver"))
        plan = json.loads(self.baton("check", "--plan", "readers.yaml", "--input", f"question={DOCUMENT}", "--json").stdout)
        said = re.search(r"solver, checker hold {{ question }} \(up to ([0-9,]+) tokens\).*: ([0-9]+) % less", plan["hints"][0])
        self.assertTrue(said, plan["hints"])
        tokens = [part["most_tokens"] for part in plan["turns"][0]["prompt"] if part["slot"] == "question"][0]
        self.assertEqual(int(said[1].replace(",", "")), tokens)
        self.assertEqual(int(said[2]), round(100 * tokens / sum(turn["prompt_tokens"] for turn in plan["turns"])))

    def test_fits_a_terminal_and_has_colours_there_alone(self):
        code, seen = self.in_terminal("check", "--plan", self.team, "--input", QUESTION, columns=60)
        self.assertEqual(code, 0)
        self.assertIn("\x1b[1m", seen)
        self.assertNotIn("\x1b", self.in_terminal("check", "--plan", self.team, "--input", QUESTION, NO_COLOR="1")[1])
        self.assertNotIn("\x1b", self.baton("check", "--plan", self.team, "--input", QUESTION).stdout)
        prompts = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\r", "").split("\n") if " tokens  " in line]
        self.assertGreater(len(prompts), 3)
        self.assertLess(max(map(len, prompts)), 60)

    def test_hostile_names_do_nothing_on_a_terminal(self):
        self.write("evil.yaml", TEAM.replace("role: Solver", 'role: "So\\u202elver\\u001b[2J"'))
        self.assertNotIn("\x1b[2J", self.in_terminal("check", "--plan", "evil.yaml", "--input", QUESTION)[1])


class Errors(Cli):
    def errors(self, *arguments, code=3):
        return self.baton(*arguments, code=code).stderr

    def test_texts_that_need_quotes(self):
        for written, said in (
                ("name: pair", ""),
                ("name: @pair", "a text without quotes begins with '@'"),
                ("name: *pair", "put it into double quotes if it is a text"),
                ("name: !pair", "put it into double quotes if it is a text"),
                ('name: "a\\d"', "in double quotes '\\' begins an escape"),
                ('x-note: {a: "say "yes""}', "a text goes on behind the \" that ends it"),
                ("x-note: {a: one: two}", "a ': ' in a text without quotes"),
                ("name: one: two", "quote the text if it belongs to one")):
            self.write("quotes.yaml", TEAM.replace("name: pair", written))
            if said:
                self.assertIn(said, self.errors("check", "quotes.yaml"), written)
            else:
                self.baton("check", "quotes.yaml")
        self.write("quotes.yaml", TEAM.replace('{user: "{{ question }}\\n\\nSolver:\\n{{ agent_solver_current }}"}', "{user: {{ question }}}"))
        text = self.errors("check", "quotes.yaml")
        self.assertIn("put a text with placeholders into double quotes", text)
        self.assertEqual(text.count("error["), 1, text)

    def test_all_mistakes_of_a_schema_at_once(self):
        self.write("schema.yaml", TEAM.replace('{pattern: "The answer is (-?[0-9]+)", required: false}',
                                               "{schema: {type: objct, properties: {a: {minimun: 3}, b: {items: {type: [integer, strng]}}}}}"))
        text = self.errors("check", "schema.yaml")
        self.assertEqual(text.count("error[E0408]"), 3, text)
        for near in ("object", "minimum", "string"):
            self.assertIn(f"did you mean '{near}'?", text)

    def test_what_tools_return_is_not_called_decoded(self):
        self.write("direct.yaml", TEAM.replace("output: {pattern", "tools: [{call: python}]\n    calls: {direct: true}\n    output: {pattern"))
        plan = self.baton("check", "--plan", "direct.yaml").stdout
        self.assertIn("  output   what the called tools return\n", plan)
        self.assertNotIn("output   what", self.baton("check", "--plan", self.team).stdout)

    def test_a_role_that_is_the_name_is_not_said_twice(self):
        self.write("plain.yaml", TEAM.replace("role: Solver", "role: solver"))
        plan = self.baton("check", "--plan", "plain.yaml").stdout
        self.assertIn("\nsolver\n  after", plan)
        self.assertNotIn("solver  solver", plan)

    def test_what_is_unknown_is_answered_with_what_there_is(self):
        self.write("tool.yaml", TEAM.replace("output: {pattern", "tools: [calculator]\n    output: {pattern"))
        self.assertIn("the tools are: ", self.errors("check", "tool.yaml"))
        self.assertIn("did you mean 'main'?", self.errors("check", "--plan", self.team, "--model", "mian=x"))
        self.assertIn("the file has: main", self.errors("check", "--plan", self.team, "--model", "judge=x"))
        self.assertIn("E0405", self.errors("check", "--plan", self.team, "--set", "agents.cheker.max_tokens=3"))
        self.assertIn("did you mean 'checker'?", self.errors("check", "--plan", self.team, "--set", "agents.cheker.max_tokens=3"))

    def test_tools_of_a_program_are_known_when_the_file_describes_them(self):
        tool = "tools:\n  find_order: {description: Finds an order., parameters: {properties: {id: {type: integer}}}}\nagents:"
        self.write("host.yaml", TEAM.replace("agents:", tool, 1).replace("output: {pattern", "tools: [{call: find_order}]\n    output: {pattern"))
        self.assertIn("ok: 2 agents, 2 turns; the program that runs it must provide: find_order", self.baton("check", "host.yaml").stdout)
        self.assertEqual(json.loads(self.baton("check", "host.yaml", "--json").stdout)[0]["host_tools"], ["find_order"])
        self.assertEqual(json.loads(self.baton("check", self.team, "--json").stdout)[0]["host_tools"], [])
        plan = self.baton("check", "--plan", "host.yaml").stdout
        self.assertIn("only the program that provides these tools can run it: find_order", plan)
        self.assertRegex(plan, r"calls +find_order")
        self.baton("check", "host.yaml", "--graph")
        self.assertIn("find_order", self.baton("check", "host.yaml", "--render", "checker").stdout)
        self.assertIn("has to provide it", self.baton("run", "host.yaml", "-i", QUESTION, code=3).stderr)

    def test_files_that_may_have_been_meant(self):
        self.assertIn("did you mean 'team.yaml'?", self.errors("check", "tem.yaml"))
        self.assertIn("did you mean 'math_team'?", self.errors("check", "math_tem"))
        (self.folder / "mine").mkdir()
        self.write("mine/team.yaml", TEAM)
        self.assertIn("'mine' is a folder; expected a file", self.errors("check", "mine"))
        self.assertIn("it holds: mine/team.yaml", self.errors("check", "mine"))
        self.assertIn("did you mean 'mine/team.yaml'?", self.errors("check", "mine/teams.yaml"))

    def test_models_that_may_have_been_meant(self):
        (self.folder / "models").mkdir()
        (self.folder / "models" / "tiny-q8.gguf").write_bytes(b"GGUF")
        run = ("run", self.team, "--input", QUESTION, "--model")
        text = self.errors(*run, "models", code=4)
        self.assertIn("It is a folder of models; give one of them:", text)
        self.assertIn("models/tiny-q8.gguf", text)
        self.assertIn("Did you mean 'models/tiny-q8.gguf'?", self.errors(*run, "models/tiny-q8", code=4))
        self.assertIn("Did you mean 'models/tiny-q8.gguf'?", self.errors(*run, "models/tinny-q8.gguf", code=4))
        self.assertIn("Did you mean 'nano'?", self.errors(*run, "nanno", code=4))
        (self.folder / "empty").mkdir()
        self.assertIn("It is a folder without a model in it.", self.errors(*run, "empty", code=4))
        self.write("notes.txt", "no model")
        self.assertIn("It is a file whose name does not end with .gguf.", self.errors(*run, "notes.txt", code=4))
        self.write("pointer.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1\n")
        self.assertIn("Git LFS", self.errors(*run, "pointer.gguf", code=4))


if __name__ == "__main__":
    unittest.main()
