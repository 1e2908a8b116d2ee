"""Graphs (HIR and MIR) as text, and back."""

from __future__ import annotations

import json
import re
from typing import Any

from rlx.core.shape import Size
from rlx.core.where import UNKNOWN, Where
from rlx.ir.graph import UNIQUE, Graph, Node, Value, graph_scope, node, postorder
from rlx.ir.text.lex import NAME, Scanner, commented, scalar_text
from rlx.ir.text.types import TypeReader, attributes_text, symbols, symbols_text, type_text

_WHERE = re.compile(r"(?P<file>.*):(?P<line>\d+)(?: via (?P<via>.+))?")


def print_graph(graph: Graph) -> str:
    """The graph as text; :func:`parse_graph` reads it back. Storage is left out, and equal nodes are written once."""
    found = symbols(_sizes(graph))
    lines = [symbols_text(found)] if found else []
    _graph(graph, "", 1, lines)
    return "\n".join(lines) + "\n"


def _sizes(graph: Graph) -> list[Size]:
    """Every size in the types and attributes of a graph and its sub-graphs."""
    out: list[Size] = []

    def attribute(x: Any) -> None:
        if isinstance(x, tuple):
            for y in x:
                attribute(y)
        elif hasattr(x, "terms"):
            out.append(x)

    for n in postorder((*graph.inputs, *graph.outputs)):
        for t in n.types:
            out.extend(t.shape)
        attribute(n.attrs)
        for g in n.graphs:
            out.extend(_sizes(g))
    return out


def _graph(g: Graph, indent: str, level: int, lines: list[str]) -> None:
    names: dict[Value, str] = {}
    order = list(dict.fromkeys((*(v.node for v in g.inputs), *postorder(g.outputs))))
    shared = _shared(order)
    body: list[str] = []
    written: dict[str, list[str]] = {}
    count = 0
    for n in order:
        inner: list[str] = []
        for sub in n.graphs:
            _graph(sub, indent + "    ", level + 1, inner)
        text = _node(n, names, level)
        # Equal nodes (one of them shared with lazy arrays, one not) are written once: reading makes them one.
        outs = written.get(text) if n.op not in UNIQUE and not n.graphs else None
        if outs is None:
            outs = written[text] = [f"%{count + k}" for k in range(len(n.outs))]
            count += len(outs)
            place = n.where.short if n.where.file and n not in shared else ""
            body += [f"{indent}  {commented(', '.join(outs) + ' = ' + text, place)}", *inner]
        names.update(zip(n.outs, outs, strict=True))
    lines.append(f"{indent}graph {_name(g.name)}({', '.join(names[v] for v in g.inputs)}) {{")
    lines += body
    lines.append(f"{indent}  return {', '.join(names[v] for v in g.outputs)}".rstrip())
    lines.append(indent + "}")


def _name(name: str) -> str:
    return name if NAME.fullmatch(name) else json.dumps(name)


def _shared(order: list[Node]) -> set[Node]:
    """Nodes made of constants only: one object serves every graph of the process, so they belong to no line."""
    found: set[Node] = set()
    for n in order:
        if n.op not in UNIQUE and not n.graphs and all(a.node in found for a in n.args):
            found.add(n)
    return found


def _level(n: Node, depth: int) -> int:
    """The level that a node has unless its text says another."""
    if n.op == "input":
        return depth
    return max((a.node.level for a in n.args), default=0)


def _node(n: Node, names: dict[Value, str], depth: int) -> str:
    text = _name(n.op)
    if n.args:
        text += f"({', '.join(names[a] for a in n.args)})"
    attrs = n.attrs
    if n.op == "scalar" and scalar_text(n.payload) is not None:
        attrs = (("value", n.payload),)
    text += attributes_text(attrs) + " : " + ", ".join(map(type_text, n.types))
    if n.device is not None and n.device != next((a.node.device for a in n.args if a.node.device is not None), None):
        text += f" @ {json.dumps(n.device)}"
    if n.level != _level(n, depth):
        text += f" level {n.level}"
    return text


def parse_graph(text: str) -> Graph:
    """The graph of a text: equal in structure to the one printed, over fresh parameters.

    Buffers, and the payloads of scalars and native calls, come back empty except for numbers. Raises FormatError with
    line and column.
    """
    scan = Scanner(text)
    reader = _Reader(scan)
    if scan.accept("dims"):
        reader.types.declare()
    with graph_scope():
        graph = reader.graph(1)
    scan.done()
    return graph


class _Reader:
    def __init__(self, scan: Scanner) -> None:
        self.scan = scan
        self.types = TypeReader(scan, {})

    def name(self, what: str) -> str:
        return self.scan.string() if self.scan.peek.kind == "string" else self.scan.word(what)

    def graph(self, depth: int) -> Graph:
        scan = self.scan
        scan.expect("graph")
        name = self.name("the name of the graph")
        scan.expect("(")
        heads = self.tokens(")")
        scan.expect("{")
        known: dict[str, Value] = {}
        while scan.peek.kind == "value":
            self.node(known, depth)
        inputs = [self.use(known, t) for t in heads]
        if not scan.accept("return"):
            scan.fail("a node such as '%1 = ...', or 'return'")
        outputs = [self.use(known, t) for t in self.tokens("}")]
        return Graph(tuple(inputs), tuple(outputs), name)

    def tokens(self, end: str) -> list[Any]:
        """Values up to a closing sign."""
        out: list[Any] = []
        while not self.scan.accept(end):
            out.append(self.scan.value())
            if not self.scan.accept(","):
                self.scan.expect(end)
                break
        return out

    def use(self, known: dict[str, Value], token: Any) -> Value:
        if token.text not in known:
            self.scan.fail("a value defined above", token)
        return known[token.text]

    def node(self, known: dict[str, Value], depth: int) -> None:
        scan = self.scan
        outs = [scan.value()]
        while scan.accept(","):
            outs.append(scan.value())
        for t in outs:
            if t.text in known:
                scan.fail("a value not defined yet", t)
        scan.expect("=")
        op = self.name("the name of an op")
        args = tuple(self.use(known, t) for t in self.tokens(")")) if scan.accept("(") else ()
        attrs = self.types.attributes()
        scan.expect(":")
        types = [self.types.type()]
        while scan.accept(","):
            types.append(self.types.type())
        if len(types) != len(outs):
            scan.fail(f"{len(outs)} types, one for each output", outs[0])
        device = scan.string() if scan.accept("@") else None
        level = scan.integer() if scan.accept("level") else depth if op == "input" else 0
        where = read_where(scan.comment())
        graphs = []
        while scan.peek.text == "graph" and scan.peek.kind == "word":
            graphs.append(self.graph(depth + 1))
        payload = None
        if op == "scalar":
            payload, attrs = dict(attrs).get("value"), ()
        made = node(op, args, tuple(types), graphs=tuple(graphs), attrs=attrs, where=where, device=device, level=level,
                    payload=payload)
        for t, o in zip(outs, made.outs, strict=True):
            known[t.text] = o


def read_where(text: str) -> Where:
    """``dir/file.py:12 via softmax`` as a place in the user's code."""
    m = _WHERE.fullmatch(text)
    return Where(m["file"], int(m["line"]), m["via"] or "") if m else UNKNOWN
