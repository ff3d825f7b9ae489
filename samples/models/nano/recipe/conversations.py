# SPDX-License-Identifier: Apache-2.0
"""Role texts, prompts and gold answers: what every agent reads and writes in training.

A sample is a list of pieces. Each piece is tokenised on its own, as the engine does it: fixed text (with special
tokens), input values, answers of other agents. The last piece is the answer to learn.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import binding
from problems import BOYS, GIRLS, ITEMS, LARGEST, Line, Problem, apply, corrupt, draw, solve

ROLES = {
    "analyst": "You are a mathematical analyst. You will be given a math problem and maybe answers of other agents. "
               "Repeat the problem, name each quantity with a letter, then put in the numbers. The last line is only the final result.",
    "inspector": "You are an inspector. You will be given a math problem and answers of other agents. "
                 "Repeat the problem, solve it step by step, then check every answer and say which step is wrong. The last line is only the final result.",
    "solver": "You are a math expert. You will be given a math problem and hints of other agents. "
              "Repeat the problem, then give your own solution step by step. The last line is only the final result.",
    "decision_maker": "You are a decision maker. You will be given a math problem and solutions of other agents. "
                      "Check them against the problem and name those that are right. The last line is only the final result.",
    "keeper": "You are a keeper of notes. Write each note as a full sentence, one on a line, in the same order.",
    "counter": "You are a counter. Write each count as a full sentence, one on a line, in the same order.",
    "resolver": "You are a resolver. You will be given a question and two reports. Join what they say and answer the question. "
                "The last line is only the final result.",
    "verifier": "You are a verifier. You will be given two reports, an answer and a question. Find the result yourself, "
                "then say if the answer is right. The last line is only the final result.",
}
TITLES = {"analyst": "Analyst", "inspector": "Inspector", "solver": "Solver", "decision_maker": "Decision maker",
          "keeper": "Keeper", "counter": "Counter", "resolver": "Resolver", "verifier": "Verifier"}
MATH_ROLES = ("analyst", "inspector", "solver", "decision_maker")
RESULT = re.compile(r"The answer is (-?[0-9]+)")


@dataclass(frozen=True)
class Piece:
    text: str
    kind: str  # "fixed", "input", "answer" (of another agent) or "target"
    weight: float = 0.0  # of its tokens in the loss


@dataclass(frozen=True)
class Answer:
    label: str
    text: str
    values: tuple[int, ...]  # what each step claims
    right: bool


def claimed_values(text: str) -> tuple[int, ...]:
    """The result of every step of a solution, read from its text."""
    return tuple(int(v) for v in re.findall(r"=([0-9]+)[.,]", text))


def system_text(role: str) -> str:
    return f"<|im_start|>system\n{ROLES[role]}<|im_end|>\n<|im_start|>user\n"


ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"


def _equation(line: Line) -> str:
    return f"{line.left}{line.op}{line.right}={line.value}"


def _verdict(answer: Answer, own: tuple[int, ...]) -> str:
    said = ", ".join(map(str, answer.values)) or "nothing"
    if answer.values == own:
        return f"{answer.label}: {said}. Correct."
    at = next((i for i, (a, b) in enumerate(zip(answer.values, own)) if a != b), min(len(answer.values), len(own)))
    return f"{answer.label}: {said}. Step {at + 1} is {'wrong' if at < len(answer.values) else 'missing'}."


def _final(answer: Answer) -> str:
    found = RESULT.search(answer.text)
    return found.group(1) if found else "nothing"


def write(role: str, question: str, lines: list[Line], seen: list[Answer]) -> str:
    """The answer of a role that believes in `lines` and has seen the given answers."""
    own = tuple(line.value for line in lines)
    result = f"The answer is {own[-1]}"
    rows: list[str] = [] if role == "decision_maker" else [question]
    if role in ("analyst", "solver") and seen:
        rows.append("Hints: " + ", ".join(_final(a) for a in seen) + ".")
    if role == "analyst":
        for i, line in enumerate(lines):
            symbols = ["abcd"[r] if r >= 0 else str(v) for r, v in ((line.left_ref, line.left), (line.right_ref, line.right))]
            symbolic = f"{symbols[0]}{line.op}{symbols[1]}=" if max(line.left_ref, line.right_ref) >= 0 else ""
            rows.append(f"Let {'abcd'[i]} be {line.phrase}: {'abcd'[i]}={symbolic}{_equation(line)}.")
    elif role == "inspector":
        rows += [f"Step {i + 1}: {line.phrase}: {_equation(line)}." for i, line in enumerate(lines)]
        rows += [_verdict(answer, own) for answer in seen]
    elif role == "solver":
        words = ("First", "Then", "Next", "After that")
        rows += [f"{words[i]} I find {line.phrase}. They are {_equation(line)}." for i, line in enumerate(lines)]
    else:
        if seen:
            rows.append(" ".join(f"{a.label} says {_final(a)}." for a in seen))
        rows.append("Check: " + ", ".join(map(_equation, lines)) + ".")
        if seen:
            right = [a.label for a in seen if _final(a) == str(own[-1])]
            rows.append("Right: " + ("all." if len(right) == len(seen) else ", ".join(right) + "." if right else "none."))
    return "\n".join((*rows, result))


def _math_prompt(rng: random.Random, role: str, problem: Problem, seen: list[Answer]) -> list[Piece]:
    """The prompt of a math agent: mostly as in the shipped workflows, sometimes worded otherwise."""
    plain = rng.random() < 0.85
    system = system_text(role)
    if rng.random() < 0.08:  # only the first sentence of the role
        system = f"<|im_start|>system\n{ROLES[role].split('. ')[0]}.<|im_end|>\n<|im_start|>user\n"
    heading = "Question:\n" if plain else rng.choice(("Q: ", "Problem:\n", "", "Question: "))
    after_label = ":\n" if plain else rng.choice((" answered:\n", " said:\n", ":\n", ": "))
    before_label = "" if plain or rng.random() < 0.6 else "The "
    gap = "\n\n" if plain else rng.choice(("\n", "\n\n"))
    end = "\n" if rng.random() < 0.15 else ""
    question_last = bool(seen) and rng.random() < 0.25
    question = Piece(problem.question, "input", 0.02)
    pieces: list[Piece] = []
    fixed = system
    if not question_last:
        pieces += [Piece(fixed + heading, "fixed"), question]
        fixed = gap
    for i, answer in enumerate(seen):
        pieces += [Piece(f"{fixed}{before_label}{answer.label}{after_label}", "fixed"),
                   Piece(answer.text, "answer", 0.7 if answer.right and not question_last else 0.0)]
        fixed = gap
    if question_last:
        pieces += [Piece(fixed + heading, "fixed"), question]
    return [*pieces, Piece((end if pieces else fixed) + ASSISTANT, "fixed")]


def _labels(rng: random.Random, roles: list[str]) -> list[str]:
    style = rng.random()
    if style < 0.75:
        names = [TITLES[r] for r in roles]
    elif style < 0.88:
        names = list(roles)
    else:
        letters = rng.random() < 0.5
        return [f"Agent {'ABCDEFG'[i] if letters else i + 1}" for i in range(len(roles))]
    return [f"{n} {names[:i].count(n) + 1}" if n in names[:i] else n for i, n in enumerate(names)]


def math_sample(rng: random.Random) -> list[Piece]:
    """A prompt and gold answer for one agent of a math team of any of the topologies."""
    problem = draw(rng)
    gold = solve(problem.steps)
    if rng.random() < 0.65:  # the chain, up to one of its agents
        roles = list(MATH_ROLES[:rng.choices((1, 2, 3, 4), (2, 2, 2, 4))[0]])
        sees_all = True
    else:
        roles = [rng.choice(MATH_ROLES[:3]) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 6)))] + [rng.choice(MATH_ROLES)]
        sees_all = rng.random() < 0.5
    role = roles.pop()
    spoken: list[Answer] = []
    error_rate = rng.choice((0.0, 0.3, 0.3, 0.6))
    for speaker, label in zip(roles, _labels(rng, roles)):
        wrong = rng.random() < error_rate
        lines = corrupt(rng, problem) if wrong else gold
        text = write(speaker, problem.question, lines, spoken if sees_all else [])
        spoken.append(Answer(label, text, tuple(line.value for line in lines), not wrong))
    if rng.random() < 0.15:  # answers of the round before
        spoken = [Answer("Earlier " + a.label, a.text, a.values, a.right) for a in spoken]
    if not sees_all:
        rng.shuffle(spoken)
    return [*_math_prompt(rng, role, problem, spoken), Piece(write(role, problem.question, gold, spoken), "target", 1.0)]


def chain_sample(rng: random.Random, seed: int, texts: list[str]) -> list[Piece]:
    """An agent of the chain that reads what the model itself wrote for the problem of `seed`."""
    problem = draw(random.Random(seed))
    gold = solve(problem.steps)
    gold_values = tuple(line.value for line in gold)
    count = rng.randint(1, 3)
    spoken = [Answer(TITLES[role], text, claimed_values(text), claimed_values(text) == gold_values)
              for role, text in zip(MATH_ROLES, texts[:count])]
    role = MATH_ROLES[count]
    return [*_math_prompt(rng, role, problem, spoken), Piece(write(role, problem.question, gold, spoken), "target", 1.0)]


def math_prompt(role: str, question: str, answers: list[str], question_last: bool = False) -> list[Piece]:
    """The prompt of the shipped chain for one agent."""
    parts = [("Question:\n", question, "input")]
    said = [(f"{TITLES[r]}:\n", text, "answer") for r, text in zip(MATH_ROLES, answers)]
    return _assemble(role, said + parts if question_last else parts + said)


def _assemble(role: str, parts: list[tuple[str, str, str]]) -> list[Piece]:
    pieces: list[Piece] = []
    for heading, text, kind in parts:
        pieces += [Piece(("\n\n" if pieces else system_text(role)) + heading, "fixed"), Piece(text, kind)]
    return [*pieces, Piece(ASSISTANT, "fixed")]


def binding_prompt(role: str, case: binding.Case, reports: tuple[str, str], resolved: str) -> list[Piece]:
    """The prompt of the shipped binding team: the resolver reads the question first, the verifier last."""
    question = ("Question:\n", case.question, "input")
    read = [("Keeper:\n", reports[0], "answer"), ("Counter:\n", reports[1], "answer")]
    return _assemble(role, {"keeper": [("Notes:\n", case.notes_a, "input")],
                            "counter": [("Notes:\n", case.notes_b, "input")],
                            "resolver": [question, *read],
                            "verifier": [*read, ("Resolver:\n", resolved, "answer"), question]}[role])


def binding_sample(rng: random.Random, easy: bool) -> list[Piece]:
    """A prompt and gold answer for one agent of the binding team; easy ones are shorter and mostly list everything."""
    family = rng.choices(binding.TRAINED, binding.WEIGHTS)[0]
    case = binding.draw(rng, family=family, count=rng.randint(2, 5) if easy else None, listing=rng.random() < 0.5)
    role = rng.choices(("keeper", "counter", "resolver", "verifier"), (1, 1, 5, 2))[0]
    resolved, claimed = binding.resolver_answer(case, rng if rng.random() < 0.4 else None)
    target = {"keeper": case.report_a, "counter": case.report_b, "resolver": binding.resolver_answer(case)[0],
              "verifier": binding.verifier_answer(case, claimed)}[role]
    return [*binding_prompt(role, case, (case.report_a, case.report_b), resolved), Piece(target, "target", 1.0)]


def drill_sample(rng: random.Random, count: int) -> list[Piece]:
    """Plain equations, as they stand inside the answers."""
    pieces: list[Piece] = []
    while len(pieces) < 2 * count:
        op = rng.choice("++--**/")
        if op == "*":
            left, right = rng.randint(2, rng.choice((12, 30, 60))), rng.randint(2, 12)
            left, right = (left, right) if rng.random() < 0.7 else (right, left)
        elif op == "/":
            right = rng.randint(2, 12)
            left = right * rng.randint(1, LARGEST // right)
        else:
            left, right = (rng.randint(1, rng.choice((30, LARGEST))) for _ in range(2))
        value = apply(left, op, right)
        if value is not None:
            pieces += [Piece(f"{left}{op}{right}=", "fixed"), Piece(f"{value}.\n", "target", 1.0)]
    return pieces


def recall_sample(rng: random.Random, count: int) -> list[Piece]:
    """Lists of pairs, and questions about them. The words of a list may be bound by the list before it."""
    first, second, numbers = binding.columns(rng, count)
    kind = rng.choices(("number", "word", "both", "bound"), (2, 2, 3, 5))[0]
    pairs = lambda a, b: "- " + ", ".join(f"{x} {y}" for x, y in zip(a, b)) + "\n"
    order = rng.sample(range(count), count)
    lists, asked = [pairs(first, numbers if kind == "number" else second)], second if kind == "word" else numbers
    if kind == "both":
        lists.append(pairs([second[i] for i in order], [numbers[i] for i in order]))
        asked = [f"{a} {b}" for a, b in zip(second, numbers)]
    if kind == "bound":
        names = rng.sample(binding.SYMBOLS if rng.random() < 0.7 else binding.ORDINALS, count)
        asked = numbers if rng.random() < 0.6 else second
        lists = [pairs([f"{asked[i]} is" for i in order], [names[i] for i in order]), pairs(first, names)]
        if rng.random() < 0.6:  # as the reports of the binding team say it
            lists[1] = rng.choice(binding.SYMBOL_REPORTS)(list(zip(first, names))) + "\n"
    pieces = [Piece("".join(lists), "fixed")]
    length, line = 6 * count * len(lists), 8 if kind == "both" else 6  # tokens, about
    while length + line <= 122:
        for i in rng.sample(range(count), min(count, (122 - length) // line)):
            pieces += [Piece(f"- {first[i]}", "fixed"), Piece(f" {asked[i]}\n", "target", 1.0)]
            length += line
    return pieces
