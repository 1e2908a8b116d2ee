"""HIR: the DAG of ops. Nodes are frozen, hash-consed, typed, and remember the user's line.

Grammar::

    graph := (input*) node* -> (value*)
    node  := op(value*; attr*; graph*) : type*       any number of outputs; sub-graphs for while, cond, loop
    type  := dtype[size, ...]                        size: an int or a symbolic dimension
    leaf  := input                                   a parameter of a graph
           | const                                   a scalar known while tracing
           | buffer                                  a concrete array, with its storage
           | scalar                                  a Python number lifted to an input: a new one never recompiles

A *level* says how deep in tracing a node lives: 0 is concrete, the parameters of a graph traced at depth k have level
k, any other node has the highest level of its arguments. What a sub-graph uses from a lower level it captures.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from rlx.core.dtype import DType
from rlx.core.shape import Shape, bind
from rlx.core.where import UNKNOWN, Where
from rlx.ir.prim import MOVEMENT, POINTWISE


@dataclass(frozen=True, slots=True)
class Type:
    """dtype and shape of a value."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]"


class Node:
    """One operation. Build with :func:`node` (hash-consed), never directly."""

    __slots__ = ("op", "args", "attrs", "graphs", "types", "where", "level", "device", "payload", "_outs", "uid",
                 "kept", "depth", "key", "spelled", "__weakref__")
    op: str
    args: tuple[Value, ...]
    attrs: tuple[tuple[str, Any], ...]
    graphs: tuple[Graph, ...]
    types: tuple[Type, ...]
    where: Where
    level: int
    device: str | None
    payload: Any
    #: Weak: a node does not keep its values, so an array that is dropped frees its memory at once, without a cycle.
    _outs: tuple[weakref.ref[Value] | None, ...]
    uid: int
    #: Belongs to a graph that is kept: never turned into a buffer (see :func:`graph_scope`).
    kept: bool
    #: Pending operations on the longest way down to a leaf.
    depth: int
    #: What the hash-consing table knows it by, and its attributes as part of every key.
    key: Any
    spelled: tuple[Any, ...]

    @property
    def outs(self) -> tuple[Value, ...]:
        """The node's values, in order: one object each while anybody holds it."""
        found = tuple([None if r is None else r() for r in self._outs])
        return found if None not in found else self._make_outs()  # type: ignore[return-value]

    def _make_outs(self) -> tuple[Value, ...]:
        with _lock:
            values = []
            for i, r in enumerate(self._outs):
                v = None if r is None else r()
                values.append(Value(self, i) if v is None else v)
            self._outs = tuple([weakref.ref(v) for v in values])
        return tuple(values)

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute of that name."""
        for k, v in self.attrs:
            if k == name:
                return v
        return default

    def __repr__(self) -> str:
        return f"<{self.op} {' '.join(map(str, self.types))}>"


class Value:
    """One output of a node."""

    __slots__ = ("node", "index", "__weakref__")
    #: What an Array holds is a value, or a light record that knows its kind.
    kind: ClassVar[None] = None

    def __init__(self, node: Node, index: int) -> None:
        self.node, self.index = node, index

    @property
    def type(self) -> Type:
        return self.node.types[self.index]

    @property
    def dtype(self) -> DType:
        return self.node.types[self.index].dtype

    @property
    def shape(self) -> Shape:
        return self.node.types[self.index].shape

    def __repr__(self) -> str:
        return f"%{self.node.uid}.{self.index}:{self.type}"


_counter = itertools.count()
_lock = threading.Lock()
_table: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()
UNIQUE = frozenset(("input", "buffer", "scalar"))


class _Scope(threading.local):
    inside = 0


_scope = _Scope()


@contextmanager
def graph_scope() -> Iterator[None]:
    """Nodes made in here belong to graphs: evaluating an equal expression outside leaves them as they are.

    An evaluated node becomes a buffer in place, so that all who hold it see the result. A compiled or traced graph may
    not change under its owner: without this, ``iota(3)`` in a cached graph and a user's ``rlx.arange(3)`` would be one
    node.
    """
    _scope.inside += 1
    try:
        yield
    finally:
        _scope.inside -= 1


@contextmanager
def unscoped() -> Iterator[None]:
    """Nodes made in here may become buffers, whatever is being traced around it."""
    before, _scope.inside = _scope.inside, 0
    try:
        yield
    finally:
        _scope.inside = before


def node(op: str, args: tuple[Value, ...] = (), types: tuple[Type, ...] = (), *, graphs: tuple[Graph, ...] = (),
         attrs: tuple[tuple[str, Any], ...] = (), where: Where = UNKNOWN, device: str | None = None, level: int = 0,
         payload: Any = None) -> Node:
    """The node with these parts: an existing one when it is the same computation."""
    kept = _scope.inside > 0
    spelled = _typed(attrs) if attrs else ()
    key = None
    if op not in UNIQUE:
        # Types follow from the arguments; they tell nodes apart only where there are none, or a default may differ.
        told = None if args and device is not None and not graphs else types
        key = (op, tuple([(id(a.node), a.index) for a in args]), spelled, tuple(map(id, graphs)), told, device, kept)
        found = _table.get(key)
        if found is not None:
            return found
    n = Node()
    n.key, n.spelled = key, spelled
    n.op, n.args, n.attrs, n.graphs, n.types, n.where = op, args, attrs, graphs, types, where
    n.payload, n.uid, n.kept = payload, next(_counter), kept
    depth = 0
    for a in args:
        if a.node.level > level:
            level = a.node.level
        if a.node.depth > depth:
            depth = a.node.depth
        if device is None:
            device = a.node.device
    n.level, n.device, n.depth = level, device, depth + 1 if args else 0
    n._outs = (None,) * len(types)
    if op not in UNIQUE:
        _table[key] = n
    return n


def become_buffer(n: Node, storages: tuple[Any, ...], device: str) -> None:
    """Turn an evaluated node into a leaf that holds its results, letting go of what it was computed from."""
    if n.key is not None and _table.get(n.key) is n:
        del _table[n.key]
    n.payload, n.device = storages, device  # before the op, by which other threads know that the payload is there
    n.op, n.args, n.attrs, n.graphs, n.depth, n.key, n.spelled = "buffer", (), (), (), 0, None, ()


def _typed(attrs: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """Attributes as a key in which 1, 1.0, True and -0.0 differ."""
    return tuple([(k, type(v), repr(v) if isinstance(v, (float, complex)) else v) for k, v in attrs])


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A function: parameters and results. ``name`` is for people."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str = "main"

    def nodes(self) -> list[Node]:
        """Every node the outputs need, arguments before users."""
        return postorder(self.outputs)

    def key(self) -> tuple[Any, ...]:
        """A structural key: equal for graphs that compute the same, whatever their leaves hold."""
        return structure(self.outputs, self.inputs)[0]


def postorder(values: Iterable[Value]) -> list[Node]:
    """Nodes reachable from the values, arguments first, in a deterministic order."""
    seen: set[int] = set()
    order: list[Node] = []
    for v in values:
        if id(v.node) in seen:
            continue
        stack: list[tuple[Node, Iterator[Value]]] = [(v.node, iter(v.node.args))]
        seen.add(id(v.node))
        while stack:
            n, it = stack[-1]
            for a in it:
                if id(a.node) not in seen:
                    seen.add(id(a.node))
                    stack.append((a.node, iter(a.node.args)))
                    break
            else:
                order.append(n)
                stack.pop()
    return order


def structure(outputs: Sequence[Value], inputs: Sequence[Value] = ()) -> tuple[tuple[Any, ...], list[Value]]:
    """Structural key of the outputs, and the leaves (``buffer``, ``scalar``, foreign ``input``) they use, in order."""
    number: dict[int, int] = {}
    leaves: list[Value] = []
    rows: list[Any] = []
    for v in inputs:
        number[id(v.node)] = len(number)
        rows.append(v.type)
    for n in postorder(outputs):
        if id(n) in number:
            continue
        number[id(n)] = len(number)
        if n.op in UNIQUE:
            leaves.extend(n.outs)
            rows.append((n.op, n.types))
        else:
            rows.append((n.op, tuple([(number[id(a.node)], a.index) for a in n.args]), n.spelled,
                         tuple([g.key() for g in n.graphs]) if n.graphs else (),
                         None if n.args and not n.graphs else n.types))
    rows.append(tuple([(number[id(v.node)], v.index) for v in outputs]))
    return tuple(rows), leaves


def rebuild(outputs: Sequence[Value], replace: Mapping[Value, Value],
            make: Callable[[Node, tuple[Value, ...]], Sequence[Value]] | None = None) -> tuple[Value, ...]:
    """The outputs with some values replaced; ``make(node, new args)`` may return other outputs for a node."""
    done: dict[Value, Value] = dict(replace)
    stop = {id(v.node) for v in replace}
    for n in postorder(outputs):
        if id(n) in stop and all(o in done for o in n.outs):
            continue
        args = tuple([done[a] for a in n.args])
        if make is not None:
            new: Sequence[Value] = make(n, args)
        elif args == n.args and _settled(n):
            new = n.outs
        else:
            new = clone(n, args).outs
        for old, fresh in zip(n.outs, new, strict=True):
            done.setdefault(old, fresh)
    return tuple(done[v] for v in outputs)


def outside(v: Value) -> Value:
    """The same computation in nodes that may become buffers, for a value that was made inside a graph."""
    with unscoped():
        return rebuild((v,), {}, lambda n, args: n.outs if n.op in UNIQUE else clone(n, args).outs)[0]


def _settled(n: Node) -> bool:
    """Whether a graph being built may hold this node: it is a leaf, or was made inside a graph."""
    return n.kept or n.op in UNIQUE or not _scope.inside


def clone(n: Node, args: tuple[Value, ...], types: tuple[Type, ...] | None = None,
          graphs: tuple[Graph, ...] | None = None) -> Node:
    """The same operation on other arguments."""
    return node(n.op, args, n.types if types is None else types, graphs=n.graphs if graphs is None else graphs,
                attrs=n.attrs, where=n.where, device=None if args else n.device, payload=n.payload)


def parameter(type_: Type, level: int, where: Where = UNKNOWN, device: str | None = None) -> Value:
    """A fresh graph parameter."""
    return node("input", types=(type_,), level=level, where=where, device=device).outs[0]


def inline(graph: Graph, args: Sequence[Value]) -> tuple[Value, ...]:
    """The graph's results on these arguments."""
    return rebuild(graph.outputs, dict(zip(graph.inputs, args, strict=True)))


