# SPDX-License-Identifier: Apache-2.0
"""Tables of rows of agents, with what the papers print beside (tests/gpu/published.py)."""

import bounds
import published
from cells import (cases, cut, errors, find, first_tokens, mean, mean_speedup, name_of, number, of_shape, over, percent, shape_of,
                   table)


def agents(results: dict) -> str:
    text = ""
    for one in results["agents"]:
        methods = {name_of(method): method["agents"] for method in one["methods"]}
        full = methods.get("full", [])
        peer = of_shape(results, one["shape"])
        theirs = peer["methods"][0]["agents"] if peer and peer["methods"] else []
        rows = []
        for i, agent in enumerate(next(iter(methods.values()), [])):
            line = [agent["agent"], agent["prompt_tokens"]]
            for name, numbers in methods.items():
                ms = numbers[i]["ttft_ms"]
                line.append(number(ms) + (f" ({over(full[i]['ttft_ms'], ms)})" if full and name != "full" else ""))
            same = find(theirs, prompt_tokens=agent["prompt_tokens"])
            line += [number(same["ttft_ms"]) if same else "", over(same and same["ttft_ms"], full[i]["ttft_ms"]) if full else ""]
            rows.append(line)
        params = one["params"]
        text += (f"\n{one['shape']}: role {params['prefix']}, question {params['question']}, answers {params['output']} tokens; "
                 f"ms, over our full prefill{cut(one)}\n\n")
        text += table(["agent", "tokens", *methods, "peer, full", "our full over the peer's"], rows)
        text += "\n" + beside(one) + "\n" + last_agent(one)
        rows = [[name_of(method), number(method["row_ms"] / 1000, 2),
                 ", ".join(number(agent.get("decode_ms_per_token"), 2) for agent in method["agents"])]
                for method in one["methods"] if method.get("row_ms")]
        text += "\n" + table(["whole row, answers decoded", "s", "ms a token, agents in order"], rows) if rows else ""
    return text


def beside(one: dict) -> str:
    """Our first tokens beside those printed or modelled for the same set-up."""
    params = one["params"]
    theirs = published.FIRST_TOKENS.get((one["shape"], params["layers"], params["prefix"], params["question"], params["output"]))
    if not theirs:
        return ""
    most = max((method.get("anchors", 0) for method in one["methods"]), default=0)
    ours = first_tokens({"methods": [method for method in one["methods"]
                                     if method["method"] not in ("direct", "epic") and method.get("anchors", most) == most]})
    rows = []
    for i, agent in enumerate(one["methods"][0]["agents"] if one["methods"] else []):
        others = [line[i] if i < len(line) else None for line in theirs.values()]
        rows.append([agent["agent"], *[number(line[i]) for line in ours.values()], *[number(value) for value in others]])
    made = table(["agent", *[f"ours: {name}" for name in ours], *theirs], rows)
    return made and f"The same set-up elsewhere, ms; published: on other machines by other programs; modelled: counted, not measured:\n\n{made}"


PARTS = {"match": "matching", "copy": "copying, rotating", "full_layers": "layers", "detect": "choosing", "sparse_layers": "sparse layers",
         "tail": "last layers, logits", "other": "the rest"}


def last_agent(one: dict) -> str:
    """Where the first token of the last agent goes."""
    rows = [[name_of(method), number(method["agents"][-1]["ttft_ms"], 2),
             *[number(method["agents"][-1]["breakdown_ms"][part], 2) for part in PARTS], percent(method["agents"][-1]["kv_reuse_rate"])]
            for method in one["methods"] if method["agents"]]
    made = table(["last agent", "first token, ms", *PARTS.values(), "KV reused"], rows)
    return made and f"Parts of the last agent's first token, ms (with answers decoded, lockstep's layers count as last ones):\n\n{made}"


SIZES = ("layers", "agents", "prefix", "question", "output")


def hosted(results: dict) -> str:
    """First tokens whose reused texts come from host memory, beside those on the device."""
    text = ""
    for one in results["hosted"]:
        sizes = [one["params"][name] for name in SIZES]
        there = next((other for other in results["agents"]
                      if other["shape"] == one["shape"] and [other["params"][name] for name in SIZES] == sizes), {"methods": []})
        on_device = first_tokens(there)
        rows = []
        for name, times in first_tokens(one).items():
            copying = next(method["agents"][-1]["breakdown_ms"]["copy"] for method in one["methods"] if name_of(method) == name)
            other = on_device.get(name, [None])[-1]
            rows.append([name, number(times[-1], 2), number(copying, 2), number(other, 2),
                         number(times[-1] - other, 2) if other is not None else ""])
        text += f"\n{one['shape']}: the last of {one['params']['agents']} agents, reused texts in host memory when it begins{cut(one)}\n\n"
        text += table(["method", "first token, ms", "of it copying and waiting for copies", "texts on the device, ms", "difference, ms"], rows)
    return text


def grid(results: dict) -> str:
    text = ""
    for one in results["grid"]:
        params, rows = one["params"], []
        setup = (one["shape"], params["layers"], params["agents"], params["question"]) == published.GRID_SETUP
        for case in cases(one):
            times = first_tokens(case)
            if "full" not in times:
                continue
            others = [name for name in times if name not in ("full", "prefix")]
            row = [case["prefix"], case["output"], case["methods"][0]["agents"][-1]["prompt_tokens"], number(times["full"][-1]),
                   number(times["prefix"][-1]) if "prefix" in times else ""]
            for name in others:
                row += [over(times["full"][-1], times[name][-1]), over(times["prefix"][-1], times[name][-1]) if "prefix" in times else "",
                        f"{mean_speedup(times, name):.2f} x"]
            paper = published.GRID.get((case["prefix"], case["output"])) if setup else None
            rows.append(row + ([f"{paper:.2f} x" if paper else ""] if setup else []))
        if rows:
            head = ["role", "answers", "tokens", "full, ms", "prefix, ms"]
            head += [column for name in others for column in (f"{name} over full", "over prefix", "mean of agents over full")]
            text += (f"\n{one['shape']}: {params['agents']} agents, question {params['question']}; the last agent's first token, and the mean "
                     f"over all agents of full over the method; lockstep: with all ahead that can be{cut(one)}\n\n")
            text += table(head + (["published: KVComm, mean (HF, H100)"] if setup else []), rows)
        text += errors(one)
    return text


