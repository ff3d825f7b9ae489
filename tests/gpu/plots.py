"""The results of tests/gpu/measure.sh as plots, SVG without anything outside of it."""

import html
import math

COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 70, 190, 40, 50


def ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    if logarithmic:
        return [10.0 ** n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    raw = (high - low) / 5 or 1
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= raw)
    return [low + i * step for i in range(int((high - low) / step + 1.0001))]


def line_plot(title: str, x_label: str, y_label: str, series: dict[str, list[tuple[float, float]]], log_y=False) -> str:
    """Lines with points; x as given, y from 0, or logarithmic."""
    points = [point for line in series.values() for point in line]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    x_low, x_high = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    marks = ticks(min(ys) if log_y else 0.0, max(ys) or 1.0, log_y)
    y_low, y_high = (marks[0], marks[-1]) if log_y else (0.0, max(marks[-1], max(ys)) or 1.0)
    scale = math.log10 if log_y else float

    def x_at(x):
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def y_at(y):
        return HEIGHT - BOTTOM - (scale(y) - scale(y_low)) / ((scale(y_high) - scale(y_low)) or 1) * (HEIGHT - TOP - BOTTOM)

    def text(x, y, what, anchor="middle", extra=""):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{html.escape(what)}</text>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', text(WIDTH / 2, 22, title, extra=' font-size="15"'),
           text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label),
           text(16, HEIGHT / 2, y_label, extra=f' transform="rotate(-90 16 {HEIGHT / 2})"')]
    for mark in marks:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_at(mark):.1f}" y2="{y_at(mark):.1f}" stroke="#ddd"/>')
        out.append(text(LEFT - 6, y_at(mark) + 4, f"{mark:,.10g}", "end"))
    shown = sorted(set(xs))
    for x in shown if len(shown) <= 12 else ticks(x_low, x_high, False):
        out.append(text(x_at(x), HEIGHT - BOTTOM + 18, f"{x:g}"))
    for index, (name, line) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        place = TOP + 18 * index
        out.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{place}" width="12" height="12" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 32, place + 11, name, "start"))
    return "\n".join(out) + "\n</svg>\n"


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
        series = {method["method"]: [(agent["agent"], agent["ttft_ms"]) for agent in method["agents"]] for method in one["methods"]}
        peer = next((p for p in results["peer"] if p["shape"] == one["shape"] and p["methods"]), None)
        if peer:
            series["Transformers, full"] = [(agent["agent"], agent["ttft_ms"]) for agent in peer["methods"][0]["agents"]]
        series = {name: line for name, line in series.items() if line}
        if series:
            plots[f"first-token-{one['shape']}"] = line_plot(f"Time to first token, {one['shape']}", "agent", "ms", series, True)
    return plots
