# SPDX-License-Identifier: Apache-2.0
"""Mermaid flowcharts as `baton graph --format mermaid` prints them, drawn at build time by Graphviz as inline SVG.

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
SHAPES = {'["': "box", '(["': "box", '{{"': "hexagon"}


def dot_of(mermaid: str) -> str:
    """The graph in Graphviz's language."""
    out = []
    for line in filter(None, map(str.strip, mermaid.splitlines())):
        if match := HEAD.match(line):
            out.append(f"rankdir={'TB' if match[1] == 'TD' else 'LR'};")
        elif match := NODE.match(line):
            title, _, rest = match[3].replace("&", "&amp;").partition("<br/>")
            second = f'<BR/><FONT POINT-SIZE="10">{rest.replace("<br/>", "<BR/>")}</FONT>' if rest else ""
            out.append(f"{match[1]} [shape={SHAPES[match[2]]}, label=<{title}{second}>];")
        elif match := EDGE.match(line):
            style = ', style="dashed"' if match[2] == "-.->" else ""
            out.append(f'{match[1]} -> {match[4]} [label="{match[3] or ""}"{style}];')
        else:
            raise ValueError(f"unknown line of a Mermaid graph: '{line}'; expected a node, an edge or 'flowchart TD'")
    style = 'graph [bgcolor="transparent", nodesep=0.35, ranksep=0.45]; node [fontname="sans-serif", fontsize=12, style="rounded"]; '
    return "digraph {" + style + 'edge [fontname="sans-serif", fontsize=10];\n' + "\n".join(out) + "}"


def svg_of(dot: str) -> str:
    done = subprocess.run(["dot", "-Tsvg"], input=dot, capture_output=True, text=True, check=True)
    svg = done.stdout[done.stdout.index("<svg"):]
    svg = re.sub(r"<!--.*?-->\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<title>.*?</title>\n?", "", svg)
    svg = re.sub(r'class="node">.*?</g>', lambda node: node[0].replace('fill="none"', 'fill="var(--baton-node)"'), svg,
                 flags=re.DOTALL)
    return svg.replace("black", "currentColor").replace("<text ", '<text fill="currentColor" ').strip()


def with_graphs(markdown: str) -> str:
    if not shutil.which("dot"):
        return markdown
    return BLOCK.sub(lambda block: f'<figure class="baton-figure">\n{svg_of(dot_of(block[1]))}\n</figure>', markdown)
