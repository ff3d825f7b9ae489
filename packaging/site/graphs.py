# SPDX-License-Identifier: Apache-2.0
"""Mermaid flowcharts as `baton check --graph mermaid` prints them, drawn at build time by Graphviz as inline SVG.

Without Graphviz (package graphviz) a graph stays its text. A line that is not understood is an error: a figure must not
lack an edge.
"""

import re
import shutil
import subprocess

BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEAD = re.compile(r"flowchart (TD|LR)$")
NODE = re.compile(r'(\w+)(\["|\(\["|\{\{")(.*?)("\]|"\]\)|"\}\})$')
EDGE = re.compile(r'(\w+) (-->|-\.->)(?:\|"?([^|"]*)"?\|)? ?(\w+)$')
GROUP = re.compile(r'subgraph (\w+) \["(.*?)"\]$')
ENTITY = re.compile(r"#(\w+);")  # Mermaid's spelling
SHAPES = {'["': "box", '(["': "box", '{{"': "hexagon"}


def dot_of(mermaid: str) -> str:
    """The graph in Graphviz's language."""
    out, groups, group = [], {}, ""
    for line in filter(None, map(str.strip, mermaid.splitlines())):
        line = ENTITY.sub(r"&\1;", line.replace("&", "&amp;"))
        if match := HEAD.match(line):
            out.append(f"rankdir={'TB' if match[1] == 'TD' else 'LR'};")
        elif match := NODE.match(line):
            title, _, rest = match[3].partition("<br/>")
            second = f'<BR/><FONT POINT-SIZE="10">{rest.replace("<br/>", "<BR/>")}</FONT>' if rest else ""
            out.append(f"{match[1]} [shape={SHAPES[match[2]]}, label=<{title}{second}>];")
            groups.get(group, []).append(match[1])
        elif match := GROUP.match(line):
            group = match[1]
            groups[group] = []
            out.append(f'subgraph cluster_{group} {{ label="{match[2]}"; color="grey"; fontname="sans-serif"; fontsize=11;')
        elif line == "end":
            group = ""
            out.append("}")
        elif match := EDGE.match(line):
            source, target, style = match[1], match[4], ', style="dashed"' if match[2] == "-.->" else ""
            if source in groups:  # Graphviz has edges between nodes alone, which it can end at the borders of clusters
                style += f', ltail="cluster_{source}", lhead="cluster_{target}"'
                source, target = groups[source][-1], groups[target][0]
            out.append(f'{source} -> {target} [label="{match[3] or ""}"{style}];')
        else:
            raise ValueError(f"unknown line of a Mermaid graph: '{line}'; expected a node, an edge or 'flowchart TD'")
    style = 'graph [compound=true, bgcolor="transparent", nodesep=0.35, ranksep=0.45]; node [fontname="sans-serif", fontsize=12, style="rounded"]; '
    return "digraph {" + style + 'edge [fontname="sans-serif", fontsize=10];\n' + "\n".join(out) + "}"


def svg_of(dot: str) -> str:
    done = subprocess.run(["dot", "-Tsvg"], input=dot, capture_output=True, text=True, check=True)
    svg = done.stdout[done.stdout.index("<svg"):]
    svg = re.sub(r"<!--.*?-->\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<title>.*?</title>\n?", "", svg)
    svg = re.sub(r'class="node">.*?</g>', lambda node: node[0].replace('fill="none"', 'fill="var(--baton-node)"'), svg,
                 flags=re.DOTALL)
    svg = re.sub(r'<svg width="(\d+pt)"', r'<svg style="min-width: min(26rem, \1)" width="\1"', svg)  # small graphs keep their size
    return svg.replace("black", "currentColor").replace("<text ", '<text fill="currentColor" ').strip()


def with_graphs(markdown: str) -> str:
    if not shutil.which("dot"):
        return markdown
    return BLOCK.sub(lambda block: f'<figure class="baton-figure">\n{svg_of(dot_of(block[1]))}\n</figure>', markdown)
