#!/usr/bin/env python3
"""Fails on an include that points upwards or leaves its home (the rules are in CONTRIBUTING.md)."""

import pathlib
import re
import sys

ENGINE_ROOMS = ["engine/tensor", "engine/backend", "engine/kv", "engine/model", "engine/reuse"]
VOCABULARY = {"baton/run_record.h", "baton/event.h"}

# Who may include whom; a room is the longest of these prefixes that a path has.
ALLOWED = {
    "engine/tensor": ["engine/tensor"],
    "engine/backend": ["engine/backend", "engine/tensor"],
    "engine/cpu": ["engine/cpu", "engine/backend", "engine/tensor"],
    "engine/cuda": ["engine/cuda", "engine/backend", "engine/tensor"],
    "engine/kv": ["engine/kv", "engine/backend", "engine/tensor"],
    "engine/model": ENGINE_ROOMS[:4],
    "engine/reuse": ENGINE_ROOMS,
    "engine": ["engine", *ENGINE_ROOMS],
    "agents": ["agents", "engine", *ENGINE_ROOMS],
    "workflows": ["workflows", "agents", "engine", *ENGINE_ROOMS],
    "sdk/include": ["baton"],
    "sdk/src": ["sdk/src", "baton", "workflows", "agents", "engine", *ENGINE_ROOMS],
    "sdk/cli": ["sdk/cli", "baton"],  # the runner uses only the public face
    "samples": ["samples", "baton"],
}

# The one place that knows both backends.
EXCEPTIONS = {"engine/backend/make_backend.cpp": ["engine/cpu", "engine/cuda"]}

# Third-party headers and the files that may see them (regular expressions over the path).
HOMES = {
    r"yaml-cpp/": r"workflows/yaml\w*\.cpp",
    r"boost/": r"workflows/executor\w*\.(cpp|h)|sdk/include/baton/asio\.h",
    r"fmt/": r"(engine|agents|workflows|sdk/src|sdk/cli)/.*\.cpp",
    r"nlohmann/": r"(engine/model|agents|workflows|sdk/src|sdk/cli)/.*",
    r"hwy/": r"engine/cpu/.*",
    r"Eigen/": r"engine/reuse/linear_fit\.cpp",
    r"pcre2\.h": r"engine/model/regex\.cpp|agents/pattern\.cpp",
    r"utf8proc\.h": r"engine/model/.*\.cpp|sdk/cli/.*\.cpp",
    r"xxhash\.h": r"engine/(model|reuse)/.*\.cpp",
    r"seccomp\.h": r"agents/.*\.cpp",
    r"CLI/": r"sdk/cli/.*",
    r"cuda|cublas|driver_types": r"engine/cuda/.*",
    r"catch2/": r"tests/.*",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path: str, rooms) -> str | None:
    fitting = [room for room in rooms if path == room or path.startswith(room + "/")]
    return max(fitting, key=len) if fitting else None


def problems(root: pathlib.Path):
    rooms = [*ALLOWED, "baton"]
    for folder in ["engine", "agents", "workflows", "sdk", "samples"]:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in {".h", ".c", ".cpp", ".cu", ".cuh"}:
                continue
            path = file.relative_to(root).as_posix()
            room = room_of(path, ALLOWED)
            allowed = ALLOWED[room] + EXCEPTIONS.get(path, [])
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                quote, target = match.groups()
                place = f"{path}:{number}"
                if quote == '"' and (file.parent / target).is_file() and "/" not in target:
                    continue  # a neighbour in the same folder
                target_room = room_of(target, rooms)
                if target_room and target not in VOCABULARY and target_room not in allowed:
                    yield f"{place}: {room} may not include {target} (allowed: {', '.join(allowed)})"
                for pattern, home in HOMES.items():
                    if quote == "<" and re.match(pattern, target) and not re.fullmatch(home, path):
                        yield f"{place}: {target} may only be included in {home}"


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(problems(root))
    for problem in found:
        print(f"layers: {problem}", file=sys.stderr)
    print(f"layers: {len(found)} forbidden includes" if found else "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
