"""The results of tests/gpu/measure.sh as Markdown."""

import bounds
import published


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


def of_shape(results: dict, shape: str) -> dict | None:
    return next((one for one in results["peer"] if one["shape"] == shape), None)


def find(lines: list[dict], **wanted) -> dict | None:
    return next((line for line in lines if all(line[key] == value for key, value in wanted.items())), None)


def name_of(method: dict) -> str:
    """As in the columns: "relay 5 %", "anchors 20"."""
    if "select" in method:
        return f"{method['method']} {100 * method['select']:g} %"
    return f"{method['method']} {method['anchors']}" if "anchors" in method else method["method"]


def cases(result: dict) -> list[dict]:
    """The sizes of one run of `baton bench`, {prefix, output, methods}, without those that were not measured."""
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
    ours = first_tokens({"methods": one["methods"]})
    rows = []
    for i, agent in enumerate(one["methods"][0]["agents"] if one["methods"] else []):
        others = [line[i] if i < len(line) else None for line in theirs.values()]
        rows.append([agent["agent"], *[number(line[i]) for line in ours.values()], *[number(value) for value in others]])
    made = table(["agent", *[f"ours: {name}" for name in ours], *theirs], rows)
    return made and f"The same set-up elsewhere, ms; published on other machines by other programs, modelled ones are sums of ours:\n\n{made}"


PARTS = {"match": "matching", "copy": "copying, rotating", "full_layers": "layers", "detect": "choosing", "sparse_layers": "sparse layers",
         "tail": "last layers, logits", "other": "the rest"}


def last_agent(one: dict) -> str:
    """Where the first token of the last agent goes."""
    rows = [[name_of(method), number(method["agents"][-1]["ttft_ms"], 2),
             *[number(method["agents"][-1]["breakdown_ms"][part], 2) for part in PARTS], percent(method["agents"][-1]["kv_reuse_rate"])]
            for method in one["methods"] if method["agents"]]
    made = table(["last agent", "first token, ms", *PARTS.values(), "KV reused"], rows)
    return made and f"Parts of the last agent's first token, ms (with answers decoded, lockstep's layers count as last ones):\n\n{made}"


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
    """Of full over relay by operations, for the last agent."""
    shape, share = shape_of(results, one), method.get("select", one["params"]["select"])
    if not shape or method["method"] != "relay":
        return None
    params = one["params"]
    return bounds.relay_bound(shape, params["layers_range"], share, case["prefix"], params["question"], case["output"], params["agents"])


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
            text += (f"\n{one['shape']}: the last of {params['agents']} agents, role {params['prefix']}, question {params['question']}; ms, full over "
                     f"the method, and the ratio of their operations, which is the most at equal operations a second{cut(one)}\n\n")
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
            rows.append(row + [number(held[part], 0) if held[part] else "" for part in ("ahead", "keys_values", "hidden", "received", "entropy", "ids")])
        if rows:
            text += (f"\n{one['shape']}: bytes of a token, as the engine counts them and by formula (a cache has room for whole blocks of positions)\n\n")
            text += table(["method", "running", "by formula", "handing on", "by formula", "kept of an answer", "by formula", "each anchor",
                           "by formula", "ahead", "kept: keys and values", "hidden", "attention", "entropy", "id"], rows)
            most = one["memory"]
            text += (f"\nAt most {most['kv_peak_bytes'] / 2**20:,.1f} MiB of caches and {most['segments_peak_bytes'] / 2**20:,.1f} MiB kept, all "
                     f"methods; weights {most['weights_bytes'] / 2**20:,.1f} MiB.\n")
    return text


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
            ("Decode", decode), ("Rows that ride along in a decode step", knee), ("Time to first token of a row of agents", agents),
            ("Role texts and answers of other lengths", grid), ("First tokens by length", scaling),
            ("Anchors, by number and length", anchors), ("Memory", memory), ("The nano team", team), ("Small costs", small))


def markdown(results: dict) -> str:
    device = next((one["device"] for part in ("rates", "agents", "grid", "scaling", "anchors", "memory")
                   for one in results[part]), "no device")
    text = f"# Measured on {device}\n"
    if results["peer"]:
        text += f"\nPeer: {results['peer'][0]['engine']}, random weights of the same shapes, same sizes.\n"
    for title, section in SECTIONS:
        content = section(results)
        if content.strip():
            text += f"\n## {title}\n\n{content.lstrip()}"
    return text