def captures(graph_outputs: Sequence[Value], inputs: Sequence[Value], level: int) -> list[Value]:
    """Values of a lower level that the outputs use: what a sub-graph must be given as extra operands."""
    own = {id(v.node) for v in inputs}
    free: dict[int, bool] = {}
    found: dict[Value, None] = {}
    seen: set[int] = set()
    stack = list(reversed(graph_outputs))
    while stack:
        v = stack.pop()
        if id(v.node) in own:
            continue
        # What only spreads a value out is made inside: captured is the small value.
        spread = v.node.op in ("broadcast", "reshape")
        if v.node.level < level and not spread and not _is_free(v.node, free):
            found.setdefault(v)
            continue
        if id(v.node) not in seen:
            seen.add(id(v.node))
            stack.extend(reversed(v.node.args))
    return list(found)


def _is_free(n: Node, known: dict[int, bool]) -> bool:
    """Constants, and what movement and elementwise ops make of them: copied into a sub-graph instead of captured."""
    for m in postorder(n.outs):
        if id(m) not in known:
            known[id(m)] = m.op in _COPIED and all(known[id(a.node)] for a in m.args)
    return known[id(n)]


_COPIED = frozenset(("const", "iota", *MOVEMENT, *POINTWISE))


def close(outputs: Sequence[Value], inputs: Sequence[Value], level: int, name: str) -> tuple[Graph, list[Value]]:
    """A closed graph: captured values become extra parameters. Returns the graph and what they stand for."""
    captured = captures(outputs, inputs, level)
    fresh = [parameter(v.type, level, v.node.where, v.node.device) for v in captured]
    new = rebuild_from(outputs, dict(zip(captured, fresh, strict=True)))
    return Graph((*inputs, *fresh), new, name), captured


