#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on a class with two duties: too many functions or data members, or spread over source files.

What counts, for each class with behaviour (at most 25 functions and 15 data members):
- its functions: declared in it, an overload each; a defaulted or deleted one does not count, other constructors do;
- its data members, without static constants;
- the members of a record that this class alone uses; a snapshot that tests make is used by them too, and what is local
  to a function body is no record;
- the functions and members of a base class that only it derives from and nothing else uses;
- the functions and members of a nested class or of a friend that holds a reference to it;
- a free function that takes it, or a record that counts as its own, by mutable reference, or a record that points to it,
  and stands in its folder or in one below or above. A function elsewhere is a user of a service; small services whose
  users are in their folder are named in SERVICES.

A record is exempt. It is declared `struct`, all its data is public, only constructors and operators of it change it, and
its other functions are short (but for three). If many free functions change a record, it is a class in disguise.

A class lives in one source file: its members are defined in its header and in at most one other file.
A header with one user, in its own folder, and no test that includes it is to be merged into that user, with its own
source, unless that file would then have more than 600 lines.
A function has at most 7 parameters.
"""

import argparse
import collections
import dataclasses
import pathlib
import re
import sys

import cpp_reader

FOLDERS = ["engine", "agents", "workflows", "sdk"]
SUFFIXES = {".h", ".c", ".cpp", ".cu", ".cuh"}
HEADERS = {".h", ".cuh"}
MAX_FUNCTIONS = 25
MAX_MEMBERS = 15
MAX_PARAMETERS = 7
MAX_MERGED_LINES = 600
MAX_LONG_FUNCTIONS = 3  # of a record
MAX_SHORT_LINES = 6
DISGUISED = 8  # so many functions that change a record, which no class uses, make it a class; twice as many if one does
SMART = {"unique_ptr", "shared_ptr", "reference_wrapper", "span", "not_null"}
# What the tree still holds; each number may only go down.
ALLOWED = {"too large": 0, "spread": 0, "headers with one user": 0, "parameter lists too long": 0}
PUBLIC = "sdk/include/"

# Small classes that functions of their folder are handed to report to, so that these are not the class's functions.
SERVICES = {
    "engine/text/jinja::Budget": "counts what a template's operations touch",
    "workflows/format::Diagnostics": "collects the mistakes of a file",
    "engine/reuse::GivenKeys": "what a workflow file gives to a method",
    "sdk/src::baton_error": "where a function of the C interface leaves its error",
}
MAX_SERVICE_FUNCTIONS = 12
MAX_SERVICE_MEMBERS = 3

# Endings of files of which the build compiles one: for a kind of system, or in place of a library that is not there.
ALTERNATIVES = ("_windows", "_posix", "_openssl", "_unavailable", "_stub")


def folder_of(file: str) -> str:
    return file.rpartition("/")[0]


def unit_of(file: str) -> str:
    """A header and its source are one unit."""
    return file.rpartition(".")[0]


@dataclasses.dataclass
class Count:
    """What a class is charged with."""

    functions: list[str]
    members: list[str]
    files: set[str]
    record: bool


class Program:
    def __init__(self, sources: list[cpp_reader.Source], tested: set[str] = frozenset()):
        """`tested`: the names that tests use."""
        self.sources = sources
        self.tested = tested
        self.classes = [one for source in sources for one in source.classes]
        self.by_name = collections.defaultdict(list)
        for one in self.classes:
            self.by_name[one.name].append(one)
        self.users = collections.defaultdict(set)  # of a class: other classes (by id), and units of free functions
        self.definitions = collections.defaultdict(list)  # of a class (id): its functions' definitions elsewhere
        self.free = []
        self.derived = collections.defaultdict(set)
        self._connect()

    def resolve(self, qualifier: str, name: str, file: str, within=None):
        """The class that a name means in a file, in the scope of a class; None: it is of no class."""
        found = self.by_name.get(name)
        if not found:
            return None
        scope = within
        while scope is not None:
            if scope.name == name and not qualifier:
                return scope
            for one in found:
                if one.outer is scope:
                    return one
            scope = scope.outer
        if qualifier and qualifier in self.by_name:
            for one in found:
                if one.outer is not None and one.outer.name == qualifier:
                    return one
        top = [one for one in found if one.outer is None]
        here = [one for one in top if one.file == file]
        if here:
            return here[0]
        if within is None:  # a nested class that its own file names without its outer one, such as a friend does
            nested = [one for one in found if unit_of(one.file) == unit_of(file) and one.outer is not None]
            if nested and not top:
                return nested[0]
        seen = [one for one in top if not one.is_local and not (one.is_hidden and not one.file.endswith((".h", ".cuh")))]
        near = [one for one in seen if folder_of(one.file) == folder_of(file)]
        return (near or seen or [None])[0]

    def _connect(self):
        for source in self.sources:
            for one in source.classes:
                if one.outer is not None and one.outer.is_local and one.outer not in source.classes:
                    one.outer = self.resolve("", one.outer.name, source.file)
            for function in source.functions:
                function.class_ = self._class_of(function, source.file)
                if function.class_ is not None:
                    self.definitions[id(function.class_)].append(function)
                    function.class_.names.update(function.names)
                else:
                    self.free.append(function)
        for one in self.classes:
            for qualifier, name in one.names:
                used = self.resolve(qualifier, name, one.file, one)
                if used is not None and used is not one:
                    self.users[id(used)].add(one)
            for qualifier, name in one.bases:
                base = self.resolve(qualifier, name, one.file, one.outer)
                if base is not None and base is not one:
                    self.derived[id(base)].add(one)
        for one in self.classes:  # members defined in another file see other names, but those of the class are its own
            self.users[id(one)].discard(one)
        for function in self.free:
            for qualifier, name in function.names:
                used = self.resolve(qualifier, name, function.file)
                if used is not None:
                    self.users[id(used)].add(unit_of(function.file))

    def _class_of(self, function, file: str):
        if not function.qualifiers:
            return None
        qualifiers, within = list(function.qualifiers), None
        for qualifier in qualifiers:
            found = None
            if within is not None:
                found = next((one for one in self.by_name.get(qualifier, []) if one.outer is within), None)
            if found is None:
                found = self.resolve("", qualifier, file)
            within = found if found is not None else within
        return within if within is not None and within.name == qualifiers[-1] else None

    def is_record(self, one) -> bool:
        if one.key == "class" or any(field.access != "public" for field in one.fields):
            return False
        long = 0
        for function in one.functions:
            if function.is_generated or function.is_friend or function.name.startswith("operator"):
                continue
            if function.name.lstrip("~") == one.name:
                continue
            if not function.is_const and not function.is_static:
                return False
            long += not function.has_body or function.body_lines > MAX_SHORT_LINES
        return long <= MAX_LONG_FUNCTIONS

    def is_tested(self, one) -> bool:
        """Whether a test can make the record, and does."""
        outermost = one
        while outermost.outer is not None:
            outermost = outermost.outer
        return outermost.file.endswith((".h", ".cuh")) and self.is_record(outermost) and outermost.name in self.tested

    def changed_by(self, function) -> set:
        """The classes that a free function may change through its parameters."""
        changed = set()
        for parameter in function.parameters:
            for qualifier, name in mutable_types(parameter.tokens):
                found = self.resolve(qualifier, name, function.file)
                if found is not None:
                    changed.add(found)
            for qualifier, name in names_of(parameter.tokens):
                found = self.resolve(qualifier, name, function.file)
                if found is not None and self.is_record(found):
                    changed |= self.pointed_to(found)
        return changed

    def pointed_to(self, one, alone: bool = False) -> set:
        """The classes that a class's data members refer to by reference or pointer, and may change; alone: not those of
        which it holds several, in a container."""
        found = set()
        for field in one.fields:
            if alone and "<" in field.tokens:
                continue
            for qualifier, name in mutable_types(field.tokens, smart=False):
                target = self.resolve(qualifier, name, one.file, one)
                if target is not None and target is not one:
                    found.add(target)
        return found

    def parts_of(self, one) -> list:
        """Nested classes and friends that refer back to the class."""
        near_by = [other for other in self.classes if other.outer is one]
        for name in one.friends:
            other = self.resolve("", name, one.file, one)
            near_by += [other] if other is not None else []
        return [other for other in near_by if one in self.pointed_to(other, alone=True)]

    def counts(self):
        records = {id(one): self.is_record(one) for one in self.classes}
        owned = collections.defaultdict(list)  # of a class: records that it alone uses
        owner_of = {}
        for one in self.classes:
            if records[id(one)] and not one.is_local and not self.is_tested(one):
                owner = self._owner(one, records)
                if owner is not None:
                    owner_of[id(one)] = owner
                    owned[id(owner)].append(one)
        changers = collections.defaultdict(list)
        seen = set()
        for function in sorted(self.free, key=lambda f: not f.has_body):  # a definition before its declaration
            for changed in self.changed_by(function):
                target = owner_of.get(id(changed), changed)
                key = (id(target), function.name, len(function.parameters))
                if not near(function.file, target.file) or not function.has_body and key in seen:
                    continue
                seen.add(key)
                changers[id(target)].append(function)
        for one in self.classes:
            is_record = records[id(one)]
            if is_record:
                used = any(isinstance(user, cpp_reader.Class) for user in self.users[id(one)])
                is_record = len(changers[id(one)]) < (2 * DISGUISED if used else DISGUISED)
            functions, members, files = [], [], set()
            self._add(one, functions, members, files, set(), owned, changers)
            yield one, Count(functions, members, files, is_record)

    def _owner(self, record, records):
        """The one class with behaviour that alone uses a record, directly or through records; else None."""
        pending, seen, found, units = [record], {id(record)}, set(), set()
        while pending:
            current = pending.pop()
            for user in self.users[id(current)]:
                if isinstance(user, str):
                    units.add(user)
                elif records[id(user)]:
                    if id(user) not in seen:
                        seen.add(id(user))
                        pending.append(user)
                else:
                    found.add(id(user))
                    owner = user
        if len(found) != 1:
            return None
        files = {unit_of(owner.file)} | {unit_of(function.file) for function in self.definitions[id(owner)]}
        return owner if units <= files else None

    def _add(self, one, functions, members, files, seen, owned, changers):
        if id(one) in seen:
            return
        seen.add(id(one))
        functions += [f.name for f in one.functions if not f.is_generated and not f.is_friend]
        if not is_service(one):
            functions += [f"{f.name} ({f.file}:{f.line})" for f in changers[id(one)]]
        members += [field.name for field in one.fields if not field.is_constant]
        files |= {f.file for f in self.definitions[id(one)] if pathlib.PurePath(f.file).suffix not in HEADERS}
        for record in owned[id(one)]:
            members += [f"{record.path}.{field.name}" for field in record.fields if not field.is_constant]
        for part in self.parts_of(one):
            self._add(part, functions, members, set(), seen, owned, changers)
        for qualifier, name in one.bases:
            base = self.resolve(qualifier, name, one.file, one.outer)
            if base is None or len(self.derived[id(base)]) != 1 or self.users[id(base)] - {one}:
                continue
            own = set()
            self._add(base, functions, members, own, seen, owned, changers)


def near(file: str, other: str) -> bool:
    """Whether one of the files' folders is the other's or holds it; a layer's own folder holds only itself."""
    one, two = sorted((folder_of(file), folder_of(other)), key=len)
    return one == two or ("/" in one and two.startswith(one + "/"))


