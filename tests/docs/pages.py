# SPDX-License-Identifier: Apache-2.0
"""What pages of the documentation hold that can be checked: commands, files, and blocks that are run.

A comment in front of a fenced block says what it is; readers do not see it:

    <!-- file: team.yaml -->              the block is written to this file of the page's folder
    <!-- from: samples/x/x.cpp -->        the block is this file of the source tree, without its licence line
    <!-- run -->                          each line that begins with "$ " is run; the lines below it are in what it prints, in
    <!-- run: exit 3 -->                  this order, where ... stands for anything; the exit code is 0, or the one given
"""

import dataclasses
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MARKED = re.compile(r"^<!-- (file|from|run)(?:: (\S+(?: \d+)?))? -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```[^\n]*\n(.*?)^```$|((?:^ {4}[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:baton|baton-lab|\./dev) [^`]+)`")
PROGRAMS = ("baton", "baton-lab")


@dataclasses.dataclass
class Block:
    """A marked block of a page."""
    kind: str
    argument: str
    text: str


def pages():
    """The pages whose commands are checked, as paths; the archive of decisions tells of the past."""
    return [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "archive.md")]


def blocks(text):
    return [Block(*match.groups(default="")) for match in MARKED.finditer(text)]


def joined(lines):
    """Command lines, each with the lines that it goes on in: behind a backslash, or within quotes."""
    pending = ""
    for line in lines:
        pending = f"{pending} {line.strip()}" if pending else line.strip().removeprefix("$ ")
        if pending.endswith("\\"):
            pending = pending[:-1].rstrip()
            continue
        try:
            yield shlex.split(pending, comments=True)
        except ValueError:  # an open quote
            continue
        pending = ""


def commands(text):
    """The words of each command of the runner, the laboratory and ./dev that a page names."""
    found = list(joined(INLINE.findall(text.replace("\\|", "|"))))
    for fenced, indented in CODE.findall(text):
        lines = (fenced or indented).splitlines()
        for start, line in enumerate(lines):
            if re.match(r" *(\$ )?([\w./]*/)?(baton|baton-lab|\./dev) |.*(\||&&) *baton(-lab)? |( *\$ )?[A-Z_]+=\S* (.*/)?baton(-lab)? ", line):
                words = next(joined(lines[start:]), None)
                found += [words] if words else []
    for words in found:
        for command in split(words):
            if command[:1] == ["./dev"] or (command and pathlib.PurePath(command[0]).name in PROGRAMS):
                yield command


def split(words):
    """The commands of a line: at pipes, && and ;, without what is redirected and variables that are set in front."""
    command = []
    for word in [*words, ";"]:
        if word in ("|", "&&", ";", ">", "<", "&"):
            while command and re.fullmatch(r"[A-Z_a-z]+=.*", command[0]):
                command.pop(0)
            if command:
                yield command
            command = []
        else:
            command.append(word)
