# SPDX-License-Identifier: Apache-2.0
"""The results of tests/gpu/measure.sh as plots, SVG without anything outside of it."""

import html
import math

import agent_tables
import cells

COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#e377c2", "#7f7f7f", "#bcbd22", "#000080",
           "#800000"]
DASHES = ["", "6 3", "2 3"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 70, 190, 40, 50


def ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    if logarithmic:
        decades = [10.0 ** n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
        if len(decades) > 4:
            return decades
        marks = [factor * decade for decade in decades for factor in (1, 2, 5)]  # from below the least to above the most
        return [mark for mark, next_mark in zip(marks, marks[1:]) if next_mark > low and mark < high] + [min(m for m in marks if m >= high)]
    raw = (high - low) / 5 or 1
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= raw)
    return [low + i * step for i in range(int((high - low) / step + 1.0001))]


def text(x: float, y: float, what: str, anchor="middle", extra="") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{html.escape(what)}</text>'


def frame(title: str, x_label: str, left=LEFT, height=HEIGHT) -> list[str]:
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>', text(WIDTH / 2, 22, title, extra=' font-size="15"'),
            text((left + WIDTH - RIGHT) / 2, height - 10, x_label)]


def bar_plot(title: str, x_label: str, bars: dict[str, dict[str, float]]) -> str:
    """A bar for each name, made of named parts one behind the other, with the sum at its end."""
    left, pitch = 120, 24
    height = TOP + pitch * max(len(bars), 7) + BOTTOM
    sums = {name: sum(parts.values()) for name, parts in bars.items()}
    marks = ticks(0.0, max(sums.values()) or 1.0, False)
    most = max(marks[-1], max(sums.values())) or 1.0
    room = WIDTH - left - RIGHT - 50  # the sum stands behind the bar

    out = frame(title, x_label, left, height)
    for mark in marks:
        x = left + mark / most * room
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}" stroke="#ddd"/>')
        out.append(text(x, height - BOTTOM + 18, f"{mark:,.10g}"))
    names = list(next(iter(bars.values())))
    for row, (bar, parts) in enumerate(bars.items()):
        at, y = left, TOP + pitch * row
        out.append(text(left - 6, y + 15, bar, "end"))
        for index, name in enumerate(names):
            width = max(parts[name], 0.0) / most * room
            if width >= 0.05:
                out.append(f'<rect x="{at:.1f}" y="{y + 3}" width="{width:.1f}" height="{pitch - 6}" fill="{COLOURS[index % len(COLOURS)]}"/>')
            at += width
        out.append(text(at + 5, y + 15, f"{sums[bar]:,.1f}" if sums[bar] < 100 else f"{sums[bar]:,.0f}", "start"))
    for index, name in enumerate(names):
        place = TOP + 18 * index
        out.append(f'<rect x="{WIDTH - RIGHT + 34}" y="{place}" width="12" height="12" fill="{COLOURS[index % len(COLOURS)]}"/>')
        out.append(text(WIDTH - RIGHT + 52, place + 11, name, "start"))
    return "\n".join(out) + "\n</svg>\n"


