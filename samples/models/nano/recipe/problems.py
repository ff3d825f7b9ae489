# SPDX-License-Identifier: Apache-2.0
"""Word problems of two to four steps, drawn from templates, and the mistakes agents make in them.

A template is text with numbers a, b, c, ... and a list of steps "phrase = left op right",
where an operand is a number of the question or an earlier step (s1, s2, ...).
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass

HELD_OUT_SHARE = 20  # one instantiation in this many is held out
LARGEST = 120  # no value exceeds this

BOYS = "Tom Ben Sam Leo Max Paul Jack Omar Ivan Hugo Luis Noah Adam Eric Karl Finn Yusuf Ravi".split()
GIRLS = "Anna Mia Zoe Lily Emma Sara Nina Ella Ruth Lena Maya Rosa Julia Clara Amina Vera Ines Tara".split()
ITEMS = "apples pens books stamps shells marbles cards stickers pears plums beads nuts buttons cups eggs toys candles".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
PLACES = "shop school farm library museum station market bakery".split()


@dataclass(frozen=True)
class Template:
    name: str
    text: str  # {a}..{e} numbers, {n} {m} people, {x} {y} items, {He} pronoun, [one|other] free choice
    ranges: str  # "a 2-9, b 2-12"
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    phrase: str
    left: int | str  # a number, or "s1" for the result of step 1
    op: str
    right: int | str


@dataclass(frozen=True)
class Problem:
    key: str  # template and numbers: what the held-out split hashes
    question: str
    numbers: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Line:
    """One worked step: the numbers that stand in it and the result that is claimed."""

    phrase: str
    left: int
    op: str
    right: int
    value: int
    left_ref: int  # index of the earlier line that `left` names, or -1
    right_ref: int


TEMPLATES = (
    Template("bags", "{n} [has|buys] {a} bags with {b} {x} in each bag. {He} gives {c} {x} to {m}. How many {x} does {n} have [left|now]?",
             "a 2-9, b 2-12, c 2-20", ("the {x} in the bags = a*b", "the {x} left = s1-c")),
    Template("boxes_extra", "There are {a} boxes with {b} {x} each. {n} [adds|brings] {c} more {x}. How many {x} are there [now|in total]?",
             "a 2-9, b 3-15, c 3-40", ("the {x} in the boxes = a*b", "the {x} in total = s1+c")),
    Template("savings", "{n} saves {a} coins [every|each] week for {b} weeks. Then {He0} [spends|pays] {c} coins on a [bag|hat|ball]. How many coins are left?",
             "a 3-15, b 2-9, c 4-40", ("the coins saved = a*b", "the coins left = s1-c")),
    Template("share_all", "{n} has {a} {x} and {m} has {b} {x}. They put them together and share them equally among {c} friends. How many {x} does each friend get?",
             "a 4-60, b 4-60, c 2-9", ("the {x} together = a+b", "the {x} for each friend = s1/c")),
    Template("read_book", "A book has {a} pages. {n} reads {b} pages [a|every] day for {c} days. How many pages are left [to read|unread]?",
             "a 60-120, b 5-20, c 2-9", ("the pages read = b*c", "the pages left = a-s1")),
    Template("two_kinds", "{n} buys {a} {x} for {b} coins each and {c} {y} for {d} coins each. How much does {He0} pay?",
             "a 2-9, b 2-12, c 2-9, d 2-12", ("the cost of the {x} = a*b", "the cost of the {y} = c*d", "the whole cost = s1+s2")),
    Template("change", "{n} pays for {a} {x} at {b} coins each with {c} coins. How many coins does {He0} get back [from the shop|]?",
             "a 2-9, b 2-12, c 20-100", ("the cost of the {x} = a*b", "the coins back = c-s1")),
    Template("bus", "A bus starts with {a} people. At the first stop {b} people get off and {c} get on. At the second stop {d} get off. How many people are on the bus?",
             "a 12-60, b 2-20, c 2-20, d 2-20", ("the people after getting off = a-b", "the people after getting on = s1+c", "the people on the bus = s2-d")),
    Template("rows", "A [hall|room] has {a} rows of {b} seats. {c} seats are [broken|taken]. How many seats are [free|good]?",
             "a 3-12, b 4-20, c 2-40", ("the seats in the rows = a*b", "the seats that remain = s1-c")),
    Template("times_more", "{n} has {a} {x}. {m} has {b} times as many {x} as {n}. How many {x} do they have together?",
             "a 3-30, b 2-9", ("the {x} of {m} = a*b", "the {x} together = a+s1")),
    Template("fewer", "{n} has {a} {x}. {m} has {b} fewer {x} than {n}. How many {x} do they have [together|in total]?",
             "a 10-90, b 2-40", ("the {x} of {m} = a-b", "the {x} together = a+s1")),
    Template("more_then_share", "{n} has {a} {x}. {m} has {b} more {x} than {n}. {m} shares {m_his} {x} equally among {c} friends. How many {x} does each friend get?",
             "a 5-50, b 3-40, c 2-9", ("the {x} of {m} = a+b", "the {x} for each friend = s1/c")),
    Template("work", "{n} works {a} hours on {d1} and {b} hours on {d2}. {He} earns {c} coins an hour. How many coins does {He0} earn?",
             "a 2-9, b 2-9, c 5-20", ("the hours in all = a+b", "the coins earned = s1*c")),
    Template("work_spend", "{n} works {a} hours on {d1} and {b} hours on {d2} for {c} coins an hour. Then {He0} spends {d} coins. How many coins are left?",
             "a 2-9, b 2-9, c 4-15, d 5-60", ("the hours in all = a+b", "the coins earned = s1*c", "the coins left = s2-d")),
    Template("packs", "{n} needs {a} {x}. {He} [already has|has] {b} {x}. The {x} come in packs of {c}. How many packs must {He0} buy?",
             "a 20-99, b 2-40, c 2-12", ("the {x} still needed = a-b", "the packs to buy = s1/c")),
    Template("bake", "{n} bakes {a} trays with {b} cakes each. {He} eats {c} cakes and puts the rest equally on {d} plates. How many cakes are on each plate?",
             "a 2-9, b 3-12, c 1-12, d 2-9", ("the cakes baked = a*b", "the cakes that remain = s1-c", "the cakes on each plate = s2/d")),
    Template("farm", "A farm has {a} hens and {b} cows. Hens have {c} legs and cows have {d} legs. How many legs are there?",
             "a 3-30, b 2-20, c 2-2, d 4-4", ("the legs of the hens = a*c", "the legs of the cows = b*d", "the legs in total = s1+s2")),
    Template("trees", "{n} plants {a} rows of {b} trees. {c} trees die in winter. In spring {He0} plants {d} more. How many trees are there [now|at the end]?",
             "a 2-12, b 3-12, c 2-20, d 2-30", ("the trees planted first = a*b", "the trees after winter = s1-c", "the trees at the end = s2+d")),
    Template("distance", "{n} rides {a} km an hour for {b} hours and then walks {c} km. How many km does {He0} travel?",
             "a 6-25, b 2-9, c 2-20", ("the km of the ride = a*b", "the km in total = s1+c")),
    Template("distance_back", "The [{p}|town] is {a} km away. {n} rides there and back {b} times. Then {He0} rides {c} km more. How many km does {He0} ride?",
             "a 2-20, b 2-8, c 2-30", ("the km there and back = a+a", "the km of all trips = s1*b", "the km in total = s2+c")),
    Template("tank", "A tank holds {a} liters of water. {b} liters [run out|are used] each hour for {c} hours. Then {d} liters are added. How many liters are in the tank?",
             "a 60-120, b 3-15, c 2-9, d 5-50", ("the liters used = b*c", "the liters that remain = a-s1", "the liters at the end = s2+d")),
    Template("tickets", "{a} adults and {b} children go to the {p}. An adult pays {c} coins and a child pays {d} coins. How many coins do they pay [together|in all]?",
             "a 2-12, b 2-12, c 5-15, d 2-9", ("the coins of the adults = a*c", "the coins of the children = b*d", "the coins in all = s1+s2")),
    Template("class", "A class has {a} girls and {b} boys. They form groups of {c}. Each group gets {d} {x}. How many {x} are needed?",
             "a 6-30, b 6-30, c 2-9, d 2-9", ("the children in class = a+b", "the groups = s1/c", "the {x} needed = s2*d")),
    Template("sell", "{n} sells {a} {x} for {b} coins each. {He} paid {c} coins for all of them. How many coins does {He0} gain?",
             "a 3-15, b 2-12, c 5-60", ("the coins from the sale = a*b", "the coins gained = s1-c")),
    Template("three_days", "On {d1} {n} finds {a} {x}, on {d2} {b} more than on {d1}, and on {d3} {c} {x}. How many {x} does {He0} find in total?",
             "a 4-40, b 2-20, c 3-40", ("the {x} on {d2} = a+b", "the {x} of both days = a+s1", "the {x} in total = s2+c")),
    Template("age", "{n} is {a} years old. {m} is {b} times as old as {n}. How old will {m} be in {c} years?",
             "a 3-15, b 2-6, c 2-20", ("the age of {m} = a*b", "the age of {m} later = s1+c")),
    Template("age_gap", "{n} is {a} years old and {m} is {b} years younger. {k} is {c} times as old as {m}. How old is {k}?",
             "a 8-30, b 2-20, c 2-6", ("the age of {m} = a-b", "the age of {k} = s1*c")),
    Template("crates", "A truck carries {a} crates with {b} {x} each. At the {p} {c} crates are unloaded. How many {x} remain on the truck?",
             "a 6-20, b 4-12, c 2-12", ("the crates that remain = a-c", "the {x} that remain = s1*b")),
    Template("collect", "{n} collects {a} {x} a day for {b} days. {m} collects {c} {x} a day for {d} days. How many more {x} does {n} have than {m}?",
             "a 4-15, b 3-9, c 2-10, d 2-9", ("the {x} of {n} = a*b", "the {x} of {m} = c*d", "the {x} {n} has more = s1-s2")),
    Template("bill", "{n} and {c1} friends eat [at the market|together]. The food costs {a} coins and the drinks cost {b} coins. All {c} people pay the same. How much does each pay?",
             "a 12-80, b 4-40, c 3-9", ("the whole bill = a+b", "the coins each pays = s1/c")),
    Template("discount", "A {toy} costs {a} coins. The {p} lowers the price by {b} coins. {n} buys {c} of them and pays with {d} coins. How many coins does {He0} get back?",
             "a 8-40, b 2-15, c 2-9, d 40-120", ("the new price = a-b", "the cost of all = s1*c", "the coins back = d-s2")),
    Template("machine", "A machine makes {a} {x} in {b} minutes. How many {x} does it make in {c} minutes, if {d} of them are thrown away?",
             "a 6-60, b 2-9, c 2-15, d 1-20", ("the {x} in one minute = a/b", "the {x} made = s1*c", "the {x} kept = s2-d")),
    Template("ribbon", "{n} has a ribbon of {a} cm. {He} cuts off {b} pieces of {c} cm each and shares the rest equally among {d} children. How many cm does each child get?",
             "a 40-120, b 2-8, c 3-12, d 2-6", ("the cm cut off = b*c", "the cm that remain = a-s1", "the cm for each child = s2/d")),
    Template("album", "{n} has {a} {x} and buys {b} packs with {c} {x} each. {He} gives {d} {x} to {m} and loses {e}. How many {x} are left?",
             "a 5-60, b 2-9, c 3-10, d 2-20, e 1-12",
             ("the {x} in the packs = b*c", "the {x} after buying = a+s1", "the {x} after giving = s2-d", "the {x} left = s3-e")),
)


def apply(left: int, op: str, right: int) -> int | None:
    """The result, or None where it is no whole number from 1 to LARGEST."""
    if op == "/":
        if right == 0 or left % right:
            return None
        value = left // right
    else:
        value = {"+": left + right, "-": left - right, "*": left * right}[op]
    return value if 0 < value <= LARGEST else None


def held_out(key: str) -> bool:
    """Whether the instantiation belongs to the held-out data; training never draws those."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % HELD_OUT_SHARE == 0


