# SPDX-License-Identifier: Apache-2.0
"""Compares Baton's JSON Schemas with the public test suite, with Pydantic's and with those that Zod writes.

    python tests/golden/check_schemas.py build/release/bin/baton_schema_check [--suite FOLDER] [--cost]

The suite is in the source distribution of PyPI's package `jsonschema`, which is downloaded unless --suite names its
folder `json/tests`. Every case of the drafts 7 and 2020-12 is asked of the checker, and of the grammar in canonical
form: compact, and in some order of the keys, of which one is the schema's. A schema for the grammar says what it leaves
open (every type, additional properties), because the grammar is narrower where a schema does not say it. An invalid
case may be in the grammar only if the grammar names keywords that it is not held to. --cost also checks the processor
time of compiling, which needs a release build. Needs the packages `pydantic[email]`, `jsonschema[format-nongpl]` and
`regex`.
"""
import argparse
import collections
import functools
import itertools
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import schema_models
import schema_reference
import schema_zod

PACKAGE = "jsonschema==4.25.1"
DRAFTS = {"draft7": "http://json-schema.org/draft-07/schema#",
          "draft2020-12": "https://json-schema.org/draft/2020-12/schema"}
# References to other documents, and keywords that are refused by name.
REFUSED_FILES = {"refRemote", "dynamicRef", "unevaluatedItems", "unevaluatedProperties"}
LEFT_OUT_FILES = {"vocabulary"}  # drafts of one's own
REFUSED = ("references to other documents", "this keyword is not supported")
FORMATS = ["date", "time", "date-time", "uuid", "email", "uri", "ipv4", "ipv6", "duration", "hostname", "uri-reference",
           "iri", "iri-reference", "idn-email", "uri-template", "json-pointer", "relative-json-pointer", "regex"]
ASCII_FORMATS = {"iri", "iri-reference", "idn-email"}  # in the grammar
TYPES = ["null", "boolean", "number", "string", "array", "object"]
MAPS = ["properties", "patternProperties", "definitions", "$defs", "dependentSchemas"]
LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"]
SCHEMAS = ["items", "additionalItems", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"]
MAX_ORDERS = 720


class Bridge:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "failed" in answer:
            raise RuntimeError(f"{answer['failed']}: {json.dumps(question)[:2000]}")
        return answer


def suite_folder(given):
    if given:
        return pathlib.Path(given)
    folder = pathlib.Path(tempfile.gettempdir()) / "baton_schema_suite"
    found = list(folder.glob("jsonschema-*/json/tests"))
    if not found:
        folder.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "jsonschema",
                        "-d", folder, PACKAGE], check=True)
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        found = list(folder.glob("jsonschema-*/json/tests"))
    return found[0]


def explicit(schema, draft):
    """The schema, which says of every value that it may have any type and an object any member."""
    if not isinstance(schema, dict) or (draft == "draft7" and "$ref" in schema):
        if isinstance(schema, dict) and "definitions" in schema:
            return {**schema, "definitions": {k: explicit(v, draft) for k, v in schema["definitions"].items()}}
        return schema
    out = {"type": TYPES, "additionalProperties": True} | schema
    for keyword, value in schema.items():
        if keyword in MAPS and isinstance(value, dict):
            out[keyword] = {name: explicit(one, draft) for name, one in value.items()}
        elif keyword == "dependencies":
            out[keyword] = {name: explicit(one, draft) for name, one in value.items()}
        elif (keyword in LISTS or keyword == "items") and isinstance(value, list):
            out[keyword] = [explicit(one, draft) for one in value]
        elif keyword in SCHEMAS:
            out[keyword] = explicit(value, draft)
    return out


def plain_numbers(value):
    """Whole numbers without a fraction, as the grammar has them."""
    if isinstance(value, float) and value == int(value) and abs(value) < 1e19:
        return int(value)
    if isinstance(value, list):
        return [plain_numbers(one) for one in value]
    if isinstance(value, dict):
        return {name: plain_numbers(one) for name, one in value.items()}
    return value


def orders(value):
    """The value with its keys in every order."""
    if isinstance(value, list):
        for parts in itertools.product(*[list(itertools.islice(orders(one), MAX_ORDERS)) for one in value]):
            yield list(parts)
    elif isinstance(value, dict):
        for names in itertools.permutations(value):
            for parts in itertools.product(*[list(itertools.islice(orders(value[name]), MAX_ORDERS)) for name in names]):
                yield dict(zip(names, parts))
    else:
        yield value


def texts_of(value):
    seen = {}
    for one in (plain_numbers(value), value):
        for ordered in itertools.islice(orders(one), MAX_ORDERS):
            seen[json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))] = None
    return list(seen)


