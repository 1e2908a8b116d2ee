"""Powers: whole exponents as products, other ones as the primitive."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import broadcast, emit1, literal
from rlx.array.define import public
from rlx.ops.elementwise import sqrt
from rlx.ops.table import elementwise


def _pow_partials(o: Array, x: Array, y: Array) -> tuple[Array, Array]:
    safe = FUNCTIONS["where"](FUNCTIONS["greater"](x, 0), x, 1) if x.dtype.kind == "f" else x
    flat = FUNCTIONS["equal"](y, 0)
    dx = FUNCTIONS["where"](flat, 0, y * _raw_pow(x, FUNCTIONS["where"](flat, 1, y - 1)))
    return dx, o * FUNCTIONS["log"](safe)


def _pow_ref(x: Any, y: Any) -> Any:
    """NumPy's, and for integers the low bits of the exact power; a negative exponent gives 0 unless ``|x|`` is 1."""
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    bits, top = x.dtype.itemsize * 8, 1 << (x.dtype.itemsize * 8)
    exact = [int(a)**int(b) if b >= 0 else int(a)**(int(b) % 2) if _own_inverse(a) else 0
             for a, b in zip(x.ravel(), y.ravel(), strict=True)]
    low = [v % top - (top if x.dtype.kind == "i" and v % top >> (bits - 1) else 0) for v in exact]
    return np.array(low, x.dtype).reshape(x.shape)


def _own_inverse(v: Any) -> bool:
    """Whether an integer is its own inverse."""
    return int(v) in (1, -1)


_raw_pow = elementwise("_raw_pow", "pow", _pow_ref, _pow_partials, doc="``x ** y``.", domain="positive")


@public
def pow(x1: Any, x2: Any, /) -> Array:
    """``x1 ** x2`` elementwise; small integer powers become products."""
    if isinstance(x2, int) and not isinstance(x2, bool) and isinstance(x1, Array):
        base, n = x1, x2
        if n == 0:
            return base * 0 + 1 if base.dtype.kind != "b" else _raw_pow(base, x2)
        if (1 <= n <= 16) and base.dtype.kind in "iufc":
            return _product_power(base, n)
        if -16 <= n < 0 and base.dtype.kind in "fc":
            return 1 / _product_power(base, -n)
        if base.dtype.kind in "fc":
            # A literal: the exponent's integrality decides the result's sign.
            shape = base.shape
            return emit1("pow", base, broadcast(literal(x2, base.dtype, base._value.node.device), shape))
    if isinstance(x2, float) and isinstance(x1, Array) and x1.dtype.kind == "f" and x2 == 0.5:
        return sqrt(x1 + 0.0)
    return _raw_pow(x1, x2)


def _product_power(x: Array, n: int) -> Array:
    out: Array | None = None
    while n:
        if n & 1:
            out = x if out is None else out * x
        n >>= 1
        if n:
            x = x * x
    assert out is not None
    return out
