"""Looking into running programs: why something was compiled again, that nothing is, and where a NaN comes from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx import device as devices
from rlx.array.host import from_host
from rlx.core import flags
from rlx.core.errors import CompileError, ValueIssue
from rlx.device.base import Device, Storage
from rlx.ir.graph import Graph, Node, Value, graph_scope

#: The device whose interpreter gives every intermediate value.
ORACLE = "python"


class _Forbidden(threading.local):
    depth = 0


_forbidden = _Forbidden()


@contextmanager
def no_compile() -> Iterator[None]:
    """Make any compile in the block an error: what runs in it must have been compiled before.

    >>> import rlx
    >>> x = rlx.asarray([1.0, 2.0])
    >>> (x * 2.0).tolist()
    [2.0, 4.0]
    >>> with rlx.no_compile():
    ...     (x * 3.0).tolist()
    [3.0, 6.0]
    """
    _forbidden.depth += 1
    try:
        yield
    finally:
        _forbidden.depth -= 1


def allow_compile(graph: Graph, name: str) -> None:
    """Raise where compiling is forbidden."""
    if _forbidden.depth:
        shapes = ", ".join(str(v.type) for v in graph.inputs)
        where = next((v.node.where.short for v in graph.outputs if v.node.where.file), "")
        raise CompileError(f"{name}({shapes}) would be compiled inside rlx.no_compile()", where=where,
                           why="no program of this structure, types and flags exists",
                           do="call it once before the block with arguments of these types; see rlx.explain_recompile")


def explain_recompile(f: Callable[..., Any]) -> str:
    """Why each specialization of a jitted function was made: the first guard that differed from the one before.

    >>> import rlx
    >>> f = rlx.jit(lambda x: x + 1)
    >>> _ = f(rlx.zeros(2)), f(rlx.zeros(3))
    >>> print(rlx.explain_recompile(f))
    1. first call
    2. argument 0 changed from f64[2] to f64[3]
    """
    misses = getattr(f, "misses", None)
    if misses is None:
        raise ValueIssue(f"explain_recompile of {getattr(f, '__name__', type(f).__name__)}",
                         why="it is not a jitted function", do="pass what rlx.jit returned")
    return "\n".join(f"{i}. {why}" for i, why in enumerate(misses, 1)) or "never called"


# NaN

def checks_nan() -> bool:
    """Whether the flag asks to look for NaN in results."""
    return "nan" in flags.snapshot().check.split(",")


def need_numbers(graph: Graph, device: Device, inputs: Sequence[Storage], outs: Sequence[Storage]) -> None:
    """Raise ValueIssue when a result has a NaN, naming the first operation that made one and its line."""
    if not any(_has_nan(_host(s, v, device)) for s, v in zip(outs, graph.outputs, strict=False)):
        return
    given = [_host(s, v, device) for s, v in zip(inputs, graph.inputs, strict=True)]
    for i, (x, v) in enumerate(zip(given, graph.inputs, strict=True)):
        if _has_nan(x):
            raise ValueIssue(f"argument {i} of the program ({v.type}) holds {_count(x)}", where=v.node.where.short,
                             why="a result is NaN, and the argument was already bad", do="find out where it comes from")
    n, args, inside = _first(graph, given)
    ranges = ", ".join(_range(a) for a in args) or "nothing"
    raise ValueIssue(f"{n.op} ({', '.join(map(str, n.types))}) is the first to give NaN{inside}", where=n.where.short,
                     why=f"its arguments have none: {ranges}", do="guard the argument, for example with rlx.where")


def _first(graph: Graph, given: Sequence[np.ndarray]) -> tuple[Node, list[np.ndarray], str]:
    """The first node, in order of evaluation, with a NaN; its arguments; and in which iterations of which loops."""
    with graph_scope():
        from rlx.compile.legalize import legalize
        legal, _ = legalize(graph, devices.find(ORACLE))
        nodes = [n for n in legal.nodes() if n.op != "input"]
        values = [*legal.inputs, *[v for n in nodes for v in n.outs]]
    known = dict(zip(values, _run(Graph(legal.inputs, tuple(values), "nan"), given), strict=True))
    for n in nodes:
        if any(_has_nan(known[v]) for v in n.outs):
            args = [known[a] for a in n.args]
            return _inside(n, args) or (n, args, "")
    return nodes[-1], [], ""


def _run(graph: Graph, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    from rlx.device.python.device import evaluate
    with np.errstate(all="ignore"):
        return [np.asarray(x) for x in evaluate(graph, list(given))]


def _inside(n: Node, args: list[np.ndarray]) -> tuple[Node, list[np.ndarray], str] | None:
    """The node in a loop or a branch that gives its NaN, found by running it step by step."""
    if n.op == "cond":
        branch = n.graphs[int(args[0])]
        return _first(branch, args[1:])
    if n.op not in ("loop", "while"):
        return None
    lead = 1 if n.op == "loop" else 0
    carry, body = n.attr("carry"), n.graphs[-1]
    state, rest = args[lead:lead + carry], args[lead + carry:]
    step = 0
    while step < int(args[0]) if lead else bool(_run(n.graphs[0], [*state, *rest])[0]):
        operands = [*([np.asarray(step, np.int64)] if lead else []), *state, *rest]
        state = _run(body, operands)
        if any(map(_has_nan, state)):
            found, its, deeper = _first(body, operands)
            return found, its, f"{deeper}, in iteration {step} of the {n.op} at {n.where.short}"
        step += 1
    return None


def _host(s: Storage, v: Value, device: Device) -> np.ndarray:
    return from_host(device.download(s, v.dtype, v.shape), v.dtype)  # type: ignore[arg-type]


def _has_nan(x: np.ndarray) -> bool:
    return x.dtype.kind in "fc" and bool(np.isnan(x).any())


def _count(x: np.ndarray) -> str:
    return f"{int(np.isnan(x).sum())} NaN of {x.size}"


def _range(x: np.ndarray) -> str:
    if x.size == 0 or x.dtype.kind == "c":
        return f"{x.dtype.name}{list(x.shape)}"
    return f"{x.dtype.name}{list(x.shape)} from {x.min()} to {x.max()}"
