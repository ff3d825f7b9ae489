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


PLAN = "engine/loop/step_plan.cpp"
SPECULATION = "engine/loop/speculation.cpp"

SUBJECTS = [
    Subject("step-plan", "baton_test_engine", ["tests/engine/loop/step_plan_test.cpp"], [
        Mistake("the latest deadline goes first", PLAN, "sequences[a].deadline < sequences[b].deadline", "sequences[a].deadline > sequences[b].deadline"),
        Mistake("decoding sequences use up the rows of prompts", PLAN, "if (!sequences[i].decoding) left -= rows[i];", "left -= rows[i];"),
        Mistake("a chunk does not fill its tile", PLAN, "fill + (spare - fill) / kRowTile * kRowTile", "spare"),
        Mistake("the last rows of a prompt wait for a full tile", PLAN, "if (spare >= pending) return std::min(pending, max_rows);\n", ""),
        Mistake("siblings take rows before a step was measured", PLAN, "if (times.plain_ms <= 0.0) return 0;", "if (times.plain_ms <= 0.0) return max_rows;"),
    ]),
    Subject("speculation", "baton_test_engine", ["tests/engine/loop/speculation_test.cpp"], [
        Mistake("the oldest of equal matches is taken", SPECULATION, "match <= best.match", "match < best.match"),
        Mistake("a draft is longer than it may be", SPECULATION, "std::min(tokens.size() - end, static_cast<std::size_t>(max_tokens))", "tokens.size() - end"),
        Mistake("a match of one token makes a draft", SPECULATION, "match < kMinDraftMatch || match <= best.match", "match < 1 || match <= best.match"),
        Mistake("a draft takes more rows than a step has", SPECULATION, " && step.rows + n <= max_rows; ++n", "; ++n"),
        Mistake("a wrong draft counts as a right one", SPECULATION, "(right ? 1.0 : 0.0) - mean", "1.0 - mean"),
        Mistake("a slow step moves the mean without a limit", SPECULATION, "std::min(milliseconds, 2.0 * mean)", "milliseconds"),
    ]),
]  # fmt: skip
