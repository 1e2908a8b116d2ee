"""Arrays among others: DLPack, NumPy's protocols, pickling, the standard's namespace."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import rlx
from rlx.core.errors import RlxError, TraceError

DTYPES = [d for d in rlx.core.dtype.ALL if d.name != "bfloat16"]


class Carrier:
    """A producer of DLPack from before version 1: it takes no keywords."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_dlpack_round_trip(dtype, shape):
    host = np.ones(shape, dtype.numpy)
    out = np.from_dlpack(rlx.asarray(host))
    np.testing.assert_array_equal(out, host)
    assert out.dtype == host.dtype and not out.flags.writeable
    back = rlx.from_dlpack(host)
    assert back.dtype == dtype and back.shape == shape


def test_dlpack_shares_unless_told_to_copy():
    host = np.arange(4.0)
    shared, own = rlx.from_dlpack(host), rlx.from_dlpack(host, copy=True)
    host[0] = 9.0
    assert float(shared[0]) == 9.0 and float(own[0]) == 0.0
    x = rlx.arange(4.0) + 1
    a, b = np.from_dlpack(x), np.from_dlpack(x)
    assert a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    c = np.from_dlpack(x, copy=True)
    c[0] = 7.0
    np.testing.assert_array_equal(x, [1, 2, 3, 4])


def test_dlpack_before_version_1_gets_a_copy_that_it_may_write():
    x = rlx.arange(3.0) + 0
    old = np.from_dlpack(Carrier(x))
    old_address = old.__array_interface__["data"][0]
    assert old_address != np.from_dlpack(x).__array_interface__["data"][0]
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__(copy=False)
    np.testing.assert_array_equal(rlx.from_dlpack(Carrier(np.arange(3.0))), [0, 1, 2])


def test_dlpack_of_a_view_that_is_not_contiguous():
    host = np.arange(12.0).reshape(3, 4)[:, ::2]
    np.testing.assert_array_equal(rlx.from_dlpack(host), host)
    with pytest.raises(BufferError):
        rlx.from_dlpack(host, copy=False)


def test_a_bfloat16_number_without_axes_is_a_numpy_array():
    x = np.asarray(rlx.asarray([1.5, 2.5], dtype=rlx.bfloat16)[1])
    assert isinstance(x, np.ndarray) and x.shape == () and x == 2.5


def test_dlpack_of_bfloat16():
    x = rlx.asarray([1.5, -2.0, 0.125], dtype=rlx.bfloat16)
    back = rlx.from_dlpack(x)
    assert back.dtype == rlx.bfloat16
    from rlx.array.interop import _Carrier, _code
    capsule = x.__dlpack__(max_version=(1, 0))
    assert _code(capsule) == 4
    again = rlx.from_dlpack(_Carrier(capsule))
    assert again.dtype == rlx.bfloat16
    np.testing.assert_array_equal(again, [1.5, -2.0, 0.125])


def test_dlpack_device_stream_and_tracing():
    x = rlx.ones(2)
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream"):
        x.__dlpack__(stream=1)
    with pytest.raises(TraceError):
        rlx.jit(np.from_dlpack)(x)
    with pytest.raises(RlxError, match="__dlpack__"):
        rlx.from_dlpack([1, 2])


@pytest.mark.parametrize(("f", "n"), [
    (np.add, 2), (np.sin, 1), (np.arctan2, 2), (np.power, 2), (np.absolute, 1), (np.logaddexp, 2), (np.isnan, 1),
    (np.greater, 2)],
    ids=lambda v: getattr(v, "__name__", ""))
def test_numpys_functions_stay_rlx(f, n):
    host = [np.array([1.0, 2.0]), np.array([3.0, 5.0])][:n]
    got = f(*map(rlx.asarray, host))
    assert isinstance(got, rlx.Array)
    np.testing.assert_allclose(got, f(*host))


def test_numpys_array_functions_stay_rlx():
    a, x = np.array([[1.0, 2.0], [3.0, 4.0]]), rlx.asarray([[1.0, 2.0], [3.0, 4.0]])
    for f in (lambda v: np.concatenate([v, v]), lambda v: np.sum(v, axis=0), lambda v: np.mean(v),
              lambda v: np.sort(v, axis=0),
              lambda v: np.where(v > 1, v, 0), lambda v: np.einsum("ij,jk", v, v), lambda v: np.transpose(v),
              lambda v: np.std(v, ddof=1), lambda v: np.cov(v, ddof=0),
              lambda v: np.clip(v, 1.5, 3), lambda v: np.cumsum(v), lambda v: np.trace(v), lambda v: np.dot(v, v),
              lambda v: v @ a,
              lambda v: np.add.reduce(v), lambda v: np.multiply.outer(v, v), lambda v: np.add.accumulate(v, axis=0),
              lambda v: a + v):
        got = f(x)
        assert isinstance(got, rlx.Array)
        np.testing.assert_allclose(got, f(a))


