# SPDX-License-Identifier: Apache-2.0
"""What the tables and the plots of tests/gpu share: Markdown, numbers, and what is in a result of `baton-lab bench`."""

import bounds


def table(head: list[str], rows: list[list]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def number(value, digits=1) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def percent(value) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def per_second(value) -> str:
    return number(value, 0 if value >= 1000 else 1)


def over(ours, theirs) -> str:
    return f"{ours / theirs:.2f} x" if ours and theirs else ""


def name_of(method: dict) -> str:
    """As in the columns: "rectify 5 %", "anchors 20"."""
    if "select" in method:
        return f"{method['method']} {100 * method['select']:g} %"
    return f"{method['method']} {method['anchors']}" if "anchors" in method else method["method"]


def cases(result: dict) -> list[dict]:
    """The sizes of one run of `baton-lab bench`, {prefix, output, methods}, without those that were not measured."""
    params = result["params"]
    all_cases = result.get("cases", [{"prefix": params["prefix"], "output": params["output"], "methods": result["methods"]}])
    return [case for case in all_cases if case["methods"]]


def first_tokens(case: dict) -> dict[str, list[float]]:
    """ms of the agents in order, by method."""
    return {name_of(method): [agent["ttft_ms"] for agent in method["agents"]] for method in case["methods"]}


def shape_of(results: dict, result: dict) -> bounds.Shape | None:
    config = results["configs"].get(result["shape"])
    return bounds.Shape(config, result["params"]["layers"]) if config else None


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def mean_speedup(times: dict[str, list[float]], name: str) -> float:
    """As KVComm's Table 3: the mean over the agents."""
    return mean([full / ms for full, ms in zip(times["full"], times[name])])


def errors(result: dict) -> str:
    return "".join(f"\nRole {case['prefix']}, answers {case['output']}: {case['error']}\n"
                   for case in result.get("cases", []) if case.get("error"))


def cut(result: dict) -> str:
    return "" if result["complete"] else "; cut short"


def of_shape(results: dict, shape: str) -> dict | None:
    return next((one for one in results["peer"] if one["shape"] == shape), None)


def find(lines: list[dict], **wanted) -> dict | None:
    return next((line for line in lines if all(line[key] == value for key, value in wanted.items())), None)