def line_plot(title: str, x_label: str, y_label: str, series: dict[str, list[tuple[float, float]]], log_y=False, log_x=False,
              styles: dict[str, tuple[int, int]] | None = None) -> str:
    """Lines with points; x as given or logarithmic, y from 0, or logarithmic. `styles`: a line's colour and dashes."""
    points = [point for line in series.values() for point in line]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    x_low, x_high = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    marks = ticks(min(ys) if log_y else 0.0, max(ys) or 1.0, log_y)
    y_low, y_high = (marks[0], marks[-1]) if log_y else (0.0, max(marks[-1], max(ys)) or 1.0)
    scale = math.log10 if log_y else float
    along = math.log10 if log_x else float

    def x_at(x):
        return LEFT + (along(x) - along(x_low)) / (along(x_high) - along(x_low)) * (WIDTH - LEFT - RIGHT)

    def y_at(y):
        return HEIGHT - BOTTOM - (scale(y) - scale(y_low)) / ((scale(y_high) - scale(y_low)) or 1) * (HEIGHT - TOP - BOTTOM)

    out = [*frame(title, x_label), text(16, HEIGHT / 2, y_label, extra=f' transform="rotate(-90 16 {HEIGHT / 2})"')]
    for mark in marks:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_at(mark):.1f}" y2="{y_at(mark):.1f}" stroke="#ddd"/>')
        out.append(text(LEFT - 6, y_at(mark) + 4, f"{mark:,.10g}", "end"))
    shown = sorted(set(xs))
    for x in shown if len(shown) <= 12 else ticks(x_low, x_high, False):
        out.append(text(x_at(x), HEIGHT - BOTTOM + 18, f"{x:g}"))
    for index, (name, line) in enumerate(series.items()):
        hue, dash = (styles or {}).get(name, (index, 0))
        colour = COLOURS[hue % len(COLOURS)]
        dashed = f' stroke-dasharray="{DASHES[dash % len(DASHES)]}"' if dash % len(DASHES) else ""
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>')
        out += [f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        place = TOP + 18 * index
        out.append(f'<line x1="{WIDTH - RIGHT + 12}" x2="{WIDTH - RIGHT + 32}" y1="{place + 6}" y2="{place + 6}" stroke="{colour}" '
                   f'stroke-width="3"{dashed}/>')
        out.append(text(WIDTH - RIGHT + 38, place + 11, name, "start"))
    return "\n".join(out) + "\n</svg>\n"


def of_agents(one: dict) -> str | None:
    bars = {cells.name_of(method): {label: method["agents"][-1]["breakdown_ms"][part] for part, label in agent_tables.PARTS.items()}
            for method in one["methods"] if method["agents"]}
    return bar_plot(f"First token of agent {one['methods'][0]['agents'][-1]['agent']}, {one['shape']}", "ms", bars) if bars else None


def of_grid(one: dict) -> str | None:
    """The last agent's speed-up by the length of the answers: a colour for each method, dashes for each role text."""
    series, styles, methods, roles = {}, {}, [], []
    for case in cells.cases(one):
        times = cells.first_tokens(case)
        for name in times.keys() - {"full", "prefix"} if "full" in times else ():
            methods = sorted({*methods, name})
            roles = sorted({*roles, case["prefix"]})
            series.setdefault((name, case["prefix"]), []).append((case["output"], times["full"][-1] / times[name][-1]))
    lines = {}
    for name, role in sorted(series):
        lines[f"{name}, role {role}"] = sorted(series[name, role])
        styles[f"{name}, role {role}"] = methods.index(name), roles.index(role)
    return line_plot(f"First token of the last of {one['params']['agents']} agents, {one['shape']}", "tokens of each answer",
                     "full over the method", lines, True, True, styles) if lines else None


def of_scaling(results: dict, one: dict) -> dict[str, str]:
    times, speed, styles = {}, {}, {}
    for case in cells.cases(one):
        cumulative = (one["params"]["agents"] - 1) * case["output"]
        found = cells.first_tokens(case)
        for method in case["methods"] if "full" in found else ():
            name = cells.name_of(method)
            times.setdefault(name, []).append((cumulative, found[name][-1]))
            if name == "full":
                continue
            hue = list(times).index(name)
            speed.setdefault(name, []).append((cumulative, found["full"][-1] / found[name][-1]))
            styles[name] = hue, 0
            bound = agent_tables.bound_of(results, one, case, method)
            if bound:
                speed.setdefault(f"{name}: bound", []).append((cumulative, bound))
                styles[f"{name}: bound"] = hue, 2
    if not speed:
        return {}
    title = f"First token of the last of {one['params']['agents']} agents, {one['shape']}"
    return {f"scaling-{one['shape']}": line_plot(title, "tokens of answers in all", "ms", times, True, True),
            f"scaling-over-full-{one['shape']}": line_plot(title, "tokens of answers in all", "full over the method", speed, True, True, styles)}


def of_anchors(one: dict) -> str | None:
    lines = {}
    for case in cells.cases(one):
        for method in case["methods"]:
            parts = method["agents"][-1]["breakdown_ms"]
            for part in ("match", "copy") if "anchors" in method else ():
                lines.setdefault((part, method["anchors"]), []).append((case["output"], parts[part]))
    counts = sorted({count for _, count in lines})
    named = {f"{agent_tables.PARTS[part].split(',')[0]}, {count}": (line, (counts.index(count), int(part == "copy")))
             for (part, count), line in sorted(lines.items(), reverse=True)}
    return line_plot(f"What anchors add to a first token, {one['shape']}", "tokens of the answer", "ms",
                     {name: line for name, (line, _) in named.items()}, True, True,
                     {name: style for name, (_, style) in named.items()}) if named else None


def of_memory(one: dict) -> str | None:
    parts = {"keys_values": "keys and values", "hidden": "hidden state", "received": "attention", "entropy": "entropy", "ids": "id",
             "anchor": "one anchor (host)"}
    bars = {held["method"]: {label: held[part] / 1024 for part, label in parts.items()} for held in one["memory"].get("by_method", [])}
    return bar_plot(f"Kept of a token for later prompts, {one['shape']}", "KiB", bars) if bars else None


def all_plots(results: dict) -> dict[str, str]:
    """Name to SVG, without those that nothing was measured for."""
    rates = results["rates"]
    prefill = {one["shape"]: [(line["tokens"], 100 * line["share"]) for line in one["prefill"]] for one in rates if one["prefill"]}
    knee = {one["shape"]: [(step["rows"], step["ms"]) for step in one["row_costs"]["steps"]]
            for one in rates if one.get("row_costs") and one["row_costs"]["steps"]}
    plots = {}
    if prefill:
        plots["prefill"] = line_plot("Prefill, one sequence", "tokens", "% of the product's rate", prefill)
    if knee:
        plots["rows"] = line_plot("Rows that ride along in a decode step", "rows beside the decoding one", "ms a step", knee, True)
    for one in results["agents"]:
        series = {cells.name_of(method): [(agent["agent"], agent["ttft_ms"]) for agent in method["agents"]] for method in one["methods"]}
        peer = next((p for p in results["peer"] if p["shape"] == one["shape"] and p["methods"]), None)
        if peer:
            series["Transformers, full"] = [(agent["agent"], agent["ttft_ms"]) for agent in peer["methods"][0]["agents"]]
        series = {name: line for name, line in series.items() if line}
        if series:
            plots[f"first-token-{one['shape']}"] = line_plot(f"Time to first token, {one['shape']}", "agent", "ms", series, True)
            plots[f"first-token-parts-{one['shape']}"] = of_agents(one)
    for one in results["scaling"]:
        plots.update(of_scaling(results, one))
    for part, plot in (("grid", of_grid), ("anchors", of_anchors), ("memory", of_memory)):
        plots.update({f"{part}-{one['shape']}": plot(one) for one in results[part]})
    return {name: svg for name, svg in plots.items() if svg}
