"""Legalization rules: named rewrites that keep the meaning, and how a device spells a pointwise primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx.core.caps import Caps
from rlx.core.dtype import DType, bfloat16, float16, float32, float64, int32
from rlx.ir.expand import FUNCTIONS
from rlx.ir.graph import Node, Type, Value, node
from rlx.ir.prim import TRANSCENDENTAL


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The outputs a rule gives in place of a node's, and the rule's name."""

    rule: str
    outs: Sequence[Value]


Rule = Callable[[Node, tuple[Value, ...], Caps], Sequence[Value] | None]
#: Rules in the order they are tried; a rule is named for what it gives.
RULES: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rewrite under its name."""
    def wrap(f: Rule) -> Rule:
        RULES[name] = f
        return f
    return wrap


def apply(n: Node, args: tuple[Value, ...], caps: Caps) -> Rewritten | None:
    """The first rule that rewrites this node for a device with these capabilities, if any does."""
    for name, f in RULES.items():
        outs = f(n, args, caps)
        if outs is not None:
            return Rewritten(name, outs)
    return None


def spelling(n: Node, caps: Caps) -> tuple[bool, str] | None:
    """How a pointwise node is computed: (whether that is a rewrite, by what), or None where it cannot be."""
    dtype = n.args[0].dtype if n.op != "select" else n.args[1].dtype
    if "spells-all" in caps.features:
        return (False, "generated kernel")
    if dtype not in caps.dtypes and not _widened(dtype, caps):
        return None
    if n.op in caps.spells and dtype in caps.rewrites and dtype in caps.spells[n.op] and not (
            dtype.is_float and n.op in TRANSCENDENTAL):
        return True, caps.rewrites[dtype]
    if dtype.is_complex and n.op not in _PLAIN_COMPLEX:
        return (True, "complex-to-pairs") if dtype in caps.spells.get(n.op, ()) else None
    if dtype in caps.spells.get(n.op,
                                ()) and not (n.op in TRANSCENDENTAL and dtype.is_float and _expandable(n.op, dtype)):
        return (False, "generated kernel")
    if dtype.is_float and _expandable(n.op, dtype):
        return (True, f"{n.op}-expansion")
    return (False, "generated kernel") if dtype in caps.spells.get(n.op, ()) else None


def storage_rule(n: Node, caps: Caps) -> str | None:
    """The rule by which a node that is not elementwise handles a dtype that the device lacks, if it does."""
    for t in (*[a.type for a in n.args], *n.types):
        if t.dtype in caps.rewrites:
            return caps.rewrites[t.dtype]
    return None


def _expandable(op: str, dtype: DType) -> bool:
    return op in FUNCTIONS and dtype in (float16, bfloat16, float32, float64)


def _widened(dtype: DType, caps: Caps) -> bool:
    return dtype in (float16, bfloat16) and caps.computes(float32)


_PLAIN_COMPLEX = frozenset(("add", "sub", "neg", "real", "imag", "conj", "complex", "select", "eq", "ne", "isnan"))


@rule("wide-accumulation")
def _wide_dot(n: Node, args: tuple[Value, ...], caps: Caps) -> Sequence[Value] | None:
    """``dot`` of 16-bit floats sums in float32 and rounds once; of narrow integers in int32, which wraps alike."""
    if n.op != "dot" or caps.schedule != "nest":
        return None
    d = n.types[0].dtype
    wide = float32 if d in (float16, bfloat16) else int32 if d.is_integer and d.bits < 32 else None
    if wide is None:
        return None
    x, y = (_cast(a, wide, n) for a in args)
    return (_cast(node("dot", (x, y), (Type(wide, n.types[0].shape),), attrs=n.attrs, where=n.where).outs[0], d, n),)


def _cast(v: Value, d: DType, n: Node) -> Value:
    return node("cast", (v,), (Type(d, v.shape),), attrs=(("dtype", d),), where=n.where).outs[0]
