#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a dataset for `baton-lab eval`, one question a line, from published data: docs/protocol.md says which questions are
for tuning and which for tables. The same files give the same lines.

    make_dataset.py math --part tables --data DIR --limit 200 > math.jsonl

DIR has gsm8k/{train,test}.jsonl, humaneval/HumanEval.jsonl.gz, 2wikimultihopqa/2wikimultihopqa_corpus.json and
mmlu-gemma.cpp/mmlu.json.
"""

import argparse
import gzip
import json
import pathlib
import random
import re
import sys

TUNING_PROBLEMS = 30   # of HumanEval
TUNING_CHOICES = 20    # of the MMLU sample
TABLE_PASSAGES = 3059  # the first passage that is for tables
MAX_WORDS = 120        # of a passage


def lines_of(file: pathlib.Path) -> list[dict]:
    opened = gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else open(file, encoding="utf-8")
    with opened:
        return [json.loads(line) for line in opened if line.strip()]


def math(data: pathlib.Path, part: str):
    name = "train" if part == "tuning" else "test"
    for number, problem in enumerate(lines_of(data / "gsm8k" / f"{name}.jsonl")):
        answer = problem["answer"].rsplit("####", 1)[1].strip().replace(",", "")
        yield {"id": f"gsm8k-{name}-{number}", "inputs": {"user_question": problem["question"]}, "answer": answer, "check": "number"}


def code(data: pathlib.Path, part: str):
    problems = lines_of(data / "humaneval" / "HumanEval.jsonl.gz")
    for problem in problems[:TUNING_PROBLEMS] if part == "tuning" else problems[TUNING_PROBLEMS:]:
        # The prompt itself is code: its imports and helpers stand before the answer's, which defines the function again.
        yield {"id": problem["task_id"], "inputs": {"user_question": problem["prompt"]},
               "check": {"setup": problem["prompt"], "python": f"{problem['test']}\ncheck({problem['entry_point']})\n"}}


def choice(data: pathlib.Path, part: str):
    samples = json.loads((data / "mmlu-gemma.cpp" / "mmlu.json").read_text(encoding="utf-8"))["samples"]
    for number, sample in enumerate(samples):
        if (number < TUNING_CHOICES) != (part == "tuning"):
            continue
        # The prompt shows solved questions first; the last one, unsolved, is the question.
        question = re.split(r"\n\nAnswer: [A-D]\n\n", sample["prompt"])[-1].rsplit("\n\nAnswer:", 1)[0]
        question = re.sub(r"^The following are multiple choice questions[^\n]*\n\n", "", question)
        yield {"id": f"mmlu-{number}-{sample['topic']}", "inputs": {"user_question": question},
               "answer": "ABCD"[sample["input_label"]], "check": "choice"}


MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
DATE = rf"(?:\d{{1,2}} {MONTH},? |{MONTH} \d{{1,2}}, )"


def birth_year(passage: dict) -> str | None:
    """Of a person: the year in the brackets behind the name."""
    brackets = re.search(r"\(([^()]*)\)", passage["text"][:160])
    if not brackets or "film" in passage["text"][:160]:
        return None
    found = re.match(rf"\s*(?:[^()]*\b)?born\s*(?:{DATE})?(\d{{4}})\b", brackets[1]) or \
        re.match(rf"\s*{DATE}(\d{{4}})\s*[-–—]", brackets[1])
    return found[1] if found else None


def film_year(passage: dict) -> str | None:
    found = re.match(r"[^.]{0,120}?\b(?:is|was) an? (\d{4})\b[^.]{0,80}\bfilm\b", passage["text"])
    return found[1] if found else None


def name_of(passage: dict) -> str:
    return re.sub(r"\s*\([^()]*\)$", "", passage["title"])


def passages(data: pathlib.Path, part: str):
    """Questions that need two passages: which of two was first, and the birth of a film's director."""
    every = json.loads((data / "2wikimultihopqa" / "2wikimultihopqa_corpus.json").read_text(encoding="utf-8"))
    half = every[:TABLE_PASSAGES] if part == "tuning" else every[TABLE_PASSAGES:]
    half = [passage for passage in half if len(passage["text"].split()) <= MAX_WORDS]
    titles = {passage["title"]: passage for passage in half}
    people = [passage for passage in half if birth_year(passage)]
    films = [passage for passage in half if film_year(passage)]
    chance = random.Random(0)

    def which_first(some: list[dict], year, question: str) -> list:
        some = list(some)
        chance.shuffle(some)
        made = []
        for first, second in zip(some[::2], some[1::2]):
            if year(first) == year(second) or name_of(first) == name_of(second):
                continue
            older = first if year(first) < year(second) else second
            made.append((question.format(name_of(first), name_of(second)), name_of(older), [first, second]))
        return made

    directed = []
    for film in films:
        found = re.search(r"\bdirected by ([A-Z][\w.'-]*(?: [A-Z][\w.'-]*)+)", film["text"])
        director = titles.get(found[1].rstrip(".")) if found else None
        if director is not None and birth_year(director):
            directed.append((f"In which year was the director of the film {name_of(film)} born?", birth_year(director), [film, director]))
    chance.shuffle(directed)
    kinds = [which_first(people, birth_year, "Who was born first, {} or {}?"), directed,
             which_first(films, film_year, "Which film was released first, {} or {}?")]
    number = 0
    while any(kinds):  # one of each kind after the other, as long as there are any
        for kind in kinds:
            if not kind:
                continue
            question, answer, two = kind.pop(0)
            two = list(two)
            chance.shuffle(two)
            text = "\n\n".join(f"{passage['title']}: {passage['text']}" for passage in two)
            yield {"id": f"2wiki-{part}-{number}", "inputs": {"passages": text, "user_question": question}, "answer": answer, "check": "f1"}
            number += 1


