"""Claim: Cholesky is LAPACK's POTRF, on a copy in the result's own memory."""

from __future__ import annotations

from rlx.device.cpu import factor, lapack
from rlx.device.cpu.emit import Emit
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

#: Up to this size a factorization written out over the batch beats a call for each matrix (2.3 against 1.4 times
#: NumPy's speed at n = 4).
SMALL = 4


def accepts(call: Call) -> str | None:
    """None for matrices of a size worth a call each; else the reason."""
    n = call.inputs[0][1][-1]
    if 0 < n <= SMALL:
        return f"is slower than generated code at {n}x{n}"
    return factor.accepts(call)


def lower(native: Native) -> tuple[str, str]:
    """Row-major lower is column-major upper: ``A^T = U^H U`` says ``A = U^T (U^T)^H``, and U^T is what lies there."""
    dtype, _, n, _ = factor.matrices(native)
    upper = bool(dict(native.attrs)["upper"])

    def body(e: Emit, g: str) -> None:
        l = factor.item(e, native, 1, g)
        lapack.copy(e, dtype, l, factor.item(e, native, 0, g), n * n)
        info = lapack.routine(e, "potrf", dtype, "L" if upper else "U", n, l, n)
        _other_triangle(e, l, dtype.bits, n, upper, dtype.real.itemsize)
        number = e.let(f"load i64, ptr {info}")
        bad = _first_bad(e, l, "float" if dtype.real.bits == 32 else "double", n, 2 if dtype.is_complex else 1)
        done = e.let(f"icmp eq i64 {number}, 0")
        factor.finish(e, native, g, e.let(f"select i1 {done}, i64 {bad}, i64 {number}"), 2, (1,))

    return factor.lowered("potrf", native, n**3 / 3, body)


def _other_triangle(e: Emit, l: str, bits: int, n: int, upper: bool, align: int) -> None:
    """Zero the triangle that LAPACK left as it was."""
    word = f"i{bits}"
    with e.loop(n) as i:
        start, stop = ("0", i) if upper else (e.let(f"add i64 {i}, 1"), str(n))
        with e.loop(stop, start) as j:
            e.do(f"store {word} 0, ptr {e.at(l, word, (i, n), (j, 1))}, align {align}")


def _first_bad(e: Emit, l: str, kind: str, n: int, words: int) -> str:
    """The 1-based number of the first diagonal element that is not positive (NaN passes POTRF), or 0."""
    found = e.slot("i64", 0)
    with e.loop(n) as i:
        at = e.let(f"sub i64 {n - 1}, {i}")
        x = e.let(f"load {kind}, ptr {e.at(l, kind, (at, (n + 1) * words))}")
        with e.when(e.let(f"fcmp ule {kind} {x}, 0.0")):
            number = e.let(f"add i64 {at}, 1")
            e.do(f"store i64 {number}, ptr {found}")
    return e.let(f"load i64, ptr {found}")


CLAIMS = (Claim("openblas_potrf", "linalg.cholesky", "potrf", accepts, lower,
                "LAPACK Cholesky in the result's memory, batches over the thread pool"),)
