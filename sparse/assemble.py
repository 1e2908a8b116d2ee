"""Making sparse matrices from diagonals and from other matrices, in SciPy's spellings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ops.creation import full
from rlx.ops.elementwise import astype
from rlx.ops.movement import broadcast_to, concat
from rlx.sparse import pattern
from rlx.sparse.algebra import pair, picked, rearrange
from rlx.sparse.csr import CSR, as_csr


def eye(n: int, m: int | None = None, k: int = 0, *, dtype: Any = "float64", device: str | None = None,
        format: str = "csr") -> Any:
    """The (n, m) matrix with ones on diagonal ``k``.

    >>> import rlx.sparse
    >>> rlx.sparse.eye(2, 3, 1).todense().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    columns = n if m is None else m
    rows = np.arange(max(-k, 0), max(min(n, columns - k), max(-k, 0)))
    one = full((len(rows),), 1, dtype=dt.as_dtype(dtype), device=device)
    return CSR.from_arrays(rows, rows + k, one, (n, columns), device=device).asformat(format)


def diags(diagonals: Any, offsets: Any = 0, shape: tuple[int, int] | None = None, *, device: str | None = None,
          format: str = "csr") -> Any:
    """A matrix from its diagonals: ``diagonals[d][i]`` is element i of the diagonal ``offsets[d]``; numbers repeat.

    A single diagonal may be passed without a list. Values of rlx arrays keep their derivatives.

    >>> import rlx.sparse
    >>> rlx.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (3, 3)).todense().tolist()
    [[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]]
    """
    single = np.ndim(offsets) == 0
    lists = [diagonals] if single and (isinstance(diagonals, Array) or np.ndim(diagonals[0]) == 0) else list(diagonals)
    places = [int(k) for k in np.atleast_1d(offsets)]
    if len(lists) != len(places) or len(set(places)) != len(places):
        raise ValueIssue(f"{len(lists)} diagonals at offsets {places}", why="each diagonal has an offset of its own",
                         do="pass as many different offsets as diagonals")
    values = [as_array(d, device=device) for d in lists]
    if shape is None:
        n = max(int(v.shape[0]) + abs(k) for v, k in zip(values, places, strict=True) if v.ndim)
        shape = (n, n)
    rows, cols, data = [], [], []
    for v, k in zip(values, places, strict=True):
        size = min(shape[0] + min(k, 0), shape[1] - max(k, 0))
        if size < 0 or (v.ndim and v.shape[0] not in (1, size)):
            raise ShapeError(f"a diagonal of {v.shape[0] if v.ndim else 1} elements at offset {k} of a matrix of shape "
                             f"{tuple(shape)}", why=f"that diagonal has {max(size, 0)} elements",
                             do="pass one number, or as many elements as the diagonal has")
        at = np.arange(size)
        rows.append(at + max(-k, 0))
        cols.append(at + max(k, 0))
        data.append(broadcast_to(v, (size,)))
    common = data[0].dtype
    for d in data[1:]:
        common = dt.common_type(common, d.dtype)
    whole = concat([astype(d, common) for d in data])
    return CSR.from_arrays(np.concatenate(rows), np.concatenate(cols), whole, shape, device=device).asformat(format)


def kron(a: Any, b: Any, *, format: str = "csr") -> Any:
    """The Kronecker product: block (i, j) is ``a[i, j] * b``.

    >>> import rlx.sparse
    >>> rlx.sparse.kron(rlx.sparse.eye(2), [[1.0, 2.0]]).todense().tolist()
    [[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0]]
    """
    x = as_csr(a)
    y = as_csr(b, x.device)
    (ci, pi), (cj, pj) = pair(x), pair(y)
    n, m = y.shape
    rows = (pattern.rows_of(pi)[:, None] * n + pattern.rows_of(pj)).ravel()
    cols = (ci.astype(np.int64)[:, None] * m + cj).ravel()
    common = dt.common_type(x.dtype, y.dtype)
    left = picked(astype(x.data, common), np.repeat(np.arange(x.nnz), y.nnz))
    right = picked(astype(y.data, common), np.tile(np.arange(y.nnz), x.nnz))
    return CSR.from_arrays(rows, cols, left * right, (x.shape[0] * n, x.shape[1] * m)).asformat(format)


def block_array(blocks: Sequence[Sequence[Any]], *, format: str = "csr") -> Any:
    """A matrix from a grid of blocks; None is a block of zeros.

    >>> import rlx.sparse
    >>> rlx.sparse.block_array([[[[1.0]], None], [None, [[2.0]]]]).todense().tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    grid = [[None if b is None else as_csr(b) for b in row] for row in blocks]
    if not grid or any(len(row) != len(grid[0]) for row in grid):
        raise ShapeError("blocks that form no grid", why="each row has as many blocks as the first",
                         do="fill the grid with None")
    for axis, lines in ((0, grid), (1, list(zip(*grid, strict=True)))):
        for i, line in enumerate(lines):
            sizes = {b.shape[axis] for b in line if b is not None}
            if len(sizes) != 1:
                raise ShapeError(f"{('row', 'column')[axis]} {i} of blocks of sizes {sorted(sizes)}",
                                 why="blocks beside each other have one size, which a line of None does not tell",
                                 do="pass blocks that fit")
    parts = [b for row in grid for b in row if b is not None]

    def assemble(indexed: list[Any]) -> Any:
        import scipy.sparse
        it = iter(indexed)
        return scipy.sparse.block_array([[None if b is None else next(it) for b in row] for row in grid], format="csr")
    return rearrange(parts, assemble).asformat(format)


def hstack(blocks: Sequence[Any], *, format: str = "csr") -> Any:
    """Matrices beside each other."""
    return block_array([list(blocks)], format=format)


def vstack(blocks: Sequence[Any], *, format: str = "csr") -> Any:
    """Matrices one below the other."""
    return block_array([[b] for b in blocks], format=format)


def block_diag(blocks: Sequence[Any], *, format: str = "csr") -> Any:
    """Matrices along the diagonal."""
    n = len(blocks)
    return block_array([[b if i == j else None for j in range(n)] for i, b in enumerate(blocks)], format=format)


def tril(a: Any, k: int = 0, *, format: str = "csr") -> Any:
    """The entries on and below diagonal ``k``."""
    import scipy.sparse
    return rearrange([as_csr(a)], lambda m: scipy.sparse.tril(m[0], k)).asformat(format)


def triu(a: Any, k: int = 0, *, format: str = "csr") -> Any:
    """The entries on and above diagonal ``k``."""
    import scipy.sparse
    return rearrange([as_csr(a)], lambda m: scipy.sparse.triu(m[0], k)).asformat(format)


#: SciPy's older names.
bmat, identity = block_array, eye
__all__ = ["block_array", "block_diag", "bmat", "diags", "eye", "hstack", "identity", "kron", "tril", "triu",
           "vstack"]
