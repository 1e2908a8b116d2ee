"""The cpu's own transforms: every way of doing them agrees with NumPy and with the decomposition, and is reported."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.device.cpu import fft
from rlx.device.cpu.fft_lines import halves
from rlx.device.cpu.fft_radix import LARGEST_RADIX, radices
from rlx.device.cpu.native import fft_lines
from rlx.ir.claim import Call

WIDE = {"complex64": "float32", "complex128": "float64"}


def _values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(math.prod(shape))
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def _close(got: Any, want: np.ndarray, dtype: str) -> None:
    """Like NumPy's within rounding, which grows with the logarithm of the length."""
    g = np.asarray(got)
    assert g.shape == want.shape
    size = np.sqrt(np.mean(np.abs(want) ** 2))
    assert np.sqrt(np.mean(np.abs(g - want) ** 2)) < 6 * np.finfo(dtype).eps * size


#: (shape, axis): a butterfly, lines side by side (whole vectors of them and not), columns and rows that fit vectors and
#: not, a line for all threads, neighbours, lines apart, convolutions whose tables are operands and are not.
PLACES = [((5,), 0), ((3, 12), 1), ((19, 48), 1), ((2, 91), 1), ((3, 100), 1), ((40, 256), 1), ((2, 1 << 14), 1),
          ((1 << 15,), 0), ((2, 30, 19), 1), ((64, 40), 0), ((2, 144, 3), 1), ((1 << 14, 9), 0), ((3, 34), 1),
          ((2, 131), 1), ((2, 37, 9), 1), ((139, 8), 0)]


@pytest.mark.parametrize(("shape", "axis"), PLACES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_every_way_is_numpys(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    n, real = shape[axis], WIDE[dtype]
    x, r = _values(shape, dtype), _values(shape, real)
    half = _values(tuple(n // 2 + 1 if i == axis else s for i, s in enumerate(shape)), dtype)
    wide, wide_half = x.astype(complex), half.astype(complex)
    _close(rlx.fft.fft(rlx.asarray(x), axis=axis), np.fft.fft(wide, axis=axis), dtype)
    _close(rlx.fft.ifft(rlx.asarray(x), axis=axis), np.fft.ifft(wide, axis=axis), dtype)
    _close(rlx.fft.rfft(rlx.asarray(r), axis=axis), np.fft.rfft(r.astype(float), axis=axis), dtype)
    _close(rlx.fft.irfft(rlx.asarray(half), n, axis=axis), np.fft.irfft(wide_half, n, axis=axis), real)


@pytest.mark.parametrize("n", [48, 100, 131, 1 << 15])
@pytest.mark.parametrize("name", ["fft", "rfft"])
def test_the_decomposition_agrees(name: str, n: int) -> None:
    """Of long lines it makes its own tables."""
    x = rlx.asarray(_values((n,), "float64" if name == "rfft" else "complex128"))
    transform = getattr(rlx.fft, name)
    common = rlx.jit(transform, dispatch="common")
    _close(common(x), np.asarray(transform(x)), "complex128")
    assert "native" not in rlx.explain(transform, x, dispatch="common").paths()


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_the_report_says_so(name: str) -> None:
    x = rlx.asarray(_values((3, 65), "float64" if name == "rfft" else "complex128"))
    rows = [r for r in rlx.explain(getattr(rlx.fft, name), x) if r.op.startswith("fft.")]
    assert [r.path for r in rows] == ["native"] and "lines_" in rows[0].by


def test_what_is_declined() -> None:
    def why(dtype: rlx.DType, shape: tuple[int, ...], op: str = "c2c", **attrs: Any) -> str | None:
        return fft_lines.accepts(Call(f"fft.{op}", ((dtype, shape),), (), {"axis": len(shape) - 1, **attrs}))
    assert why(rlx.complex64, (3, 8)) is None
    assert "nothing" in str(why(rlx.complex64, (0, 8)))
    assert "one complex value" in str(why(rlx.float32, (3, 2), "r2c"))
    assert "one complex value" in str(why(rlx.complex64, (3, 1)))
    assert "prime" in str(why(rlx.complex64, (17 * 1024,)))
    assert why(rlx.complex64, (10007,)) is None
    assert "16-bit" in str(why(rlx.float16, (8,), "r2c")) or "needs 32-bit" in str(why(rlx.float16, (8,), "r2c"))


def test_plans() -> None:
    for n in range(2, 400):
        rs = radices(n)
        assert not rs or (math.prod(rs) == n and max(rs) <= LARGEST_RADIX)
        if (both := halves(n, 8)) is not None:
            assert both[0] * both[1] == n and min(both) >= 8
    assert radices(17) == () and radices(1) == () and len(radices(4096)) == 3
    assert halves(91, 8) is None and halves(64, 8) == (8, 8)
    job = fft.job("r2c", rlx.float32, (3, 30, 2), {"axis": 1})
    assert (job.m, job.sizes, job.outer, job.inner) == (15, (30, 32), 3, 2)


def test_rows_do_not_depend_on_each_other() -> None:
    """Lanes that stand in for lines that are not there, and blocks that overlap, must not write elsewhere."""
    x = _values((11, 30), "complex64")
    whole = np.asarray(rlx.fft.fft(rlx.asarray(x)))
    for k in (0, 7, 8, 10):
        np.testing.assert_array_equal(np.asarray(rlx.fft.fft(rlx.asarray(x[k:k + 1])))[0], whole[k])
    x[3] = np.nan
    bad = np.asarray(rlx.fft.fft(rlx.asarray(x)))
    assert np.isnan(bad[3]).all() and np.array_equal(np.delete(bad, 3, 0), np.delete(whole, 3, 0))


@pytest.mark.parametrize("shape", [(19, 48), (40, 256), (1 << 15,), (16, 131)])
def test_threads_do_not_change_a_bit(shape: tuple[int, ...]) -> None:
    x = rlx.asarray(_values(shape, "complex64"))
    with rlx.flags(threads=1):
        alone = np.asarray(rlx.jit(lambda a: rlx.fft.fft(a))(x)).copy()
    np.testing.assert_array_equal(np.asarray(rlx.jit(lambda a: rlx.fft.fft(a))(x)), alone)


def test_in_a_loop_and_with_gradients() -> None:
    """The native step has memory of its own inside of loops too."""
    x = _values((1 << 14,), "complex64")
    spun = rlx.jit(lambda a: rlx.fori_loop(0, 3, lambda i, v: rlx.fft.ifft(rlx.fft.fft(v)), a))
    _close(spun(rlx.asarray(x)), x, "complex64")
    r = rlx.asarray(_values((1 << 15,), "float64"))
    energy = rlx.grad(lambda a: (rlx.abs(rlx.fft.rfft(a)) ** 2).sum())
    h = np.fft.rfft(np.asarray(r))
    w = np.ones(h.size)
    w[1:-1] = 0.5
    _close(energy(r), 2 * np.fft.irfft(h * w, r.shape[0]) * r.shape[0], "float64")
