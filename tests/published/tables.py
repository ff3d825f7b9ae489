#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of docs/protocol.md for one model and one team, and continues where it was interrupted.

    tables.py kl --model smollm2-135m --team math --models-dir DIR --data DIR

OUT/TEAM has the datasets; OUT/MODEL-TEAM a link to the model, what Baton measured at its first use, the finished questions
(KIND-N.jsonl), the methods that cannot reach their fraction, what `baton-lab eval --json` printed (KIND-N.json) and the table
(KIND-N.md).
"""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FRACTIONS = ["0.8", "0.85", "0.9"]
BASELINES = ["epic", "cacheblend", "rectify:preset=paper"]
QUESTIONS = {"kl": {"code": 48, "math": 48, "passages": 48, "choice": 48},
             "accuracy": {"code": 134, "math": 200, "passages": 200, "choice": 63}}
DRAWS = 2000


class Stop(Exception):
    """What ends the program, in one line."""


def with_reuse(method: str, fraction: str) -> str:
    return f"{method}{';' if ':' in method else ':'}reuse={fraction}"


def methods_of(kind: str, ours: list[str]) -> list[str]:
    """As docs/protocol.md lists them."""
    fractions = FRACTIONS if kind == "kl" else FRACTIONS[:1]
    methods = ["full", "direct"]
    for fraction in fractions:
        methods += [with_reuse(method, fraction) for method in [*BASELINES, *ours]]
    if kind == "kl":
        methods += ["epic:epic_tokens=16", "cacheblend:cacheblend_share=0.15", "rectify:preset=paper"]
    return methods


def run(command: list[str], environment: dict, capture: bool = False) -> subprocess.CompletedProcess:
    print("+ " + " ".join(command), file=sys.stderr, flush=True)
    return subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE if capture else None,
                          stderr=subprocess.PIPE if capture else None, check=False)


def dataset(team: str, part: str, arguments, folder: pathlib.Path) -> pathlib.Path:
    file = folder / f"{part}.jsonl"
    command = [sys.executable, str(ROOT / "tests/published/make_dataset.py"), team, "--part", part, "--data", str(arguments.data)]
    made = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=False)
    if made.returncode != 0:
        raise Stop(f"{part} data of team {team} could not be made")
    if not file.exists() or file.read_text(encoding="utf-8") != made.stdout:
        file.write_text(made.stdout, encoding="utf-8")
    return file


def evaluate(kind: str, methods: list[str], command: list[str], folder: pathlib.Path, name: str, environment: dict) -> tuple[dict, list[str]]:
    """Runs eval; methods that cannot reach their fraction are left out. Returns its JSON and those methods."""
    log, unreachable = folder / f"{name}.jsonl", folder / f"{name}.unreachable.json"
    missing = json.loads(unreachable.read_text(encoding="utf-8")) if unreachable.exists() else []
    methods = [method for method in methods if method not in missing]
    while True:
        asked = [*command, "--methods", ",".join(methods), "--resume", str(log), "--json", "-q"]
        if kind == "kl":
            asked.append("--forced-only")
        done = run(asked, environment, capture=True)
        sys.stderr.write(done.stderr)
        beyond = re.search(r"--methods (\S+): .*cannot reuse", done.stderr, re.DOTALL)
        if beyond and beyond[1] in methods:
            missing.append(beyond[1])
            methods.remove(beyond[1])
            unreachable.write_text(json.dumps(missing) + "\n", encoding="utf-8")
            if log.exists() and log.read_bytes().count(b"\n") == 1:  # the settings, and no question
                log.unlink()
            continue
        if done.returncode != 0:
            raise Stop(f"baton-lab eval ended with {done.returncode}; the same command continues it")
        return json.loads(done.stdout), missing


def sums_of(log: pathlib.Path) -> list[list[tuple[float, int]]]:
    """By method, then question: the sum of the KL over the compared tokens, and their number."""
    questions = {}
    for line in log.read_text(encoding="utf-8").splitlines()[1:]:
        outcome = json.loads(line)
        questions[outcome["id"]] = [(sum(sum(turn["kl"]) for turn in method["distances"].values()),
                                     sum(len(turn["kl"]) for turn in method["distances"].values())) for method in outcome["methods"]]
    columns = [questions[key] for key in sorted(questions)]
    return [list(method) for method in zip(*columns)]


def ratio(a: list[tuple[float, int]], b: list[tuple[float, int]]) -> tuple[float, float, float] | None:
    """mean KL of a / mean KL of b, with the 95 % bootstrap interval over questions."""
    def of(some) -> float | None:
        above, below = sum(a[i][0] for i in some), sum(b[i][0] for i in some)
        return above / below if below > 0 else None
    chance = random.Random(0)
    n = len(a)
    draws = sorted(value for value in (of([chance.randrange(n) for _ in range(n)]) for _ in range(DRAWS)) if value is not None)
    whole = of(range(n))
    if whole is None or not draws:
        return None
    return whole, draws[round(0.025 * (len(draws) - 1))], draws[round(0.975 * (len(draws) - 1))]


def name_of(method: dict) -> str:
    settings = [f"{key}={value}" for key, value in method["params"].items() if key != "agents"]
    return method["method"] + (":" + ";".join(settings) if settings else "")


def kl_table(found: dict, log: pathlib.Path, missing: list[str]) -> str:
    sums = sums_of(log)
    methods = found["methods"]
    direct = next(i for i, method in enumerate(methods) if method["method"] == "direct")
    lines = ["| method | reuse | KL mean | 95 % | of direct's | 95 % | turns within 0.02 | agreement |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for i, method in enumerate(methods):
        if method["method"] == "full":
            continue
        part = ratio(sums[i], sums[direct])
        low, high = method["kl_mean_interval"]
        of_direct = f"{part[0]:.3f} | {part[1]:.3f} to {part[2]:.3f}" if part else "- | -"
        lines.append(f"| `{name_of(method)}` | {100 * method['kv_reuse_rate']:.1f} % | {method['kl_mean']:.2e} | {low:.1e} to {high:.1e} | "
                     f"{of_direct} | {100 * method['turns_within_tolerance']:.1f} % | {100 * method['greedy_agreement']:.2f} % |")
    lines += [f"| `{method}` | not reachable | | | | | | |" for method in missing]
    floor = found["noise_floor"]["kl_mean"]
    if floor is not None:
        lines.append(f"| noise floor | | {floor:.2e} | | | | | |")
    lines.append("")
    for fraction in FRACTIONS:  # targets 1 and 2
        rows = {name_of(m): m["kl_mean"] for m in methods if m["params"].get("reuse") == fraction}
        ours = {name: kl for name, kl in rows.items() if name.startswith("rectify") and "preset" not in name}
        others = {name: kl for name, kl in rows.items() if name not in ours}
        for name, kl in ours.items():
            least = all(kl < other for other in others.values())
            lines.append(f"- {float(fraction):.0%}: `{name}` has {'the least' if least else 'not the least'} KL of {len(others) + 1} methods")
    return "\n".join(lines) + "\n"


def accuracy_table(found: dict, missing: list[str]) -> str:
    lines = ["| method | reuse | accuracy | to full, points | 95 % | won : lost | KL mean | agreement | first token, ms | wall, s |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for method in found["methods"]:
        pairs = "| | | "
        if method["accuracy_interval"] is not None:
            low, high = method["accuracy_interval"]
            pairs = f"| {100 * method['accuracy_difference']:+.1f} | {100 * low:+.1f} to {100 * high:+.1f} | {method['wins']} : {method['losses']} "
        lines.append(f"| `{name_of(method)}` | {100 * method['kv_reuse_rate']:.1f} % | {100 * method['accuracy']:.1f} % {pairs}| {method['kl_mean']:.2e} | "
                     f"{100 * method['greedy_agreement']:.2f} % | {method['ttft_ms']:.0f} | {method['wall_ms'] / 1000:.0f} |")
    lines += [f"| `{method}` | not reachable | | | | | | | | |" for method in missing]
    return "\n".join(lines) + "\n"


def make(arguments) -> str:
    team = ROOT / "tests/published/teams" / f"{arguments.team}.yaml"
    source = arguments.models_dir / f"{arguments.model}.gguf"
    if not source.is_file():
        raise Stop(f"{source}: no such file; --models-dir names the folder of the .gguf files")
    folder, data = arguments.out / f"{arguments.model}-{arguments.team}", arguments.out / arguments.team
    for one in (folder, data):
        one.mkdir(parents=True, exist_ok=True)
    model = folder / f"{arguments.model}.gguf"  # a link: levels of several builds do not meet
    if not model.is_symlink():
        model.symlink_to(source.resolve())
    environment = {**os.environ, "XDG_CACHE_HOME": str((folder / "cache").resolve())}
    tables = dataset(arguments.team, "tables", arguments, data)
    common = ["--model", str(model), "--threads", str(arguments.threads), "--device", arguments.device]
    limit = arguments.limit or QUESTIONS[arguments.kind][arguments.team]
    name = f"{arguments.kind}-{limit}"
    command = [str(arguments.baton.with_name("baton-lab")), "eval", str(team), *common, "--dataset", str(tables), "--limit", str(limit), "--jobs", str(arguments.jobs), "--seed", "0",
               "--floor-limit", str(arguments.floor)]
    for one in arguments.set:
        command += ["--set", one]
    found, missing = evaluate(arguments.kind, methods_of(arguments.kind, arguments.ours), command, folder, name, environment)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    short = limit < QUESTIONS[arguments.kind][arguments.team]
    title = f"{arguments.model}, team {arguments.team}, {limit} questions" + (" (fewer than the protocol asks for: decides no target)" if short else "")
    body = kl_table(found, folder / f"{name}.jsonl", missing) if arguments.kind == "kl" else accuracy_table(found, missing)
    text = f"### {title}\n\n{body}"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["kl", "accuracy"])
    parser.add_argument("--model", required=True, metavar="NAME", help="of NAME.gguf in --models-dir")
    parser.add_argument("--team", required=True, choices=["code", "math", "passages", "choice"])
    parser.add_argument("--models-dir", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--data", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/tables", metavar="DIR")
    parser.add_argument("--baton", type=pathlib.Path, default=ROOT / "build/release/bin/baton")
    parser.add_argument("--ours", action="append", default=None, metavar="METHOD", help="what is compared with the baselines; repeatable (rectify)")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="questions; without it those of the protocol")
    parser.add_argument("--jobs", type=int, default=4, metavar="N")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="0: all")
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu or cuda; a table of one is not continued on the other")
    parser.add_argument("--floor", type=int, default=8, metavar="N", help="questions of the noise floor")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="as of `baton-lab eval`, for trials")
    arguments = parser.parse_args()
    arguments.ours = arguments.ours or ["rectify"]
    try:
        print(make(arguments))
    except Stop as stop:
        print(f"tables: {stop}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
