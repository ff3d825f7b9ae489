# SPDX-License-Identifier: Apache-2.0
"""The mistakes of tests/support/subject_mistakes.py: for each subject its test program, its test files and the mistakes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mistake:
    what: str
    file: str
    text: str  # stands in the file once
    instead: str
    also: tuple[str, ...] = ()  # further sources that have to see the change


@dataclasses.dataclass(frozen=True)
class Subject:
    name: str
    program: str  # the test program whose libraries are linked
    tests: list[str]
    mistakes: list[Mistake]


PLAN = "engine/loop/scheduler.cpp"

SUBJECTS = [
    Subject("step-plan", "baton_test_engine", ["tests/engine/loop/scheduler_test.cpp"], [
        Mistake("the latest deadline goes first", PLAN, "sequences[a].deadline < sequences[b].deadline", "sequences[a].deadline > sequences[b].deadline"),
        Mistake("decoding sequences use up the rows of prompts", PLAN, "if (!sequences[i].decoding) left -= rows[i];", "left -= rows[i];"),
        Mistake("a chunk does not fill its tile", PLAN, "fill + (spare - fill) / kRowTile * kRowTile", "spare"),
        Mistake("the last rows of a prompt wait for a full tile", PLAN, "if (spare >= pending) return std::min(pending, max_rows);\n", ""),
        Mistake("siblings take rows before a step was measured", PLAN, "if (times.plain_ms <= 0.0) return 0;", "if (times.plain_ms <= 0.0) return max_rows;"),
    ]),
]  # fmt: skip
