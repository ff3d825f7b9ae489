#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report.py RESULTS: from RESULTS/parts (tests/gpu/measure.sh) writes results.json, results.md and plots beside it.
Python's standard library only."""

import json
import pathlib
import sys

import plots
import tables


def read_json(file: pathlib.Path):
    """None where a part left nothing, or something that was cut off."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def whole_rows(result: dict) -> dict:
    """Without methods of which not all agents were measured, which one that was cut off can have."""
    for case in [result, *result.get("cases", [])]:
        most = max((len(method["agents"]) for method in case["methods"]), default=0)
        case["methods"] = [method for method in case["methods"] if method["agents"] and len(method["agents"]) == most]
    return result


def read_parts(folder: pathlib.Path) -> list[dict]:
    file = folder / "parts.tsv"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [dict(zip(("part", "state", "seconds", "why"), line.split("\t"))) for line in lines]


def agreement(reference: pathlib.Path, other: pathlib.Path) -> dict | None:
    """How far the answers of two devices are the same token for token, over all agents of all questions."""
    def answers(file):
        try:
            lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError):
            return {}
        return {line["id"]: line["tokens"] for line in lines if line["method"] == "full"}

    ours, theirs = answers(reference), answers(other)
    same_runs = same = answers_seen = common = tokens = 0
    for question in ours.keys() & theirs.keys():
        same_runs += ours[question] == theirs[question]
        for turn, left in ours[question].items():
            right = theirs[question].get(turn, [])
            prefix = next((i for i, pair in enumerate(zip(left, right)) if pair[0] != pair[1]), min(len(left), len(right)))
            answers_seen += 1
            same += left == right
            common += prefix
            tokens += max(len(left), len(right))
    if not answers_seen:
        return None
    return {"questions": len(ours.keys() & theirs.keys()), "runs_equal": same_runs / len(ours.keys() & theirs.keys()),
            "answers_equal": same / answers_seen, "tokens_before_first_difference": common / tokens}


def collect(folder: pathlib.Path) -> dict:
    parts = folder / "parts"
    def named(prefix):
        found = {file.stem[len(prefix):]: read_json(file) for file in sorted(parts.glob(f"{prefix}*.json"))}
        return {name: content for name, content in found.items() if content}

    def benches(part):
        return [whole_rows(one) for one in named(f"{part}-").values()]

    doctor = parts / "doctor.txt"
    launch = named("launch-")
    layers = None
    if {"10", "40"} <= launch.keys() and all(one["decode"] for one in launch.values()):
        step_ms = {name: 1000 / one["decode"][0]["tokens_per_s"] for name, one in launch.items()}
        layers = (step_ms["40"] - step_ms["10"]) / 30
    return {"schema": 1, "machine": doctor.read_text(encoding="utf-8").splitlines() if doctor.exists() else [],
            "parts": read_parts(parts), "rates": list(named("rates-").values()), "configs": named("config-"),
            **{part: benches(part) for part in ("agents", "grid", "scaling", "anchors", "memory", "hosted")},
            "peer": list(named("peer-").values()), "launch_ms_per_layer": layers, "load": named("load-").get("nano"),
            "team": named("team-"), "agreement": agreement(parts / "answers-cpu.jsonl", parts / "answers-cuda.jsonl")}


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    results = collect(folder)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(tables.markdown(results), encoding="utf-8")
    for name, svg in plots.all_plots(results).items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
