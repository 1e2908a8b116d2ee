"""Verify graphs: structure, levels, types by every op's own rule, and the primitives' contracts."""

from __future__ import annotations

from typing import Any, NoReturn

from rlx.core.errors import RlxError, VerifyError
from rlx.ir.graph import UNIQUE, Graph, Node, Type, Value, postorder
from rlx.ir.op import REGISTRY
from rlx.ir.prim import PRIMITIVES
from rlx.ir.text.types import attributes_text, type_text
from rlx.ir.verify.prims import CHECKS, Broken, need, pointwise


def verify_hir(graph: Graph) -> Graph:
    """The graph, if it is well-formed HIR: any registered op, leaves of every kind. Raises VerifyError."""
    _graph(graph, "HIR", False)
    return graph


def verify_mir(graph: Graph) -> Graph:
    """The graph, if it is well-formed MIR: primitives and native calls over parameters. Raises VerifyError."""
    _graph(graph, "MIR", True)
    return graph


def node_text(n: Node) -> str:
    """A node on one line, arguments by their types: ``add(f64[3], f64[3]) : f64[3]``."""
    known = [type_text(a.type) if a.index < len(a.node.types) else "?" for a in n.args]
    args = f"({', '.join(known)})" if known else ""
    return f"{n.op}{args}{attributes_text(n.attrs)} : {', '.join(map(type_text, n.types))}"


def _fail(n: Node, level: str, why: str) -> NoReturn:
    raise VerifyError(f"{level}: {node_text(n)}", where=n.where.short, why=why,
                      do="a pass or hand-written IR broke the grammar of rlx.ir.graph or rlx.ir.prim")


def _graph(g: Graph, level: str, primitive: bool, nested: bool = False) -> None:
    inputs = {id(v.node) for v in g.inputs}
    for v in g.inputs:
        if v.node.op != "input":
            _fail(v.node, level, f"it is a parameter of graph {g.name}, so it must be an input")
    if len(inputs) != len(g.inputs):
        raise VerifyError(f"{level}: graph {g.name} names a parameter twice", why=f"its inputs are {list(g.inputs)}",
                          do="give each parameter its own node")
    for n in postorder((*g.inputs, *g.outputs)):
        try:
            _node(n, level, primitive)
            if n.op == "input":
                need(id(n) in inputs, f"graph {g.name} uses an input that is not one of its parameters")
            elif n.op in UNIQUE:
                need(not (primitive or nested), f"a {n.op} holds storage: it must be a parameter of graph {g.name}")
        except Broken as e:
            _fail(n, level, str(e))
        for sub in n.graphs:
            _graph(sub, level, primitive, True)


def _node(n: Node, level: str, primitive: bool) -> None:
    need(bool(n.types) and len(n.outs) == len(n.types), "a node has one output for each type")
    for k, o in enumerate(n.outs):
        need(o.node is n and o.index == k, f"output {k} belongs to another node")
    for a in n.args:
        need(isinstance(a, Value) and 0 <= a.index < len(a.node.types), "an argument is no output of a node")
    for t in n.types:
        for d in t.shape:
            low = d if isinstance(d, int) else d.bounds()[1]
            need(not isinstance(d, bool) and low >= 0, f"the size {d} is negative")
    if n.op in UNIQUE:
        need(not n.args and not n.graphs, "a leaf has neither arguments nor sub-graphs")
        need(n.op != "input" or n.level >= 1, "a parameter has a level of at least 1")
        return
    want = max((a.node.level for a in n.args), default=0)
    need(n.level == want, f"its level is {n.level}, the highest level of its arguments {want}")
    names = [k for k, _ in n.attrs]
    need(len(set(names)) == len(names), "an attribute is given twice")
    if primitive:
        need(n.op in PRIMITIVES, "the op is no primitive")
    if n.op in PRIMITIVES:
        _primitive(n, dict(n.attrs))
    else:
        _op(n)


def _primitive(n: Node, attrs: dict[str, Any]) -> None:
    check = CHECKS.get(n.op, pointwise)
    try:
        check(n, attrs)
        if n.op in REGISTRY and "infer" in REGISTRY[n.op].rules:
            _same(n, REGISTRY[n.op].rules["infer"](*[a.type for a in n.args], **attrs))
    except (RlxError, TypeError, ValueError, KeyError, IndexError, AttributeError) as e:
        if isinstance(e, Broken):
            raise
        raise Broken(f"its type rule fails: {type(e).__name__}: {getattr(e, 'what', e)}") from e


def _op(n: Node) -> None:
    """An op with a decomposition has the types of its body; another has those of its type rule."""
    need(n.op in REGISTRY, "nothing registered the op")
    need(not n.graphs, "only while, cond and loop have sub-graphs")
    op: Any = REGISTRY[n.op]
    types = tuple([a.type for a in n.args])
    if "infer" in op.rules:
        _same(n, op.rules["infer"](*types, **dict(n.attrs)))
    elif hasattr(op, "graph") and n.device is None:
        # On a device of its own the default float may be another one, and with it the body.
        _same(n, tuple([v.type for v in op.graph(types, dict(n.attrs)).outputs]))


def _same(n: Node, inferred: Type | tuple[Type, ...]) -> None:
    want = inferred if isinstance(inferred, tuple) else (inferred,)
    need(n.types == want, f"its type rule gives {', '.join(map(type_text, want))}")