def solve(steps: tuple[Step, ...]) -> list[Line] | None:
    lines: list[Line] = []
    for step in steps:
        refs = [int(x[1:]) - 1 if isinstance(x, str) else -1 for x in (step.left, step.right)]
        left, right = (lines[r].value if r >= 0 else int(x) for r, x in zip(refs, (step.left, step.right)))
        value = apply(left, step.op, right)
        if value is None:
            return None
        lines.append(Line(step.phrase, left, step.op, right, value, *refs))
    return lines


def draw(rng: random.Random, held: bool = False) -> Problem:
    """A problem from the training half of the instantiations, or from the held-out one."""
    template = rng.choice(TEMPLATES)
    while True:
        numbers = {}
        for part in template.ranges.split(", "):
            letter, low, high = re.fullmatch(r"(\w) (\d+)-(\d+)", part).groups()
            numbers[letter] = rng.randint(int(low), int(high))
        key = f"{template.name} {sorted(numbers.items())}"
        if held_out(key) != held:
            continue
        people = rng.sample(BOYS + GIRLS, 3)
        days = rng.sample(DAYS, 3)
        x, y = rng.sample(ITEMS, 2)
        he = "He" if people[0] in BOYS else "She"
        words = {**numbers, "n": people[0], "m": people[1], "k": people[2], "x": x, "y": y, "He": he, "He0": he.lower(),
                 "m_his": "his" if people[1] in BOYS else "her", "d1": days[0], "d2": days[1], "d3": days[2],
                 "p": rng.choice(PLACES), "toy": rng.choice(("lamp", "chair", "shirt", "game", "ball", "clock")),
                 "c1": numbers.get("c", 1) - 1}
        steps = []
        for line in template.steps:
            phrase, left, op, right = re.fullmatch(r"(.*) = (\w+)([-+*/])(\w+)", line.format_map(words)).groups()
            steps.append(Step(phrase, numbers.get(left, left), op, numbers.get(right, right)))
        if solve(tuple(steps)) is None:
            continue
        text = re.sub(r"\[([^]]*)\]", lambda m: rng.choice(m.group(1).split("|")), template.text)
        question = re.sub(r" (?=[?.])", "", text.format_map(words))
        return Problem(key, question, tuple(numbers.values()), tuple(steps))


