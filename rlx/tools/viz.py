"""``python -m rlx viz 'rlx.tanh(x @ w).sum()' x:f32[64,128] w:f32[128,8]``: the graph of an expression as HTML.

The page holds everything it needs. Nodes are ranked by their longest way from the arguments and coloured by what they
are; hover a node for its attributes and line; loops and branches show their graphs below.
"""

from __future__ import annotations

import argparse
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rlx
from rlx.ir.graph import Graph, Node
from rlx.runtime.execute import compile_for
from rlx.tools.explain import argument

WIDTH, HEIGHT, GAP_X, GAP_Y = 168, 40, 16, 44
COLOURS = {"input": "#dfe9f5", "const": "#eeeeee", "buffer": "#dfe9f5", "native": "#cdeccd", "dot": "#f6dfc0",
           "reduce": "#f6dfc0", "while": "#ead6f0", "loop": "#ead6f0", "cond": "#ead6f0"}
STYLE = """body{font:14px system-ui;margin:24px;color:#222}svg{background:#fff;border:1px solid #ddd;margin:8px 0 24px}
rect{stroke:#888;rx:5}text{font:11px ui-monospace,monospace;pointer-events:none}path{fill:none;stroke:#999}
g.n:hover rect{stroke:#000;stroke-width:2}"""


def main(argv: Sequence[str]) -> int:
    """Trace the expression and write the page."""
    parser = argparse.ArgumentParser(prog="python -m rlx viz", description=__doc__)
    parser.add_argument("expression", help="a Python expression over rlx and the arguments")
    parser.add_argument("arguments", nargs="*", help="name:dtype[sizes], for example x:f32[64,128]")
    parser.add_argument("--device", default=None)
    parser.add_argument("--level", choices=("hir", "mir"), default="hir")
    parser.add_argument("-o", "--output", default="graph.html")
    args = parser.parse_args(argv)
    given = dict(argument(a, args.device) for a in args.arguments)
    names, values = list(given), list(given.values())
    code = compile(args.expression, "<expression>", "eval")

    def f(*xs: Any) -> Any:
        return eval(code, {"rlx": rlx, **dict(zip(names, xs, strict=True))})

    graph = rlx.jit(f, device=args.device).trace(*values).graph
    if args.level == "mir":
        graph = compile_for(graph, args.device).lowered.mir
    Path(args.output).write_text(page(graph, args.expression), encoding="utf-8")
    print(args.output)
    return 0


def page(graph: Graph, title: str = "graph") -> str:
    """The HTML page of a graph and its sub-graphs."""
    found = _all(graph)
    parts = [f"<h2>{html.escape(name)}</h2>{svg(g)}" for name, g in found]
    return (f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"
            f"<h1>{html.escape(title)}</h1>{''.join(parts)}")


def _all(graph: Graph, name: str = "main") -> list[tuple[str, Graph]]:
    out = [(name, graph)]
    for n in graph.nodes():
        for g in n.graphs:
            out.extend(_all(g, f"{name} / {n.op} %{_number(graph)[n]} / {g.name}"))
    return out


def _number(graph: Graph) -> dict[Node, int]:
    nodes = list(dict.fromkeys([*[v.node for v in graph.inputs], *graph.nodes()]))
    return {n: i for i, n in enumerate(nodes)}


def svg(graph: Graph) -> str:
    """One graph as SVG: ranks from top to bottom, edges as curves."""
    number = _number(graph)
    rank: dict[Node, int] = {}
    for n in number:
        rank[n] = 1 + max((rank[a.node] for a in n.args), default=-1)
    place: dict[Node, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for n, r in rank.items():
        column = filled.get(r, 0)
        filled[r] = column + 1
        place[n] = GAP_X + column * (WIDTH + GAP_X), GAP_Y // 2 + r * (HEIGHT + GAP_Y)
    width = max(filled.values(), default=1) * (WIDTH + GAP_X) + GAP_X
    height = (max(rank.values(), default=0) + 1) * (HEIGHT + GAP_Y)
    edges = [_edge(place[a.node], place[n]) for n in number for a in n.args]
    results = {v.node for v in graph.outputs}
    boxes = [_box(n, i, place[n], n in results) for n, i in number.items()]
    return f'<svg width="{width}" height="{height}">{"".join(edges)}{"".join(boxes)}</svg>'


def _edge(a: tuple[int, int], b: tuple[int, int]) -> str:
    x1, y1, x2, y2 = a[0] + WIDTH // 2, a[1] + HEIGHT, b[0] + WIDTH // 2, b[1]
    return f'<path d="M{x1} {y1}C{x1} {y1 + 24} {x2} {y2 - 24} {x2} {y2}"/>'


def _box(n: Node, i: int, at: tuple[int, int], result: bool) -> str:
    x, y = at
    label = html.escape(f"%{i} {n.attr('op') or n.op}")
    types = html.escape(" ".join(map(str, n.types)))
    attrs = "\n".join(f"{k} = {v}" for k, v in n.attrs)
    tip = html.escape(f"{n.op} {' '.join(map(str, n.types))}\n{n.where.short}\n{attrs}")
    stroke = ' style="stroke:#b00;stroke-width:2"' if result else ""
    return (f'<g class="n"><title>{tip}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" '
            f'fill="{COLOURS.get(n.op, "#fbfbf3")}"{stroke}/><text x="{x + 8}" y="{y + 16}">{label[:26]}</text>'
            f'<text x="{x + 8}" y="{y + 31}" fill="#666">{types[:26]}</text></g>')
