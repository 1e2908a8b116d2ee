"""Matrix products."""

from __future__ import annotations

from rlx.array.array import Array
from rlx.formats.onnx.table import Call, Value, X, operator


@operator("MatMul")
def matmul(c: Call, a: Array, b: Array) -> Value:
    return X.matmul(a, b)


@operator("Gemm")
def gemm(c: Call, a: Array, b: Array, add: Array | None = None) -> Value:
    a = X.permute_dims(a, (1, 0)) if c.attr("transA", 0) else a
    b = X.permute_dims(b, (1, 0)) if c.attr("transB", 0) else b
    alpha, beta = c.attr("alpha", 1.0), c.attr("beta", 1.0)
    out = X.matmul(a, b)
    out = out if alpha == 1 else X.astype(out * alpha, out.dtype)
    if add is None or beta == 0:
        return out
    return out + (add if beta == 1 else X.astype(add * beta, add.dtype))


@operator("Einsum")
def einsum(c: Call, *xs: Array) -> Value:
    return X.einsum(c.attr("equation").replace(" ", ""), *xs)


@operator("Det")
def det(c: Call, x: Array) -> Value:
    """By elimination with row exchanges: the models that have it have matrices of a few rows."""
    n = x.shape[-1]
    total = X.ones(x.shape[:-2], dtype=x.dtype, device=x.device)
    for k in range(n):
        column = X.abs(x[..., :, 0])
        best = X.argmax(column, axis=-1, keepdims=True)
        rows = X.arange(n - k, device=x.device)
        pivot = X.take_along_axis(x, X.broadcast_to(best[..., None], (*x.shape[:-2], 1, n - k)), axis=-2)
        lead = pivot[..., 0, 0]
        total = total * X.where(best[..., 0] == 0, lead, -lead)
        # The first row takes the pivot's place.
        x = X.where((rows == best)[..., None], x[..., :1, :], x)
        safe = X.where(lead == 0, 1, lead)[..., None, None]
        x = (x - x[..., :, :1] / safe * pivot)[..., 1:, 1:]
    return total