def decisions(data: pathlib.Path, part: str):
    """Documents of six passages, with three questions each that are decided between few answers."""
    every = json.loads((data / "2wikimultihopqa" / "2wikimultihopqa_corpus.json").read_text(encoding="utf-8"))
    half = every[:TABLE_PASSAGES] if part == "tuning" else every[TABLE_PASSAGES:]
    half = [passage for passage in half if len(passage["text"].split()) <= MAX_WORDS]
    chance = random.Random(1)
    people = [passage for passage in half if birth_year(passage)]
    films = [passage for passage in half if film_year(passage)]
    chance.shuffle(people)
    chance.shuffle(films)
    for number in range(min(len(people) // 4, len(films) // 2)):
        four, two = people[4 * number:4 * number + 4], films[2 * number:2 * number + 2]
        if len({birth_year(one) for one in four}) < 4 or film_year(two[0]) == film_year(two[1]):
            continue
        order = four + two
        chance.shuffle(order)
        options = "".join(f"\n{letter}. {name_of(one)}" for letter, one in zip("ABCD", four))
        oldest = min(four, key=birth_year)
        first, second = name_of(two[0]), name_of(two[1])
        right = ["first" if film_year(two[0]) < film_year(two[1]) else "second"]
        younger, older = four[0], four[1]
        claims = [f"{name_of(a)} was born before {name_of(b)}." for a, b in ((younger, older), (older, younger))]
        yield {"id": f"decisions-{part}-{number}",
               "inputs": {"passages": "\n\n".join(f"{one['title']}: {one['text']}" for one in order),
                          "options": f"Who was born first?{options}",
                          "films": f"Which film was released earlier, the first ({first}) or the second ({second})?",
                          "claims": f"Claim one: {claims[0]}\nClaim two: {claims[1]}"},
               "answer": "ABCD"[four.index(oldest)], "check": "choice",
               "right": {"chooser": "ABCD"[four.index(oldest)], "classifier": right[0],
                         "judge": "one" if birth_year(younger) < birth_year(older) else "two"}}


TEAMS = {"decisions": decisions, "math": math, "code": code, "choice": choice, "passages": passages}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("team", choices=sorted(TEAMS))
    parser.add_argument("--part", choices=["tuning", "tables"], required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="the first N questions; 0: all")
    arguments = parser.parse_args()
    try:
        for number, question in enumerate(TEAMS[arguments.team](arguments.data, arguments.part)):
            if arguments.limit and number == arguments.limit:
                break
            print(json.dumps(question, ensure_ascii=False))
    except FileNotFoundError as missing:
        print(f"make_dataset: {missing.filename}: no such file; --data names the folder of the published data", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
