# SPDX-License-Identifier: Apache-2.0
"""Commands in the documentation: every option exists, and marked blocks do what their page says (tests/docs/pages.py).

    python tests/docs/docs_test.py BATON CLASS      baton-lab lies in the folder of BATON
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import pages

BATON = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
LAB = BATON.with_name("baton-lab" + BATON.suffix) if BATON else None
HELP = {}


def help_of(program, verb):
    if (program, verb) not in HELP:
        HELP[program, verb] = subprocess.run([program, verb, "--help"], capture_output=True, text=True, check=False)
    return HELP[program, verb]


def options_of(program, verb):
    listed = re.findall(r"^  (-[\w,-]+)", help_of(program, verb).stdout, re.MULTILINE)
    return {name for names in listed for name in names.split(",")}


def wrong(command):
    """What is wrong with a command's verb and options, or an empty text."""
    program, verb, *words = [*command, ""] if len(command) == 1 else command
    if program == "./dev":
        usage = subprocess.run([pages.ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
        return "" if re.search(rf"^  {re.escape(verb)}\b", usage, re.MULTILINE) or not re.match(r"[a-z]", verb) else f"unknown command './dev {verb}'"
    if not re.fullmatch(r"[a-z]+", verb):
        return ""  # `baton --help`, or a word for any verb
    name = pathlib.PurePath(program).name
    path = LAB if name == "baton-lab" else BATON
    if help_of(path, verb).returncode != 0:
        return f"unknown verb '{name} {verb}'"
    for word in words:
        option = word.partition("=")[0]
        if re.fullmatch(r"--?[a-zA-Z][\w-]*", option) and option not in options_of(path, verb):
            return f"'{name} {verb}' has no option '{option}'"
    return ""


class Options(unittest.TestCase):
    """Verbs and options, also of commands that need a model that does not ship with Baton."""

    def test_every_option_that_a_page_names_exists(self):
        checked = 0
        for page in pages.pages():
            for command in pages.commands(page.read_text(encoding="utf-8")):
                checked += 1
                with self.subTest(page=page.name, command=" ".join(command)):
                    self.assertEqual(wrong(command), "")
        self.assertGreater(checked, 150)

    def test_a_wrong_option_is_found_wherever_a_command_stands(self):
        for text in ["`baton run team.yaml --recrod runs/1`", "    $ X=1 baton run team.yaml \\\n      --recrod runs/1\n",
                     "```sh\necho x | baton run team.yaml --recrod 'runs/1'\n```\n"]:
            with self.subTest(text=text):
                self.assertEqual([wrong(command) for command in pages.commands(text)], ["'baton run' has no option '--recrod'"])
        self.assertEqual([wrong(command) for command in pages.commands("`baton rnu x`, `./dev tset`, `baton run x -q`")],
                         ["unknown verb 'baton rnu'", "unknown command './dev tset'", ""])


def missing(expected, printed):
    """The first of the expected lines that is not in what was printed behind those before it, or an empty text."""
    lines = iter(line.strip() for line in printed.splitlines())
    for line in filter(None, map(str.strip, expected)):
        pattern = ".*".join(map(re.escape, line.split("...")))
        if line != "..." and not any(re.fullmatch(pattern, each) for each in lines):
            return line
    return ""


def run_block(test, block, folder):
    code = int(block.argument.partition(" ")[2] or 0)
    for step in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *expected = step.splitlines()
        while command.endswith("\\"):
            command = command[:-1] + expected.pop(0)
        environment = {"PATH": f"{BATON.parent}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8",
                       "BATON_MODEL_PATH": str(pages.ROOT / "samples/models")}
        done = subprocess.run(["/bin/bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        test.assertEqual(done.returncode, code, f"$ {command}\n{done.stdout}")
        test.assertEqual(missing(expected, done.stdout), "", f"$ {command}\n{done.stdout}")


class Blocks(unittest.TestCase):
    """Marked blocks, with the model that ships with Baton."""

    def test_marked_blocks_of_each_page(self):
        ran = 0
        for page in pages.pages():
            with self.subTest(page=page.name), tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                for block in pages.blocks(page.read_text(encoding="utf-8")):
                    if block.kind == "run":
                        run_block(self, block, folder)
                        ran += 1
                    elif block.kind == "from":
                        source = (pages.ROOT / block.argument).read_text(encoding="utf-8")
                        self.assertEqual(block.text, re.sub(r"^(//|#) SPDX[^\n]*\n", "", source), block.argument)
                        (folder / pathlib.PurePath(block.argument).name).write_text(block.text, encoding="utf-8")
                    else:
                        (folder / block.argument).parent.mkdir(parents=True, exist_ok=True)
                        (folder / block.argument).write_text(block.text, encoding="utf-8")
                        if block.argument.endswith(".yaml"):
                            done = subprocess.run([BATON, "check", block.argument], cwd=folder, capture_output=True, text=True,
                                                  env={**os.environ, "BATON_MODEL_PATH": str(pages.ROOT / "samples/models")}, check=False)
                            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(ran, 5)

    def test_a_line_that_is_not_printed_is_found(self):
        self.assertEqual(missing(["a ... c", "...", "d"], "x\na b c\ny\nd\n"), "")
        self.assertEqual(missing(["d", "a ... c"], "x\na b c\ny\nd\n"), "a ... c")


class Graphs(unittest.TestCase):
    """The graphs of the gallery are what `baton check --graph` prints of the workflow that their section begins with."""

    def test_graphs_are_those_of_the_workflows(self):
        graphs = 0
        for section in (pages.ROOT / "docs/gallery.md").read_text(encoding="utf-8").split("\n## ")[1:]:
            name = re.search(r"^`(\w+\.yaml)`", section, re.M)[1]
            for shown in re.findall(r"^```mermaid\n(.*?)^```$", section, re.M | re.S):
                done = subprocess.run([BATON, "check", pages.ROOT / "workflows/library" / name, "--graph", "mermaid"],
                                      capture_output=True, text=True, check=True)
                self.assertEqual(shown, done.stdout, name)
                graphs += 1
        self.assertGreater(graphs, 5)


class Members(unittest.TestCase):
    """The tables of docs/cpp.md name the members that the headers have, and no others."""

    def test_members_are_those_of_the_headers(self):
        page = (pages.ROOT / "docs/cpp.md").read_text()
        for header, struct in (("sdk/include/baton/engine.h", "EngineOptions"), ("sdk/include/baton/engine.h", "RunOptions"),
                               ("engine/base/baton/tool_call.h", "ToolCall"), ("engine/base/baton/tool_call.h", "ToolResult")):
            body = re.search(r"^struct %s \{\n(.*?)^\};" % struct, (pages.ROOT / header).read_text(), re.M | re.S)[1]
            members = re.findall(r"(\w+)(?:\{[^}]*\}| = [^;]+)?;", re.sub(r"//.*", "", body))
            table = page.split(f"\n`{struct}`, ", 1)[1].split("| --- |", 1)[1].split("\n\n", 1)[0]
            shown = [name for row in table.split("\n")[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
            self.assertEqual(sorted(shown), sorted(members), struct)


if __name__ == "__main__":
    unittest.main()
