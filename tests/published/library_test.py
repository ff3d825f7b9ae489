#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the library's workflows for published models on one, with the default method of relay, and checks what they answer.
That method is approximate: a wrong answer is asked for again with an exact one, which must give the right one, and at most
one workflow may need that.

    python tests/published/library_test.py --bin build/release/bin --models DIR [--model qwen2.5-coder-1.5b] [--only NAME]

Prints a line for each workflow. Exit code 1: an answer is wrong. Smaller models than that of the files are too weak for some
of them.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REQUESTS = ROOT / "tests/published/requests.jsonl"
LEAST_SORTED = 32  # of 40; 35 when this was written
MAX_APPROXIMATE = 1  # answers that only an exact relay gives right

FUNCTION = '''def count_vowels(text: str) -> int:
    """Count the vowels a, e, i, o and u, of either case.
    >>> count_vowels("Banana")
    3
    >>> count_vowels("OUTER space")
    5
    """
'''
INITIALS = '''def initials(name: str) -> str:
    """Return the first letters of the words of a name, in upper case and without blanks.
    >>> initials("ada marie stone")
    'AMS'
    >>> initials("")
    ''
    """
'''
TESTS_OF_INITIALS = '''
assert initials("ada marie stone") == "AMS"
assert initials("") == ""
assert initials("Bo") == "B"
assert initials("  jean  paul ") == "JP"
print("The tests pass.")
'''
DOCUMENTS = {
    "document_1": "The Elbow Bridge crosses the river Sarn near the old mill. It was opened in 1871 after three years of work. It is "
                  "built of granite and has five arches. Its length is 214 metres, and the mill's owner paid for a third of it.",
    "document_2": "The Harbour Bridge was opened in 1954. It is a steel bridge of 610 metres with four lanes. On weekdays some 22,000 "
                  "cars cross it. In 1998 it was painted green, to the anger of many people in the town.",
    "document_3": "The town has 41,000 inhabitants. Its market is held on Wednesdays and Saturdays. The castle on the hill burnt "
                  "down in 1702 and was not built up again; what is left of it can be visited from April to October.",
}
FIELDS = {"customer": "Maria Lopez", "quantities": [40, 3], "urgent": True}


def of_order(record):
    fields = json.loads(record["outputs"]["fields"])
    return {"customer": fields["customer"], "quantities": [item["quantity"] for item in fields["items"]], "urgent": fields["urgent"]}


def contains(record, output, *texts):
    return all(text in record["outputs"][output] for text in texts)


def passes(options, code, tests):
    """Whether the tests end without an error behind the code, in Baton's sandbox."""
    ran = baton(options, "run", ROOT / "tests/published/program.yaml", "-i", f"code={code}", "-i", f"tests={tests}")
    return "The tests pass." in ran["outputs"]["answer"]


# Workflow: inputs, and what its record must be like.
CASES = {
    "ask_with_tools": ({"user_question": "How many days are there from the 20th of February 2024 to the 5th of March 2024?"},
                       lambda record: contains(record, "facts", "14 days") and contains(record, "answer", "14")),
    "code_with_tests": ({"user_question": FUNCTION}, lambda record: "The examples pass." in record["agents"][-1]["output"] or any(
        turn["agent"] == "examples" and "The examples pass." in turn["output"] for turn in record["agents"])),
    "extract": ({"message": "Hi, this is Maria Lopez from the bakery. Could you send us 40 paper bags and 3 boxes of candles? We need "
                            "them by Friday morning, please hurry."}, lambda record: of_order(record) == FIELDS),
    "map_reduce": ({"user_question": "Which bridge opened first, and how long is it?", **DOCUMENTS},
                   lambda record: contains(record, "answer", "Elbow", "214")),
    "plan_and_execute": ({"user_question": "A baker sells 48 rolls in the morning and half as many in the afternoon, at 0.35 euros each. "
                                           "How much does she earn?"},
                         lambda record: float(record["outputs"]["answer"]) == 25.2 and contains(record, "sentence", "25.2")),
    "review": ({"task": "Invite the neighbours to a barbecue on Saturday at 5 pm in the garden, and ask who is vegetarian."},
               lambda record: contains(record, "text", "Saturday", "5 pm", "vegetarian") and float(record["outputs"]["sure"]) > 0.7),
    "team_gsm8k": ({"user_question": "A gardener plants 6 rows of 14 tulips. A quarter of the tulips do not grow. She sells the others at 2 "
                                     "euros each. How many euros does she get?"},
                   lambda record: float(record["outputs"]["answer"]) == 126),
    "team_humaneval": ({"user_question": INITIALS}, lambda record: contains(record, "answer", "```python", "def initials")),
    "team_mmlu": ({"user_question": "Which gas do plants take up from the air during photosynthesis? (A) Oxygen (B) Nitrogen (C) Carbon "
                                    "dioxide (D) Hydrogen"}, lambda record: record["outputs"]["answer"] == "C"),
}
# Workflow whose answer is code: the tests that it passes.
TESTS = {"team_humaneval": TESTS_OF_INITIALS}


def baton(options, *arguments):
    environment = dict(os.environ, BATON_MODEL=str(options.models / f"{options.model}.gguf"))
    program = options.bin / ("baton-lab" if arguments[0] == "eval" else "baton")
    ran = subprocess.run([program, *arguments, "--json", "-q"], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"baton {' '.join(map(str, arguments))}\n{ran.stderr}")
    return json.loads(ran.stdout)


def workflow(name):
    return ROOT / f"workflows/library/{name}.yaml"


def is_answered(options, name, *arguments):
    """Runs a case and prints its line."""
    inputs, is_right = CASES[name]
    record = baton(options, "run", workflow(name), *arguments, *(part for key, text in inputs.items() for part in ("-i", f"{key}={text}")))
    right = is_right(record) and (name not in TESTS or passes(options, record["outputs"]["answer"], TESTS[name]))
    line = " ".join([name, *arguments])
    print(f"{line}: {'right' if right else 'wrong'}, {record['wall_ms'] / 1000:.1f} s: {json.dumps(record['outputs'])[:300]}", flush=True)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", metavar="NAME", help="NAME.gguf of the folder")
    parser.add_argument("--only", choices=[*CASES, "router"])
    options = parser.parse_args()
    if not (options.models / f"{options.model}.gguf").is_file():
        print(f"skipped: the folder has no {options.model}.gguf")
        return 0
    approximate = [name for name in CASES if options.only in (None, name) and not is_answered(options, name)]
    wrong = sum(not is_answered(options, name, "--relay", "exact") for name in approximate)
    wrong += len(approximate) > MAX_APPROXIMATE
    if options.only in (None, "router"):
        found = baton(options, "eval", workflow("router"), "--dataset", REQUESTS, "--set", "defaults.max_tokens=1",
                      "--set", 'outputs.answer="{{ agent_dispatcher_answer }}"')["methods"][0]
        right = round(found["accuracy"] * found["questions"])
        wrong += right < LEAST_SORTED
        print(f"router: {right} of {found['questions']} requests sorted, at least {LEAST_SORTED} expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
