"""The functions beyond elementwise ones, each against NumPy's of the same name: values, shapes and dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import rlx

RNG = np.random.default_rng(0)
A, V, I = RNG.standard_normal((4, 5)), RNG.standard_normal(7), RNG.integers(0, 6, 20)
N = A.copy()
N[1, 2] = np.nan
N[3] = np.nan
X3, S = RNG.standard_normal((2, 3, 4)), np.sort(V)
QUANTILES = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf", "hazen",
             "weibull", "median_unbiased", "normal_unbiased", "interpolated_inverted_cdf")
PADS = ("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean", "median", "minimum")


def case(name, *args, **kwargs):
    return name, args, kwargs


ELEMENTWISE = [
    case("logaddexp", V, V[::-1]), case("logaddexp2", V, V[::-1]), case("sinc", V), case("cbrt", V),
    case("heaviside", V, 0.5),
    case("fmod", V, 0.7), case("fmod", I - 3, 4), case("gcd", I, 12), case("lcm", I, I[::-1]), case("modf", V),
    case("ldexp", V, 3),
    case("angle", V + 1j), case("fmax", N, A), case("fmin", N, 0.0), case("divmod", I, 4), case("deg2rad", V),
    case("isposinf", np.array([np.inf, -np.inf, 1])), case("isneginf", np.array([np.inf, -np.inf, 1])),
    case("rint", V * 3),
    case("nan_to_num", np.array([np.nan, np.inf, -np.inf, 1])), case("isclose", V, V + 1e-9), case("allclose", V, V),
    case("array_equal", V, V), case("unwrap", V * 5), case("float_power", I, 2),
]
MOVING = [
    case("roll", A, 3), case("roll", A, -2, axis=1), case("roll", A, (1, 2), axis=(0, 1)), case("tile", V, (2, 3)),
    case("tile", A, 2),
    case("repeat", A, 3, axis=1), case("repeat", V, [1, 2, 0, 3, 1, 0, 2]), case("moveaxis", X3, 0, -1),
    case("moveaxis", X3, (0, 1), (1, 2)),
    case("swapaxes", A, 0, 1), case("unstack", A, axis=1), case("meshgrid", V, V[:3]),
    case("meshgrid", V, V[:3], V[:2], indexing="ij"),
    case("split", V[:6], 3), case("split", V, [2, 5]), case("split", V, [5, 2, 40]), case("array_split", V, 3),
    case("vstack", [V, V]),
    case("hstack", [A, A]), case("column_stack", [V, V]), case("rot90", A), case("rot90", A, 2), case("rot90", A, 3),
    case("append", V, V),
    case("delete", V, [1, 3]), case("insert", V, 2, 9.0), case("insert", A, 1, 5.0, axis=1), case("diag", V),
    case("diag", A, 1),
    case("diag", V, -2), case("diagonal", X3, 1, 1, 2), case("diagonal", A, -1), case("tri", 3, 4, 1),
    case("tril_indices", 4, -1), case("triu_indices", 4, 1, 5), case("tril_indices", 3, 2, 5), case("vander", V, 3),
    case("kron", A, A[:2, :2]),
    case("indices", (2, 3)), case("logspace", 0, 2, 5), case("geomspace", 1, 1000, 4), case("geomspace", -1, -1000, 4),
    *[case("pad", A, ((1, 2), (3, 1)), m) for m in PADS], *[case("pad", I, 2, m) for m in PADS],
    case("pad", A, 1, constant_values=((1, 2), (3, 4))), case("pad", V, (2, 3), "linear_ramp", end_values=(5, -4)),
]
SEARCHING = [
    case("count_nonzero", I), case("nonzero", A > 0), case("flatnonzero", I), case("argwhere", A > 0),
    case("searchsorted", S, V + 0.1),
    case("searchsorted", np.sort(I), I, side="right"), case("searchsorted", V, V, sorter=np.argsort(V)),
    case("searchsorted", np.array([1.0, 2.0, np.nan]), np.array([np.nan, 1.5])), case("searchsorted", np.zeros(0), V),
    case("digitize", V, np.linspace(-1, 1, 5)), case("digitize", V, np.linspace(-1, 1, 5)[::-1]),
    case("digitize", I, np.arange(6), right=True),
    case("isin", I, [1, 3]), case("isin", I, np.arange(40) + 3), case("isin", I, [1], invert=True),
    case("select", [A > 1, A < 0], [A, A * 2], 5.0),
    case("lexsort", (I, I[::-1])), case("extract", A > 0, A), case("unique_counts", I), case("unique_inverse", I),
    case("unique_all", I.reshape(4, 5)), case("unique", np.array([2.5, -0.0, 0.0, 2.5])),
    case("unique", I, return_index=True, return_counts=True),
    case("unique", np.array([1 + 1j, 1, 1 + 1j, 0])), case("union1d", I, V), case("intersect1d", I, [3, 4, 9]),
    case("setdiff1d", I, [3, 4]),
    case("setxor1d", I, [3, 9]), case("bincount", I), case("bincount", I, minlength=9),
    case("bincount", I, RNG.standard_normal(20)),
    case("histogram", V), case("histogram", V, 5, (-1, 1)), case("histogram", V, bins=[-1.0, 0, 1], density=True),
    case("histogram", np.ones(4), 3), case("histogram2d", V, V[::-1], 4),
]
STATISTICS = [
    *[case("quantile", A, [0.0, 0.1, 0.37, 0.5, 1.0], axis=1, method=m) for m in QUANTILES],
    *[case("nanquantile", N, 0.3, axis=1, method=m) for m in QUANTILES],
    case("quantile", N, 0.5, axis=0),
    case("median", A), case("median", A, axis=0, keepdims=True), case("nanmedian", N, axis=1),
    case("percentile", A, 30, axis=(0, 1)),
    case("ptp", A, axis=0), case("average", A, axis=1, weights=V[:5]), case("average", A, returned=True),
    case("nanargmax", N[:3], axis=1),
    *[case(f, N, axis=1) for f in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmin", "nanmax",
                                   "nancumsum")],
    case("cov", A), case("cov", A, rowvar=False), case("cov", V, V**2), case("cov", A, fweights=[1, 2, 1, 3, 1]),
    case("cov", A + 1j * A[::-1]),
    case("cov", A, fweights=[1, 2, 1, 3, 1], aweights=[1, 2, 1, 3, 1.5]), case("cov", A, bias=True),
    case("corrcoef", A),
]
NUMERIC = [
    case("diff", V), case("diff", A, n=2, axis=0), case("diff", V, prepend=0, append=V[:2]), case("diff", A > 0),
    case("trapezoid", A),
    case("trapezoid", V, S), case("trapezoid", A, axis=0, dx=0.5), case("gradient", A), case("gradient", V, S),
    case("gradient", V[:2]),
    case("gradient", A, 2.0, axis=1, edge_order=2), case("gradient", V, S, edge_order=2),
    case("gradient", A, 0.5, [0, 1, 3, 4, 7.0]),
    case("interp", np.linspace(-3, 3, 11), S, V), case("interp", np.linspace(-3, 3, 11), S, V, left=0, right=9),
    case("interp", np.linspace(-3, 9, 11), np.array([0, 2, 3.0]), np.array([1, 5, 2.0]), period=6),
    case("interp", S, S, V),
    case("polyval", V, V), case("polyder", V, 2), case("polyint", V), case("polyadd", V, V[:2]),
    case("polymul", V, V[:2]),
    *[case("convolve", a, b, m) for m in ("full", "same", "valid") for a, b in ((V, V[:3]), (V[:3], V), (V, V[:4]))],
    *[case("correlate", a, b, m) for m in ("full", "same", "valid") for a,
      b in ((V, V[:3] + 1j), (V[:3], V), (V[:4], V))],
    case("cumsum", A), case("cumprod", A, axis=0), case("inner", A, A), case("cross", A[:, :3], A[:, 1:4]),
    case("vdot", V + 1j, V),
    case("dot", A, A.T), case("dot", X3, RNG.standard_normal((5, 4, 2))), case("outer", V, V),
]
B = RNG.integers(0, 256, (3, 5)).astype(np.uint8)
#: What NumPy has beyond the standard and beyond the lists above.
FURTHER = [
    *[case(f, n) for f in ("hanning", "hamming", "blackman", "bartlett") for n in (1, 6, 7)], case("kaiser", 11, 8.6),
    case("i0", V * 10), case("poly", V), case("polysub", V, V[:3]), case("polydiv", V, V[:3]),
    case("polydiv", V[:2], V), case("polyint", V, 2, [1.0, 2.0]), case("polyfit", V, V**2, 3),
    case("polyfit", V, np.stack([V, V**2], 1), 2, w=V**2 + 1, cov=True), case("vander", V, 3, True),
    case("atleast_3d", A), case("dstack", [A, A]), case("hsplit", A, [2]), case("hsplit", V[:6], 2),
    case("vsplit", A, 2), case("dsplit", A.reshape(2, 2, 5), [1, 2]), case("rollaxis", X3, 2),
    case("rollaxis", X3, 0, 3),
    case("resize", V, (3, 4)), case("compress", [True, False, True], A, 0), case("compress", A.ravel() > 0, A),
    case("trim_zeros", np.array([0, 0, 1, 0, 2, 0.0])), case("ediff1d", V, 9.0, [1.0, 2.0]), case("packbits", B > 100),
    case("packbits", B > 100, 1), case("packbits", B > 100, 0, "little"), case("unpackbits", B),
    case("unpackbits", B, 1),
    case("unpackbits", B, 1, -3), case("unpackbits", B, 0, 30, "little"),
    case("frexp", np.array([1.0, -3.5, 0, np.inf, np.nan, 5e-324, 1e300, 1e-310])), case("frexp", V.astype(np.float32)),
    case("spacing", V), case("sort_complex", V + 1j * V[::-1]), case("real_if_close", V + 1e-16j),
    case("real_if_close", V + 1e-3j), case("histogramdd", A, 2), case("histogram2d", V, V[::-1], 4, None, True),
    case("unique", I.reshape(10, 2), True, True, True, 0), case("unique", I.reshape(10, 2) % 2, axis=1),
    case("linspace", 0, 1, 7, False, True), case("linspace", V, V + 2, 4, axis=1),
    case("linspace", 9, -1, 4, dtype=int),
    case("linspace", 1, 2, 1, retstep=True), case("indices", (2, 3), int, True), case("diff", V, 2),
    case("digitize", V, np.array([-1, 0, 1.0]), True), case("searchsorted", S, V, "right"), case("where", I > 2),
    case("take", A, [3, 7]), case("take", A, [0, -9, 9], 1, mode="clip"), case("take", A, [0, -9, 9], 1, mode="wrap"),
    case("unravel_index", I, (4, 5)), case("ravel_multi_index", (I % 4, I % 5), (4, 5)),
    case("ravel_multi_index", (I, I), (4, 5), mode="wrap"), case("diag_indices", 3), case("diag_indices", 3, 3),
    case("diag_indices_from", A[:, :4]), case("tril_indices_from", A), case("triu_indices_from", A, 1),
    case("ix_", [0, 2], [True, False, True]), case("mean", A, 0, np.float32), case("sum", A, 1, np.float32),
    case("var", A, 0, ddof=1), case("std", A, ddof=2), case("nanvar", N, 1, ddof=1), case("allclose", V, V, 1e-3, 1e-3),
    case("matvec", A, A[0]), case("vecmat", A[:, 0] + 1j, A), case("size", A, 1),
    case("tensordot", A, A, ((0, 1), (0, 1))), case("meshgrid", V, V[:3], sparse=True),
    case("geomspace", 1, 8, 4, False), case("logspace", 0, 3, 4, True, 2.0), case("reshape", A, (5, 4), "F"),
    case("reshape", X3, (4, -1), order="F"), case("ravel", A, "F"), case("trace", A, 1), case("trace", X3, 0, 1, 2),
    case("cumsum", A, 0, np.float32), case("full", (2, 2), 3, np.int8), case("zeros", 2, np.int8),
    case("ones", (2,), "float32"), case("arange", 0, 5, 2, np.float32), case("eye", 3, 4, 1, np.int8),
    case("tri", 3, 3, 0, np.int8), case("array_equal", N, N, True), case("add", V > 0, V > 1),
    case("multiply", V > 0, V > 1), case("maximum", V > 0, V > 1), case("fromiter", [1, 2, 3], np.int16),
    case("fromstring", "1 2 3", sep=" "), case("frombuffer", V.tobytes(), np.float64, 3, 8),
    case("identity", 2, np.int8),
]
EINSUMS = [
    ("ij,jk->ik", (A, A.T)), ("ij->ji", (A,)), ("ij->", (A,)), ("ii", (A[:, :4],)), ("ii->i", (A[:, :4],)),
    ("ij,ij->i", (A, A)),
    ("i,j->ij", (V, V)), ("ij,jk,kl->il", (A, A.T, A)), ("...ij,...jk->...ik", (X3, RNG.standard_normal((2, 4, 5)))),
    ("bij,jk", (X3, RNG.standard_normal((4, 5)))),
    ("abc,cd,bd->ad", (X3, RNG.standard_normal((4, 5)), RNG.standard_normal((3, 5)))),
    ("i,i,i->i", (V, V, V)), ("...,...", (A, 2.0)), ("ij,kj->", (A, A)), ("iij->j", (RNG.standard_normal((3, 3, 2)),)),
    ("...i,...i->...", (A, A[:1])), ("ba", (A,)), ("ij,jk->ik", (I.reshape(4, 5), I.reshape(5, 4))),
]
CASES = [*ELEMENTWISE, *MOVING, *SEARCHING, *STATISTICS, *NUMERIC, *FURTHER,
         *[case("einsum", s, *o) for s, o in EINSUMS]]


def leaves(x):
    if isinstance(x, (tuple, list)):
        return [z for y in x for z in leaves(y)]
    return [np.asarray(x)]


def to_rlx(x):
    if isinstance(x, (list, tuple)) and x and isinstance(x[0], tuple):
        return x
    if isinstance(x, (list, tuple)) and x and isinstance(x[0], np.ndarray):
        return type(x)(rlx.asarray(y) for y in x)
    return rlx.asarray(x) if isinstance(x, np.ndarray) else x


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_equals_numpy(name, args, kwargs):
    want = leaves(getattr(np, name)(*args, **kwargs))
    got = leaves(getattr(rlx, name)(*map(to_rlx, args), **kwargs))
    assert [(w.shape, w.dtype) for w in want] == [(g.shape, g.dtype) for g in got]
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "args", "kwargs"), [
    case("searchsorted", S, V), case("quantile", A, 0.3, axis=1), case("histogram", V, 4), case("interp", V, S, V),
    case("einsum", "ij,kj->ik", A, A),
    case("pad", A, 2, "reflect"), case("convolve", V, V[:3]), case("median", A), case("unwrap", V), case("cov", A),
    case("gradient", V)],
    ids=lambda v: v if isinstance(v, str) else "")
def test_compiled_equals_eager(name, args, kwargs):
    f = getattr(rlx, name)
    static = [a for a in args if not isinstance(a, np.ndarray)]
    arrays = [rlx.asarray(a) for a in args if isinstance(a, np.ndarray)]
    texts = [a for a in static if isinstance(a, str) and "->" in a]
    rest = [a for a in static if a not in texts]
    want = leaves(f(*texts, *arrays, *rest, **kwargs))
    got = leaves(rlx.jit(lambda *xs: f(*texts, *xs, *rest, **kwargs))(*arrays))
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-13, atol=1e-13)


def test_roots_are_numpys_in_some_order():
    for p in ([1.0, -6, 11, -6], [0.0, 2, 0, 0], [1.0, 0, 1], [5.0], [0.0]):
        got = np.asarray(rlx.roots(p))
        assert got.dtype == np.complex128
        np.testing.assert_allclose(np.sort_complex(got.round(9)), np.sort_complex(np.roots(p).astype(complex).round(9)))


def test_block_nests_like_numpys():
    parts = [[A, A[:, :1]], [A[:1], A[:1, :1]]]
    np.testing.assert_array_equal(rlx.block(parts), np.block(parts))
    np.testing.assert_array_equal(rlx.block([V, 1.0]), np.block([V, 1.0]))
    with pytest.raises(rlx.core.errors.ShapeError, match="depths"):
        rlx.block([A, [A]])


def test_brackets_are_numpys():
    np.testing.assert_array_equal(rlx.mgrid[0:3, 1:2:3j], np.mgrid[0:3, 1:2:3j])
    np.testing.assert_array_equal(rlx.mgrid[-1:1:5j], np.mgrid[-1:1:5j])
    for got, want in zip(rlx.ogrid[0:3, 0:2], np.ogrid[0:3, 0:2], strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(rlx.r_[1, 2:5, V], np.r_[1, 2:5, V])
    np.testing.assert_array_equal(rlx.c_[V, V], np.c_[V, V])
    np.testing.assert_array_equal(rlx.asarray(A)[rlx.s_[1:, ::2]], A[np.s_[1:, ::2]])


@pytest.mark.parametrize(("name", "args"), [
    ("copyto", (V[:5],)), ("putmask", (A > 0, V[:3])), ("place", (A > 0, V[:3])), ("put", ([1, 7, -3], V[:2])),
    ("fill_diagonal", (V[:2],)), ("put_along_axis", (np.argsort(A, 1)[:, :2], 9.0, 1))])
def test_functions_that_write_into_their_argument(name, args):
    want, x = A.copy(), rlx.asarray(A)
    other = x[:]
    getattr(np, name)(want, *args)
    assert getattr(rlx, name)(x, *map(to_rlx, args)) is None
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(other, A)


def test_a_diagonal_is_filled_as_numpys():
    for shape in ((9, 3), (3, 9), (3, 3, 3)):
        for wrap in (False, True):
            want, x = np.zeros(shape), rlx.zeros(shape)
            np.fill_diagonal(want, 5, wrap=wrap)
            rlx.fill_diagonal(x, 5, wrap=wrap)
            np.testing.assert_array_equal(x, want)


def test_methods_that_write_into_their_array():
    for name, args in (("sort", ()), ("sort", (0,)), ("fill", (3.0,)), ("put", ([0, 2], [7.0, 8.0]))):
        want, x = A.copy(), rlx.asarray(A)
        other = x[:]
        getattr(want, name)(*args)
        assert getattr(x, name)(*args) is None
        np.testing.assert_array_equal(x, want)
        np.testing.assert_array_equal(other, A)


def test_methods_and_operators_of_arrays():
    x, i = rlx.asarray(A), rlx.asarray(I)
    assert x.item(3) == A.item(3) and x.item(1, 2) == A.item(1, 2) and i.item((4,)) == I.item((4,))
    for got, want in zip((*divmod(i, 4), *divmod(7, i + 1)), (*divmod(I, 4), *divmod(7, I + 1)), strict=True):
        np.testing.assert_array_equal(got, want)
    assert 3 in i and 99 not in i
    np.testing.assert_array_equal(x.reshape(5, 4, order="F"), A.reshape(5, 4, order="F"))
    np.testing.assert_array_equal(x.flatten("F"), A.flatten("F"))
    np.testing.assert_array_equal(x.compress([True, False, True, True], 0), A.compress([True, False, True, True], 0))
    assert x.tobytes() == A.tobytes()
    assert x.view(rlx.int64).tolist() == A.view(np.int64).tolist()


def test_dtypes_have_numpys_other_names():
    from rlx.ops.dtypes import NAMES
    for name, d in NAMES.items():
        assert getattr(rlx, name) == d and np.dtype(getattr(np, name)) == d.numpy
    assert rlx.issubdtype(rlx.float32, np.floating) and not rlx.issubdtype(rlx.int8, "inexact")
    assert rlx.common_type(rlx.ones(1, "float32"), rlx.arange(2)) == rlx.float64


def test_functions_over_axes_and_elements():
    f = rlx.vectorize(lambda a, b: rlx.where(a > b, a - b, a + b))
    np.testing.assert_array_equal(f(A, S[:5]), np.where(S[:5] < A, A - S[:5], A + S[:5]))
    g = rlx.vectorize(lambda m, v: m @ v, signature="(m,n),(n)->(m)")
    np.testing.assert_allclose(g(X3, X3[0, 0]), X3 @ X3[0, 0])
    with pytest.raises(rlx.core.errors.ValueIssue, match="signature"):
        rlx.vectorize(f, signature="m,n")
    for axis in (0, 1, 2):
        np.testing.assert_allclose(rlx.apply_along_axis(lambda v: v[:2] * v.sum(), axis, X3),
                                   np.apply_along_axis(lambda v: v[:2] * v.sum(), axis, X3))
    np.testing.assert_allclose(rlx.apply_over_axes(rlx.sum, X3, [0, 2]), np.apply_over_axes(np.sum, X3, [0, 2]))
    np.testing.assert_array_equal(rlx.fromfunction(lambda i, j: i * 10 + j, (3, 2)),
                                  np.fromfunction(lambda i, j: i * 10 + j, (3, 2)))


def test_unique_values_counts_every_nan():
    got = np.asarray(rlx.unique_values(rlx.asarray([np.nan, 1.0, np.nan, 1.0])))
    np.testing.assert_array_equal(got, [1.0, np.nan, np.nan])


def test_einsum_contracts_the_cheap_pair_first():
    a, b, c = (rlx.asarray(RNG.standard_normal(s)) for s in ((40, 2), (2, 40), (40, 1)))
    graph = rlx.jit(lambda *xs: rlx.einsum("ij,jk,kl->il", *xs)).trace(a, b, c).graph
    sizes = [n.types[0].shape for n in graph.nodes() if n.op == "dot"]
    assert (40, 40) not in sizes and len(sizes) == 2


@pytest.mark.parametrize(("f", "words"), [
    (lambda: rlx.einsum("ij,jk->ik", rlx.ones((2, 3)), rlx.ones((4, 5))), "sizes 3 and 4"),
    (lambda: rlx.einsum("ij->kk", rlx.ones((2, 3))), "twice"),
    (lambda: rlx.einsum("i", rlx.ones((2, 3))), "does not fit"),
    (lambda: rlx.quantile(rlx.ones(3), 1.5), "outside"),
    (lambda: rlx.quantile(rlx.ones(3), 0.5, method="mode"), "method"),
    (lambda: rlx.pad(rlx.ones(3), -1), "not negative"), (lambda: rlx.pad(rlx.ones(0), 1, "edge"), "no element"),
    (lambda: rlx.bincount(rlx.asarray([-1])), "negative"), (lambda: rlx.split(rlx.ones(5), 2), "multiple"),
    (lambda: rlx.geomspace(-1, 1, 3), "cross 0"), (lambda: rlx.searchsorted(rlx.ones(3), 1.0, side="up"), "left"),
    (lambda: rlx.cross(rlx.ones(2), rlx.ones(2)), "three components"),
    (lambda: rlx.moveaxis(rlx.ones((2, 2)), (0, 0), (0, 1)), "repeats")])
def test_refusals_say_why(f, words):
    with pytest.raises(rlx.core.errors.RlxError) as e:
        f()
    assert words in str(e.value) and "do:" in str(e.value)


class TestFiles:
    """save, savez and load."""

    def test_round_trip(self, tmp_path):
        for x in (A, I, A.astype(np.complex64), np.array(True), np.zeros((0, 3), np.float32)):
            rlx.save(tmp_path / "x", x)
            back = rlx.load(tmp_path / "x.npy")
            assert back.dtype.numpy == x.dtype and back.shape == x.shape
            np.testing.assert_array_equal(back, x)

    def test_several(self, tmp_path):
        rlx.savez(tmp_path / "x.npz", a=A, b=rlx.asarray(I))
        back = rlx.load(tmp_path / "x.npz")
        assert sorted(back) == ["a", "b"]
        np.testing.assert_array_equal(back["b"], I)

    def test_a_failed_save_leaves_the_old_file(self, tmp_path, monkeypatch):
        rlx.save(tmp_path / "x.npy", V)

        def broken(f, *_, **__):
            f.write(b"half")
            raise OSError("disk full")
        monkeypatch.setattr(np, "save", broken)
        with pytest.raises(OSError, match="disk full"):
            rlx.save(tmp_path / "x.npy", A)
        np.testing.assert_array_equal(rlx.load(tmp_path / "x.npy"), V)
        assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]

    @pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY\x01\x00", b"PK\x03\x04broken"])
    def test_what_is_no_file_of_arrays(self, tmp_path, content):
        (tmp_path / "x.npy").write_bytes(content)
        with pytest.raises(rlx.core.errors.FormatError):
            rlx.load(tmp_path / "x.npy")

    def test_text(self, tmp_path):
        rlx.savetxt(tmp_path / "x.txt", A, delimiter=",")
        np.testing.assert_array_equal(rlx.loadtxt(tmp_path / "x.txt", delimiter=","), A)
        (tmp_path / "y.txt").write_text("1,2\n3,\n")
        np.testing.assert_array_equal(rlx.genfromtxt(tmp_path / "y.txt", delimiter=","), [[1, 2], [3, np.nan]])
        with pytest.raises(rlx.core.errors.FormatError, match="delimiter"):
            rlx.loadtxt(tmp_path / "y.txt")
        (tmp_path / "z").write_bytes(V.tobytes())
        np.testing.assert_array_equal(rlx.fromfile(tmp_path / "z"), V)
        assert rlx.array2string(V, precision=2) == np.array2string(V, precision=2)

    def test_objects_are_never_executed(self, tmp_path):
        np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
        with pytest.raises(rlx.core.errors.FormatError):
            rlx.load(tmp_path / "x.npy")

    def test_bfloat16_has_no_npy(self, tmp_path):
        with pytest.raises(rlx.core.errors.DTypeError, match="bfloat16"):
            rlx.save(tmp_path / "x.npy", rlx.ones(2, dtype=rlx.bfloat16))