def names_of(tokens: list[str]):
    """The names in a parameter's type, with their qualifiers."""
    for i, token in enumerate(tokens):
        if (token[0].isalpha() or token[0] == "_") and token not in cpp_reader.NOT_NAMES:
            yield (tokens[i - 2] if i >= 2 and tokens[i - 1] == "::" else ""), token


def mutable_types(tokens: list[str], smart: bool = True):
    """The types, as (qualifier, name), that a parameter lets a function change; smart: also through smart pointers."""
    depth, stop = 0, len(tokens)
    for i, token in enumerate(tokens):  # without the default value
        depth += (token in "(<[{") - (token in ")>]}")
        if token == "=" and depth == 0:
            stop = i
            break
    tokens = tokens[:stop]
    for i, token in enumerate(tokens):
        if not (token[0].isalpha() or token[0] == "_") or token in cpp_reader.NOT_NAMES:
            continue
        j = i + 1
        if j < len(tokens) and tokens[j] == "::":
            continue
        begin = i
        while begin >= 2 and tokens[begin - 1] == "::":
            begin -= 2
        before = tokens[begin - 1] if begin else ""
        qualifier = tokens[i - 2] if begin < i else ""
        if before == "const" or (j < len(tokens) and tokens[j] == "const"):
            continue
        if j < len(tokens) and tokens[j] == "<":
            depth = 0
            while j < len(tokens):
                depth += (tokens[j] == "<") - (tokens[j] == ">")
                j += 1
                if depth == 0:
                    break
        follows = tokens[j] if j < len(tokens) else ""
        if "function" in tokens[:i] and "(" in tokens[:i]:  # in the signature of a callback
            continue
        if follows in ("&", "*"):
            yield qualifier, token
        elif smart and before == "<" and follows in (">", ",") and begin >= 2 and tokens[begin - 2] in SMART:
            yield qualifier, token


