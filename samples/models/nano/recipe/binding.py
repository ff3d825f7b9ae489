# SPDX-License-Identifier: Apache-2.0
"""Hand-overs in which reused text needs its new prefix.

Two agents turn terse notes into long reports. The consumer alone gets the question, and with it what the
reports' words stand for. Questions join a key of one report with a value of the other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from problems import BOYS, GIRLS, ITEMS, held_out, slip

PEOPLE = BOYS[:8] + GIRLS[:8]
COLORS = "red blue green black white brown gray pink gold orange".split()
ORDINALS = "first second third fourth fifth sixth seventh eighth".split()
SYMBOLS = "bcdefgh"
WORDS = [*PEOPLE, *COLORS, *ORDINALS, *SYMBOLS]
FAMILIES = ("twohop", "join", "total")
TRAINED = (*FAMILIES, "symbols")  # the last was not learned, and is not in the held-out data
WEIGHTS = (1, 2, 2, 6)  # how often each is drawn in training


@dataclass(frozen=True)
class Case:
    family: str
    notes_a: str
    notes_b: str
    question: str
    report_a: str  # what the keeper writes
    report_b: str  # what the counter writes
    trace: str  # what the verifier looks up first, as it reads the question last
    work: tuple[str, ...]  # lines the resolver writes before its answer
    answer: int


def _lines(rows: list[str]) -> str:
    """Rows begin with a dash, so that a word has the same token everywhere: the one with a space."""
    return "\n".join("- " + row for row in rows)


def _notes(entries: list[str]) -> str:
    return "- " + ", ".join(entries)


SYMBOL_REPORTS = (
    lambda pairs: _lines([f"I have seen that {p} has to pay {s} coins at the shop for it." for p, s in pairs]),
    lambda pairs: _lines([f"I have counted everything: {p} has to pay {s} coins at the market for it." for p, s in pairs]),
)


def _box_case(rng: random.Random, family: str, count: int, listing: bool) -> Case:
    """The keeper knows whose box it is, the counter what is in it."""
    people, colors, item = rng.sample(PEOPLE, count), rng.sample(COLORS, count), rng.choice(ITEMS)
    values = rng.sample(range(10, 60), count)
    order = rng.sample(range(count), count)
    at, other = rng.sample(range(count), 2)
    trace = f"{people[at]}: {colors[at]}, {values[at]}."
    answer, work, asked = values[at], (), [at]
    if family == "total":
        question = f"How many {item} are in the boxes of {people[at]} and {people[other]} together?"
        trace += f" {people[other]}: {colors[other]}, {values[other]}."
        answer += values[other]
        asked.append(other)
        work = (f"{values[at]}+{values[other]}={answer}.",)
    else:
        question = f"How many {item} are in the box of {people[at]}?"
    if listing:
        question = f"List all people with their {item}. " + question
        asked = [i for i in range(count) if i not in asked] + asked
    work = (*(f"- {people[i]} {colors[i]} {values[i]}" for i in asked), *work)
    return Case(family, _notes([f"{p} {c}" for p, c in zip(people, colors)]),
                _notes([f"{colors[i]} {values[i]}" for i in order]), question,
                _lines([f"I have seen that {p} keeps the {c} box and everything that is in it." for p, c in zip(people, colors)]),
                _lines([f"I have counted everything: the {colors[i]} box has {values[i]} of them in it." for i in order]),
                trace, work, answer)


def _symbols_case(rng: random.Random, count: int, listing: bool) -> Case:
    """The keeper's report names prices by letters, and only the question says what they are."""
    people = rng.sample(PEOPLE, count)
    values = dict(zip(SYMBOLS, rng.sample(range(10, 60), 4)))
    paid = [rng.choice(list(values)) for _ in people]
    later = rng.sample(range(10, 60), count)
    order = rng.sample(range(count), count)
    at = rng.randrange(count)
    first, second = values[paid[at]], later[at]
    question = "Here " + ", ".join(f"{v} is {s}" for s, v in values.items()) + f". How many coins does {people[at]} pay?"
    asked = [at]
    if listing:
        question = "List all people with their coins. " + question
        asked = [i for i in range(count) if i != at] + asked
    work = (*(f"- {people[i]} {values[paid[i]]} {later[i]}" for i in asked), f"{first}+{second}={first + second}.")
    return Case("symbols", _notes([f"{p} {s}" for p, s in zip(people, paid)]), _notes([f"{people[i]} {later[i]}" for i in order]), question,
                SYMBOL_REPORTS[0](list(zip(people, paid))), SYMBOL_REPORTS[1]([(people[i], later[i]) for i in order]),
                f"{people[at]}: {paid[at]}, {second}.", work, first + second)


def draw(rng: random.Random, held: bool = False, family: str | None = None, count: int | None = None, listing: bool = False) -> Case:
    """A case with reports of 100 tokens or more; training also draws shorter ones, and ones that list all people."""
    chosen = family or rng.choice(FAMILIES)
    while True:
        entries = count or 6
        if chosen == "symbols":
            case = _symbols_case(rng, entries, listing)
        else:
            case = _box_case(rng, chosen, entries, listing or chosen == "join")
        if held_out(f"{case.notes_a}|{case.notes_b}|{case.question}") == held:
            return case


def resolver_answer(case: Case, wrong: random.Random | None = None) -> tuple[str, int]:
    """The resolver's text and its value; with `wrong` the value is off."""
    value = slip(wrong, case.answer) if wrong else case.answer
    return "\n".join((*case.work, f"The answer is {value}")), value


def verifier_answer(case: Case, claimed: int) -> str:
    verdict = "right" if claimed == case.answer else "wrong"
    work = tuple(line for line in case.work if not line.startswith("-"))
    return "\n".join((f"- {case.trace}", *work, f"I get {case.answer}. The resolver says {claimed}, that is {verdict}.", f"The answer is {case.answer}"))


def columns(rng: random.Random, count: int) -> list[list[str]]:
    """Two columns of words and one of numbers, as reports join them."""
    words = rng.sample([PEOPLE, PEOPLE, COLORS, COLORS, ORDINALS], 2)
    if words[0] is words[1]:
        words[1] = ORDINALS
    return [*(rng.sample(w, count) for w in words), rng.sample([str(n) for n in range(10, 60)], count)]
