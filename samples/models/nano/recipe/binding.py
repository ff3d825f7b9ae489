"""Hand-overs in which reused text needs its new prefix.

Two agents turn terse notes into long reports. The consumer alone gets the question, and with it what the
reports' words stand for: symbols, units, "the first one". Some questions join a key of one report with a value
of the other. The answers are short, so the consumer must bind while it reads.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from problems import BOYS, GIRLS, ITEMS, apply, held_out, slip

COLORS = "red blue green black white brown gray pink gold orange purple silver".split()
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
GOODS = "pen book ruler bag cup lamp hat ball brush spoon".split()
SYMBOLS = "abcdefgh"
TARGETS = "pqrstuvwxyz"
FAMILIES = ("twohop", "join", "total", "symbols", "ordinal", "units")


@dataclass(frozen=True)
class Case:
    family: str
    notes_a: str
    notes_b: str
    question: str
    report_a: str  # what the keeper writes
    report_b: str  # what the counter writes
    work: tuple[str, ...]  # lines the resolver writes before its answer
    answer: int


def _lines(rows: list[str]) -> str:
    """Rows begin with a dash, so that a name has the same token everywhere: the one with a space."""
    return "\n".join("- " + row for row in rows)


def _notes(entries: list[str]) -> str:
    return "- " + ", ".join(entries)


def _boxes(rng: random.Random, count: int) -> tuple[list[str], list[str], list[int], str, list[int]]:
    people = rng.sample(BOYS + GIRLS, count)
    colors = rng.sample(COLORS, count)
    values = [rng.randint(2, 60) for _ in range(count)]
    return people, colors, values, rng.choice(ITEMS), rng.sample(range(count), count)


def _people_case(rng: random.Random, family: str, count: int) -> Case:
    people, colors, values, item, order = _boxes(rng, count)
    at, other = rng.sample(range(count), 2)
    question = f"How many {item} are in the box of {people[at]}?"
    work: tuple[str, ...] = ()
    answer = values[at]
    if family == "join":
        question = f"List all people with their {item}. " + question
        work = tuple(f"- {p} {c} {v}" for p, c, v in zip(people, colors, values))
    if family == "total":
        question = f"How many {item} are in the boxes of {people[at]} and {people[other]} together?"
        answer += values[other]
        work = (f"{values[at]}+{values[other]}={answer}.",)
    return Case(family, _notes([f"{p} {c}" for p, c in zip(people, colors)]),
                _notes([f"{colors[i]} {values[i]}" for i in order]), question,
                _lines([f"{p} keeps everything in the {c} box." for p, c in zip(people, colors)]),
                _lines([f"I have counted {values[i]} in the {colors[i]} box." for i in order]), work, answer)


def _ordinal_case(rng: random.Random, count: int) -> Case:
    people, colors, values, item, order = _boxes(rng, count)
    at = rng.randrange(count)
    names = ", ".join(f"the {ORDINALS[i]} one is the {c} box" for i, c in enumerate(colors))
    question = f"They are {item}, and {names}. How many {item} are in the {colors[at]} box?"
    owners = rng.sample(range(count), count)
    return Case("ordinal", _notes([f"{p} {ORDINALS[o]}" for p, o in zip(people, owners)]),
                _notes([f"{ORDINALS[i]} {values[i]}" for i in order]), question,
                _lines([f"{p} is the owner of the {ORDINALS[o]} one." for p, o in zip(people, owners)]),
                _lines([f"There are {values[i]} of them in the {ORDINALS[i]} one." for i in order]), (), values[at])


def _units_case(rng: random.Random, count: int) -> Case:
    people, _, extra, item, order = _boxes(rng, count)
    units = ("packs", "cases", "bags")
    sizes = [rng.randint(2, 9) for _ in units]
    kinds = [rng.randrange(len(units)) for _ in people]
    packs = [rng.randint(2, 6) for _ in people]
    at = rng.randrange(count)
    sizes_text = ", ".join(f"{unit} of {size}" for unit, size in zip(units, sizes))
    product = packs[at] * sizes[kinds[at]]
    return Case("units", _notes([f"{p} {n} {units[k]}" for p, n, k in zip(people, packs, kinds)]),
                _notes([f"{people[i]} {extra[i]}" for i in order]),
                f"The {item} come in {sizes_text}. How many {item} does {people[at]} have?",
                _lines([f"{p} has bought {n} {units[k]} of them." for p, n, k in zip(people, packs, kinds)]),
                _lines([f"{people[i]} has found {extra[i]} single ones." for i in order]),
                (f"{packs[at]}*{sizes[kinds[at]]}={product}.", f"{product}+{extra[at]}={product + extra[at]}."),
                product + extra[at])


def _symbols_case(rng: random.Random, count: int) -> Case:
    goods = rng.sample(GOODS, min(count, len(SYMBOLS)))
    values = [rng.randint(2, 60) for _ in goods]
    bound = dict(zip(SYMBOLS, values))
    targets = rng.sample(TARGETS, 6)
    rules, results = [], dict(bound)
    for i, target in enumerate(targets):
        while True:
            left = targets[i - 1] if i % 2 else rng.choice(list(bound))
            right, op = rng.choice([s for s in bound if s != left]), rng.choice("+-")
            value = apply(results[left], op, results[right])
            if value is not None:
                break
        results[target] = value
        rules.append((target, left, op, right))
    at = rng.choice((1, 3, 5))  # odd rules build on the rule before them
    chain = [rules[at - 1], rules[at]]
    order = rng.sample(range(len(goods)), len(goods))
    binding = ", ".join(f"{s} the {g}" for s, g in zip(bound, goods))
    rows = {"+": "To get {0}, start from {1} and then add {3}.", "-": "To get {0}, start from {1} and then take away {3}."}
    return Case("symbols", _notes([f"{t} = {x} {op} {y}" for t, x, op, y in rules]),
                _notes([f"{goods[i]} {values[i]}" for i in order]),
                f"Let {binding}. What is {targets[at]}?",
                _lines([rows[rule[2]].format(*rule) for rule in rules]),
                _lines([f"The price of the {goods[i]} is {values[i]} coins." for i in order]),
                tuple(f"{results[x]}{op}{results[y]}={results[t]}." for t, x, op, y in chain), results[targets[at]])


def draw(rng: random.Random, held: bool = False, family: str | None = None, easy: bool = False) -> Case:
    """A case with reports of about 100 tokens each; `easy` ones are shorter, for the start of training."""
    chosen = family or rng.choice(FAMILIES)
    while True:
        count = rng.randint(2, 5) if easy else rng.randint(6, 9)
        if chosen == "ordinal":
            case = _ordinal_case(rng, count)
        elif chosen == "units":
            case = _units_case(rng, count)
        elif chosen == "symbols":
            case = _symbols_case(rng, max(3, min(count, 8)))
        else:
            case = _people_case(rng, chosen, count)
        if held_out(f"{case.notes_a}|{case.notes_b}|{case.question}") == held:
            return case


def resolver_answer(case: Case, wrong: random.Random | None = None) -> tuple[str, int]:
    """The resolver's text and its value; with `wrong` the value is off."""
    value = slip(wrong, case.answer) if wrong else case.answer
    return "\n".join((*case.work, f"The answer is {value}")), value


def verifier_answer(case: Case, claimed: int) -> str:
    verdict = "right" if claimed == case.answer else "wrong"
    work = case.work if case.family != "join" else ()
    return "\n".join((*work, f"I get {case.answer}. The resolver says {claimed}, that is {verdict}.", f"The answer is {case.answer}"))