def read_tree(root: pathlib.Path, folders=FOLDERS) -> list[cpp_reader.Source]:
    found = []
    for top in folders:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SUFFIXES:
                found.append(cpp_reader.read(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")))
    return found


def names_in_tests(root: pathlib.Path) -> set[str]:
    found = set()
    for file in (root / "tests").rglob("*"):
        if file.suffix in SUFFIXES:
            found.update(re.findall(r"\b[A-Z]\w*", file.read_text(encoding="utf-8", errors="replace")))
    return found


def source_files(files: set[str]) -> set[str]:
    """The files, of which those that the build chooses one of (ALTERNATIVES; posix/x.cpp, windows/x.cpp) are one."""
    found = set()
    for file in files:
        stem = unit_of(file).replace("/windows/", "/posix/")
        if stem.endswith(ALTERNATIVES):
            stem = stem.rpartition("_")[0]
        if not stem.endswith("/unavailable"):
            found.add(stem)
    return found


def is_service(one) -> bool:
    own = [f for f in one.functions if not f.is_generated and not f.is_friend]
    return (
        f"{folder_of(one.file)}::{one.path}" in SERVICES
        and len(own) <= MAX_SERVICE_FUNCTIONS
        and len(one.fields) <= MAX_SERVICE_MEMBERS
    )


def single_user_headers(sources, root: pathlib.Path):
    """(header, its one user, lines of both with the header's source) for headers with one user and no test."""
    files = {source.file: source.lines for source in sources}
    users = collections.defaultdict(set)
    for source in sources:
        for target in source.includes:
            for base in (folder_of(source.file) + "/", "", "sdk/include/", "engine/base/"):
                if base + target in files:
                    users[base + target].add(source.file)
                    break
    tested = set()
    for file in (root / "tests").rglob("*"):
        if file.suffix in SUFFIXES:
            tested.update(cpp_reader.INCLUDES.findall(file.read_text(encoding="utf-8", errors="replace")))
    sizes = collections.Counter()
    for file, lines in files.items():
        sizes[unit_of(file)] += lines
    for header in sorted(files):
        if pathlib.PurePath(header).suffix not in HEADERS or header.startswith((PUBLIC, "engine/base/baton/")):
            continue
        others = {user for user in users[header] if unit_of(user) != unit_of(header)}
        units = {unit_of(user) for user in others}
        if header in tested or len(units) > 1:
            continue
        if not others:
            own = [user for user in users[header] if unit_of(user) == unit_of(header)]
            if own:
                yield header, own[0], sizes[unit_of(header)]
        elif all(folder_of(user) == folder_of(header) for user in others):
            user = min(others, key=lambda file: (pathlib.PurePath(file).suffix in HEADERS, file))
            yield header, user, sizes[unit_of(header)] + files[user]


def long_parameter_lists(sources):
    """Functions with too many parameters, each once: its definition, if there is one."""
    found = {}
    for source in sources:
        for function in source.functions + [f for one in source.classes for f in one.functions]:
            if len(function.parameters) > MAX_PARAMETERS:
                key = (function.name, len(function.parameters), folder_of(function.file))
                if key not in found or function.has_body:
                    found[key] = function
    return list(found.values())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--all", action="store_true", help="print all classes with their counts")
    options.add_argument("--room", default="", help="print only what lies in this folder, for example engine/loop")
    options.add_argument("--why", metavar="CLASS", help="print what is counted for a class")
    given = options.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    sources = read_tree(root)
    program = Program(sources, names_in_tests(root))
    counts = list(program.counts())
    shown = [(one, count) for one, count in counts if one.file.startswith(given.room)]
    if given.why:
        for one, count in shown:
            if given.why in (one.name, one.path):
                print(f"{one.path} ({one.file}:{one.line}){', a record' if count.record else ''}")
                print(f"  {len(count.functions)} functions: {', '.join(count.functions)}")
                print(f"  {len(count.members)} members: {', '.join(count.members)}")
                print(f"  defined in: {', '.join(sorted(count.files))}")
        return 0
    excess = lambda count: max(len(count.functions) / MAX_FUNCTIONS, len(count.members) / MAX_MEMBERS)
    over = [(one, count) for one, count in shown if not count.record and excess(count) > 1]
    listed = [pair for pair in shown if not pair[1].record] if given.all else over
    if listed:
        print("functions members  class")
    for one, count in sorted(listed, key=lambda pair: -excess(pair[1])):
        print(f"{len(count.functions):9} {len(count.members):7}  {one.path}  {one.file}:{one.line}")
    if given.all:
        for one, count in sorted((p for p in shown if p[1].record), key=lambda pair: -len(pair[1].members)):
            print(f"   record {len(count.members):7}  {one.path}  {one.file}:{one.line}")
    spread = [(one, count) for one, count in shown if len(source_files(count.files)) > 1]
    for one, count in spread:
        print(f"in {len(count.files)} source files: {one.path}: {', '.join(sorted(count.files))}")
    headers = [pair for pair in single_user_headers(sources, root) if pair[0].startswith(given.room)]
    kept = [header for header in headers if header[2] > MAX_MERGED_LINES]
    headers = [header for header in headers if header[2] <= MAX_MERGED_LINES]
    for header, user, lines in headers:
        print(f"header with one user and no test: {header} -> {user} ({lines} lines then)")
    if given.all:
        for header, user, lines in kept:
            print(f"header with one user, kept: {header} ({user} would have {lines} lines)")
    long = [f for f in long_parameter_lists(sources) if f.file.startswith(given.room)]
    for function in long:
        print(f"{len(function.parameters)} parameters: {function.name}  {function.file}:{function.line}")
    found = {"too large": over, "spread": spread, "headers with one user": headers, "parameter lists too long": long}
    print("classes: " + ", ".join(f"{len(problems)} {what} (allowed: {ALLOWED[what]})" for what, problems in found.items()))
    return 1 if any(len(problems) > ALLOWED[what] for what, problems in found.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