def anchors(results: dict) -> str:
    text = ""
    for one in results["anchors"]:
        rows = []
        paper_shape = (one["shape"], one["params"]["layers"]) == published.ANCHORS_SHAPE
        for case in cases(one):
            for method in case["methods"]:
                if "anchors" not in method:
                    continue
                agent = method["agents"][-1]
                parts = agent["breakdown_ms"]
                row = [case["output"], method["anchors"], number(parts["match"], 2), number(parts["copy"], 2),
                       number(agent["ttft_ms"] - parts["match"] - parts["copy"], 2), number(agent["ttft_ms"], 2)]
                paper = published.ANCHORS.get((method["anchors"], case["output"]))
                rows.append(row + ([number(paper, 3)] if paper_shape else []))
        if rows:
            text += (f"\n{one['shape']}: the last of {one['params']['agents']} agents, question {one['params']['question']}, an answer of so many "
                     f"tokens; ms. Matching compares texts, which a run does while answers are decoded; offsets come from the host's memory"
                     f"{cut(one)}\n\n")
            text += table(["answer", "anchors", "matching", "offsets, rotation, writing", "layers and the rest", "first token",
                           *(["published: KVComm's softmax alone"] if paper_shape else [])], rows)
        text += errors(one)
    return text


def bound_of(results: dict, one: dict, case: dict, method: dict) -> float | None:
    """Of full over rectify by operations, for the last agent."""
    shape, share = shape_of(results, one), method.get("select", one["params"]["select"])
    if not shape or method["method"] != "rectify":
        return None
    params = one["params"]
    return bounds.rectify_bound(shape, params["layers_range"], share, case["prefix"], params["question"], case["output"], params["agents"])


def scaling(results: dict) -> str:
    text = ""
    for one in results["scaling"]:
        params, rows = one["params"], []
        setup = (one["shape"], params["layers"], params["agents"]) == published.SCALING_SETUP
        head = ["answers in all", "tokens"]
        for case in cases(one):
            times = first_tokens(case)
            if "full" not in times:
                continue
            cumulative = (params["agents"] - 1) * case["output"]
            row, head = [f"{cumulative:,}", f"{case['methods'][0]['agents'][-1]['prompt_tokens']:,}"], head[:2]
            for method in case["methods"]:
                name = name_of(method)
                row.append(number(times[name][-1], 2))
                head.append(f"{name}, ms")
                bound = bound_of(results, one, case, method)
                if name != "full":
                    row.append(over(times["full"][-1], times[name][-1]))
                    head.append("over it")
                if bound:
                    row.append(f"{bound:.1f} x")
                    head.append("bound by FLOPs")
            for name in times:
                row.append(number(mean(times[name]), 2))
                head.append(f"{name}, mean of agents")
            if setup:
                paper = published.SCALING.get(cumulative, {})
                row += [number(paper.get(name), 0) for name in ("full", "CacheBlend", "RelayCaching")]
                head += [f"published: {name}, mean (H20)" for name in ("full", "CacheBlend", "RelayCaching")]
            rows.append(row)
        if rows:
            text += (f"\n{one['shape']}: the last of {params['agents']} agents, role {params['prefix']}, question {params['question']}; ms, full "
                     f"over the method, and the ratio of their operations, which is the most at equal operations a second{cut(one)}\n\n")
            text += table(head, rows)
        text += errors(one)
    return text


def memory(results: dict) -> str:
    text = ""
    for one in results["memory"]:
        shape, rows = shape_of(results, one), []
        for held in one["memory"].get("by_method", []):
            counted = bounds.memory(shape, held["method"], one["params"]["layers_range"][0] > 0) if shape else {}
            kept = sum(held[part] for part in ("keys_values", "hidden", "received", "entropy", "ids"))
            row = [held["method"]]
            for key, value in (("cache", held["cache"]), ("cache_recording", held["cache_recording"]), ("kept", kept),
                               ("anchor", held["anchor"])):
                row += [number(value, 0) if value else "", f"{counted[key]:,}" if counted.get(key) else ""]
            rows.append(row + [number(held[part], 0) if held[part] else ""
                               for part in ("ahead", "keys_values", "hidden", "received", "entropy", "ids")])
        if rows:
            text += (f"\n{one['shape']}: bytes of a token, as the engine counts them and by formula (a cache has room for whole blocks of "
                     "positions)\n\n")
            text += table(["method", "running", "by formula", "handing on", "by formula", "kept of an answer", "by formula", "each anchor",
                           "by formula", "ahead", "kept: keys and values", "hidden", "attention", "entropy", "id"], rows)
            most = one["memory"]
            text += (f"\nAt most {most['kv_peak_bytes'] / 2**20:,.1f} MiB of caches and {most['segments_peak_bytes'] / 2**20:,.1f} MiB kept, all "
                     f"methods; weights {most['weights_bytes'] / 2**20:,.1f} MiB.\n")
    return text