def files_of(suite, draft):
    yield from (file for file in sorted((suite / draft).glob("*.json")) if file.stem not in LEFT_OUT_FILES)
    for name in FORMATS:
        file = suite / draft / "optional" / "format" / f"{name}.json"
        if file.exists():
            yield file
    yield suite / draft / "optional" / "non-bmp-regex.json"


class Suite:
    def __init__(self, bridge):
        self.bridge = bridge
        self.counts = collections.Counter()
        self.failures = []
        self.behind = collections.Counter()

    def fail(self, kind, where, what):
        self.counts[kind] += 1
        self.failures.append(f"{kind}: {where}: {what}")

    def case_is_for_us(self, file, case):
        if file.stem == "format" and file.parent.name.startswith("draft"):
            return "only an annotation" not in case["description"]  # these formats are enforced here
        return True

    def group(self, draft, file, group):
        schema = group["schema"]
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": DRAFTS[draft]} | schema
        where = f"{draft}/{file.stem}: {group['description']}"
        cases = [case for case in group["tests"] if self.case_is_for_us(file, case)]
        texts = [json.dumps(case["data"], ensure_ascii=False) for case in cases]
        answer = self.bridge.ask({"schema": json.dumps(schema), "texts": texts})
        if "mistake" in answer:
            if any(reason in answer["mistake"] for reason in REFUSED):
                self.counts["refused by name"] += len(cases)
                if file.stem not in REFUSED_FILES:
                    self.counts["refused by name, in other files"] += len(cases)
            else:
                self.fail("refused", where, answer["mistake"])
            return
        for case, wrong in zip(cases, answer["check"]):
            self.counts["checked"] += 1
            if (wrong == "") != case["valid"]:
                self.fail("check", where, f"{case['description']}: {json.dumps(case['data'])[:300]} {wrong!r}")
        self.grammar(where, explicit(schema, draft), cases)

    def grammar(self, where, schema, cases):
        spellings = [texts_of(case["data"]) for case in cases]
        answer = self.bridge.ask({"schema": json.dumps(schema), "texts": [t for texts in spellings for t in texts]})
        if "mistake" in answer:
            return self.fail("refused", where, answer["mistake"])
        if "error" in answer and ("no text fulfils it" not in answer["error"] or any(c["valid"] for c in cases)):
            return self.fail("not compiled", where, answer["error"])
        notes = answer.get("unenforced", [])
        accepts = iter(answer["accepts"])
        for case, texts in zip(cases, spellings):
            accepted = [text for text in texts if next(accepts)]
            self.counts["asked of the grammar"] += 1
            if case["valid"] and not accepted and "leap second" in case["description"]:
                self.counts["leap seconds that the grammar leaves out"] += 1  # but those of UTC
            elif case["valid"] and not accepted and schema.get("format") in ASCII_FORMATS and not texts[0].isascii():
                self.counts["letters that the grammar leaves out"] += 1
            elif case["valid"] and not accepted:
                self.fail("missing in the grammar", where, f"{case['description']}: {texts[0][:300]}")
            elif not case["valid"] and accepted:
                if notes:
                    self.counts["invalid, but named as checked behind"] += 1
                    for note in notes:
                        self.behind[note.split(": ", 1)[1].split("'")[1]] += 1
                else:
                    self.fail("invalid in the grammar", where, f"{case['description']}: {accepted[0][:300]}")

    def run(self, suite):
        for draft in DRAFTS:
            for file in files_of(suite, draft):
                for group in json.loads(file.read_text()):
                    self.group(draft, file, group)


def is_read_again(model, texts):
    """Whether the model reads what it writes: not if it writes computed fields, or another form of a value."""
    try:
        return not model.model_computed_fields and all(model.model_validate_json(text) for text in texts)
    except ValueError:
        return False