@pytest.mark.parametrize("f", [lambda x: np.add(x, x, out=np.zeros(2)),
                               lambda x: np.add(x, 1, where=np.array([True, False])),
                               lambda x: np.add.at(x, 0, 1), lambda x: np.busday_count(x, x),
                               lambda x: np.apply_along_axis(sum, 0, x)])
def test_what_rlx_has_not_fails_clearly(f):
    with pytest.raises(TypeError, match="rlx"):
        f(rlx.ones(2))


@pytest.mark.parametrize("dtype", [*DTYPES, rlx.bfloat16], ids=lambda d: d.name)
def test_pickle_and_copy(dtype):
    whole = rlx.asarray([0, 1, 1], dtype=dtype)
    x = whole + rlx.asarray(0, dtype=dtype) if dtype.kind != "b" else rlx.logical_not(whole)
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy({"a": [x]})["a"][0]):
        assert isinstance(y, rlx.Array) and y.dtype == dtype and y.device == x.device and y is not x
        np.testing.assert_array_equal(y, x)


class TestNamespace:
    """rlx as an Array API namespace."""

    def test_the_array_names_its_namespace(self):
        x = rlx.ones(2)
        assert x.__array_namespace__() is rlx and x.__array_namespace__(api_version="2024.12") is rlx
        with pytest.raises(RlxError, match="version"):
            x.__array_namespace__(api_version="1999.01")

    def test_info(self):
        info = rlx.__array_namespace_info__()
        assert info.default_device() == "cpu" and "cpu" in info.devices() and "python" in info.devices()
        assert isinstance(info.devices(), tuple) and (info.devices() + [None])[-1] is None
        assert info.default_dtypes()["real floating"] == rlx.float64
        assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
        assert set(info.dtypes(kind=("bool", "unsigned integer"))) == {"bool", "uint8", "uint16", "uint32", "uint64"}
        assert info.capabilities()["boolean indexing"] is True

    def test_constants_and_versions(self):
        assert (rlx.pi, rlx.e, rlx.inf, rlx.newaxis) == (np.pi, np.e, np.inf, None) and rlx.nan != rlx.nan
        assert rlx.__array_api_version__ == "2025.12"

    def test_dtype_functions(self):
        assert rlx.isdtype(rlx.float32, "real floating") and rlx.isdtype(rlx.int8, ("bool", "integral"))
        assert not rlx.isdtype(rlx.float32, "integral") and rlx.isdtype(rlx.float32, rlx.float32)
        assert rlx.can_cast(rlx.int8, rlx.float32) and not rlx.can_cast(rlx.int64, rlx.int32)
        assert rlx.result_type(rlx.int8, rlx.ones(1, dtype="float32"), 1j) == rlx.complex64
        assert rlx.finfo(rlx.complex64).bits == 32 and rlx.finfo(rlx.bfloat16).eps == 2.0**-7
        assert (rlx.iinfo("uint8").max, rlx.iinfo(rlx.int16).min) == (255, -32768)

    def test_compat_library_accepts_it(self):
        compat = pytest.importorskip("array_api_compat", reason="array-api-compat is not installed")
        x = rlx.asarray([3.0, 1.0])
        assert compat.is_array_api_obj(x) and compat.array_namespace(x) is rlx
        assert compat.device(x) == "cpu" and compat.size(x) == 2

    def test_lazy_packages(self):
        import subprocess
        import sys
        code = ("import sys, rlx\nassert 'rlx.sparse' not in sys.modules\nassert rlx.sparse.__name__ == 'rlx.sparse'\n"
                "try:\n    rlx.nothing_of_this_name\n"
                "except AttributeError as e:\n    assert 'nothing_of_this_name' in str(e)\n"
                "else:\n    raise SystemExit(1)\nassert 'sparse' in dir(rlx)")
        subprocess.run([sys.executable, "-c", code], check=True)


def test_the_stub_lists_what_there_is():
    from rlx.tools import stubs
    assert stubs.target().read_text(encoding="utf-8") == stubs.text(), "run python -m rlx.tools.stubs"


def test_numpys_linear_algebra_and_transforms_stay_on_the_device():
    a = rlx.asarray([[2.0, 1.0], [1.0, 3.0]])
    for f in (np.linalg.inv, np.linalg.det, np.linalg.norm, np.linalg.cholesky, np.fft.fft, np.fft.rfft):
        got = f(a)
        assert isinstance(got, rlx.Array)
        np.testing.assert_allclose(np.asarray(got), f(np.asarray(a)), rtol=1e-12)
    assert isinstance(np.linalg.eigh(a)[1], rlx.Array)
