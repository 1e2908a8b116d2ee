"""Every transform against a sum in extended precision or NumPy: lengths, axes, norms, dtypes, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.core.errors import DTypeError, RlxError, ShapeError, ValueIssue
from rlx.ops.fft_plan import LARGEST_PRIME, dense, plan, primes, roots, smooth

#: 1 and 2, radices, products of them, primes of both kinds, and a product with a large prime.
LENGTHS = (1, 2, 3, 5, 8, 12, 30, 49, 127, 131, 360, 262, 1000)
#: Root mean square error relative to the result's, in units of the precision. pocketfft's is about 2 to 5 here.
UNITS = 6.0


def _dft(x: np.ndarray, sign: int = -1) -> np.ndarray:
    """The sum itself, in extended precision."""
    n = x.shape[-1]
    k = np.arange(n)
    angle = (np.outer(k, k) % n).astype(np.longdouble) * (8 * np.arctan(np.longdouble(1)) / n)
    return x.astype(np.clongdouble) @ (np.cos(angle) + sign * 1j * np.sin(angle))


def _error(got: Any, want: np.ndarray, dtype: str) -> float:
    """Relative root mean square error in units of the dtype's precision."""
    g = np.asarray(got)
    assert g.dtype == dtype and g.shape == want.shape
    size = np.sqrt(np.mean(np.abs(want) ** 2))
    return float(np.sqrt(np.mean(np.abs(g - want) ** 2)) / size / np.finfo(dtype).eps)


