# SPDX-License-Identifier: Apache-2.0
"""The results of tests/gpu/measure.sh as Markdown."""

import agent_tables
from cells import find, number, of_shape, over, per_second, percent, table


def limits(results: dict) -> str:
    rows = [[one["shape"], one["dtype"], number(one["limits"]["gemm_gflops"], 0), number(one["limits"]["bandwidth_gbs"], 0),
             number(one["load_ms"] / 1000, 1)] for one in results["rates"]]
    return table(["run", "type", "product, GFLOP/s", "memory, GB/s", "ready after, s"], rows)


def prefill(results: dict) -> str:
    rows = []
    for one in results["rates"]:
        peer = of_shape(results, one["shape"])
        for line in one["prefill"]:
            theirs = find(peer["prefill"], tokens=line["tokens"]) if peer else None
            rate = theirs and theirs["tokens_per_s"]
            rows.append([one["shape"], line["tokens"], per_second(line["tokens_per_s"]), percent(line["share"]),
                         per_second(rate) if rate else "", over(line["tokens_per_s"], rate)])
    return table(["shape", "tokens", "tokens/s", "of the product's rate", "peer, tokens/s", "over the peer"], rows)


def decode(results: dict) -> str:
    rows = []
    for one in results["rates"]:
        peer = of_shape(results, one["shape"])
        for line in one["decode"]:
            theirs = find(peer["decode"], rows=line["rows"], depth=line["depth"]) if peer else None
            rate = theirs and theirs["tokens_per_s"]
            rows.append([one["shape"], line["rows"], line["depth"], per_second(line["tokens_per_s"]),
                         number(1000 * line["rows"] / line["tokens_per_s"], 3), percent(line["share"]), percent(line["recording"]),
                         f"{per_second(rate)} ({theirs['cache']})" if rate else "", over(line["tokens_per_s"], rate)])
    return table(["shape", "sequences", "depth", "tokens/s", "ms a step", "of the memory's rate", "recording adds", "peer, tokens/s",
                  "over the peer"], rows)


def knee(results: dict) -> str:
    rows = []
    for one in results["rates"]:
        costs = one.get("row_costs")
        if costs and costs["steps"]:
            steps = ", ".join(f"{step['rows']}: {step['ms']:.3f}" for step in costs["steps"])
            rows.append([one["shape"], costs["depth"], f"{costs['knee']} (at most {100 * costs['slowdown']:.0f} % slower)", steps])
    return table(["shape", "depth", "rows that ride along", "rows: ms a step"], rows)


def team(results: dict) -> str:
    rows = []
    for device, one in results["team"].items():
        for method in one["methods"]:
            rows.append([device, method["method"], one["questions"], percent(method["accuracy"]), percent(method["exact_match"]),
                         percent(method["greedy_agreement"]), f"{method['kl_mean']:.1e}", percent(method["kv_reuse_rate"])])
    text = table(["device", "method", "questions", "right", "answers as full's", "greedy agreement", "KL", "KV reused"], rows)
    same = results["agreement"]
    if same:
        text += (f"\nFull prefill on the device against the CPU, {same['questions']} questions: {percent(same['runs_equal'])} of the runs "
                 f"and {percent(same['answers_equal'])} of the answers are equal token for token; "
                 f"{percent(same['tokens_before_first_difference'])} of the tokens stand before a first difference.\n")
    return text


def small(results: dict) -> str:
    lines = []
    if results["launch_ms_per_layer"] is not None:
        lines.append(f"- A layer too small to do anything (nano) costs {1000 * results['launch_ms_per_layer']:.1f} µs of a decode step: "
                     "launching its work.")
    if results["load"]:
        lines.append(f"- The nano model is ready after {results['load']['load_ms']:.0f} ms, the device's start included.")
    return "\n".join(lines) + "\n" if lines else ""


def parts(results: dict) -> str:
    return table(["part", "state", "s", "why"], [[p["part"], p["state"], p["seconds"], p["why"]] for p in results["parts"]])


SECTIONS = (("Parts", parts), ("Limits of the machine, measured in the same runs", limits), ("Prefill, one sequence", prefill),
            ("Decode", decode), ("Rows that ride along in a decode step", knee), ("Time to first token of a row of agents", agent_tables.agents),
            ("Role texts and answers of other lengths", agent_tables.grid), ("First tokens by length", agent_tables.scaling),
            ("Anchors, by number and length", agent_tables.anchors), ("Texts from host memory", agent_tables.hosted), ("Memory", agent_tables.memory), ("The nano team", team), ("Small costs", small))


def markdown(results: dict) -> str:
    device = next((one["device"] for part in ("rates", "agents", "grid", "scaling", "anchors", "memory", "hosted")
                   for one in results[part]), "no device")
    text = f"# Measured on {device}\n"
    if results["peer"]:
        text += f"\nPeer: {results['peer'][0]['engine']}, random weights of the same shapes, same sizes.\n"
    for title, section in SECTIONS:
        content = section(results)
        if content.strip():
            text += f"\n## {title}\n\n{content.lstrip()}"
    return text
