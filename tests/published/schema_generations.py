#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generations at temperature 1 under JSON Schemas, checked by Python's jsonschema with its format checker.

    python tests/published/schema_generations.py BATON MODELS_DIR [--count N] [--seed S] [--max-tokens N] [--free]

For each .gguf file of the folder: N schemas are drawn from those of tests/golden/schema_models.py (Pydantic) and
schema_zod.py, one agent for each is given the schema and an instance and writes a value, and up to 250 agents run in
one workflow. An answer that ended before `max_tokens` must be valid. If a schema has keywords that Baton only checks
when the text is complete, Baton may refuse such an answer itself, which is counted. --free: with `whitespace: free`.
Exits 1 if jsonschema refuses an answer that Baton accepted. Needs the packages `pydantic[email]`,
`jsonschema[format-nongpl]` and `regex`.
"""
import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import schema_models  # noqa: E402
import schema_reference  # noqa: E402
import schema_zod  # noqa: E402

COLUMNS = ["generations", "failed", "ended", "valid", "refused by Baton, too", "invalid"]
MAX_SHOWN = 400  # characters of a schema in the prompt
TOGETHER = 250   # agents of one workflow


def all_schemas():
    """(name, schema, an instance or None)"""
    warnings.simplefilter("ignore")
    for model, instances in schema_models.models():
        for mode in ("validation", "serialization"):
            instance = json.loads(instances[0].model_dump_json(by_alias=True)) if instances else None
            yield f"{model.__name__} ({mode})", model.model_json_schema(mode=mode), instance
    for name, schema, valid, _ in schema_zod.schemas():
        yield name, schema, valid[0] if valid else None


def plain(text):
    """Without placeholders."""
    return text.replace("{{", "{ {").replace("}}", "} }")


def workflow(model, drawn, arguments):
    agents = {}
    for index, (name, schema, instance) in enumerate(drawn):
        shown = plain(json.dumps(schema)[:MAX_SHOWN])
        example = "" if instance is None else f"\nAn example: {plain(json.dumps(instance)[:MAX_SHOWN])}"
        output = {"schema": schema, "required": False} | ({"whitespace": "free"} if arguments.free else {})
        agents[f"a{index}"] = {"seed": arguments.seed * 1000 + index, "on_error": "skip", "output": output,
                               "prompt": f"Write one JSON value for this schema, with short texts.\nSchema: {shown}{example}"}
    return {"version": 1, "models": {"m": {"path": str(model)}},
            "defaults": {"model": "m", "max_tokens": arguments.max_tokens, "temperature": 1}, "agents": agents,
            "workflow": {"topology": "parallel"}}


def run(model, drawn, arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "schemas.yaml"
        file.write_text(json.dumps(workflow(model, drawn, arguments)))  # which is YAML
        done = subprocess.run([arguments.baton, "run", file, "--json", "-q", "--device", "cpu", "--threads",
                               str(arguments.threads), "-i", "user_question=Go."], capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        sys.exit(f"{model.name}: {done.stderr[-3000:]}")
    return {turn["agent"]: turn for turn in json.loads(done.stdout)["agents"]}


def judge(name, schema, turn, counts, failures):
    counts["generations"] += 1
    if turn is None or turn["state"] != "ok":
        counts["failed"] += 1
        failures.append(f"{name}: {'no turn' if turn is None else turn['error']}")
        return
    if turn["truncated"]:
        return
    counts["ended"] += 1
    try:
        errors = [error.message for error in
                  schema_reference.validator_of(schema).iter_errors(json.loads(turn["output"]))]
    except ValueError as error:
        errors = [str(error)]
    if not errors:
        counts["valid"] += 1
    elif turn["answer"] == "":
        counts["refused by Baton, too"] += 1
    else:
        counts["invalid"] += 1
        failures.append(f"{name}: {turn['output'][:300]}: {errors[0][:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baton")
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="part of the models' file names")
    parser.add_argument("--free", action="store_true")
    arguments = parser.parse_args()
    schemas = list(all_schemas())
    bad = 0
    print(f"{'model':28}" + "".join(f"{name:>24}" for name in COLUMNS))
    for model in sorted(arguments.models.glob("*.gguf")):
        if arguments.only and arguments.only not in model.name:
            continue
        drawn = random.Random(arguments.seed).sample(schemas, min(arguments.count, len(schemas)))
        counts, failures = collections.Counter(), []
        for begin in range(0, len(drawn), TOGETHER):
            part = drawn[begin:begin + TOGETHER]
            turns = run(model, part, arguments)
            for index, (name, schema, _) in enumerate(part):
                judge(name, schema, turns.get(f"a{index}"), counts, failures)
        print(f"{model.name:28}" + "".join(f"{counts[name]:24}" for name in COLUMNS))
        for failure in failures:
            print("  ", failure)
        bad += counts["invalid"] + counts["failed"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
