"""Distributions against SciPy's: Kolmogorov-Smirnov and chi-square tests, moments, ranges. Seeds are fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import rlx
from rlx.core.errors import DTypeError, NotDifferentiableError, RlxError, ShapeError, ValueIssue

random = rlx.random
N = 20_000
#: A right generator fails one of these tests with this probability for a random seed; the seeds were not searched for.
LEVEL = 1e-3
Draw = Callable[[Any, Any], Any]

CONTINUOUS: dict[str, tuple[Draw, Any]] = {
    "uniform": (lambda k, d: random.uniform(k, N, dtype=d), stats.uniform()),
    "uniform between": (lambda k, d: random.uniform(k, N, -3.0, 5.0, dtype=d), stats.uniform(-3, 8)),
    "normal": (lambda k, d: random.normal(k, N, dtype=d), stats.norm()),
    "normal placed": (lambda k, d: random.normal(k, N, 2.0, 3.0, dtype=d), stats.norm(2, 3)),
    "exponential": (lambda k, d: random.exponential(k, N, 2.0, dtype=d), stats.expon(scale=2)),
    "gumbel": (lambda k, d: random.gumbel(k, N, dtype=d), stats.gumbel_r()),
    "laplace": (lambda k, d: random.laplace(k, N, 1.0, 0.5, dtype=d), stats.laplace(1, 0.5)),
    "logistic": (lambda k, d: random.logistic(k, N, dtype=d), stats.logistic()),
    "truncated normal": (lambda k, d: random.truncated_normal(k, N, -1.0, 2.5, dtype=d), stats.truncnorm(-1, 2.5)),
    "truncated tail": (lambda k, d: random.truncated_normal(k, N, 2.0, 4.0, dtype=d), stats.truncnorm(2, 4)),
    "gamma": (lambda k, d: random.gamma(k, N, 2.5, 2.0, dtype=d), stats.gamma(2.5, scale=2)),
    "gamma of 1": (lambda k, d: random.gamma(k, N, dtype=d), stats.gamma(1)),
    "gamma below 1": (lambda k, d: random.gamma(k, N, 0.3, dtype=d), stats.gamma(0.3)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list(CONTINUOUS))
def test_the_distribution_is_right(name: str, dtype: str) -> None:
    draw, law = CONTINUOUS[name]
    x = np.asarray(draw(random.key(11), dtype))
    assert x.dtype == dtype and x.shape == (N,) and np.isfinite(x).all()
    assert stats.kstest(x.astype(np.float64), law.cdf).pvalue > LEVEL
    # Independent from one element to the next, as far as a correlation shows.
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / np.sqrt(N)


def _chi_square(x: np.ndarray, law: Any) -> float:
    """The p-value of counts against a discrete law; rare values are taken together."""
    low, high = int(law.ppf(0.002)), int(law.ppf(0.998))
    seen = np.bincount(np.clip(x, low, high) - low, minlength=high - low + 1)
    p = law.pmf(np.arange(low, high + 1))
    p[0], p[-1] = law.cdf(low), law.sf(high - 1)
    return float(stats.chisquare(seen, p * len(x)).pvalue)


@pytest.mark.parametrize("mean", [0.5, 6.0, 14.0, 300.0])
def test_poisson_counts(mean: float) -> None:
    x = np.asarray(random.poisson(random.key(5), N, mean))
    assert x.dtype == np.int64 and x.min() >= 0
    assert _chi_square(x, stats.poisson(mean)) > LEVEL


def test_poisson_of_nothing_is_nothing() -> None:
    assert random.poisson(random.key(5), 10, 0.0).tolist() == [0] * 10


@pytest.mark.parametrize(("low", "high", "dtype"), [(0, 7, "int64"), (-5, 5, "int8"), (250, 256, "uint8"),
                                                    (10**12, 10**12 + 9, "int64")])
def test_integers_are_equally_probable(low: int, high: int, dtype: str) -> None:
    x = np.asarray(random.integers(random.key(2), N, low, high, dtype=dtype))
    assert x.dtype == dtype and x.min() == low and x.max() == high - 1
    assert _chi_square(x.astype(np.int64), stats.randint(low, high)) > LEVEL


def test_long_intervals_are_even() -> None:
    """Three quarters of the 64-bit range: one word scaled would favour every third value."""
    for low, high, d in ((-(1 << 63), 1 << 63, "int64"), (0, 3 << 62, "uint64"), (-(1 << 62), 1 << 63, "int64")):
        x = np.asarray(random.integers(random.key(4), N, low, high, dtype=d)).astype(np.float64)
        assert stats.kstest((x - low) / (high - low), "uniform").pvalue > LEVEL
    x = np.asarray(random.integers(random.key(4), N, 0, 3 << 62, dtype="uint64"))
    assert stats.chisquare(np.bincount((x % np.uint64(3)).astype(int), minlength=3)).pvalue > LEVEL


def test_bounds_may_be_arrays() -> None:
    low, high = rlx.asarray([-100, 0, 1 << 40]), rlx.asarray([-97, 1, (1 << 40) + 2])
    x = np.asarray(random.integers(random.key(3), (500, 3), low, high))
    assert (x >= np.asarray(low)).all() and (x < np.asarray(high)).all()
    assert [len(np.unique(c)) for c in x.T] == [3, 1, 2]
    assert set(np.asarray(random.integers(random.key(3), 100, 1, 3, endpoint=True)).tolist()) == {1, 2, 3}
    assert np.asarray(random.integers(random.key(3), 100, 4)).max() == 3


def test_bernoulli_and_categorical() -> None:
    hits = np.asarray(random.bernoulli(random.key(1), N, 0.3))
    assert hits.dtype == bool and abs(hits.mean() - 0.3) < 5 * np.sqrt(0.21 / N)
    assert not np.asarray(random.bernoulli(random.key(1), 100, 0.0)).any()
    assert np.asarray(random.bernoulli(random.key(1), 100, 1.0)).all()
    rows = np.asarray(random.bernoulli(random.key(1), (2000, 2), rlx.asarray([0.1, 0.9]))).mean(axis=0)
    np.testing.assert_allclose(rows, [0.1, 0.9], atol=5 * np.sqrt(0.09 / 2000))
    p = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        drawn = np.asarray(random.categorical(random.key(6), rlx.asarray(np.log(p)), (N,)))
    seen = np.bincount(drawn, minlength=4)
    assert seen[1] == 0 and stats.chisquare(seen[p > 0], p[p > 0] * N).pvalue > LEVEL
    two = random.categorical(random.key(6), rlx.asarray([[0.0, 50.0], [50.0, 0.0]]), axis=0)
    assert two.tolist() == [1, 0]


def test_permutation() -> None:
    x = np.asarray(random.permutation(random.key(8), 50))
    assert sorted(x) == list(range(50)) and list(x) != list(range(50))
    rows = rlx.asarray(np.arange(12).reshape(4, 3))
    whole = np.asarray(random.permutation(random.key(1), rows))
    assert sorted(map(tuple, whole)) == sorted(map(tuple, np.asarray(rows)))
    many = rlx.asarray(np.tile(np.arange(20), (6, 1)))
    own = np.asarray(random.permutation(random.key(1), many, axis=1, independent=True))
    assert (np.sort(own, axis=1) == np.arange(20)).all() and len({tuple(r) for r in own}) == 6
    keys = random.split(random.key(0), 3000)
    orders = np.asarray(rlx.vmap(lambda k: random.permutation(k, 3))(keys))
    seen = np.unique(orders @ np.array([9, 3, 1]), return_counts=True)[1]
    assert len(seen) == 6 and stats.chisquare(seen).pvalue > LEVEL


def test_choice() -> None:
    p = np.array([0.2, 0.0, 0.5, 0.3])
    drawn = np.asarray(random.choice(random.key(3), 4, (N,), p=p))
    seen = np.bincount(drawn, minlength=4)
    assert seen[1] == 0 and stats.chisquare(seen[p > 0], p[p > 0] * N).pvalue > LEVEL
    few = np.asarray(random.choice(random.key(3), 30, (5, 4), replace=False))
    assert few.shape == (5, 4) and len(np.unique(few)) == 20
    some = np.asarray(random.choice(random.key(3), 4, (3,), replace=False, p=p))
    assert set(some) == {0, 2, 3}
    keys = random.split(random.key(1), 3000)
    first = np.asarray(rlx.vmap(lambda k: random.choice(k, 4, (2,), replace=False, p=rlx.asarray(p)))(keys))[:, 0]
    assert stats.chisquare(np.bincount(first, minlength=4)[p > 0], p[p > 0] * 3000).pvalue > LEVEL
    x = rlx.asarray(np.arange(12.0).reshape(3, 4))
    assert random.choice(random.key(2), x, (5,), axis=1).shape == (3, 5)


def test_complex_normal() -> None:
    x = np.asarray(random.normal(random.key(2), N, dtype=rlx.complex128))
    assert abs(np.mean(np.abs(x) ** 2) - 1) < 5 / np.sqrt(N)
    assert abs(np.mean(x**2)) < 5 / np.sqrt(N)
    assert stats.kstest(x.imag * np.sqrt(2), "norm").pvalue > LEVEL


def test_half_floats() -> None:
    for d in (rlx.float16, rlx.bfloat16):
        u = np.asarray(random.uniform(random.key(2), N, dtype=d).astype(rlx.float32))
        assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
        x = random.normal(random.key(2), N, dtype=d)
        assert x.dtype == d and abs(np.asarray(x.astype(rlx.float32)).std() - 1) < 0.03


def test_uniform_never_reaches_its_upper_end() -> None:
    low, high = np.float32(1.0), np.nextafter(np.float32(1.0), np.float32(2.0))
    x = np.asarray(random.uniform(random.key(0), 1000, float(low), float(high), dtype=rlx.float32))
    assert (x == low).all()


EXACT: dict[str, Callable[[Any], Any]] = {
    "bits": lambda k: random.bits(k, 50, dtype=rlx.uint64), "split": lambda k: random.split(k, 5),
    "fold_in": lambda k: random.fold_in(k, 77), "integers": lambda k: random.integers(k, 50, -9, 9),
    "long integers": lambda k: random.integers(k, 50, -9, 1 << 62),
    "uniform": lambda k: random.uniform(k, 50, dtype=rlx.float64),
    "uniform32": lambda k: random.uniform(k, 50, dtype=rlx.float32),
    "bernoulli": lambda k: random.bernoulli(k, 50, 0.4),
    "permutation": lambda k: random.permutation(k, 50), "choice": lambda k: random.choice(k, 50, 9, replace=False),
}


@pytest.mark.parametrize("name", list(EXACT))
def test_the_same_bits_on_every_device_eager_jitted_and_batched(name: str, device: str) -> None:
    f = EXACT[name]
    want = np.asarray(f(random.key(1234)))
    with rlx.flags(device=device):
        k = random.key(1234)
        np.testing.assert_array_equal(np.asarray(f(k)), want)
        np.testing.assert_array_equal(np.asarray(rlx.jit(f)(k)), want)
        keys = random.split(random.key(7), 3)
        rows = np.asarray(rlx.vmap(f)(keys))
        for row, key in zip(rows, keys, strict=True):
            np.testing.assert_array_equal(row, np.asarray(f(key)))


@pytest.mark.parametrize("name", ["normal", "exponential", "gumbel", "truncated normal"])
def test_other_draws_agree_between_devices_to_rounding(name: str, device: str) -> None:
    draw = CONTINUOUS[name][0]
    want = np.asarray(draw(random.key(5), "float64"))
    with rlx.flags(device=device):
        np.testing.assert_allclose(np.asarray(draw(random.key(5), "float64")), want, rtol=1e-13, atol=1e-14)


def test_draws_by_rejection_under_vmap() -> None:
    keys = random.split(random.key(7), 3)
    rows = np.asarray(rlx.vmap(lambda k: random.gamma(k, 4, 2.0))(keys))
    want = np.stack([np.asarray(random.gamma(k, 4, 2.0)) for k in keys])
    np.testing.assert_allclose(rows, want, rtol=1e-14)


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "uniform": lambda a, b: random.uniform(random.key(1), 20, a, a + b),
    "normal": lambda a, b: random.normal(random.key(1), 20, a, b),
    "exponential": lambda a, b: random.exponential(random.key(1), 20, b),
    "laplace": lambda a, b: random.laplace(random.key(1), 20, a, b),
    "gumbel": lambda a, b: random.gumbel(random.key(1), 20, a, b),
    "truncated normal": lambda a, b: random.truncated_normal(random.key(1), 20, a - 1.0, a + b),
    "gamma scale": lambda a, b: random.gamma(random.key(1), 20, 2.0, b),
}


@pytest.mark.parametrize("name", list(GRADIENTS))
def test_gradients_reach_the_parameters(name: str) -> None:
    rlx.testing.check_grad(GRADIENTS[name], rlx.asarray(0.3), rlx.asarray(1.4))


def test_a_gradient_through_acceptance_is_refused() -> None:
    with pytest.raises(NotDifferentiableError):
        rlx.eval(rlx.grad(lambda a: rlx.sum(random.gamma(random.key(1), 5, a)))(rlx.asarray(2.0)))


K = random.key(0)
ERRORS: list[tuple[type[RlxError], Callable[[], Any]]] = [
    (ValueIssue, lambda: random.integers(K, 3, 5, 5)),
    (ValueIssue, lambda: random.integers(K, 3, 0, 300, dtype=rlx.uint8)),
    (DTypeError, lambda: random.integers(K, 3, 0, 3, dtype=rlx.float32)),
    (DTypeError, lambda: random.uniform(K, 3, dtype=rlx.int32)),
    (DTypeError, lambda: random.poisson(K, 3, dtype=rlx.float32)),
    (ShapeError, lambda: random.normal(K, 3, rlx.zeros(4))),
    (ValueIssue, lambda: random.choice(K, 3, 4, replace=False)),
    (ShapeError, lambda: random.choice(K, 3, 4, p=[0.5, 0.5])),
    (ShapeError, lambda: random.categorical(K, rlx.zeros((2, 3)), (5,))),
]


@pytest.mark.parametrize("k", range(len(ERRORS)))
def test_errors_say_what_to_do(k: int) -> None:
    kind, f = ERRORS[k]
    with pytest.raises(kind) as caught:
        f()
    assert caught.value.why and caught.value.do