class Compared:
    """Schemas with values, of which Baton and jsonschema must say the same, and with values that are nearly those."""

    def __init__(self, bridge):
        self.bridge = bridge
        self.counts = collections.Counter()
        self.failures = []
        self.notes = collections.Counter()

    def fail(self, name, text, what):
        self.failures.append(f"{name}: {text[:400]}: {what}")

    def schema(self, name, schema, valid, invalid=()):
        self.counts["schemas"] += 1
        validator = schema_reference.validator_of(schema)
        values = [json.loads(text) for text in valid]
        right = [text for text, value in zip(valid, values) if validator.is_valid(value)]
        self.counts["instances that jsonschema refuses, too"] += len(valid) - len(right)
        near = {text: None for i, value in enumerate(values) for text in schema_reference.changed(value, i)}
        texts = [*right, *invalid, *near]
        answer = self.bridge.ask({"schema": json.dumps(schema), "texts": texts})
        problem = answer.get("mistake") or answer.get("author") or answer.get("error")
        if problem:
            return self.fail(name, json.dumps(schema), problem)
        notes = answer["unenforced"]
        self.notes.update(note.split(": ", 1)[1] for note in notes)
        answers = list(zip(texts, answer["check"], answer["accepts"]))
        for text, wrong, accepted in answers[:len(right)]:
            self.counts["instances"] += 1
            if wrong or not accepted:
                self.fail(name, text, wrong or "is not in the grammar")
        for text in invalid:
            if validator.is_valid(json.loads(text)):
                self.fail(name, text, "is valid for jsonschema, but listed as invalid")
        for text, wrong, accepted in answers[len(right):]:
            self.other(name, text, list(validator.iter_errors(json.loads(text))), wrong, accepted, notes)

    def other(self, name, text, errors, wrong, accepted, notes):
        self.counts["other values: invalid" if errors else "other values: valid"] += 1
        behind = any("is checked when" in note for note in notes)
        if errors and not wrong:
            if any("is not checked" in note for note in notes) and schema_reference.only_of(errors, "format"):
                self.counts["formats that are named as not checked"] += 1
                return
            self.fail(name, text, f"the check accepts it; jsonschema: {errors[0].message[:200]}")
        if errors and accepted and not behind:
            self.fail(name, text, f"it is in the grammar; jsonschema: {errors[0].message[:200]}")
        if wrong and not errors:
            if "is no text of the format" in wrong:
                self.counts["formats that are stricter than in jsonschema"] += 1
            else:
                self.fail(name, text, f"jsonschema accepts it; the check: {wrong}")
        if accepted and wrong and not behind:
            self.fail(name, text, f"it is in the grammar; the check: {wrong}")

    def report(self, what):
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        print(f"{what}: {counts}; {len(self.failures)} failures")
        for note, count in self.notes.most_common():
            print(f"{what}: named: {note} ({count})")
        return self.failures


def check_models(bridge):
    compared = Compared(bridge)
    for model, values in schema_models.models():
        for mode in ("validation", "serialization"):
            texts = [value.model_dump_json(by_alias=True) for value in values]
            if mode == "validation" and not is_read_again(model, texts):
                continue
            compared.schema(f"{model.__name__} ({mode})", model.model_json_schema(mode=mode), texts)
    return compared.report(f"Pydantic: {len(schema_models.models())} models")


def check_zod(bridge):
    compared = Compared(bridge)
    for name, schema, valid, invalid in schema_zod.schemas():
        text = functools.partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
        compared.schema(name, schema, [text(value) for value in valid], [text(value) for value in invalid])
    return compared.report("Zod")


def wide_tool(index):
    kinds = [{"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "string", "enum": ["a", "b", "c"]},
             {"type": "number", "exclusiveMinimum": 0}, {"type": "boolean", "default": False},
             {"type": "array", "items": {"type": "string", "maxLength": 10_000}, "maxItems": 50},
             {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
             {"$ref": "#/$defs/Size"}]
    properties = {f"field_{index}_{i}": dict(kinds[i % len(kinds)], description=f"field {i}") for i in range(40)}
    size = {"type": "object", "properties": {"w": {"type": "integer", "maximum": 9 + index}}, "required": ["w"]}
    return {"type": "object", "properties": properties, "required": list(properties)[:10], "$defs": {"Size": size}}


def check_cost(bridge):
    failures = []
    texts = {"type": "array", "maxItems": 50, "items": {"type": "string", "maxLength": 10_000}}
    tools = [[f"tool_{i}", json.dumps(wide_tool(i))] for i in range(50)]
    for what, limit, question in [("maxLength 10,000 in a list of 50", 100, {"schema": json.dumps(texts)}),
                                  ("50 tools with 40 fields", 200, {"tools": tools})]:
        answers = [bridge.ask(question) for _ in range(9)]
        ms = sorted(answer["ms"] for answer in answers)[4]
        print(f"{what}: {ms:.1f} ms, {answers[0].get('nodes')} nodes {answers[0].get('error', '')}")
        if ms > limit or "error" in answers[0]:
            failures.append(f"{what}: {ms:.1f} ms, expected at most {limit}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--suite")
    parser.add_argument("--cost", action="store_true")
    arguments = parser.parse_args()
    bridge = Bridge(arguments.program)
    suite = Suite(bridge)
    suite.run(suite_folder(arguments.suite))
    for name, count in sorted(suite.counts.items()):
        print(f"suite: {name}: {count}")
    print("suite: checked behind:", ", ".join(f"{name} {count}" for name, count in suite.behind.most_common()))
    failures = suite.failures + check_models(bridge) + check_zod(bridge)
    if arguments.cost:
        failures += check_cost(bridge)
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