def slip(rng: random.Random, value: int) -> int:
    """An arithmetic slip: a wrong digit, or one too many or too few."""
    kind = rng.random()
    if kind < 0.5:
        wrong = value + rng.choice((-10, -2, -1, 1, 2, 10))
    elif kind < 0.8:
        digits = list(str(value))
        digits[rng.randrange(len(digits))] = str(rng.randrange(10))
        wrong = int("".join(digits))
    else:
        wrong = value + rng.randint(-20, 20)
    return wrong if 0 < wrong <= LARGEST and wrong != value else value + 1


def corrupt(rng: random.Random, problem: Problem) -> list[Line]:
    """A worked solution with one natural mistake; its final value is wrong."""
    right_value = solve(problem.steps)[-1].value
    while True:
        steps = list(problem.steps)
        at = rng.randrange(len(steps))
        kind = rng.choice(("operation", "number", "slip", "slip", "missing"))
        step = steps[at]
        slip_at = -1
        if kind == "operation":
            steps[at] = Step(step.phrase, step.left, rng.choice("+-*/"), step.right)
        elif kind == "number":
            wrong = rng.choice(problem.numbers) if rng.random() < 0.7 else rng.randint(2, 30)
            side = rng.random() < 0.5
            steps[at] = Step(step.phrase, wrong if side else step.left, step.op, step.right if side else wrong)
        elif kind == "slip":
            slip_at = at
        elif at == len(steps) - 1:
            steps.pop()
        else:
            continue
        lines: list[Line] = []
        for i, step in enumerate(steps):
            refs = [int(x[1:]) - 1 if isinstance(x, str) else -1 for x in (step.left, step.right)]
            left, right = (lines[r].value if r >= 0 else int(x) for r, x in zip(refs, (step.left, step.right)))
            value = apply(left, step.op, right)
            if value is None:
                break
            lines.append(Line(step.phrase, left, step.op, right, slip(rng, value) if i == slip_at else value, *refs))
        if len(lines) == len(steps) and lines[-1].value != right_value:
            return lines
