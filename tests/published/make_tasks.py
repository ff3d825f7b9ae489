#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a dataset for `baton-lab eval` whose questions need two documents, with right answers that follow from how the
documents were made. Seeds of tuning and of tables differ; the same arguments give the same lines.

    make_tasks.py TASK --part tuning|tables --limit N > task.jsonl

The documents go to the inputs `first` and `second`, the question to `user_question` (tests/published/teams/two_documents.yaml).
    recall      one line of one document answers (the control: nothing has to be bound)
    hop         the first document says who keeps which box, the second what is in the boxes
    alias       the first gives code names to people, the second tells what the code names did
    order       the first lists guests, the second says what "the third guest" brought
    correct     the second corrects some lines of the first
    compare     ages of people in both; who is older?
    define      the first says how many pieces a container holds, the second who has how many containers
    route       the first says who lives in which town, the second which line goes to which town
"""

import argparse
import json
import random
import sys

NAMES = ["Mira", "Tom", "Jana", "Olaf", "Petra", "Karim", "Lena", "Hugo", "Nora", "Ivan", "Clara", "Felix", "Ruth", "Anton",
         "Selma", "Oscar", "Tilda", "Bruno", "Greta", "Simon"]
THINGS = ["lamp", "rope", "violin", "map", "kettle", "hammer", "mirror", "telescope", "basket", "drum", "clock", "ladder", "candle",
          "compass", "blanket", "whistle", "saddle", "anchor", "helmet", "bottle"]
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "brown", "grey", "purple", "orange", "silver", "golden"]
BIRDS = ["Falcon", "Heron", "Sparrow", "Raven", "Swan", "Eagle", "Finch", "Owl", "Crane", "Robin", "Stork", "Magpie"]
TOWNS = ["Arden", "Belmont", "Corvale", "Dunmore", "Elsworth", "Farley", "Glenrock", "Harwick", "Irving", "Keswick", "Linfield", "Marlow"]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
FILL = ["The notes were written in the morning.", "The list is kept in the office.", "It was checked twice.",
        "Nobody has complained since.", "The weather was fine that week.", "A copy lies in the archive."]


def document(lines: list[str], chance: random.Random) -> str:
    lines = lines + chance.sample(FILL, 3)
    chance.shuffle(lines)
    return "\n".join(lines)


def recall(chance):
    people, things = chance.sample(NAMES, 16), chance.sample(THINGS, 16)
    lines = [f"{person} bought a {thing}." for person, thing in zip(people, things)]
    asked = chance.randrange(16)
    return document(lines[:8], chance), document(lines[8:], chance), f"What did {people[asked]} buy?", things[asked]


def hop(chance):
    people, colours, things = chance.sample(NAMES, 8), chance.sample(COLOURS, 8), chance.sample(THINGS, 8)
    first = [f"{person} keeps the key of the {colour} box." for person, colour in zip(people, colours)]
    second = [f"The {colour} box holds a {thing}." for colour, thing in zip(colours, things)]
    asked = chance.randrange(8)
    return document(first, chance), document(second, chance), f"What is in the box whose key {people[asked]} keeps?", things[asked]


def alias(chance):
    people, birds, things = chance.sample(NAMES, 8), chance.sample(BIRDS, 8), chance.sample(THINGS, 8)
    first = [f"The code name of {person} is {bird}." for person, bird in zip(people, birds)]
    second = [f"{bird} carried the {thing}." for bird, thing in zip(birds, things)]
    asked = chance.randrange(8)
    return document(first, chance), document(second, chance), f"What did {people[asked]} carry?", things[asked]


def order(chance):
    people, things = chance.sample(NAMES, 8), chance.sample(THINGS, 8)
    first = "The guests came in this order:\n" + "\n".join(f"{number}. {person}" for number, person in enumerate(people, 1))
    second = [f"The {ordinal} guest brought a {thing}." for ordinal, thing in zip(ORDINALS, things)]
    asked = chance.randrange(8)
    return first, document(second, chance), f"What did {people[asked]} bring?", things[asked]


def correct(chance):
    people, things = chance.sample(NAMES, 10), chance.sample(THINGS, 16)
    first = [f"{person} bought a {thing}." for person, thing in zip(people, things)]
    wrong = chance.sample(range(10), 5)
    second = [f"Correction: {people[at]} did not buy what the list says, but a {things[10 + number]}." for number, at in enumerate(wrong)]
    asked = chance.choice(wrong)
    return document(first, chance), document(second, chance), f"After the corrections, what did {people[asked]} buy?", things[10 + wrong.index(asked)]


def compare(chance):
    people, ages = chance.sample(NAMES, 16), chance.sample(range(18, 90), 16)
    lines = [f"{person} is {age} years old." for person, age in zip(people, ages)]
    one, other = chance.randrange(8), 8 + chance.randrange(8)
    older = one if ages[one] > ages[other] else other
    both = [people[one], people[other]]
    chance.shuffle(both)
    return document(lines[:8], chance), document(lines[8:], chance), f"Who is older, {both[0]} or {both[1]}?", people[older]


def define(chance):
    words = chance.sample(["crate", "carton", "sack", "barrel", "tray", "chest"], 5)
    sizes = [chance.choice([2, 3, 4, 5, 6, 10]) for _ in words]
    people = chance.sample(NAMES, 8)
    counts = [chance.choice([2, 3, 4, 5]) for _ in people]
    held = [chance.randrange(5) for _ in people]
    first = [f"A {word} holds {size} apples." for word, size in zip(words, sizes)]
    second = [f"{person} has {count} {words[which]}s." for person, count, which in zip(people, counts, held)]
    asked = chance.randrange(8)
    return document(first, chance), document(second, chance), f"How many apples does {people[asked]} have?", str(counts[asked] * sizes[held[asked]])


def route(chance):
    people, towns = chance.sample(NAMES, 8), chance.sample(TOWNS, 8)
    lines = chance.sample(range(11, 99), 8)
    first = [f"{person} lives in {town}." for person, town in zip(people, towns)]
    second = [f"Bus {line} goes to {town}." for line, town in zip(lines, towns)]
    asked = chance.randrange(8)
    return document(first, chance), document(second, chance), f"Which bus goes to the town where {people[asked]} lives?", str(lines[asked])


TASKS = {"recall": recall, "hop": hop, "alias": alias, "order": order, "correct": correct, "compare": compare, "define": define, "route": route}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--part", choices=["tuning", "tables"], required=True)
    parser.add_argument("--limit", type=int, default=60, metavar="N")
    arguments = parser.parse_args()
    for number in range(arguments.limit):
        chance = random.Random(f"{arguments.task} {arguments.part} {number}")
        first, second, question, answer = TASKS[arguments.task](chance)
        print(json.dumps({"id": f"{arguments.task}-{arguments.part}-{number}",
                          "inputs": {"first": first, "second": second, "user_question": question},
                          "answer": answer, "check": "number" if answer.isdigit() else "f1"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
