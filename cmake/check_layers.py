#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an include that points upwards or leaves its home (the rules are in docs/architecture.md)."""

import pathlib
import re
import sys

SOURCES = {".h", ".c", ".cpp", ".cu", ".cuh"}
INCLUDE_ROOTS = ["", "sdk/include", "sdk/lab/include", "engine/base"]  # as cmake/BatonTargets.cmake and the compiler have them

SYSTEM = "engine/base/system"
BASE = ["engine/base", "engine/base/baton", "engine/base/json", "engine/base/units", SYSTEM]
BACKEND = [*BASE, "engine/tensor", "engine/backend"]
MODEL = [*BACKEND, "engine/kv", "engine/text", "engine/text/constrain", "engine/text/schema", "engine/model"]
REUSE = [*MODEL, "engine/reuse", "engine/reuse/auto"]  # the interface, and what is measured for method auto
METHOD = [*REUSE, "engine/reuse/exact", "engine/reuse/rectify"]  # methods that others build upon
ENGINE = [*REUSE, "engine"]
ENGINE_ALL = [*ENGINE, "engine/loop", "engine/learning", "engine/remote"]
AGENTS = [*ENGINE_ALL, "agents/tools", "agents/mcp", "agents/prompts"]
WORKFLOWS = [*AGENTS, "workflows", "workflows/format", "workflows/plan", "workflows/run"]
PUBLIC = ["engine/base/baton", "sdk/include/baton"]
CONSOLE = [*PUBLIC, "engine/base/json", "engine/base/units", SYSTEM]
RUNNER = [*CONSOLE, "sdk/console"]

# Who may include whom. The room of a file is the longest of these prefixes of its path; every room may include itself.
ALLOWED = {
    "engine/base/baton": [],
    "engine/base/json": ["engine/base/baton"],
    "engine/base/units": [],
    SYSTEM: [],
    "engine/base": ["engine/base/baton", "engine/base/json", "engine/base/units", SYSTEM],
    "engine/tensor": BASE,
    "engine/backend": BACKEND,
    "engine/cpu": BACKEND,
    "engine/cuda": BACKEND,
    "engine/cuda/host": [*BACKEND, "engine/cuda/kernels", "engine/cuda/attention", "engine/cuda/quantized"],
    "engine/cuda/kernels": [*BACKEND, "engine/cuda/host"],
    "engine/cuda/attention": [*BACKEND, "engine/cuda/host", "engine/cuda/kernels"],
    "engine/cuda/quantized": [*BACKEND, "engine/cuda/host", "engine/cuda/kernels"],
    "engine/kv": [*BACKEND],
    "engine/text": [*BASE, "engine/text/jinja"],
    "engine/text/jinja": [*BASE, "engine/text"],
    "engine/text/constrain": [*BASE, "engine/text"],
    "engine/text/schema": [*BASE, "engine/text", "engine/text/constrain"],
    "engine/model": MODEL,
    "engine/reuse": REUSE,
    "engine/reuse/anchors": METHOD,
    "engine/reuse/auto": METHOD,
    "engine/reuse/droidspeak": METHOD,
    "engine/reuse/exact": METHOD,
    "engine/reuse/lab": [*METHOD, "engine"],  # its registry adds to the engine's
    "engine/reuse/verified": METHOD,
    "engine/reuse/rectify": METHOD,
    "engine": ENGINE,
    "engine/loop": ENGINE,
    "engine/learning": [*ENGINE, *METHOD],
    "engine/remote": ENGINE,
    "engine/remote/http": [*BACKEND, "engine/remote"],
    "agents/tools": [*ENGINE, "agents/tools/sandbox"],
    "agents/tools/sandbox": BASE,
    "agents/mcp": [*ENGINE, "agents/tools"],
    "agents/mcp/http": [*ENGINE, "agents/tools", "agents/mcp"],
    "agents/prompts": [*ENGINE, "agents/tools"],
    "workflows": WORKFLOWS,
    "workflows/format": [*AGENTS, *PUBLIC[:1]],
    "workflows/plan": [*AGENTS, *PUBLIC[:1], "workflows/format"],
    "workflows/run": [*AGENTS, *PUBLIC[:1], "workflows/format", "workflows/plan"],
    "sdk/include/baton": PUBLIC,
    "sdk/hub": [*MODEL],
    "sdk/pull": [*MODEL, *PUBLIC, "sdk/hub"],
    "sdk/trace": [*BASE, *PUBLIC, "sdk/hub", "sdk/pull"],
    "sdk/record": [*BASE, *PUBLIC],
    "sdk/src": [*WORKFLOWS, *PUBLIC, "sdk/hub", "sdk/record"],
    "sdk/lab/include/baton/lab": PUBLIC,
    "sdk/lab": [*WORKFLOWS, *METHOD, *RUNNER, "sdk/src", "sdk/lab/include/baton/lab", "engine/reuse/lab"],
    "sdk/lab/anchors": [*WORKFLOWS, "sdk/src", "sdk/lab", "sdk/lab/include/baton/lab", "engine/reuse/anchors"],
    "sdk/serve": CONSOLE,
    "sdk/console": CONSOLE,  # the programs use only the public face, the reader of JSON and the system
    "sdk/report": [*RUNNER, "sdk/trace"],
    "sdk/cli": [*RUNNER, "sdk/record", "sdk/report", "sdk/trace", "sdk/pull", "sdk/serve"],
    "samples": PUBLIC,
}