def rebuild_from(outputs: Sequence[Value], replace: Mapping[Value, Value]) -> tuple[Value, ...]:
    """Like :func:`rebuild`, without visiting what lies below a replaced value."""
    done: dict[Value, Value] = dict(replace)

    def visit(root: Value) -> None:
        stack = [root]
        while stack:
            v = stack[-1]
            if v in done:
                stack.pop()
                continue
            missing = [a for a in v.node.args if a not in done]
            if missing:
                stack.extend(missing)
                continue
            args = tuple([done[a] for a in v.node.args])
            new = v.node if args == v.node.args and _settled(v.node) else clone(v.node, args)
            for old, fresh in zip(v.node.outs, new.outs, strict=True):
                done.setdefault(old, fresh)
            stack.pop()

    for v in outputs:
        visit(v)
    return tuple(done[v] for v in outputs)


def bind_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with symbolic dimensions replaced by sizes, in types and attributes."""
    def concrete(t: Type) -> Type:
        return Type(t.dtype, bind(t.shape, sizes))

    def attribute(v: Any) -> Any:
        if isinstance(v, tuple):
            return tuple(attribute(x) for x in v)
        return bind((v,), sizes)[0] if not isinstance(v, (int, float, complex, str, bytes)) and hasattr(v,
                                                                                                        "bind") else v

    fresh = [parameter(concrete(v.type), v.node.level, v.node.where, v.node.device) for v in graph.inputs]

    def make(n: Node, args: tuple[Value, ...]) -> Sequence[Value]:
        if n.op in UNIQUE:
            return n.outs
        attrs = tuple((k, attribute(v)) for k, v in n.attrs)
        if n.op == "const" and n.types[0].dtype.is_inexact:  # a size used as a number
            attrs = (("value", complex(attrs[0][1]) if n.types[0].dtype.is_complex else float(attrs[0][1])),)
        return node(n.op, args, tuple(concrete(t) for t in n.types), attrs=attrs,
                    graphs=tuple(bind_sizes(g, sizes) for g in n.graphs), where=n.where, device=n.device).outs

    outputs = rebuild(graph.outputs, dict(zip(graph.inputs, fresh, strict=True)), make)
    return Graph(tuple(fresh), outputs, graph.name)
