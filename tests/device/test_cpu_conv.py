"""The cpu's own convolution: every form agrees with the sum over taps and with the decomposition, and is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.device.cpu.native import openblas_conv
from rlx.ir.claim import Call
from rlx.ops.conv import conv

Margins = tuple[tuple[int, int], ...]


def _taps(x: np.ndarray, w: np.ndarray, stride: tuple[int, ...], padding: Margins, dilation: tuple[int, ...],
          groups: int) -> np.ndarray:
    """The definition, tap by tap in float64."""
    x = np.pad(x.astype(float), ((0, 0), (0, 0), *padding))
    o, part, *window = w.shape
    size = [(m - (k - 1) * d - 1) // s + 1 for m, k, s, d in zip(x.shape[2:], window, stride, dilation, strict=True)]
    out = np.zeros((x.shape[0], o, *size))
    for g in range(groups):
        mine, of = slice(g * o // groups, (g + 1) * o // groups), slice(g * part, (g + 1) * part)
        for tap in np.ndindex(*window):
            at = [slice(t * d, t * d + (m - 1) * s + 1, s)
                  for t, d, m, s in zip(tap, dilation, size, stride, strict=True)]
            seen = x[(slice(None), of, *at)]
            out[:, mine] += np.einsum("oc,nc...->no...", w[(mine, slice(None), *tap)].astype(float), seen)
    return out


#: x, weight, and settings: blocks that are even and not, one block, a picture as it is, margins wider than the window,
#: strides, dilation, groups, one axis and three.
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7, 6), (8, 3, 3, 2), {"padding": ((1, 1), (0, 1))}),
    ((1, 64, 37, 41), (9, 64, 3, 3), {"padding": ((1, 1), (1, 1))}),
    ((2, 16, 9, 5), (8, 16, 1, 1), {}),
    ((2, 16, 9, 5), (8, 16, 1, 1), {"stride": (2, 3)}),
    ((2, 4, 5, 4), (8, 4, 2, 3), {"padding": ((4, 3), (6, 5)), "stride": (2, 3)}),
    ((2, 8, 12, 11), (16, 4, 3, 3), {"groups": 2, "dilation": (2, 3), "padding": ((0, 2), (3, 0))}),
    ((3, 8, 30), (8, 8, 5), {"stride": (2,), "padding": ((2, 2),)}),
    ((2, 4, 5, 6, 4), (8, 4, 2, 3, 2), {"padding": ((1, 0), (1, 1), (0, 1)), "stride": (1, 2, 1)}),
]


@pytest.mark.parametrize(("shape", "filters", "given"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_the_sum_over_taps(shape: tuple[int, ...], filters: tuple[int, ...], given: dict[str, Any],
                                 dtype: str) -> None:
    rng, d = np.random.default_rng(0), len(shape) - 2
    x, w = (rng.standard_normal(s).astype(dtype) for s in (shape, filters))
    how = {"stride": (1,) * d, "padding": ((0, 0),) * d, "dilation": (1,) * d, "groups": 1, **given}

    def run(x: rlx.Array, w: rlx.Array) -> rlx.Array:
        return conv(x, w, **how)
    a, b = rlx.asarray(x), rlx.asarray(w)
    want = _taps(x, w, **how)
    tolerance = 2e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(np.asarray(run(a, b)), want, rtol=tolerance, atol=tolerance * 10)
    np.testing.assert_allclose(np.asarray(rlx.jit(run, dispatch="common")(a, b)), want, rtol=tolerance,
                               atol=tolerance * 10)
    rows = [r for r in rlx.explain(run, a, b) if r.op == "nn.conv"]
    assert [r.path for r in rows] == ["native"] and "openblas_conv" in rows[0].by


def test_what_is_declined() -> None:
    def why(x: tuple[int, ...], w: tuple[int, ...], dtype: rlx.DType = rlx.float32, groups: int = 1) -> str | None:
        d = len(x) - 2
        out = (x[0], w[0], *(m - k + 1 for m, k in zip(x[2:], w[2:], strict=True)))
        attrs = {"stride": (1,) * d, "padding": ((0, 0),) * d, "dilation": (1,) * d, "groups": groups}
        return openblas_conv.accepts(Call("nn.conv", ((dtype, x), (dtype, w)), ((dtype, out),), attrs))
    assert why((2, 16, 8, 8), (8, 16, 3, 3)) is None
    assert "at least 8 filters in a group" in str(why((2, 16, 8, 8), (16, 1, 3, 3), groups=16))
    assert "at least 16 numbers" in str(why((2, 1, 8, 8), (8, 1, 3, 3)))
    assert "taps" in str(why((2, 16, 40), (8, 16, 20)))
    assert "no places" in str(why((0, 16, 8, 8), (8, 16, 3, 3)))
    assert "float32 or float64" in str(why((2, 16, 8, 8), (8, 16, 3, 3), rlx.float16))
