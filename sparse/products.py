"""Products of a CSR matrix as ops: the sum over each row's entries is one segmented reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.define import op
from rlx.ir.op import Sample
from rlx.ops.elementwise import conj
from rlx.ops.index import gather, scatter
from rlx.ops.movement import expand_dims
from rlx.ops.reduce import sum as total
from rlx.ops.segments import ct_rows, segment_of, segment_reduce


@op
def csr_matvec(data: Array, indices: Array, indptr: Array, x: Array, /) -> Array:
    """``y[i] = sum over k in [indptr[i], indptr[i+1]) of data[k] * x[indices[k]]``, for a vector or a block ``x``.

    Shapes: data, indices (nnz,); indptr (n + 1,); x (m,) or (m, k); y (n,) or (n, k). Indices must be in bounds:
    :class:`rlx.sparse.CSR` checks them once.
    """
    picked = gather(x, indices, mode="promise")
    weights = data if x.ndim == 1 else expand_dims(data, axis=1)
    return segment_reduce(weights * picked, indptr)


@csr_matvec.ref
def _(data: Any, indices: Any, indptr: Any, x: Any) -> Any:
    import scipy.sparse
    m = scipy.sparse.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, x.shape[0]))
    return m @ x


@csr_matvec.grad
def _(ct: Array, out: Array, data: Array, indices: Array, indptr: Array, x: Array) -> tuple[Any, ...]:
    """``d data[k] = ct[row(k)] * conj(x[col(k)])`` and ``d x = A^H ct``."""
    at_row = ct_rows(ct, segment_of(indptr, data.shape[0]))
    products = at_row * conj(gather(x, indices, mode="promise"))
    d_data = products if x.ndim == 1 else total(products, axis=1)
    weights = conj(data) if x.ndim == 1 else expand_dims(conj(data), axis=1)
    return d_data, None, None, scatter(x * 0, weights * at_row, (indices,), "add")


@csr_matvec.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(3)
    indptr = np.array([0, 2, 2, 5, 6], np.int32)
    indices = np.array([0, 3, 1, 2, 4, 0], np.int32)
    out = []
    for name in ("float32", "float64", "complex64", "complex128"):
        data = rng.standard_normal(6) + (1j * rng.standard_normal(6) if "complex" in name else 0)
        out.append(Sample((data.astype(name), indices, indptr, rng.standard_normal(5).astype(name)), name=name))
    block = rng.standard_normal((5, 3))
    out.append(Sample((rng.standard_normal(6), indices.astype(np.int64), indptr.astype(np.int64), block), name="block"))
    empty = (np.zeros(0), np.zeros(0, np.int32), np.zeros(4, np.int32), np.ones(2))
    return [*out, Sample(empty, name="empty", edge=True, grad=False)]


@op
def bsr_matvec(data: Array, indices: Array, indptr: Array, x: Array, /) -> Array:
    """The product of a matrix of dense blocks with a vector or a block of columns ``x``.

    Block row i of y is the sum over k in [indptr[i], indptr[i+1]) of ``data[k] @ x[block indices[k]]``. Shapes: data
    (nb, r, c), indices (nb,), indptr (n/r + 1,); x (m,) or (m, k); y (n,) or (n, k). Indices must be in bounds.
    """
    _, r, c = data.shape
    columns = x.reshape((x.shape[0] // c, c, 1 if x.ndim == 1 else x.shape[1]))
    picked = gather(columns, indices, mode="promise")
    products = total(expand_dims(data, axis=3) * expand_dims(picked, axis=1), axis=2)
    out = segment_reduce(products, indptr)
    return out.reshape((out.shape[0] * r, *x.shape[1:]))


@bsr_matvec.ref
def _(data: Any, indices: Any, indptr: Any, x: Any) -> Any:
    import scipy.sparse
    shape = ((len(indptr) - 1) * data.shape[1], x.shape[0])
    return scipy.sparse.bsr_matrix((data, indices, indptr), shape=shape) @ x


@bsr_matvec.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(5)
    indptr, indices = np.array([0, 2, 2, 3], np.int32), np.array([0, 2, 1], np.int32)
    data, x = rng.standard_normal((3, 2, 3)), rng.standard_normal(9)
    return [Sample((data, indices, indptr, x), name="float64"),
            Sample((data.astype("float32"), indices, indptr, x.astype("float32")), name="float32"),
            Sample((data + 1j, indices, indptr, x + 0j), name="complex128"),
            Sample((data, indices, indptr, rng.standard_normal((9, 4))), name="block")]