# The one place that knows both backends.
EXCEPTIONS = {
    "engine/registry.cpp": [*METHOD, "engine/reuse/anchors", "engine/reuse/droidspeak", "engine/reuse/verified"],  # the list of methods
    "sdk/lab/bench_agents.cpp": ["engine/reuse/anchors", "sdk/lab/anchors"],  # the list of methods that learn
    "engine/backend/make_backend.cpp": ["engine/cpu", "engine/cuda/host"]}

# Third-party headers and the files that may see them (regular expressions over the path).
HOMES = {
    r"yaml-cpp/": r"workflows/format/yaml\w*\.cpp",
    r"fmt/": r"(engine|agents|workflows|sdk)/.*\.cpp|sdk/console/html\.h",
    r"nlohmann/": r"samples/(own_tool|bakery)/\w+\.cpp|(engine/(base|text|model|learning|remote)|agents|workflows|sdk/(src|record|lab|cli|console|report|serve|trace))/.*",
    r"hwy/": r"engine/(cpu/.*|base/(distributions\.cpp|simd_targets\.h))",
    r"Eigen/": r"sdk/lab/correction_learner\.cpp",
    r"pcre2\.h": r"engine/text/(regex|pattern)\.cpp",
    r"utf8proc\.h": r"engine/(base|text)/.*\.cpp|sdk/console/.*\.cpp",
    r"xxhash\.h": r"engine/base/hash\.cpp",
    r"seccomp\.h": r"agents/.*\.cpp",
    r"curl/": r"engine/base/curl_handles\.h",
    r"engine/base/curl_handles\.h": r"sdk/pull/http\.cpp|(agents/mcp|engine/remote)/http/\w+\.cpp",
    r"boost/": r"samples/event_loop/event_loop\.cpp|sdk/serve/(server|connection)\w*\.(h|cpp)",
    r"openssl/": r"sdk/pull/digest\.cpp",
    r"CLI/": r"sdk/console/command_line\.cpp",
    r"cuda|cublas|driver_types": r"engine/cuda/.*",
    r"catch2/": r"tests/.*",
    # The operating system: its own room, and what only Linux has.
    r"windows\.h|(unistd|fcntl|poll|signal|sched|spawn|dlfcn|dirent|langinfo|termios|pthread|malloc)\.h|csignal|(sys|linux|mach-o)/":
        r"engine/base/system/(posix|windows)/.*|sdk/pull/digest\.cpp|agents/tools/sandbox/\w+\.(h|cpp)|agents/mcp/program_connection\.cpp"
        r"|engine/cpu/machine\.cpp|engine/cuda/.*|samples/chat/chat\.cpp",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path: str) -> str | None:
    fitting = [room for room in ALLOWED if path.startswith(room + "/")]
    return max(fitting, key=len) if fitting else None


def sources(root: pathlib.Path):
    for folder in ["engine", "agents", "workflows", "sdk", "samples"]:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SOURCES:
                yield file.relative_to(root).as_posix(), file


def included(root: pathlib.Path, file: pathlib.Path, target: str) -> str | None:
    """The path in this project that an include means; None: it is not of this project."""
    for folder in [file.parent, *(root / name for name in INCLUDE_ROOTS)]:
        if (folder / target).is_file():
            return (folder / target).resolve().relative_to(root).as_posix()
    return None


def problems(root: pathlib.Path):
    for path, file in sources(root):
        room = room_of(path)
        if room is None:
            yield f"{path}: is in no room that cmake/check_layers.py knows"
            continue
        allowed = {room, *ALLOWED[room], *EXCEPTIONS.get(path, [])}
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, target = match.groups()
            found = included(root, file, target)
            if found and room_of(found) not in allowed:
                yield f"{path}:{number}: {room} may not include {found} (allowed: {', '.join(sorted(allowed))})"
            named = found or (target if quote == "<" else "")
            for pattern, home in HOMES.items():
                if re.match(pattern, named) and not re.fullmatch(home, path):
                    yield f"{path}:{number}: {named} may only be included in {home}"


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(problems(root))
    for problem in found:
        print(f"layers: {problem}", file=sys.stderr)
    print(f"layers: {len(found)} forbidden includes" if found else "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
