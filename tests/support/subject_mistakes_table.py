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
ADMISSION = "engine/loop/admission.cpp"
LOOKUP = "engine/loop/kv_lookup.cpp"
RUN_LOOP = "workflows/run/run_loop.cpp"

SUBJECTS = [
    Subject("step-plan", "baton_test_engine", ["tests/engine/loop/step_plan_test.cpp"], [
        Mistake("the latest deadline goes first", PLAN, "sequences[a].deadline < sequences[b].deadline", "sequences[a].deadline > sequences[b].deadline"),
        Mistake("decoding sequences use up the rows of prompts", PLAN, "if (!sequences[i].decoding) left -= rows[i];", "left -= rows[i];"),
        Mistake("a chunk does not fill its tile", PLAN, "fill + (spare - fill) / kRowTile * kRowTile", "spare"),
        Mistake("the last rows of a prompt wait for a full tile", PLAN, "if (spare >= pending) return std::min(pending, max_rows);\n", ""),
        Mistake("siblings take rows before a step was measured", PLAN, "if (times.plain_ms <= 0.0) return 0;", "if (times.plain_ms <= 0.0) return max_rows;"),
        Mistake("a later prompt is not bound by the pace of decoding", PLAN, "one.prefilled < next->submitted", "next->submitted < one.prefilled"),
        Mistake("early prompts come first although an exact answer is written", PLAN, "!one.decoding || one.tentative", "one.has_early || one.tentative || true"),
        Mistake("a forced answer's draft is measured like a guess", PLAN, "kind == DraftKind::check || (kind == DraftKind::forced", "kind == DraftKind::check || (kind == DraftKind::guess"),
    ]),
    Subject("admission", "baton_test_engine", ["tests/engine/loop/admission_test.cpp"], [
        Mistake("requests that follow have no place", ADMISSION, "now.running + now.following < now.max_sequences", "now.running < now.max_sequences"),
        Mistake("the caches of requests that follow are not reserved", ADMISSION, "now.running_bytes + now.following_bytes + now.request_bytes", "now.running_bytes + now.request_bytes"),
        Mistake("a request waits for a probe", ADMISSION, "return now.has_probe ? Admit::drop_probe : Admit::wait;", "return Admit::wait;"),
        Mistake("a larger early prompt that is taken over is counted as the request's cache", ADMISSION, "std::max(now.request_bytes, now.own_early_bytes)", "now.request_bytes"),
        Mistake("a probe may fill the budget", ADMISSION, "now.budget_bytes / 2", "now.budget_bytes"),
        Mistake("a forced answer is written tentatively", ADMISSION, "request.forced.empty() && !has_choices", "!has_choices"),
    ]),
    Subject("kv-lookup", "baton_test_engine", ["tests/engine/loop/kv_lookup_test.cpp"], [
        Mistake("KV that is not ready counts", LOOKUP, "common(prompt, std::min(max_tokens, ready))", "common(prompt, max_tokens)"),
        Mistake("a stored prefix reaches into a text that becomes a segment", LOOKUP, "std::min(kv.stored, *max_prefix)", "kv.stored"),
        Mistake("a prompt waits for what its context has", LOOKUP, "std::max({kv.stored, kv.early, kv.context})", "std::max({kv.stored, kv.early})"),
        Mistake("a tentative prompt's text is taken", LOOKUP, "found.tentative || !takes_text", "!takes_text"),
        Mistake("a text is taken before its prompt is complete", LOOKUP, "found.complete ? TextStep::take : TextStep::wait", "TextStep::take"),
        Mistake("a text is taken once too often", LOOKUP, "hops >= reuse.max_hops", "hops > reuse.max_hops"),
    ]),
    Subject("speculation", "baton_test_engine", ["tests/engine/loop/speculation_test.cpp"], [
        Mistake("the oldest of equal matches is taken", SPECULATION, "match <= best.match", "match < best.match"),
        Mistake("a draft is longer than it may be", SPECULATION, "std::min(tokens.size() - end, static_cast<std::size_t>(max_tokens))", "tokens.size() - end"),
        Mistake("a match of one token makes a draft", SPECULATION, "match < kMinDraftMatch || match <= best.match", "match < 1 || match <= best.match"),
        Mistake("a draft takes more rows than a step has", SPECULATION, " && step.rows + n <= max_rows; ++n", "; ++n"),
        Mistake("a wrong draft counts as a right one", SPECULATION, "(right ? 1.0 : 0.0) - mean", "1.0 - mean"),
        Mistake("a slow step moves the mean without a limit", SPECULATION, "std::min(milliseconds, 2.0 * mean)", "milliseconds"),
        Mistake("a check is over before all tentative tokens were compared", SPECULATION, "!over && same == answer.end() && answer.size() < check_.size()", "!over && same == answer.end() && answer.empty()"),
        Mistake("a token behind the end of the answer is drafted", SPECULATION, "  if (over) return Chosen::other;\n", ""),
        Mistake("only drafts that run say how often drafts are right", SPECULATION, "if (match_ > 0) expected_", "if (match_ > 0 && tokens > 0) expected_"),
    ]),
    Subject("run-loop", "baton_test_workflows", ["tests/workflows/run/run_loop_test.cpp"], [
        Mistake("one need that is over is enough", RUN_LOOP, "return std::all_of(needs.begin(), needs.end()", "return needs.empty() || std::any_of(needs.begin(), needs.end()"),
        Mistake("the deciding turn is skipped when rounds end early", RUN_LOOP, "if (run.rounds_ended && !planned.decides)", "if (run.rounds_ended)"),
        Mistake("a round waits for the deciding turn", RUN_LOOP, "plan.turns[i].round <= round && !plan.turns[i].decides", "plan.turns[i].round <= round"),
        Mistake("a turn that waits for the host takes a place", RUN_LOOP, "TurnProgress::Phase::running) && !asks) ++count;", "TurnProgress::Phase::running)) ++count;"),
        Mistake("prompts wait for tools of turns before them", RUN_LOOP, "== AttemptPhase::preparing && plan.turns[i].tools.empty()) return false;", "== AttemptPhase::preparing) return false;"),
        Mistake("a run is suspended while turns work", RUN_LOOP, "std::none_of(run.turns.begin(), run.turns.end(), works)", "true"),
        Mistake("a run that ends waits for turns that never ran", RUN_LOOP, "if (run.ending) return turn.progress == TurnProgress::Phase::running;\n", ""),
        Mistake("a pause grows without a limit", RUN_LOOP, "* (1 << doublings), kMaxBackoff);", "* (1 << doublings), kMaxBackoff * 1000);"),
        Mistake("a turn fails the run although it is to be skipped", RUN_LOOP, "turn.on_error == OnError::fail;", "turn.on_error != OnError::fallback;"),
    ]),
]  # fmt: skip
