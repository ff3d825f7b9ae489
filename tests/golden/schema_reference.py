# SPDX-License-Identifier: Apache-2.0
"""What Python's jsonschema says of values, and values that are nearly of a schema.

jsonschema searches patterns with Python's `re`, which has no \\p{...}, \\u{...} or (?<name>...). Patterns of JSON
Schema are those of ECMAScript: here PyPI's package `regex` searches them, with ASCII classes and `$` as the end only.
Formats need the packages that `jsonschema[format-nongpl]` names.
"""
import copy
import decimal
import functools
import json
import random

import jsonschema
import regex

CLASSES = {"\\d": "0-9", "\\w": "0-9A-Z_a-z", "\\s": "\\t-\\r "}  # of ASCII
CATEGORIES = {"Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Number": "N", "Punctuation": "P"}
decimal.getcontext().prec = 400  # digits
FILLERS = [None, True, False, -1, 0, 1, 1.5, 7.25, 10**15, -10**15, "", "x", "X-1", "2024-02-30", "é" * 40, "a b",
           "\n", "😀", [], [None], [1, "x"], {}, {"zz": 1}]
MAX_CHANGED = 250


@functools.lru_cache(maxsize=None)
def ecmascript(pattern):
    out, at, in_class = "", 0, False
    while at < len(pattern):
        two = pattern[at:at + 2]
        if pattern[at:at + 3] == "[^]":
            out += r"[\s\S]"
            at += 3
        elif two == "\\u" and pattern[at + 2:at + 3] == "{":
            end = pattern.index("}", at)
            out += f"\\U{int(pattern[at + 3:end], 16):08x}"
            at = end + 1
        elif two in ("\\p", "\\P") and pattern[at + 2:at + 3] == "{":
            end = pattern.index("}", at)
            name = pattern[at + 3:end].removeprefix("gc=").removeprefix("General_Category=")
            out += two + "{" + CATEGORIES.get(name, name) + "}"
            at = end + 1
        elif two[0] == "\\":
            members = CLASSES.get(two)
            out += two if members is None else members if in_class else f"[{members}]"
            at += 2
        else:
            in_class = two[0] == "[" or (in_class and two[0] != "]")
            out += "\\Z" if two[0] == "$" and not in_class else two[0]
            at += 1
    return regex.compile(out)


def pattern_keyword(validator, pattern, value, schema):
    if validator.is_type(value, "string") and not ecmascript(pattern).search(value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def multiple_keyword(validator, divisor, value, schema):
    """Of decimal numbers as they are written: jsonschema divides binary ones, so that 4.35 is no multiple of 0.01."""
    if validator.is_type(value, "number") and decimal.Decimal(str(value)) % decimal.Decimal(str(divisor)) != 0:
        yield jsonschema.ValidationError(f"{value!r} is not a multiple of {divisor}")


CheckedDraft = jsonschema.validators.extend(jsonschema.Draft202012Validator,
                                            {"pattern": pattern_keyword, "multipleOf": multiple_keyword})


def validator_of(schema):
    return CheckedDraft(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def leaves(error):
    """The errors at the ends: those of alternatives instead of the 'anyOf' that names them."""
    if not error.context:
        yield error
    for one in error.context:
        yield from leaves(one)


def only_of(errors, keyword):
    """Whether some error is of the keyword, so that another reading of it could make the value valid."""
    return any(leaf.validator == keyword for error in errors for leaf in leaves(error))


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for name, one in value.items():
            yield from places(one, path + (name,))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from places(one, path + (index,))


def at(value, path):
    for step in path:
        value = value[step]
    return value


def replaced(value, path, new):
    if not path:
        return copy.deepcopy(new)
    out = copy.deepcopy(value)
    at(out, path[:-1])[path[-1]] = copy.deepcopy(new)
    return out


def neighbours(one):
    """Values that are nearly this one."""
    if isinstance(one, bool) or one is None:
        return
    if isinstance(one, (int, float)):
        yield from (one + 1, one - 1, -one, one * 2, one + 0.5, one * 10**6, str(one))
    elif isinstance(one, str):
        yield from (one[1:], one[:-1], one + "!", one + "\n", " " + one, one.upper(), one.lower(), one * 2, one + "0")
        yield from (one.replace("-", "."), one.replace("1", "9"), one.replace(":", ""), one[::-1])
    elif isinstance(one, list):
        yield from (one[1:], one[:-1], one + one, one + [None], one * 5, one[::-1])
    else:
        for name in one:
            yield {other: member for other, member in one.items() if other != name}
            yield {(other + "x" if other == name else other): member for other, member in one.items()}
        yield one | {"zz": 1}
        yield dict(list(one.items())[:1])


def changed(value, seed):
    """Values that differ from this one in one place, always the same ones."""
    out = {}
    for path in places(value):
        for new in [*FILLERS, *neighbours(at(value, path))]:
            text = json.dumps(replaced(value, path, new), ensure_ascii=False, separators=(",", ":"))
            out[text] = None
    out.pop(json.dumps(value, ensure_ascii=False, separators=(",", ":")), None)
    texts = list(out)
    return random.Random(seed).sample(texts, min(MAX_CHANGED, len(texts)))
