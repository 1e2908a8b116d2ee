"""MIR: the closed set of primitives. The graph is the same DAG as HIR, with only these nodes (and ``native``).

Grammar::

    value   := node.output
    node    := prim(value*; attrs; graph*) -> type*
    type    := dtype[dim, ...]
    source  := input | const | iota
    pointwise := UNARY(x) | BINARY(x, y) | COMPARE(x, y) | select(c, x, y) | fma(x, y, z) | cast | bitcast
    movement  := reshape | permute | broadcast | slice | pad | flip | concat | window
    indexing  := gather(x, i0, ..)  x[i0, .., :]     | scatter(x, u, i0, ..)  x[i0, .., :] kind= u
    contract  := dot | reduce | segment_reduce | scan | sort
    control   := while(cond, body) | cond(branches) | loop(body)
    collective:= all_reduce | all_gather | reduce_scatter | all_to_all | shift | axis_index
    native    := native(claim)

Pointwise arguments have equal dtypes and shapes; broadcasting and promotion are explicit ``broadcast`` and ``cast``
nodes. Comparisons give bool. ``and or xor not`` work on bool and integers. Integer ``floordiv`` and ``rem`` floor as
Python's; division by zero gives 0. ``min`` and ``max`` propagate NaN. ``shl``/``shr`` by at least the width give 0 (or
the sign). Casts from float to integer truncate, saturating at the ends; NaN gives 0. ``round`` is half to even.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pointwise:
    """An elementwise primitive: ``kinds`` of dtypes it takes; ``result`` is ``same``, ``bool``, ``real``, ``attr``."""

    name: str
    arity: int
    kinds: str
    result: str = "same"


def _table(*rows: tuple[str, int, str, str] | tuple[str, int, str]) -> dict[str, Pointwise]:
    return {r[0]: Pointwise(*r) for r in rows}


POINTWISE: dict[str, Pointwise] = _table(
    # arithmetic
    ("neg", 1, "iufc"), ("abs", 1, "iufc", "real"), ("sign", 1, "iufc"),
    ("floor", 1, "f"), ("ceil", 1, "f"), ("trunc", 1, "f"), ("round", 1, "f"), ("sqrt", 1, "fc"),
    ("add", 2, "iufc"), ("sub", 2, "iufc"), ("mul", 2, "iufc"), ("div", 2, "fc"),
    ("floordiv", 2, "iuf"), ("rem", 2, "iuf"), ("pow", 2, "iufc"), ("min", 2, "biuf"), ("max", 2, "biuf"),
    ("fma", 3, "f"), ("copysign", 2, "f"), ("nextafter", 2, "f"),
    # transcendental
    *((name, 1, "fc") for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
        "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")),
    ("erf", 1, "f"), ("erfc", 1, "f"), ("lgamma", 1, "f"), ("digamma", 1, "f"), ("erfinv", 1, "f"),
    ("atan2", 2, "f"), ("hypot", 2, "f"),
    # comparison, logic, bits
    ("eq", 2, "biufc", "bool"), ("ne", 2, "biufc", "bool"), ("lt", 2, "biuf", "bool"), ("le", 2, "biuf", "bool"),
    ("gt", 2, "biuf", "bool"), ("ge", 2, "biuf", "bool"), ("isnan", 1, "fc", "bool"),
    ("and", 2, "biu"), ("or", 2, "biu"), ("xor", 2, "biu"), ("not", 1, "biu"),
    ("shl", 2, "iu"), ("shr", 2, "iu"), ("popcount", 1, "iu"), ("clz", 1, "iu"), ("mulhi", 2, "u"),
    # selection and conversion; select's first argument is bool
    ("select", 3, "biufc"), ("cast", 1, "biufc", "attr"), ("bitcast", 1, "biuf", "attr"),
    # complex
    ("complex", 2, "f", "complex"), ("real", 1, "fc", "real"), ("imag", 1, "c", "real"), ("conj", 1, "fc"),
)

TRANSCENDENTAL: frozenset[str] = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "pow", "atan2", "hypot"))

SOURCES = ("input", "const", "iota")
MOVEMENT = ("reshape", "permute", "broadcast", "slice", "pad", "flip", "concat", "window")
INDEXING = ("gather", "scatter")
CONTRACTION = ("dot", "reduce", "segment_reduce", "scan", "sort")
CONTROL = ("while", "cond", "loop")
COLLECTIVE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shift", "axis_index")
REDUCE_KINDS = ("sum", "prod", "min", "max", "and", "or", "xor")
SCATTER_KINDS = ("set", "add", "mul", "min", "max")

#: Every primitive; adding one is an architecture decision.
PRIMITIVES: frozenset[str] = frozenset(
    (*POINTWISE, *SOURCES, *MOVEMENT, *INDEXING, *CONTRACTION, *CONTROL, *COLLECTIVE, "native"))
#: The binary primitive that combines two partial results of a reduction.
COMBINE = {"sum": "add", "prod": "mul", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor",
           "add": "add", "mul": "mul"}
