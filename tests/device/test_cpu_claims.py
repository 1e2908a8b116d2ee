"""OpenBLAS and LAPACK through the cpu device: GEMM forms against NumPy, and the calling forms that claims
build on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compile.nest_form import form_of
from rlx.core import flags
from rlx.core.dtype import DType, as_dtype, float32, float64, int32
from rlx.device.cpu import blas, caps, cost, jit, lapack, threads
from rlx.device.cpu.device import CpuDevice
from rlx.device.cpu.emit import Emit
from rlx.device.cpu.gemm import Form, form
from rlx.device.cpu.native.openblas_gemm import CLAIMS, lower
from rlx.ir.claim import Call
from rlx.ir.loop import Buffer, Native, Program
from rlx.render.llvm.program import render_program

GEMM = CLAIMS[0]
NONE: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

#: lhs shape, rhs shape, contract, batch
CASES = {
    "plain": ((24, 18), (18, 32), ((1,), (0,)), NONE),
    "lhs transposed": ((18, 24), (18, 32), ((0,), (0,)), NONE),
    "rhs transposed": ((24, 18), (32, 18), ((1,), (1,)), NONE),
    "both transposed": ((18, 24), (32, 18), ((0,), (1,)), NONE),
    "batched": ((5, 24, 18), (5, 18, 32), ((2,), (1,)), ((0,), (0,))),
    "batch axes in the middle": ((2, 16, 4, 8), (2, 12, 4, 8), ((3,), (3,)), ((0, 2), (0, 2))),
    "batch axes in two orders": ((3, 2, 6, 7), (2, 3, 7, 5), ((3,), (2,)), ((1, 0), (0, 1))),
    "several contracted axes": ((6, 7, 5, 4), (5, 4, 9), ((2, 3), (0, 1)), NONE),
    "contracted axes named backwards": ((6, 7, 5, 4), (5, 4, 9), ((3, 2), (1, 0)), NONE),
    "several free axes": ((2, 3, 7), (7, 4, 5), ((2,), (0,)), NONE),
    "axes of one element": ((1, 24, 1, 18), (18, 1, 32), ((2, 3), (1, 0)), NONE),
    "matrix times vector": ((24, 18), (18,), ((1,), (0,)), NONE),
    "transposed matrix times vector": ((18, 24), (18,), ((0,), (0,)), NONE),
    "vector times matrix": ((18,), (18, 33), ((0,), (0,)), NONE),
    "vector times transposed matrix": ((18,), (33, 18), ((0,), (1,)), NONE),
    "strided vectors in a batch": ((48, 3, 6), (48, 3), ((0,), (0,)), ((1,), (1,))),
    "inner product": ((300,), (300,), ((0,), (0,)), NONE),
    "outer product": ((30, 1), (1, 20), ((1,), (0,)), NONE),
    "outer product of vectors": ((30,), (20,), ((), ()), NONE),
    "split by rows": ((300, 150), (150, 100), ((1,), (0,)), NONE),
    "split by columns": ((20, 150), (150, 1100), ((1,), (0,)), NONE),
    "split by rows, transposed": ((150, 300), (100, 150), ((0,), (1,)), NONE),
    "split matrix times vector": ((2100, 600), (600,), ((1,), (0,)), NONE),
    "split vector times matrix": ((600,), (600, 2100), ((0,), (0,)), NONE),
    "split batch": ((12, 80, 90), (12, 90, 70), ((2,), (1,)), ((0,), (0,))),
}


@pytest.fixture(scope="module")
def cpu() -> CpuDevice:
    return CpuDevice()


def reference(a: np.ndarray, b: np.ndarray, contract: Any, batch: Any) -> np.ndarray:
    """The contraction by einsum."""
    left, right = list(range(a.ndim)), list(range(100, 100 + b.ndim))
    for i, j in (*zip(*contract, strict=True), *zip(*batch, strict=True)):
        right[j] = left[i]
    keep = [left[i] for i in batch[0]]
    keep += [i for i in left if i not in contract[0] and i not in batch[0]]
    keep += [j for j in right if j >= 100]
    names = {k: chr(97 + n) for n, k in enumerate(dict.fromkeys(left + right))}
    spell = lambda axes: "".join(names[i] for i in axes)
    return np.einsum(f"{spell(left)},{spell(right)}->{spell(keep)}", a, b, optimize=True)


def data(shape: tuple[int, ...], d: DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if d.is_complex else x).astype(d.numpy)


def call_of(d: DType, lhs: tuple[int, ...], rhs: tuple[int, ...], out: tuple[int, ...], **attrs: Any) -> Call:
    return Call("dot", ((d, lhs), (d, rhs)), ((d, out),), attrs)


def run_native(cpu: CpuDevice, claim: str, inputs: list[np.ndarray],
               outputs: list[tuple[DType, tuple[int, ...]]], lowering: Any, attrs: Any) -> list[np.ndarray]:
    """The outputs of a program of one native step; they start as NaN, so that reading them shows."""
    types = (*((as_dtype(x.dtype), x.shape) for x in inputs), *outputs)
    names = tuple(f"x{i}" for i in range(len(types)))
    roles = [("input", i) for i in range(len(inputs))] + [("output", i) for i in range(len(outputs))]
    buffers = tuple(Buffer(name, d, int(np.prod(shape)), *role)
                    for name, (d, shape), role in zip(names, types, roles, strict=True))
    program = Program("native", buffers, (Native(claim, names, types, len(inputs), tuple(attrs.items())),))
    executable = cpu.load_text(render_program(program, {claim: lowering}), program)
    made = [cpu.empty(d, s) for d, s in outputs]
    for s in made:
        s.array.reshape(-1).view(np.uint8)[...] = 0xFF
    executable.run([cpu.upload(x) for x in inputs], made)
    return [s.array for s in made]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_gemm_against_numpy(cpu: CpuDevice, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "reason", lambda *a, **k: None)  # also where a generated kernel is the faster
    d = as_dtype(dtype)
    for name, (lhs, rhs, contract, batch) in CASES.items():
        a, b = data(lhs, d, 1), data(rhs, d, 2)
        expected = reference(a, b, contract, batch)
        attrs = {"contract": contract, "batch": batch}
        assert GEMM.accepts(call_of(d, lhs, rhs, expected.shape, **attrs)) is None, name
        out, = run_native(cpu, "gemm", [a, b], [(d, expected.shape)], lower, attrs)
        bound = 100 * np.finfo(dtype).eps * np.abs(expected).max()
        np.testing.assert_allclose(out, expected, rtol=0, atol=bound, err_msg=name)


def test_the_faster_side_of_the_measured_model_takes_a_product() -> None:
    def why(m: int, n: int, k: int, vector_bytes: int = 64) -> str | None:
        tiled = form_of(float32, (m, k), (k, n), ((1,), (0,)), NONE)
        assert tiled is not None
        return cost.reason(tiled, float32, vector_bytes)

    for shape in ((128, 128, 784), (128, 1536, 384), (512, 512, 512), (16, 384, 384)):
        assert "in OpenBLAS" in (why(*shape) or ""), shape
    for shape in ((2, 512, 512), (32, 32, 32), (10, 128, 128)):
        assert why(*shape) is None, shape
    assert why(512, 512, 512, 16) is None  # nothing was measured for vectors of 16 bytes


def test_a_report_says_why_the_library_was_not_called() -> None:
    if caps.vector_bytes(jit.host()) < 64:
        pytest.skip("declared: the expectation is of a core with AVX-512")
    x = rlx.asarray(np.ones((256, 256), np.float32))
    report = rlx.jit(lambda x: x @ x).lower(x).lowered.report
    assert "openblas_gemm declined: is slower: one core's time in the generated kernel" in str(report)


def test_large_products_are_split_over_the_pool() -> None:
    def native(m: int, n: int, k: int) -> Native:
        types = ((float64, (m, k)), (float64, (k, n)), (float64, (m, n)))
        return Native("g", ("a", "b", "c"), types, 2, (("contract", ((1,), (0,))), ("batch", NONE)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "cores", lambda: 4)
        assert "rlx_parallel_for" in lower(native(500, 400, 300))[1]
        assert "rlx_parallel_for" not in lower(native(20, 30, 40))[1]
        with flags.flags(threads=1):
            assert "rlx_parallel_for" not in lower(native(500, 400, 300))[1]


def test_lowering_is_deterministic_and_named_by_content() -> None:
    native = Native("g", ("a", "b", "c"), ((float64, (9, 9)), (float64, (9, 9)), (float64, (9, 9))), 2,
                    (("contract", ((1,), (0,))),))
    turned = Native("g", ("a", "b", "c"), native.types, 2, (("contract", ((0,), (0,))),))
    assert lower(native) == lower(native)
    assert lower(native)[0] != lower(turned)[0]


@pytest.mark.parametrize("lhs,rhs,contract,reason", [
    ((6, 5, 4), (4, 9, 5), ((1, 2), (2, 0)), "contracted axes of rhs are not one axis"),
    ((6, 5, 4), (5, 9), ((1,), (0,)), "free axes of lhs are not one axis"),
    ((0, 5), (5, 9), ((1,), (0,)), "an operand is empty"),
    ((3, 3), (3, 3), ((1,), (0,)), "slower than a generated loop"),
])
def test_gemm_declines_with_the_reason(lhs: Any, rhs: Any, contract: Any, reason: str) -> None:
    found = GEMM.accepts(call_of(float64, lhs, rhs, (1,), contract=contract, batch=NONE))
    assert found is not None and reason in found


def test_gemm_declines_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call("dot", ((int32, (9, 9)), (int32, (9, 9))), ((int32, (9, 9)),), {"contract": ((1,), (0,))})
    assert "got int32" in str(GEMM.accepts(call))
    mixed = Call("dot", ((float64, (9, 9)), (float64, (9, 9))), ((as_dtype("float32"), (9, 9)),), call.attrs)
    assert "got float64, float64, float32" in str(GEMM.accepts(mixed))
    monkeypatch.setattr(blas, "absent", lambda: "needs OpenBLAS")
    assert GEMM.accepts(call_of(float64, (9, 9), (9, 9), (9, 9), contract=((1,), (0,)))) == "needs OpenBLAS"


def test_a_matrix_whose_both_strides_exceed_one_is_no_gemm() -> None:
    found = form(float64, (3, 4, 5), (5, 3, 4), ((0,), (1,)), ((2,), (0,)))
    assert isinstance(found, str) and "contiguous" in found
    assert isinstance(form(float64, (3, 4, 5), (3, 4, 5), ((0,), (0,)), ((1,), (1,))), Form)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_lapack_cholesky_of_a_batch(cpu: CpuDevice, dtype: str) -> None:
    """The pattern of a factorization: copy, swap uplo for row-major, call, zero the rest, store info."""
    d, n, batches = as_dtype(dtype), 7, 5
    x = data((batches, n, n), d, 3)
    a = (x @ x.conj().swapaxes(1, 2) + n * np.eye(n)).astype(d.numpy)
    a[3] = -a[3]

    def lower_cholesky(native: Native) -> tuple[str, str]:
        def body(e: Emit, g: str) -> None:
            item = lapack.element(d)
            factor = e.at(e.buffer(1), item, (g, n * n))
            lapack.copy(e, d, factor, e.at(e.buffer(0), item, (g, n * n)), n * n)
            info = lapack.routine(e, "potrf", d, "U", n, factor, n)
            lapack.zero_above(e, d, factor, n)
            lapack.store_info(e, info, 2, g)
        return "chol", lapack.batched("chol", batches, body, parallel=True)

    factor, info = run_native(cpu, "chol", [a], [(d, a.shape), (int32, (batches,))], lower_cholesky, {})
    assert list(info) == [0, 0, 0, 1, 0]
    for i in (0, 1, 2, 4):
        product = factor[i] @ factor[i].conj().T
        np.testing.assert_allclose(product, a[i], rtol=0, atol=1e3 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(np.triu(factor[i], 1), 0)


def test_lapack_solve_with_column_major_copies(cpu: CpuDevice) -> None:
    n, k = 6, 3
    a, b = data((n, n), float64, 4), data((n, k), float64, 5)

    def lower_solve(native: Native) -> tuple[str, str]:
        def body(e: Emit, g: str) -> None:
            at, bt = e.slot("double", count=n * n), e.slot("double", count=n * k)
            lapack.transposed(e, float64, at, e.buffer(0), n, n)
            lapack.transposed(e, float64, bt, e.buffer(1), n, k)
            info = lapack.routine(e, "gesv", float64, n, k, at, n, e.slot("i64", count=n), bt, n)
            lapack.transposed(e, float64, e.buffer(2), bt, k, n)
            lapack.store_info(e, info, 3, g)
        return "solve", lapack.batched("solve", 1, body, parallel=False)

    x, info = run_native(cpu, "solve", [a, b], [(float64, (n, k)), (int32, (1,))], lower_solve, {})
    assert info[0] == 0
    np.testing.assert_allclose(a @ x, b, atol=1e-12)


def test_openblas_has_no_threads_of_its_own() -> None:
    assert blas.address("scipy_cblas_dgemm64_") is not None and blas.address("malloc") is None
    assert blas._library().scipy_openblas_get_num_threads64_() == 1


def test_claims_are_found_by_scanning(cpu: CpuDevice) -> None:
    names = [c.name for found in cpu.claims.values() for c in found]
    assert "openblas_gemm" in [c.name for c in cpu.claims["dot"]]
    assert len(set(names)) == len(names)
    assert all(c.op == op and c.doc and c.symbol for op, found in cpu.claims.items() for c in found)
