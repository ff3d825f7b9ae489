"""The results of tests/gpu/measure.sh as Markdown."""


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
        methods = {method["method"]: method["agents"] for method in one["methods"]}
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
                 f"ms, over our full prefill{'' if one['complete'] else '; cut short'}\n\n")
        text += table(["agent", "tokens", *methods, "peer, full", "our full over the peer's"], rows)
        rows = [[method["method"], number(method["row_ms"] / 1000, 2),
                 ", ".join(number(agent.get("decode_ms_per_token"), 2) for agent in method["agents"])]
                for method in one["methods"] if method.get("row_ms")]
        text += "\n" + table(["whole row, answers decoded", "s", "ms a token, agents in order"], rows) if rows else ""
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
            ("The nano team", team), ("Small costs", small))


def markdown(results: dict) -> str:
    device = next((one["device"] for one in results["rates"] + results["agents"]), "no device")
    text = f"# Measured on {device}\n"
    if results["peer"]:
        text += f"\nPeer: {results['peer'][0]['engine']}, random weights of the same shapes, same sizes.\n"
    for title, section in SECTIONS:
        content = section(results)
        if content.strip():
            text += f"\n## {title}\n\n{content.lstrip()}"
    return text
