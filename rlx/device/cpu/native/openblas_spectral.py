"""Claims: eigenvalues and singular values are LAPACK's SYEVD/HEEVD, GESDD and GEEV."""

from __future__ import annotations

from rlx.core.dtype import DType
from rlx.device.cpu import factor, lapack
from rlx.device.cpu.emit import Emit
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower_eigh(native: Native) -> tuple[str, str]:
    """A row-major Hermitian matrix is its conjugate to LAPACK: equal values, conjugate vectors, the other triangle."""
    dtype, _, n, _ = factor.matrices(native)
    upper = bool(dict(native.attrs)["upper"])
    vectors = len(native.types) == 4
    name = "heevd" if dtype.is_complex else "syevd"

    def body(e: Emit, g: str) -> None:
        a = factor.item(e, native, 0, g)
        w = e.at(e.buffer(1), lapack.element(dtype.real), (g, n))
        bad = factor.not_finite(e, dtype, a, n, n, "upper" if upper else "lower")

        def work() -> str:
            with factor.scratch(e, 0 if vectors else n * n * dtype.itemsize) as (more,):
                v = factor.item(e, native, 2, g) if vectors else more
                lapack.copy(e, dtype, v, a, n * n)
                info = factor.lapacke(e, name, dtype, "V" if vectors else "N", "L" if upper else "U", n, v, n, w)
                if vectors:
                    factor.transpose_here(e, dtype, v, n, conj=True)
            return info

        factor.guarded(e, native, g, bad, 3 if vectors else 2, (1, 2) if vectors else (1,), work)

    return factor.lowered("eigh", native, 9 * n**3, body)


def lower_svd(native: Native) -> tuple[str, str]:
    """``A^T = U' S V'`` column-major says ``A = V'^T S U'^T``: both factors lie as the results should."""
    dtype, _, m, n = factor.matrices(native)
    vectors = len(native.types) == 5
    full = bool(dict(native.attrs).get("full"))
    job = ("A" if full else "S") if vectors else "N"
    k = min(m, n)
    ku = m if full else k

    def body(e: Emit, g: str) -> None:
        a = factor.item(e, native, 0, g)
        s = e.at(e.buffer(2 if vectors else 1), lapack.element(dtype.real), (g, k))
        u, vh = (factor.item(e, native, 1, g), factor.item(e, native, 3, g)) if vectors else (s, s)
        bad = factor.not_finite(e, dtype, a, m, n)

        def work() -> str:
            with factor.scratch(e, m * n * dtype.itemsize) as (copy,):
                lapack.copy(e, dtype, copy, a, m * n)
                return factor.lapacke(e, "gesdd", dtype, job, n, m, copy, n, s, vh, n, u, ku)

        factor.guarded(e, native, g, bad, 4 if vectors else 2, (1, 2, 3) if vectors else (1,), work)

    return factor.lowered("svd", native, 20 * m * n * k, body)


def lower_eig(native: Native) -> tuple[str, str]:
    """A's right vectors are the conjugate left vectors of the A^T that LAPACK sees."""
    dtype, _, n, _ = factor.matrices(native)
    vectors = len(native.types) == 4
    size, real = dtype.itemsize, dtype.real.itemsize

    def body(e: Emit, g: str) -> None:
        a = factor.item(e, native, 0, g)
        w = e.at(e.buffer(1), f"[{2 * real} x i8]", (g, n))
        bad = factor.not_finite(e, dtype, a, n, n)
        out = e.at(e.buffer(2), f"[{2 * real} x i8]", (g, n * n)) if vectors else ""

        def work() -> str:
            left = n * n if vectors else 1
            with factor.scratch(e, n * n * size, left * size, n * size, n * size) as (copy, vl, wr, wi):
                lapack.copy(e, dtype, copy, a, n * n)
                job = "V" if vectors else "N"
                if dtype.is_complex:
                    info = factor.lapacke(e, "geev", dtype, job, "N", n, copy, n, w, vl, n, vl, 1)
                    if vectors:
                        factor.transpose(e, dtype, out, vl, n, n, conj=True)
                    return info
                info = factor.lapacke(e, "geev", dtype, job, "N", n, copy, n, wr, wi, vl, n, vl, 1)
                _complex_values(e, dtype, w, wr, wi, n)
                if vectors:
                    _complex_vectors(e, dtype, out, vl, wi, n)
                return info

        factor.guarded(e, native, g, bad, 3 if vectors else 2, (1, 2) if vectors else (1,), work)

    return factor.lowered("eig", native, 25 * n**3, body)


def _complex_values(e: Emit, dtype: DType, w: str, wr: str, wi: str, n: int) -> None:
    kind = "float" if dtype.bits == 32 else "double"
    with e.loop(n) as i:
        for part, source in enumerate((wr, wi)):
            x = e.let(f"load {kind}, ptr {e.at(source, kind, (i, 1))}")
            e.do(f"store {kind} {x}, ptr {e.at(w, kind, (i, 2), (part, 1))}")


def _complex_vectors(e: Emit, dtype: DType, out: str, vl: str, wi: str, n: int) -> None:
    """A pair's vectors are columns (re, im) of vl, the first of the pair with the positive imaginary value."""
    kind = "float" if dtype.bits == 32 else "double"
    with e.loop(n) as j:
        x = e.let(f"load {kind}, ptr {e.at(wi, kind, (j, 1))}")
        first = e.let(f"zext i1 {e.let(f'fcmp ogt {kind} {x}, 0.0')} to i64")
        second = e.let(f"zext i1 {e.let(f'fcmp olt {kind} {x}, 0.0')} to i64")
        re = e.let(f"sub i64 {j}, {second}")
        im = e.let(f"add i64 {j}, {first}")
        sign = e.let(f"sitofp i64 {e.let(f'sub i64 {second}, {first}')} to {kind}")
        with e.loop(n) as i:
            a = e.let(f"load {kind}, ptr {e.at(vl, kind, (re, n), (i, 1))}")
            b = e.let(f"load {kind}, ptr {e.at(vl, kind, (im, n), (i, 1))}")
            target = e.at(out, kind, (i, 2 * n), (j, 2))
            e.do(f"store {kind} {a}, ptr {target}")
            e.do(f"store {kind} {e.let(f'fmul {kind} {b}, {sign}')}, ptr {e.at(target, kind, (1, 1))}")


_DOC = "LAPACK, batches over the thread pool"
CLAIMS = (
    Claim("openblas_syevd", "linalg.eigh", "syevd, heevd", factor.accepts, lower_eigh, _DOC),
    Claim("openblas_syevd_values", "linalg.eigvalsh", "syevd, heevd", factor.accepts, lower_eigh, _DOC),
    Claim("openblas_gesdd", "linalg.svd", "gesdd", factor.accepts, lower_svd, _DOC),
    Claim("openblas_gesdd_values", "linalg.svdvals", "gesdd", factor.accepts, lower_svd, _DOC),
    Claim("openblas_geev", "linalg.eig", "geev", factor.accepts, lower_eig, _DOC),
    Claim("openblas_geev_values", "linalg.eigvals", "geev", factor.accepts, lower_eig, _DOC),
)
