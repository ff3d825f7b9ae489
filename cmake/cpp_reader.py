# SPDX-License-Identifier: Apache-2.0
"""Reads C++ as the checks of this folder need it: classes, their functions and data members, and free functions.

A tokenizer and a parser of declarations, without a preprocessor: of `#if ... #else` the first branch is read. Function
bodies are searched for names and for local classes, and are not understood otherwise.
"""

import dataclasses
import re

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      |(?P<directive>\#(?:[^\n\\]|\\\r?\n|\\.)*)
      |(?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
      |(?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
      |(?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
      |(?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
      |(?P<name>[A-Za-z_]\w*)
      |(?P<symbol>::|->\*?|\.\.\.|<=>|<<=?|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|.)""",
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"\s*#\s*(\w+)")
INCLUDES = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')

CLASS_KEYS = {"class", "struct", "union"}
CALL_LIKE = {"alignas", "decltype", "noexcept", "explicit", "__attribute__", "__launch_bounds__", "requires", "__declspec"}
NOT_NAMES = {
    "const", "volatile", "constexpr", "consteval", "constinit", "static", "inline", "mutable", "virtual", "explicit",
    "friend", "extern", "typename", "class", "struct", "union", "enum", "unsigned", "signed", "int", "long", "short",
    "char", "bool", "float", "double", "void", "auto", "noexcept", "override", "final", "operator", "return", "template",
    "using", "namespace", "public", "private", "protected", "if", "else", "for", "while", "do", "switch", "case", "new",
    "delete", "this", "sizeof", "std", "default", "break", "continue", "true", "false", "nullptr", "size_t", "throw",
    "try", "catch", "static_cast", "const_cast", "reinterpret_cast", "dynamic_cast", "decltype", "requires", "concept",
}  # fmt: skip


@dataclasses.dataclass(eq=False)
class Parameter:
    tokens: list[str]


@dataclasses.dataclass(eq=False)
class Function:
    name: str
    file: str
    line: int
    parameters: list[Parameter]
    qualifiers: list[str]  # of a definition outside its class: `A::B::f` has A and B
    class_: "Class | None" = None  # when it is declared in the class
    is_const: bool = False
    is_static: bool = False
    is_pure: bool = False
    is_generated: bool = False  # defaulted or deleted
    is_friend: bool = False
    namespace: str = ""  # "a::" + "" + ... of a free function; an anonymous one is empty
    has_body: bool = False
    body_lines: int = 0
    access: str = "public"
    names: set = dataclasses.field(default_factory=set)  # (qualifier or "", name) of all names in it


@dataclasses.dataclass(eq=False)
class Field:
    name: str
    tokens: list[str]
    access: str
    line: int
    is_constant: bool = False  # static and never changed


@dataclasses.dataclass(eq=False)
class Class:
    name: str
    key: str  # class, struct or union
    file: str
    line: int
    outer: "Class | None"
    bases: set
    is_local: bool = False  # declared in the body of a function
    is_hidden: bool = False  # declared in an anonymous namespace of a source file
    fields: list[Field] = dataclasses.field(default_factory=list)
    functions: list[Function] = dataclasses.field(default_factory=list)
    names: set = dataclasses.field(default_factory=set)
    friends: set = dataclasses.field(default_factory=set)  # names of classes
    namespace: str = ""

    @property
    def path(self) -> str:
        return f"{self.outer.path}::{self.name}" if self.outer else self.name


@dataclasses.dataclass(eq=False)
class Source:
    file: str
    lines: int
    includes: list[str]
    classes: list[Class]
    functions: list[Function]  # free ones, and definitions of members outside their class
    names: set  # at namespace scope, outside functions
    variables: list = dataclasses.field(default_factory=list)  # (name, namespace, line) at namespace scope


def tokenize(text: str):
    """The tokens, their lines and the quoted includes. String literals become `""`."""
    tokens, lines, includes = [], [], []
    line, position = 1, 0
    branches = []  # of each open #if: whether its first branch has ended
    for match in TOKEN.finditer(text):
        kind = match.lastgroup if match.lastgroup != "delimiter" else "raw"
        start = match.start()
        line += text.count("\n", position, start)
        position = start
        if kind == "skip":
            continue
        if kind == "directive":
            found = DIRECTIVE.match(match.group())
            word = found.group(1) if found else ""
            if word in ("if", "ifdef", "ifndef"):
                branches.append(False)
            elif word in ("else", "elif") and branches:
                branches[-1] = True
            elif word == "endif" and branches:
                branches.pop()
            elif word == "include" and (found := INCLUDE.match(match.group())):
                includes.append(found.group(1))
            continue
        if True in branches:
            continue
        tokens.append('""' if kind in ("raw", "string") else "''" if kind == "char" else match.group())
        lines.append(line)
    return tokens, lines, includes


def _matches(tokens):
    """For each bracket the index of its partner; an unbalanced one has none."""
    partner, stack = {}, []
    closing = {")": "(", "]": "[", "}": "{"}
    for i, token in enumerate(tokens):
        if token in "([{":
            stack.append(i)
        elif token in closing:
            while stack and tokens[stack[-1]] != closing[token]:
                stack.pop()
            if stack:
                partner[stack[-1]] = i
                partner[i] = stack.pop()
    return partner


class Reader:
    """Reads one file."""

    def __init__(self, file: str, text: str):
        self.tokens, self.lines, includes = tokenize(text)
        self.partner = _matches(self.tokens)
        self.source = Source(file, text.count("\n"), includes, [], [], set())
        self.hidden = 0
        self.namespaces = []
        self._scope(0, len(self.tokens), None, "public")

    def _at(self, i: int) -> str:
        return self.tokens[i] if i < len(self.tokens) else ""

    def _skip(self, i: int) -> int:
        """Behind the bracket at i and its content."""
        return self.partner.get(i, len(self.tokens)) + 1

    def _angle(self, i: int, end: int) -> int | None:
        """Behind the template arguments that begin at i; None: the `<` is an operator."""
        depth = 0
        while i < end:
            token = self.tokens[i]
            if token == "<":
                depth += 1
            elif token == ">":
                depth -= 1
                if depth == 0:
                    return i + 1
            elif token in "([{":
                i = self._skip(i)
                continue
            elif token in (";", ")", "}", "]"):
                return None
            i += 1
        return None

    def _statement_end(self, i: int, end: int) -> int:
        """Behind the next `;` outside brackets."""
        while i < end:
            token = self.tokens[i]
            if token == ";":
                return i + 1
            i = self._skip(i) if token in "([{" else i + 1
        return end

    def _names(self, begin: int, end: int) -> set:
        found = set()
        tokens = self.tokens
        for i in range(begin, end):
            token = tokens[i]
            if (token[0].isalpha() or token[0] == "_") and token not in NOT_NAMES:
                if i >= 2 and tokens[i - 1] == "::":
                    found.add((tokens[i - 2], token))
                elif i >= 1 and tokens[i - 1] in (".", "->"):
                    continue
                else:
                    found.add(("", token))
        return found

    def _scope(self, i: int, end: int, owner: Class | None, access: str):
        while i < end:
            if owner and self.tokens[i] in ("public", "private", "protected") and self._at(i + 1) == ":":
                access = self.tokens[i]
                i += 2
                continue
            i = max(self._declaration(i, end, owner, access), i + 1)

    def _declaration(self, i: int, end: int, owner: Class | None, access: str) -> int:
        token = self.tokens[i]
        if token in (";", "}"):
            return i + 1
        if token == "inline" and self._at(i + 1) == "namespace":
            i, token = i + 1, "namespace"
        if token == "namespace":
            begin = i + 1
            while i < end and self.tokens[i] not in ("{", ";", "="):
                i += 1
            if self._at(i) != "{":
                return self._statement_end(i, end)
            close = self.partner.get(i, end)
            name = "".join(self.tokens[begin:i])
            self.hidden += not name
            self.namespaces.append(name)
            self._scope(i + 1, close, owner, access)
            self.namespaces.pop()
            self.hidden -= not name
            return close + 1
        if token == "extern" and self._at(i + 1) == '""' and self._at(i + 2) == "{":
            close = self.partner.get(i + 2, end)
            self._scope(i + 3, close, owner, access)
            return close + 1
        if token == "template":
            if self._at(i + 1) != "<":
                return self._statement_end(i, end)
            begin = i
            i = self._angle(i + 1, end) or end
            self._note(owner, begin, i)
            while self._at(i) == "requires":
                i = self._requires(i + 1, end)
            return self._declaration(i, end, owner, access) if i < end else end
        if token in ("using", "typedef", "static_assert", "concept", "asm"):
            stop = self._statement_end(i, end)
            self._note(owner, i, stop)
            return stop
        if token == "[" and self._at(i + 1) == "[":
            return self._skip(i)
        if token == "enum":
            stop, body = self._statement_end(i, end), i
            self._note(owner, i, stop)
            while body < stop and self.tokens[body] != "{":
                body += 1
            behind = self._skip(body) if body < stop else stop
            if behind < stop - 1:  # declarators
                self._add_fields(behind, stop - 1, owner, access)
            return stop
        if token == "friend":
            if self._at(i + 1) in CLASS_KEYS:
                stop = self._statement_end(i, end)
                if owner:
                    owner.friends.add(self.tokens[stop - 2])
                return stop
            return self._generic(i + 1, end, None, access, friend_of=owner)
        if token in CLASS_KEYS:
            stop = self._class(i, end, owner, access)
            if stop is not None:
                return stop
        return self._generic(i, end, owner, access)

    def _requires(self, i: int, end: int) -> int:
        while i < end:
            if self.tokens[i] == "(":
                i = self._skip(i)
            elif self.tokens[i] == "requires":  # an expression
                i += 1
                while self._at(i) in "({":
                    i = self._skip(i)
            else:
                i += 1
                while self._at(i) == "::":
                    i += 2
                if self._at(i) == "<":
                    i = self._angle(i, end) or i + 1
            if self._at(i) not in ("&&", "||"):
                return i
            i += 1
        return i

    def _note(self, owner: Class | None, begin: int, end: int):
        (owner.names if owner else self.source.names).update(self._names(begin, end))

    def _class(self, i: int, end: int, owner: Class | None, access: str, local: bool = False) -> int | None:
        """Reads a class definition; None: it is none."""
        key, begin, name = self.tokens[i], i, []
        line = self.lines[i]
        i += 1
        while i < end:
            token = self.tokens[i]
            if token == "[" or token == "(":
                i = self._skip(i)
            elif token == "<":
                i = self._angle(i, end) or end
            elif token in ("{", ":"):
                break
            elif token == ";" and len([word for word in name if word != "::"]) <= name.count("::") + 1:
                return i + 1  # a forward declaration
            elif token == "::" or token[0].isalpha() or token[0] == "_":
                name.append(token)
                i += 1
            else:
                return None
        else:
            return None
        words = [word for word in name if word not in ("final", "alignas", "::")]
        bases = set()
        if self.tokens[i] == ":":
            first = i
            while i < end and self.tokens[i] not in ("{", ";"):
                if self.tokens[i] == "<":
                    i = self._angle(i, end) or end
                elif self.tokens[i] == "(":
                    i = self._skip(i)
                else:
                    i += 1
            if self._at(i) != "{":
                return None
            bases = {pair for pair in self._names(first, i)}
        close = self.partner.get(i, end)
        if not words:  # anonymous: its data members are those of what holds it
            if owner:
                self._scope(i + 1, close, owner, access)
                return self._statement_end(close + 1, end)
            words = ["(anonymous)"]
        outer = owner
        made = Class(words[-1], key, self.source.file, line, outer, bases, is_local=local, is_hidden=self.hidden > 0)
        if outer is None and len(name) > 1 and "::" in name and len(words) > 1:  # struct Outer::Inner { ... };
            made.outer = Class(words[-2], "class", self.source.file, line, None, set(), is_local=True)
        made.namespace = "::".join(self.namespaces)
        made.names.update(bases)
        self.source.classes.append(made)
        self._scope(i + 1, close, made, "public" if key != "class" else "private")
        stop = self._statement_end(close + 1, end)
        if stop > close + 2 and not local:  # declarators behind the class
            self._add_fields(close + 1, stop - 1, owner, access)
        return stop

    def _add_fields(self, begin: int, end: int, owner: Class | None, access: str):
        """Data members of one declaration: its declarators are separated by commas."""
        self._note(owner, begin, end)
        if begin >= end:
            return
        parts, i, first = [], begin, begin
        while i < end:
            token = self.tokens[i]
            if token == "<":
                i = self._angle(i, end) or i + 1
                continue
            if token in "([{":
                i = self._skip(i)
                continue
            if token == ",":
                parts.append((first, i))
                first = i + 1
            i += 1
        parts.append((first, end))
        head = self.tokens[parts[0][0] : parts[0][1]]
        constant = "static" in head and ("constexpr" in head or "const" in head) or "constexpr" in head
        for first, stop in parts:
            tokens, name, j = self.tokens[first:stop], "", first
            while j < stop and self.tokens[j] not in ("=", "{", "[", ":"):
                if self.tokens[j] == "<":
                    j = self._angle(j, stop) or j + 1
                    continue
                if self.tokens[j][0].isalpha() or self.tokens[j][0] == "_":
                    name = self.tokens[j]
                j += 1
            if owner is None:
                self.source.variables.append((name, "::".join(self.namespaces), self.lines[first]))
                continue
            owner.fields.append(Field(name, head if first != parts[0][0] else tokens, access, self.lines[first], constant))

    def _generic(self, i: int, end: int, owner: Class | None, access: str, friend_of: Class | None = None) -> int:
        """A function or a variable."""
        begin, tokens = i, self.tokens
        while i < end:
            token = tokens[i]
            if token == ";":
                self._add_fields(begin, i, owner, access)
                return i + 1
            if token == "operator":
                i += 1
                if self._at(i) == "(":
                    i += 2
                else:
                    while i < end and tokens[i] != "(":
                        i += 1
                return self._function(begin, i, end, owner, access, "operator", friend_of)
            if token == "<":
                i = self._angle(i, end) or i + 1
            elif token == "[":
                i = self._skip(i)
            elif token == "=" or (token == ":" and owner):
                stop = self._statement_end(i, end)
                self._add_fields(begin, stop - 1, owner, access)
                return stop
            elif token == "{":
                if any(word in CLASS_KEYS for word in tokens[begin:i]):  # a macro before a class
                    return self._skip(i)
                stop = self._statement_end(i, end)
                self._add_fields(begin, stop - 1, owner, access)
                return stop
            elif token == "(":
                before = tokens[i - 1] if i > begin else ""
                if before in CALL_LIKE:
                    i = self._skip(i)
                elif self._at(i + 1) in ("*", "&") and self._at(self._skip(i)) in ("(", "["):  # a pointer to a function
                    stop = self._statement_end(i, end)
                    self._add_fields(begin, stop - 1, owner, access)
                    if owner and owner.fields:
                        owner.fields[-1].name = tokens[i + 2] if tokens[i + 1] in "*&" else ""
                    return stop
                else:
                    return self._function(begin, i, end, owner, access, before, friend_of)
            elif token == "}":
                return i + 1
            else:
                i += 1
        return end

    def _function(self, begin: int, i: int, end: int, owner: Class | None, access: str, name: str, friend_of) -> int:
        """The declaration that begins at `begin` and has its parameters at i."""
        tokens, head = self.tokens, self.tokens[begin:i]
        qualifiers, j = [], i - 1
        if name == "operator":
            j = begin + head.index("operator")
            name = "operator" + "".join(tokens[j + 1 : i])
        elif j > begin and tokens[j - 1] == "~":
            j -= 1
            name = "~" + name
        while j - 2 >= begin and tokens[j - 1] == "::":
            j -= 2
            if tokens[j] == ">":
                depth = 0
                while j >= begin:
                    depth += (tokens[j] == ">") - (tokens[j] == "<")
                    j -= 1
                    if depth == 0:
                        break
            qualifiers.insert(0, tokens[j])
        made = Function(name, self.source.file, self.lines[begin], self._parameters(i), qualifiers, owner, access=access)
        made.is_static = "static" in head
        made.namespace = "::".join(self.namespaces)
        made.is_friend = friend_of is not None
        i = self._skip(i)
        while i < end:
            token = tokens[i]
            if token == ";":
                i += 1
                break
            if token == "const":
                made.is_const = True
            if token == "{":
                i = self._body(made, i)
                while self._at(i) == "catch":
                    i = self._skip(self._skip(i + 1))
                if self._at(i) == ";":
                    i += 1
                break
            if token == "=":
                word = self._at(i + 1)
                made.is_pure = word == "0"
                made.is_generated = word in ("default", "delete")
                i = self._statement_end(i, end)
                break
            if token == ":":
                i = self._initializers(i + 1, end)
                continue
            if token == "requires":
                i = self._requires(i + 1, end)
            elif token in "([":
                i = self._skip(i)
            elif token == "<":
                i = self._angle(i, end) or i + 1
            elif token == ",":
                i = self._statement_end(i, end)
                break
            else:
                i += 1
        made.names = self._names(begin, i)
        if owner:
            owner.functions.append(made)
            owner.names.update(made.names)
        else:
            self.source.functions.append(made)
        return i

    def _initializers(self, i: int, end: int) -> int:
        """Behind the initializers of a constructor."""
        while i < end:
            while i < end and self.tokens[i] not in ("(", "{", ";"):
                i = (self._angle(i, end) or i + 1) if self.tokens[i] == "<" else i + 1
            if self._at(i) not in ("(", "{"):
                return i
            i = self._skip(i)
            if self._at(i) == "...":
                i += 1
            if self._at(i) != ",":
                return i
            i += 1
        return i

    def _body(self, function: Function, i: int) -> int:
        """Notes the local classes of the body that begins at i; returns what is behind it."""
        function.has_body = True
        close, i = self.partner.get(i, len(self.tokens) - 1), i + 1
        function.body_lines = self.lines[close] - self.lines[i - 1]
        while i < close:
            if self.tokens[i] in CLASS_KEYS and self.tokens[i - 1] in ("{", "}", ";"):
                stop = self._class(i, close, None, "public", local=True)
                if stop is not None:
                    i = stop
                    continue
            i += 1
        return close + 1

    def _parameters(self, i: int) -> list[Parameter]:
        close = self.partner.get(i, i)
        found, i, first = [], i + 1, i + 1
        while i < close:
            token = self.tokens[i]
            if token == "<":
                i = self._angle(i, close) or i + 1
                continue
            if token in "([{":
                i = self._skip(i)
                continue
            if token == ",":
                found.append(Parameter(self.tokens[first:i]))
                first = i + 1
            i += 1
        if first < close and self.tokens[first:close] != ["void"]:
            found.append(Parameter(self.tokens[first:close]))
        return found


def read(file: str, text: str) -> Source:
    return Reader(file, text).source
