"""Legalize: HIR -> MIR. Each node becomes a native call, primitives, or the result of a named rule, or fails.

``softmax(x)`` -> ``reduce(max)``, ``sub``, ``exp`` [rewritten by exp-expansion], ``reduce(sum)``, ``div``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlx.compile import attend_form, rules
from rlx.compile.report import COMMON, FREE, NATIVE, REWRITTEN, Report, Row
from rlx.core.caps import Caps
from rlx.core.errors import CompileError, RlxError, ValueIssue
from rlx.core.shape import is_static
from rlx.core.where import Where
from rlx.ir.claim import Call, Claim
from rlx.ir.graph import UNIQUE, Graph, Node, Value, clone, inline, node, postorder
from rlx.ir.op import REGISTRY
from rlx.ir.prim import COLLECTIVE, CONTROL, MOVEMENT, POINTWISE, SOURCES

PREFER_NATIVE, PREFER_COMMON, STRICT = "prefer_native", "common", "strict"
POLICIES = (PREFER_NATIVE, PREFER_COMMON, STRICT)


class Target(Protocol):
    """What legalization needs of a device."""

    name: str
    caps: Caps
    claims: Mapping[str, tuple[Claim, ...]]


@dataclass(frozen=True)
class Policy:
    """Which paths may be taken: a default, and overrides for single ops.

    ``prefer_native`` takes the first claim that accepts; ``common`` ignores claims; ``strict`` makes anything that is
    not native an error (movement, inputs and constants are free under every policy).
    """

    default: str = PREFER_NATIVE
    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.overrides:
            if name not in REGISTRY:
                raise ValueIssue(f"a dispatch override of {name!r}, which is no op", why="nothing registered it",
                                 do="use a name that reports show, such as 'dot' or 'softmax'")
        for p in (self.default, *self.overrides.values()):
            if p not in POLICIES:
                raise ValueIssue(f"there is no dispatch policy {p!r}", why="policies are a fixed set",
                                 do=f"use one of {', '.join(POLICIES)}")

    def of(self, op: str) -> str:
        return self.overrides.get(op, self.default)

    def __str__(self) -> str:
        extra = ", ".join(f"{o}={p}" for o, p in sorted(self.overrides.items()))
        return self.default + (f" ({extra})" if extra else "")

    def key(self) -> tuple[Any, ...]:
        """Part of the compile-cache key."""
        return (self.default, tuple(sorted(self.overrides.items())))


def legalize(graph: Graph, target: Target, policy: Policy | None = None,
             first: int | None = None) -> tuple[Graph, Report]:
    """The graph in primitives and native calls that the target takes, and where every node went.

    Inputs from number ``first`` on are the same in every call.

    Raises CompileError for a node with no legal lowering.
    """
    work = _Legalizer(target, policy or Policy())
    work.fixed.update(graph.inputs[len(graph.inputs) if first is None else first:])
    legal = work.graph(graph, 0)
    return legal, Report(target.name, str(work.policy), tuple(work.rows))


def types_text(n: Node) -> str:
    """``f64[3,4], f64[4] -> f64[3]``."""
    args = ", ".join(str(a.type) for a in n.args)
    return f"{args} -> {', '.join(map(str, n.types))}" if args else ", ".join(map(str, n.types))


@dataclass
class _Legalizer:
    target: Target
    policy: Policy
    rows: list[Row] = field(default_factory=list)
    #: The ops being decomposed around the current node, with the claims that declined them.
    around: list[tuple[str, Sequence[tuple[str, str]]]] = field(default_factory=list)
    #: Inputs that are the same in every call.
    fixed: set[Value] = field(default_factory=set)
    #: Contractions of the graph at hand that one kernel joins with the softmax between them.
    joined: set[Node] = field(default_factory=set)

    def graph(self, g: Graph, depth: int, where: Where | None = None) -> Graph:
        done: dict[Value, Value] = {v: v for v in g.inputs}
        if self.target.caps.schedule == "nest":
            self.joined |= attend_form.products(g)
        for n in postorder(g.outputs):
            if all(o in done for o in n.outs):
                continue
            args = tuple([done[a] for a in n.args])
            for old, new in zip(n.outs, self.node(n, args, depth, where), strict=True):
                done[old] = new
        return Graph(g.inputs, tuple([done[v] for v in g.outputs]), g.name)

    def node(self, n: Node, args: tuple[Value, ...], depth: int, where: Where | None) -> Sequence[Value]:
        where = where or n.where
        if n.op in UNIQUE or n.op in SOURCES:
            return self._source(n, where)
        declined: list[tuple[str, str]] = []
        policy = self.policy.of(n.op)
        claim = self._claim(n, policy, declined)
        if claim is not None:
            self._row(n, NATIVE, f"{claim.name} ({claim.symbol})", where, declined, depth)
            attrs = (("attrs", n.attrs), ("claim", claim.name), ("op", n.op))
            return node("native", args, n.types, attrs=attrs, where=where, payload=claim).outs
        if n.op in MOVEMENT:
            self._storable(n, where, declined)
            self._row(n, FREE, "index map", where, (), depth)
            return clone(n, args).outs
        op = REGISTRY[n.op]
        if policy == STRICT and (op.primitive or not self._decomposable(n)):
            self._refuse(n, where, declined, "the policy is strict and no claim took it",
                         "use the policy prefer_native, or allow this op with an override")
        if n.op in CONTROL:
            return self._control(n, args, depth, where)
        if not op.primitive:
            return self._decompose(n, args, depth, where, declined)
        return self._primitive(n, args, depth, where, declined)

    # Paths

    def _source(self, n: Node, where: Where) -> Sequence[Value]:
        self._storable(n, where, [])
        return n.outs

    def _claim(self, n: Node, policy: str, declined: list[tuple[str, str]]) -> Claim | None:
        candidates = self.target.claims.get(n.op, ())
        if not candidates or policy == PREFER_COMMON:
            return None
        if not all(is_static(t.shape) for t in (*[a.type for a in n.args], *n.types)):
            declined.extend((c.name, "needs static shapes") for c in candidates)
            return None
        if n in self.joined and policy == PREFER_NATIVE:
            declined.extend((c.name, "is slower: one kernel computes attention without storing its scores")
                            for c in candidates)
            return None
        call = Call(n.op, tuple([(a.dtype, a.shape) for a in n.args]),  # type: ignore[misc]
                    tuple([(t.dtype, t.shape) for t in n.types]), dict(n.attrs),  # type: ignore[misc]
                    tuple(k for k, a in enumerate(n.args) if a in self.fixed))
        for c in candidates:
            reason = self._asked(c, call, n)
            if reason is None:
                return c
            declined.append((c.name, reason))
        return None

    def _asked(self, c: Claim, call: Call, n: Node) -> str | None:
        """What a claim's predicate says; one that fails is the device's fault, and says whose."""
        try:
            reason = c.accepts(call)
        except RlxError:
            raise
        except Exception as e:
            raise CompileError(f"the claim {c.name} of device {self.target.name} failed on {n.op} ({types_text(n)})",
                               where=n.where.short, why=f"its predicate raised {type(e).__name__}: {e}",
                               do=f"report it to who made the device, or compile with overrides={{{n.op!r}: 'common'}}"
                               ) from e
        if reason is not None and not isinstance(reason, str):
            raise CompileError(f"the claim {c.name} of device {self.target.name} answered {reason!r}",
                               where=n.where.short, why="a predicate returns None to accept, or the reason it declines",
                               do="report it to who made the device")
        return reason

    def _decomposable(self, n: Node) -> bool:
        return REGISTRY[n.op].rules.get("decompose") is not None or hasattr(REGISTRY[n.op], "graph")

    def _decompose(self, n: Node, args: tuple[Value, ...], depth: int, where: Where,
                   declined: list[tuple[str, str]]) -> Sequence[Value]:
        op: Any = REGISTRY[n.op]
        if not self._decomposable(n):
            self._refuse(n, where, declined, "the op has no decomposition and no claim took it",
                         "give the op a decompose rule, or use a device that claims it")
        body = op.graph(tuple([a.type for a in n.args]), dict(n.attrs))
        self._row(n, COMMON, f"decomposition of {n.op}", where, declined, depth)
        self.around.append((n.op, declined))
        legal = self.graph(body, depth + 1, Where(where.file, where.line, n.op))
        self.around.pop()
        return inline(legal, args)

    def _control(self, n: Node, args: tuple[Value, ...], depth: int, where: Where) -> Sequence[Value]:
        if not self.target.caps.control:
            self._refuse(n, where, [], "the device runs no loops or branches",
                         "unroll the loop, or use a device with control flow")
        self._row(n, COMMON, "device-side control flow", where, (), depth)
        graphs = tuple([self.graph(g, depth + 1) for g in n.graphs])
        return clone(n, args, graphs=graphs).outs

    def _primitive(self, n: Node, args: tuple[Value, ...], depth: int, where: Where,
                   declined: list[tuple[str, str]]) -> Sequence[Value]:
        caps = self.target.caps
        if n.op in COLLECTIVE:
            self._refuse(n, where, declined, "the program runs on one device, outside any mesh",
                         "run it under a mesh of devices")
        rewritten = rules.apply(n, args, caps)
        if rewritten is not None:
            self._row(n, REWRITTEN, rewritten.rule, where, declined, depth)
            return rewritten.outs
        self._storable(n, where, declined)
        missing = [t.dtype for t in (*[a.type for a in n.args], *n.types) if not caps.stores(t.dtype)]
        if missing:
            self._refuse(n, where, declined, f"{caps.name} has no {missing[0].name}", _other_dtypes(caps))
        if n.op in POINTWISE:
            return self._pointwise(n, args, depth, where, declined)
        rule = rules.storage_rule(n, caps)
        self._row(n, COMMON if rule is None else REWRITTEN, rule or "generated kernel", where, declined, depth)
        return clone(n, args).outs

    def _pointwise(self, n: Node, args: tuple[Value, ...], depth: int, where: Where,
                   declined: list[tuple[str, str]]) -> Sequence[Value]:
        how = rules.spelling(n, self.target.caps)
        if how is None:
            self._refuse(n, where, declined,
                         f"{self.target.name} cannot compute {n.op} in {n.args[0].dtype.name} accurately",
                         _other_dtypes(self.target.caps))
        assert how is not None
        path, by = how
        self._row(n, REWRITTEN if path else COMMON, by, where, declined, depth)
        return clone(n, args).outs

    # Bookkeeping

    def _storable(self, n: Node, where: Where, declined: list[tuple[str, str]]) -> None:
        for t in n.types:
            if not self.target.caps.stores(t.dtype):
                self._refuse(n, where, declined, f"{self.target.name} has no {t.dtype.name}",
                             _other_dtypes(self.target.caps))

    def _row(self, n: Node, path: str, by: str, where: Where, declined: Sequence[tuple[str, str]], depth: int) -> None:
        self.rows.append(Row(n.op, types_text(n), path, by, where, tuple(declined), depth))

    def _refuse(self, n: Node, where: Where, declined: Sequence[tuple[str, str]], why: str, do: str) -> None:
        claims = "".join(f"; claim {c} declined: {reason}" for c, reason in declined)
        for op, by in reversed(self.around):
            claims += f"; it is part of {op}" + "".join(f", whose claim {c} declined: {reason}" for c, reason in by)
        raise CompileError(f"no legal lowering of {n.op} ({types_text(n)}) on {self.target.name}", where=where.short,
                           why=why + claims, do=do)


def _other_dtypes(caps: Caps) -> str:
    known = sorted(d.name for d in caps.dtypes if d.is_inexact) or sorted(d.name for d in caps.dtypes)
    return f"use a dtype that {caps.name} computes ({', '.join(known) or 'it has none'}), or another device"