def _values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_fft_is_the_sum(n: int, dtype: str) -> None:
    x = _values((3, n), dtype)
    assert _error(rlx.fft.fft(rlx.asarray(x)), _dft(x), dtype) < UNITS
    assert _error(rlx.fft.ifft(rlx.asarray(x)), _dft(x, 1) / n, dtype) < UNITS


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rfft_is_half_of_the_sum_and_irfft_undoes_it(n: int, dtype: str) -> None:
    x = _values((2, n), dtype)
    wide = np.result_type(dtype, np.complex64).name
    whole = _dft(x)
    got = rlx.fft.rfft(rlx.asarray(x))
    assert _error(got, whole[:, :n // 2 + 1], wide) < UNITS
    assert _error(rlx.fft.fft(rlx.asarray(x)), whole, wide) < UNITS
    assert _error(rlx.fft.irfft(got, n), x, dtype) < UNITS


def test_a_large_prime_and_a_large_power() -> None:
    for n in (10007, 1 << 14):
        x = _values((n,), "complex128")
        assert _error(rlx.fft.fft(rlx.asarray(x)), np.fft.fft(x), "complex128") < 2 * UNITS


def test_the_python_device_agrees() -> None:
    for n in (6, 131):
        x = _values((n,), "complex128")
        with rlx.flags(device="python"):
            assert _error(rlx.fft.fft(rlx.asarray(x)), _dft(x), "complex128") < UNITS


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward", None])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("n", [None, 5, 8, 12])
def test_one_axis_like_numpy(name: str, n: int | None, norm: str | None) -> None:
    x = _values((4, 8, 3), "float64" if name in ("rfft", "ihfft") else "complex128")
    want = getattr(np.fft, name)(x, n, axis=1, norm=norm)
    got = getattr(rlx.fft, name)(rlx.asarray(x), n, axis=1, norm=norm)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-13, atol=1e-13)
    assert np.asarray(got).dtype == want.dtype


CASES: list[tuple[str, dict[str, Any]]] = [
    ("fftn", {}), ("fftn", {"axes": (0, 2)}), ("fftn", {"s": (3, 7)}), ("fftn", {"s": (5, 2), "axes": (2, 0)}),
    ("ifftn", {}), ("ifftn", {"axes": (-1,), "norm": "ortho"}), ("fft2", {}), ("ifft2", {"norm": "forward"}),
    ("rfftn", {}), ("rfftn", {"s": (3, 6), "axes": (0, 1)}), ("rfft2", {}), ("irfftn", {}),
    ("irfftn", {"s": (4, 9), "axes": (1, 2)}), ("irfft2", {"norm": "ortho"}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_several_axes_like_numpy(name: str, options: dict[str, Any]) -> None:
    x = _values((4, 5, 6), "float64" if name.startswith("rfft") else "complex128")
    if "s" in options and "axes" not in options:
        want = getattr(np.fft, name)(x, **options, axes=tuple(range(-len(options["s"]), 0)))
    else:
        want = getattr(np.fft, name)(x, **options)
    got = np.asarray(getattr(rlx.fft, name)(rlx.asarray(x), **options))
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_no_axes_leave_the_values() -> None:
    x = _values((3,), "float64")
    got = rlx.fft.fftn(rlx.asarray(x), axes=())
    assert got.dtype == rlx.complex128
    np.testing.assert_array_equal(np.asarray(got), x)


def test_batches_without_rows() -> None:
    for f, size, dtype in ((rlx.fft.fft, 6, rlx.complex64), (rlx.fft.rfft, 4, rlx.complex64)):
        got = f(rlx.zeros((0, 6), dtype=rlx.float32))
        assert got.shape == (0, size) and got.dtype == dtype
    assert rlx.fft.irfft(rlx.zeros((0, 4), dtype=rlx.complex64)).shape == (0, 6)


def test_dtypes() -> None:
    """Integers become the default float, half floats are transformed in 32 bits, and nothing widens."""
    assert rlx.fft.fft(rlx.arange(6)).dtype == rlx.complex128
    assert rlx.fft.fft(rlx.ones(6, dtype=rlx.float16)).dtype == rlx.complex64
    assert rlx.fft.irfft(rlx.ones(4, dtype=rlx.float32)).dtype == rlx.float32
    np.testing.assert_allclose(np.asarray(rlx.fft.fft(rlx.arange(6))), np.fft.fft(np.arange(6)), atol=1e-14)


def test_irfft_does_not_read_what_a_real_spectrum_cannot_have() -> None:
    """The imaginary parts of the first and, for even lengths, the last value: not even if they are NaN."""
    for n in (6, 7):
        x = _values((n // 2 + 1,), "complex128")
        x.real = 1.0
        x.imag[0] = np.nan
        if n % 2 == 0:
            x.imag[-1] = np.nan
        clean = np.where(np.isnan(x), 1.0, x)
        if n % 2 == 0:
            np.testing.assert_allclose(np.asarray(rlx.fft.irfft(rlx.asarray(x), n)), np.fft.irfft(clean, n), atol=1e-14)
        clean.imag[0] = 3.0
        np.testing.assert_allclose(np.asarray(rlx.fft.irfft(rlx.asarray(clean), n)), np.fft.irfft(clean, n), atol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 7, 10])
def test_frequencies(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        got = getattr(rlx.fft, name)(n, d=0.5)
        np.testing.assert_allclose(np.asarray(got), getattr(np.fft, name)(n, 0.5), rtol=1e-15)
        assert getattr(rlx.fft, name)(n, dtype=rlx.float32).dtype == rlx.float32
    x = np.arange(n * 3).reshape(3, n)
    for axes in (None, 0, 1, (0, 1), (-1,)):
        shifted = rlx.fft.fftshift(rlx.asarray(x), axes=axes)
        np.testing.assert_array_equal(np.asarray(shifted), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(np.asarray(rlx.fft.ifftshift(shifted, axes=axes)), x)


ERRORS: list[tuple[type[RlxError], Callable[[], Any]]] = [
    (ShapeError, lambda: rlx.fft.fft(rlx.zeros((3, 0)))), (ShapeError, lambda: rlx.fft.fft(rlx.zeros(3), 0)),
    (ShapeError, lambda: rlx.fft.irfft(rlx.zeros(1))), (ShapeError, lambda: rlx.fft.fft(rlx.asarray(1.0))),
    (DTypeError, lambda: rlx.fft.rfft(rlx.zeros(3, dtype=rlx.complex64))),
    (DTypeError, lambda: rlx.fft.fftfreq(3, dtype=rlx.int32)),
    (ValueIssue, lambda: rlx.fft.fft(rlx.zeros(3), norm="unit")),
    (ShapeError, lambda: rlx.fft.fftn(rlx.zeros((3, 4)), s=(3, 4), axes=(0,))),
    (ShapeError, lambda: rlx.fft.fftn(rlx.zeros(3), s=(3, 4))),
    (ShapeError, lambda: rlx.fft.rfftn(rlx.zeros(3), axes=())),
]


@pytest.mark.parametrize("k", range(len(ERRORS)))
def test_errors_say_what_to_do(k: int) -> None:
    kind, f = ERRORS[k]
    with pytest.raises(kind) as caught:
        f()
    assert caught.value.why and caught.value.do


# Under transforms

TRANSFORMS: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("fft", "complex128", rlx.fft.fft), ("ifft", "complex128", lambda x: rlx.fft.ifft(x, axis=0)),
    ("fft of real", "float64", rlx.fft.fft), ("rfft even", "float64", rlx.fft.rfft),
    ("rfft odd", "float64", lambda x: rlx.fft.rfft(x, axis=0)), ("irfft even", "complex128", rlx.fft.irfft),
    ("irfft odd", "complex128", lambda x: rlx.fft.irfft(x, 7)), ("fftn", "complex128", rlx.fft.fftn),
    ("rfftn", "float64", rlx.fft.rfftn), ("irfftn", "complex128", rlx.fft.irfftn),
    ("padded", "float64", lambda x: rlx.fft.rfft(x, 9)), ("hfft", "complex128", rlx.fft.hfft),
]


@pytest.mark.parametrize(("name", "dtype", "f"), TRANSFORMS, ids=[t[0] for t in TRANSFORMS])
def test_gradients(name: str, dtype: str, f: Callable[[Any], Any]) -> None:
    """Against differences, in both modes."""
    rlx.testing.check_grad(f, rlx.asarray(_values((3, 6), dtype)))


@pytest.mark.parametrize("name", ["fft", "rfft"])
def test_gradients_of_gradients(name: str) -> None:
    f = getattr(rlx.fft, name)
    rlx.testing.check_grad(lambda x: rlx.sum(rlx.abs(f(x)) ** 4), rlx.asarray(_values((6,), "float64")), order=2)


@pytest.mark.parametrize(("name", "dtype", "f"), TRANSFORMS[:7], ids=[t[0] for t in TRANSFORMS[:7]])
def test_a_batch_is_each_example(name: str, dtype: str, f: Callable[[Any], Any]) -> None:
    x = _values((4, 3, 6), dtype)
    got = np.asarray(rlx.vmap(f)(rlx.asarray(x)))
    for row, example in zip(got, x, strict=True):
        np.testing.assert_allclose(row, np.asarray(f(rlx.asarray(example))), rtol=1e-14, atol=1e-14)


def test_jit_and_eager_agree() -> None:
    x = rlx.asarray(_values((2, 24), "complex128"))
    np.testing.assert_array_equal(np.asarray(rlx.jit(rlx.fft.fft)(x)), np.asarray(rlx.fft.fft(x)))


def test_convolution_theorem() -> None:
    a, b = _values((100,), "float64"), _values((61,), "float64", 1)
    product = rlx.fft.irfft(rlx.fft.rfft(rlx.asarray(a), 160) * rlx.fft.rfft(rlx.asarray(b), 160), 160)
    np.testing.assert_allclose(np.asarray(product), np.convolve(a, b), rtol=1e-12, atol=1e-12)


# Plans

def test_plans_multiply_to_the_length() -> None:
    for n in range(1, 600):
        p = plan(n)
        assert int(np.prod(p.radices)) == (p.chirp or n)
        assert bool(p.chirp) == (n > 1 and max(primes(n)) > LARGEST_PRIME)
        assert not p.chirp or p.chirp >= 2 * n - 1


def test_smooth_is_the_next_product_of_2_3_and_5() -> None:
    for n in range(1, 400):
        want = next(m for m in range(n, 2 * n + 1) if not set(primes(m)) - {2, 3, 5})
        assert smooth(n) == want


def test_roots_are_rounded_right() -> None:
    """Within one unit of the exact cosine and sine, and exact at the quarters."""
    n = 1 << 12
    k = np.arange(n)
    c, s = roots(k, n)
    angle = 8 * np.arctan(np.longdouble(1)) * k / n
    assert np.abs(c - np.cos(angle)).max() < 1.2e-16 and np.abs(s + np.sin(angle)).max() < 1.2e-16
    assert c[n // 4] == 0 and s[n // 2] == 0 and c[n // 2] == -1


def test_the_dense_matrix_is_unitary_up_to_scale() -> None:
    for r in (2, 7, 16):
        np.testing.assert_allclose(dense(r) @ dense(r).T, r * np.eye(2 * r), atol=1e-13 * r)
