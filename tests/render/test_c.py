"""The C family: meaning of every primitive through a C compiler, text of every dialect, and what vendors'
compilers say.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.core.dtype import ALL, DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64
from rlx.core.errors import CompileError
from rlx.device.python import prims
from rlx.device.python.device import _pack, _unpack
from rlx.ir import loop as L
from rlx.ir.expand import BOUNDS
from rlx.render.c import DIALECTS, launch_shape, render
from tests.render import c_samples as S

REAL = tuple(d for d in ALL if not d.is_complex)
COMPILER = shutil.which("gcc") or shutil.which("clang")
CXX = shutil.which("g++") or shutil.which("clang++")
needs_cc = pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine")


def build(kernels: list[L.Kernel], folder: Path) -> ctypes.CDLL:
    """The kernels as a shared library."""
    source, library = folder / "k.c", folder / "k.so"
    source.write_text(render(kernels, "c"))
    subprocess.run(
        [
            COMPILER or "cc",
            "-std=c11",
            "-O1",
            "-w",
            "-ffp-contract=off",
            "-fwrapv",
            "-shared",
            "-fPIC",
            str(source),
            "-o",
            str(library),
            "-lm",
        ],
        check=True,
        timeout=250,
    )
    return ctypes.CDLL(str(library))


def call(library: ctypes.CDLL, name: str, *arrays: np.ndarray[Any, Any]) -> None:
    getattr(library, name)(*[a.ctypes.data_as(ctypes.c_void_p) for a in arrays])


def operands(name: str, d: DType) -> list[np.ndarray[Any, Any]]:
    """Every pair (or triple of a few) of edge values, in host form."""
    from rlx.ir.prim import POINTWISE

    arity = POINTWISE[name].arity
    x = S.edges(d)
    if name == "select":
        return [np.resize([True, False, True], len(x)), x, x[::-1].copy()]
    if arity == 1:
        return [x]
    if arity == 2:
        a, b = np.meshgrid(x, x, indexing="ij")
        return [a.ravel(), b.ravel()]
    return [np.resize(x, 500), np.resize(x[::-1], 500), np.resize(np.roll(x, 5), 500)]


def stored(x: np.ndarray[Any, Any], d: DType) -> np.ndarray[Any, Any]:
    """Host values as a buffer of the dtype."""
    return np.ascontiguousarray(_pack(x, d))


def host(x: np.ndarray[Any, Any], d: DType) -> np.ndarray[Any, Any]:
    return _unpack(x, d)


def ulps(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], d: DType) -> np.ndarray[Any, Any]:
    """Difference in units of the last place; 0 where equal or both NaN."""
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    info = np.finfo(np.float32 if d == bfloat16 else d.numpy)
    step = np.maximum(
        np.abs(want).astype(np.float64) * (2.0**-7 if d == bfloat16 else info.eps), info.smallest_subnormal
    )
    with np.errstate(all="ignore"):
        return np.where(same, 0.0, np.abs(got.astype(np.float64) - want.astype(np.float64)) / step)


@needs_cc
@pytest.mark.parametrize("d", REAL, ids=lambda d: d.short)
def test_primitives_mean_what_the_interpreter_says(d: DType, tmp_path: Path) -> None:
    names = [n for n, t in S.all_primitives([d]) if t == d and n != "complex"]
    inputs = {n: operands(n, d) for n in names}
    library = build([S.primitive(n, d, len(inputs[n][-1]), grid=False) for n in names], tmp_path)
    wrong = []
    for n in names:
        args = [host(stored(a, bool_ if a.dtype == bool else d), bool_ if a.dtype == bool else d) for a in inputs[n]]
        out = S.result_dtype(n, d)
        got = np.empty(len(args[-1]), out.numpy)
        call(library, f"{n}_{d.short}", *[stored(a, bool_ if a.dtype == bool else d) for a in args], got)
        with np.errstate(all="ignore"):
            want = host(stored(np.asarray(prims.POINTWISE[n](*args)), out), out)
        got = host(got, out)
        if n == "pow" and d.is_integer:
            keep = args[0] != 0  # zero to a negative power has no integer value
            got, want = got[keep], want[keep]
        if n == "lgamma":
            keep = (args[0] == 0) | ~(np.abs(args[0]) < 1e-300)  # SciPy is infinite for denormals
            got, want = got[keep], want[keep]
        if n == "nextafter" and d == bfloat16:
            continue  # the interpreter steps in float32
        if out.is_float:
            bound = BOUNDS.get(n, 0.0) + (1.0 if n in BOUNDS or n == "fma" else 0.0)
            off = ulps(got, want, d)
            if n in ("lgamma", "digamma"):
                with np.errstate(all="ignore"):
                    near = np.abs(got.astype(float) - want.astype(float)) < 1e-2 * (d.bits == 16) + 1e-5
                off = np.where(near, 0, off)
            ok = off <= bound
        else:
            ok = got == want
        if not ok.all():
            k = int(np.argmin(ok))
            wrong.append(
                f"{n}: {[a[k] for a in args]} gave {got[k]!r}, not {want[k]!r} ({np.count_nonzero(~ok)} wrong)"
            )
    assert not wrong, "\n".join(wrong)


@needs_cc
def test_casts_truncate_saturate_and_round_once(tmp_path: Path) -> None:
    pairs = [(a, b) for a in REAL for b in REAL if a != b]
    inputs = {a: S.edges(a) for a in REAL}
    inputs[float64] = np.append(
        inputs[float64], [1e300, 2.0**31, 2.0**63, -(2.0**63), 2.0**64, 1 + 2.0**-11 + 2.0**-40]
    )
    library = build([S.cast(a, b, len(inputs[a]), grid=False) for a, b in pairs], tmp_path)
    wrong = []
    for a, b in pairs:
        x = host(stored(inputs[a], a), a)
        got = np.empty(len(x), b.numpy)
        call(library, f"cast_{a.short}_{b.short}", stored(x, a), got)
        with np.errstate(all="ignore"):
            want = stored(np.asarray(prims.cast(x, b)), b)
            if b == bfloat16 and a == float64:
                continue  # the interpreter rounds twice
        same = (host(got, b) == host(want, b)) | ((host(got, b) != host(got, b)) & (host(want, b) != host(want, b)))
        if not same.all():
            k = int(np.argmin(same))
            wrong.append(f"{a.short} -> {b.short}: {x[k]!r} gave {got[k]!r}, not {want[k]!r}")
    assert not wrong, "\n".join(wrong)


@needs_cc
def test_bits_are_kept(tmp_path: Path) -> None:
    pairs = [(a, b) for a in REAL for b in REAL if a != b and a.bits == b.bits and bool_ not in (a, b)]
    library = build([S.cast(a, b, len(S.edges(a)), "bitcast", grid=False) for a, b in pairs], tmp_path)
    for a, b in pairs:
        x = stored(S.edges(a), a)
        if a.is_float:
            x = x[host(x, a) == host(x, a)]  # which NaN a float register keeps is open
        elif b.is_float:
            x = x[~np.isnan(host(x.view(b.numpy), b))]
        got = np.empty(len(S.edges(a)), b.numpy)
        call(library, f"bitcast_{a.short}_{b.short}", np.resize(x, len(got)), got)
        assert np.array_equal(got[: len(x)].view(np.uint8), x.view(np.uint8)), (a, b)


@needs_cc
def test_an_arm_with_an_unsafe_load_is_not_evaluated(tmp_path: Path) -> None:
    n, i = 8, L.var("i", int64)
    far = L.expr("mul", (i, L.const(1 << 40)), int64)
    value = L.select(L.less(i, L.const(1)), L.load("b0", far, float64), L.const(7.0, float64))
    store = L.Store("b1", i, value)
    k = L.Kernel(
        "lazy",
        (L.Param("b0", float64, 1, "r"), L.Param("b1", float64, n, "w")),
        (L.For("i", L.const(0), L.const(n), 1, L.SERIAL, (store,)),),
    )
    out = np.zeros(n)
    call(build([k], tmp_path), "lazy", np.array([3.0]), out)
    assert out.tolist() == [3.0] + [7.0] * (n - 1)


GOLDEN = {
    "gelu": lambda: S.gelu(1000, float32),
    "row_sum": lambda: S.row_sum(3, 100, float32),
    "search": lambda: S.search(100),
}


@pytest.mark.parametrize("dialect", sorted(set(DIALECTS) - {"c"}))
@pytest.mark.parametrize("name", GOLDEN)
def test_text_is_the_golden_one(name: str, dialect: str, golden: Any) -> None:
    golden(f"c/{dialect}/{name}.txt", render([GOLDEN[name]()], dialect))


def test_text_does_not_depend_on_what_was_rendered_before() -> None:
    first = render([S.gelu(1000, float32)], "cuda")
    render([S.row_sum(3, 100, float16)], "cuda")
    assert render([S.gelu(1000, float32)], "cuda") == first


def test_a_guarded_kernel_is_printed_twice() -> None:
    text = render([S.gelu(100, float32)], "opencl", guarded=frozenset(("gelu",)))
    assert "void gelu(" in text and "void gelu_if(__global const uchar* go, " in text
    assert text.count("if (go[0] == 0) { return; }") == 1


def test_the_launch_has_the_innermost_loops_as_x() -> None:
    zero = L.const(0, int32)
    body: tuple[L.Stmt, ...] = (L.Store("b0", zero, L.const(1.0, float32)),)
    for var, n, kind in (("lx", 8, L.BLOCK), ("ly", 4, L.BLOCK), ("gx", 3, L.GRID), ("gy", 5, L.GRID)):
        body = (L.For(var, zero, L.const(n, int32), 1, kind, body),)
    shape = launch_shape(L.Kernel("k", (L.Param("b0", float32, 1, "w"),), body))
    assert (shape.groups, shape.lanes) == ((3, 5, 1), (8, 4, 1))


@pytest.mark.parametrize(
    ("dialect", "kernel"),
    [("c", S.row_sum(2, 10, float32)), ("metal", S.gelu(10, float64)), ("hlsl", S.primitive("add", int8, 4))],
)
def test_what_a_language_lacks_is_refused(dialect: str, kernel: L.Kernel) -> None:
    with pytest.raises(CompileError, match="has no"):
        render([kernel], dialect)


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.skipif(shutil.which("glslangValidator") is None, reason="no glslangValidator on this machine")
@pytest.mark.parametrize("dialect", ["glsl", "hlsl"])
def test_shading_languages_compile(name: str, dialect: str, tmp_path: Path) -> None:
    path = tmp_path / f"k.{dialect}"
    path.write_text(render([GOLDEN[name]()], dialect))
    flags = ["-V", "--target-env", "vulkan1.2"] + (["-D", "-e", "main"] if dialect == "hlsl" else [])
    done = subprocess.run(
        ["glslangValidator", *flags, "-S", "comp", str(path), "-o", str(tmp_path / "k.spv")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout


COMPLEX = tuple(d for d in ALL if d.is_complex)


def everything(dtypes: tuple[DType, ...]) -> list[L.Kernel]:
    """Every primitive and cast of the dtypes, one kernel for each dtype."""
    return [
        *(S.bundle([n for n, t in S.all_primitives([d]) if t == d and n != "complex"], d, 100) for d in dtypes),
        *(S.casts(a, [b for b in dtypes if b != a], 100) for a in dtypes),
    ]


@pytest.mark.slow
def test_cuda_text_compiles_to_machine_code() -> None:
    nvrtc = pytest.importorskip("tests.render.nvrtc").load()
    if nvrtc is None:
        pytest.skip("no NVRTC on this machine (pip install nvidia-cuda-nvrtc)")
    goldens = [make() for make in GOLDEN.values()]
    source = render([*goldens, *everything((*REAL, *COMPLEX))], "cuda")
    assert nvrtc(source, "sm_90").startswith(b"\x7fELF")


@pytest.mark.slow
def test_nvrtc_finds_an_error() -> None:
    nvrtc = pytest.importorskip("tests.render.nvrtc").load()
    if nvrtc is None:
        pytest.skip("no NVRTC on this machine (pip install nvidia-cuda-nvrtc)")
    with pytest.raises(AssertionError, match="undefined"):
        nvrtc(render([S.gelu(10, float32)], "cuda").replace("blockIdx", "nothing"), "sm_90")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("glslangValidator") is None, reason="no glslangValidator on this machine")
def test_every_primitive_compiles_as_a_shader(tmp_path: Path) -> None:
    bad = []
    for k in everything(REAL):
        path = tmp_path / f"{k.name}.comp"
        path.write_text(render([k], "glsl"))
        done = subprocess.run(
            ["glslangValidator", "-V", "--target-env", "vulkan1.2", str(path), "-o", str(tmp_path / "k.spv")],
            capture_output=True,
            text=True,
            timeout=100,
        )
        if done.returncode:
            bad.append(f"{k.name}: {done.stdout}")
    assert not bad, bad[0]


@pytest.mark.skipif(CXX is None, reason="no C++ compiler on this machine")
def test_hip_text_is_c_plus_plus(tmp_path: Path) -> None:
    path = tmp_path / "k.cpp"
    shim = (
        "#define __global__\n#define __device__\n#define __shared__ static\n#define __forceinline__ inline\n"
        "#define __launch_bounds__(n)\n#include <cmath>\nstruct dim { int x, y, z; } blockIdx, threadIdx;\n"
        "void __syncthreads();\ntemplate <class T> T atomicAdd(T*, T);\nunsigned __float_as_uint(float);\n"
        "float __uint_as_float(unsigned);\n"
    )
    text = render([make() for make in GOLDEN.values()], "hip").replace("#include <hip/hip_runtime.h>\n", shim)
    path.write_text(text)
    done = subprocess.run(
        [CXX, "-w", "-fsyntax-only", "-std=c++17", str(path)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
