#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What shells are told may follow on a command line, and the scripts in the shells that are installed.

Usage: cli_completion_test.py RUNNER [unittest options]
"""

import os
import pathlib
import shutil
import subprocess
import unittest

from runner import Cli, LAB, ROOT, RUNNER, TEAM


class Completion(Cli):
    def words(self, *words, **changes):
        lines = self.baton("completion", "words", "--", *words, **changes).stdout.split("\n")
        return [line.split("\t")[0] for line in lines if line]

    def test_verbs_and_options(self):
        self.assertEqual(self.words("ch"), ["chat", "check"])
        self.assertIn("run", self.words(""))
        self.assertIn("--version", self.words("--v"))
        self.assertEqual(self.words("run", "x.yaml", "--rel"), ["--relay"])
        self.assertEqual(self.words("no_verb", "--rel"), [])
        self.assertEqual(self.words("completion", ""), ["bash", "fish", "zsh"])
        listed = self.baton("completion", "words", "--", "run", "--seed").stdout
        self.assertEqual(listed, "--seed\tSeed of the sampling, in place of the file's\n")

    def test_arguments(self):
        self.assertEqual(self.words("run", "math_te"), ["math_team", ":files"])
        self.assertEqual(self.words("run", "--seed", "3", "math_te"), ["math_team", ":files"])
        self.assertIn(":files", self.words("check", self.team, ""))

    def test_values(self):
        self.assertEqual(self.words("run", self.team, "--input", ""), ["question="])
        self.assertEqual(self.words("run", self.team, "-i", "qu"), ["question="])
        self.assertEqual(self.words("run", self.team, "--input=qu"), ["--input=question="])
        self.assertEqual(self.words("run", self.team, "-i", "question=@te"), ["question=@team.yaml"])
        self.assertEqual(self.words("run", "--input", "q=1", self.team, "--relay", "pre"), ["prefix"])
        self.assertEqual(self.words("run", self.team, "--relay", "exa"), ["exact"])
        self.assertEqual(self.words("check", self.team, "--graph", ""), ["ascii", "dot", "json", "mermaid"])
        self.assertEqual(self.words("check", self.team, "--render", "ch"), ["checker"])
        self.assertEqual(self.words("run", self.team, "--device", "cu"), ["cuda"])
        self.assertIn("nano", self.words("run", self.team, "--model", "na"))
        self.assertEqual(self.words("run", self.team, "--seed", ""), [])

    def test_settings(self):
        self.assertIn("agents.", self.words("run", self.team, "--set", ""))
        self.assertEqual(self.words("run", self.team, "--set", "agents."), ["agents.checker.", "agents.solver."])
        self.assertEqual(self.words("run", self.team, "--set", "agents.checker.max_t"), ["agents.checker.max_tokens="])
        self.assertIn("relay.tolerance=", self.words("run", self.team, "--set", "relay.to"))
        self.assertIn("relay.memory.device=", self.words("run", self.team, "--set", "relay.memory.d"))
        self.assertEqual(self.words("run", self.team, "--set", "agents.checker.max_tokens=3"), [])

    def test_what_is_broken_is_no_error(self):
        self.write("broken.yaml", "version: [")
        self.assertEqual(self.words("run", "broken.yaml", "--input", ""), [])
        self.assertEqual(self.words("run", "no.yaml", "--set", "agents."), [])
        self.assertEqual(self.words("run", "--set"), ["--set"])
        self.assertEqual(self.words(), [])
        self.baton("completion", "tcsh", code=2)
        self.baton("completion", code=2)

    def test_names_that_a_shell_could_obey(self):
        folder = self.folder / "models"
        for name in ("$(touch hit)", "new\nline", "tab\tbed"):
            (folder / name).mkdir(parents=True)
            (folder / name / "config.json").write_text("{}")
        words = self.words("run", self.team, "--model", "", BATON_MODEL_PATH=str(folder))
        self.assertIn("$(touch hit)", words)
        self.assertFalse([word for word in words if "line" in word or "bed" in word])
        self.assertIn(r"\$\(touch\ hit\)", self.in_bash("baton run team.yaml --model $(to", BATON_MODEL_PATH=str(folder)))
        self.assertFalse((self.folder / "hit").exists())

    def path(self):
        """A folder in which the program is called baton, in front of the others."""
        (self.folder / "bin").mkdir(exist_ok=True)
        link = self.folder / "bin" / "baton"
        if not link.exists():
            link.symlink_to(RUNNER)
        return f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def shell(self, program, *arguments, script, **changes):
        done = subprocess.run([program, *arguments], input=script, cwd=self.folder, text=True, capture_output=True, timeout=120,
                              env=self.environment(PATH=self.path(), **changes))
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line for line in done.stdout.split("\n") if line]

    def in_bash(self, line, word=None, **changes):
        """What bash would offer at the end of a line; `word`: what it takes for the last word, cut at '=' and ':'."""
        words = line.split() + ([""] if line.endswith(" ") else [])
        current = words[-1] if word is None else word
        script = ("source <(baton completion bash)\ncompopt() { :; }\n"
                  f"COMP_LINE={self.quoted(line)} COMP_POINT={len(line)} COMP_WORDS=({' '.join(map(self.quoted, [*words[:-1], current]))}) "
                  f"COMP_CWORD={len(words) - 1}\n"
                  "_baton\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n")
        return self.shell("bash", "--norc", script=script, **changes)

    @staticmethod
    def quoted(text):
        return "'" + text.replace("'", "'\\''") + "'"

    def test_bash(self):
        self.assertEqual(self.in_bash("baton che"), ["check"])
        self.assertEqual(self.in_bash("baton run team.yaml --rel"), ["--relay"])
        self.assertEqual(self.in_bash("baton run team.yaml --input "), ["question="])
        self.assertEqual(self.in_bash("baton run team.yaml --set agents.ch"), ["agents.checker."])
        self.assertEqual(self.in_bash("baton run team.yaml --relay=pre", word="pre"), ["prefix"])
        self.assertIn("team.yaml", self.in_bash("baton check te"))

    def test_the_laboratory_has_scripts_of_its_own(self):
        script = subprocess.run([LAB, "completion", "bash"], capture_output=True, text=True, check=True).stdout
        self.assertIn("complete -F _baton_lab baton-lab", script)
        self.assertIn("< <(baton-lab completion words", script)
        listed = subprocess.run([LAB, "completion", "words", "--", "be"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(listed.split("\t")[0], "bench")

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        def ask(line):
            lines = self.shell("fish", "--no-config", script=f"baton completion fish | source\ncomplete -C {self.quoted(line)}\n")
            return [one.split("\t")[0] for one in lines]
        self.assertEqual(ask("baton che"), ["check"])
        self.assertEqual(ask("baton run team.yaml --input "), ["question="])
        self.assertEqual(ask("baton run team.yaml --set agents.ch"), ["agents.checker."])
        self.assertIn("team.yaml", ask("baton check te"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        # compadd and _files belong to a line that is edited: here they print what they are given.
        head = ("compadd() { while [[ $1 == -* ]]; do [[ $1 == -[dS] ]] && shift; [[ $1 == -a ]] && { print -l -- ${(P)2}; return }; "
                "shift; done }\n_files() { print -r -- FILES }\nsource <(baton completion zsh)\n")

        def ask(*words):
            listed = " ".join(map(self.quoted, words))
            return self.shell("zsh", "-f", script=f"{head}words=({listed}) CURRENT={len(words)}\n_baton; true\n")
        self.assertEqual(ask("baton", "che"), ["check"])
        self.assertEqual(ask("baton", "run", "team.yaml", "--input", ""), ["question="])
        self.assertEqual(ask("baton", "run", "team.yaml", "--set", "agents.ch"), ["agents.checker."])
        self.assertEqual(ask("baton", "run", "math_te"), ["math_team", "FILES"])


if __name__ == "__main__":
    unittest.main()
