"""Measure the error of the standard expansions: ``python -m rlx.tools.ulp [name ...] [--fast] [--samples N]``.

For each function and dtype the table gives the largest error in units in the last place (ulp: the spacing of the
dtype at the true value) and where it was found. References: for float32 NumPy and SciPy in float64; for float64 the
80-bit functions of the C library (64-bit significand, so the table is good to about 0.001 ulp) and mpmath where it
has none. The code measured is compiled here from the expansion itself, without the renderers: what is tested is the
formula.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlx.core.dtype import DType, as_dtype, float32, float64
from rlx.ir.expand import FAST, FUNCTIONS, Function, expansion
from rlx.ir.expand.reduce import moderate_limit
from rlx.ir.loop import Expr

Floats = NDArray[Any]

_TYPES = {"float32": "float", "float64": "double", "bool": "i1", "int32": "i32", "uint32": "i32",
          "int64": "i64", "uint64": "i64"}
_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_ORDER = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_INTRINSIC = {"abs": "fabs", "floor": "floor", "trunc": "trunc", "round": "roundeven", "sqrt": "sqrt", "fma": "fma"}


class _Writer:
    """LLVM IR text of one scalar function, strict IEEE: the smallest thing that runs an expansion."""

    def __init__(self, names: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.names = dict(names)
        self.declared: set[str] = set()
        self.memo: dict[Expr, str] = {}

    def emit(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def value(self, e: Expr) -> str:
        if e.op == "var":
            return self.names[e.value]
        if e.op == "const":
            return _constant(e)
        if e not in self.memo:
            self.memo[e] = self.emit(self.operation(e, [self.value(a) for a in e.args]))
        return self.memo[e]

    def operation(self, e: Expr, a: list[str]) -> str:
        t, source = _TYPES[e.dtype.name], e.args[0].dtype
        s = _TYPES[source.name]
        if e.op == "select":
            return f"select i1 {a[0]}, {t} {a[1]}, {t} {a[2]}"
        if e.op == "bitcast":
            return f"bitcast {s} {a[0]} to {t}"
        if e.op == "isnan":
            return f"fcmp uno {s} {a[0]}, 0.0"
        if e.op == "neg":
            return f"fneg {t} {a[0]}" if e.dtype.is_float else f"sub {t} 0, {a[0]}"
        if e.op in _INTRINSIC:
            name = f"llvm.{_INTRINSIC[e.op]}.f{e.dtype.bits}"
            self.declared.add(f"declare {t} @{name}({', '.join([t] * len(a))})")
            return f"call {t} @{name}({', '.join(f'{t} {x}' for x in a)})"
        if e.op in _ORDER:
            if source.is_float:
                return f"fcmp {_ORDER[e.op]} {s} {a[0]}, {a[1]}"
            signed = "" if e.op in ("eq", "ne") else "s" if source.kind == "i" else "u"
            return f"icmp {signed}{e.op} {s} {a[0]}, {a[1]}"
        if e.op == "not":
            return f"xor {t} {a[0]}, -1"
        if e.dtype.is_float:
            return f"{_BINARY[e.op]} {t} {a[0]}, {a[1]}"
        op = {"shr": "ashr" if e.dtype.kind == "i" else "lshr"}.get(e.op, e.op)
        return f"{op} {t} {a[0]}, {a[1]}"


def _constant(e: Expr) -> str:
    if e.dtype.is_float:
        return f"0x{np.float64(e.value).view(np.uint64):016X}"
    return str(int(e.value))


def scalar_text(f: Function) -> str:
    """LLVM IR of ``f`` (a branch becomes a select) as ``@name``, preceded by the intrinsics it needs."""
    t = _TYPES[f.result.dtype.name]
    w = _Writer({str(p.value): f"%{p.value}" for p in f.params})
    out = _body(f, w)
    head = "\n".join(sorted(w.declared))
    arguments = ", ".join(f"{t} %{p.value}" for p in f.params)
    body = "\n".join(w.lines)
    return f"{head}\ndefine internal {t} @{f.name}({arguments}) alwaysinline {{\n{body}\n  ret {t} {out}\n}}\n"


def _body(f: Function, w: _Writer) -> str:
    outer, w.names, w.memo = w.names, dict(w.names), {}
    for name, value in f.lets:
        w.names[name] = w.value(value)
    out = w.value(f.result)
    if f.rare is not None:
        condition = w.value(f.rare[0])
        w.names = outer
        other = _body(f.rare[1], w)
        t = _TYPES[f.result.dtype.name]
        out = w.emit(f"select i1 {condition}, {t} {other}, {t} {out}")
    w.names = outer
    return out


_LOOP = """
define void @run(ptr %out, ptr %a, ptr %b, i64 %n) {{
entry:
  br label %body
body:
  %i = phi i64 [0, %entry], [%j, %body]
  %pa = getelementptr {t}, ptr %a, i64 %i
  %pb = getelementptr {t}, ptr %b, i64 %i
  %po = getelementptr {t}, ptr %out, i64 %i
  %x = load {t}, ptr %pa, !llvm.access.group !1
  %y = load {t}, ptr %pb, !llvm.access.group !1
  %r = call {t} @{name}({args})
  store {t} %r, ptr %po, !llvm.access.group !1
  %j = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %body, label %done, !llvm.loop !2
done:
  ret void
}}
!1 = distinct !{{}}
!2 = distinct !{{!2, !3}}
!3 = !{{!"llvm.loop.parallel_accesses", !1}}
"""

_engines: list[Any] = []


def compile_text(text: str) -> Any:
    """Compile a module that defines ``run(out, a, b, n)`` for this machine; returns the foreign function."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3)
    module = llvm.parse_assembly(text)
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = True
    llvm.create_pass_builder(target, options).getModulePassManager().run(module, llvm.create_pass_builder(
        target, options))
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    _engines.append(engine)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return kind(engine.get_function_address("run"))


@cache
def compiled(name: str, dtype: DType, fast: bool = False) -> Callable[..., Floats]:
    """The expansion of ``name`` as a function of one or two NumPy arrays."""
    f = expansion(name, dtype, fast=fast)
    assert f is not None
    return compile_function(f)


def compile_function(f: Function) -> Callable[..., Floats]:
    """A scalar function as a function of one or two NumPy arrays."""
    dtype = f.result.dtype
    t = _TYPES[dtype.name]
    args = ", ".join(f"{t} %{v}" for v in ("x", "y")[:len(f.params)])
    run = compile_text(scalar_text(f) + _LOOP.format(t=t, name=f.name, args=args))

    def call(x: Floats, y: Floats | None = None) -> Floats:
        x = np.ascontiguousarray(x, dtype.numpy)
        y = x if y is None else np.ascontiguousarray(y, dtype.numpy)
        out = np.empty_like(x)
        run(out.ctypes.data, x.ctypes.data, y.ctypes.data, x.size)
        return out

    return call


# References and samples.

def _scipy(name: str) -> Any:
    import scipy.special
    return getattr(scipy.special, name)


_NUMPY_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
                "atanh": "arctanh", "atan2": "arctan2", "pow": "power"}
_SCIPY_NAMES = {"erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "lgamma": "gammaln", "digamma": "psi"}
_LONG = """
declare x86_fp80 @{symbol}(x86_fp80)
define void @run(ptr %out, ptr %a, ptr %b, i64 %n) {{
entry:
  br label %body
body:
  %i = phi i64 [0, %entry], [%j, %body]
  %pa = getelementptr x86_fp80, ptr %a, i64 %i
  %po = getelementptr x86_fp80, ptr %out, i64 %i
  %x = load x86_fp80, ptr %pa
  %r = call x86_fp80 @{symbol}(x86_fp80 %x)
  store x86_fp80 %r, ptr %po
  %j = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %body, label %done
done:
  ret void
}}
"""


@cache
def _long_function(symbol: str) -> Callable[[Floats], Floats]:
    """A C library function on 80-bit arrays (NumPy has no erfl, erfcl or lgammal)."""
    run = compile_text(_LONG.format(symbol=symbol))

    def call(x: Floats) -> Floats:
        out = np.empty_like(x)
        run(out.ctypes.data, x.ctypes.data, x.ctypes.data, x.size)
        return out

    return call


def _mpmath(name: str) -> Callable[[Floats], Floats]:
    import mpmath as mp
    f = {"erfinv": mp.erfinv, "digamma": mp.digamma}[name]

    def one(v: float) -> np.longdouble:
        if not np.isfinite(v) or (name == "erfinv" and abs(v) >= 1) or (name == "digamma" and v <= 0 and v % 1 == 0):
            return np.longdouble(_scipy(_SCIPY_NAMES[name])(v))
        with mp.workdps(40):
            y = f(mp.mpf(v))
            head = float(y)
            if v == 0 or np.isinf(head):
                return np.longdouble(v if v == 0 else head)
            return np.longdouble(head) + np.longdouble(float(y - head))

    return lambda x: np.array([one(float(v)) for v in x.ravel()], np.longdouble).reshape(x.shape)


def reference(name: str, x: Floats, y: Floats | None = None) -> Floats:
    """The true values, in float64 for float32 arguments and in 80 bits for float64 arguments."""
    with np.errstate(all="ignore"):
        if name in _SCIPY_NAMES:
            if x.dtype == np.float32:
                out = np.asarray(_scipy(_SCIPY_NAMES[name])(x.astype(np.float64)))
            elif name in ("erfinv", "digamma"):
                out = _mpmath(name)(x)
            else:
                out = _long_function(name + "l")(x.astype(np.longdouble))
            return _as_in_c(name, x, out)
        wide = np.float64 if x.dtype == np.float32 else np.longdouble
        f = getattr(np, _NUMPY_NAMES.get(name, name))
        return np.asarray(f(x.astype(wide)) if y is None else f(x.astype(wide), y.astype(wide)))


def _as_in_c(name: str, x: Floats, out: Floats) -> Floats:
    """SciPy's special values made those of C: erfinv(-0) = -0, lgamma(-inf) = inf."""
    if name == "erfinv":
        return np.where(x == 0, x.astype(out.dtype), out)
    return np.where(np.isinf(x), np.inf, out).astype(out.dtype) if name == "lgamma" else out


def scale_of(name: str, x: Floats, want: Floats) -> Floats:
    """The magnitude whose ulp is the unit of error: |want|, but near the roots of lgamma and digamma that of the
    terms of their formulas: at least 1, and lgamma(|x|) or log(1 + |x|) for negative x."""
    size = np.abs(want)
    if name not in ("lgamma", "digamma"):
        return size
    a = np.where(np.isfinite(x), np.abs(x), 1).astype(np.float64)
    terms = np.abs(_scipy("gammaln")(a)) if name == "lgamma" else np.log1p(a)
    terms = np.where(np.isfinite(terms), terms, 1)
    return np.maximum(size, np.where(x < 0, np.maximum(terms, 1), 1).astype(want.dtype))


SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1.5, -2.5)
#: functions whose float64 reference is slow: samples are divided by this
_SLOW = {("erfinv", "float64"): 100, ("digamma", "float64"): 100}
#: where the interesting arguments are, beside all bit patterns
RANGES: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": ((-750, 712), (-110, 90), (-1, 1)), "exp2": ((-1080, 1030), (-155, 130), (-1, 1)),
    "expm1": ((-50, 712), (-2, 2), (-0.1, 0.1)), "log": ((0.5, 2), (0, 100)), "log2": ((0.5, 2), (0, 100)),
    "log10": ((0.5, 2), (0, 100)), "log1p": ((-1, 1), (-0.1, 0.1), (0, 100)),
    "sin": ((-10, 10), (-1e6, 1e6), (-1e9, 1e9)), "cos": ((-10, 10), (-1e6, 1e6), (-1e9, 1e9)),
    "tan": ((-10, 10), (-1e6, 1e6), (-1e9, 1e9)), "asin": ((-1, 1),), "acos": ((-1, 1), (0.99, 1)),
    "atan": ((-10, 10), (-1, 1)), "sinh": ((-2, 2), (-90, 90), (-712, 712)), "cosh": ((-2, 2), (-90, 90), (-712, 712)),
    "tanh": ((-2, 2), (-25, 25)), "asinh": ((-3, 3), (-100, 100)), "acosh": ((1, 2), (1, 100)), "atanh": ((-1, 1),),
    "erf": ((-1.5, 1.5), (-7, 7)), "erfc": ((-1, 2), (-7, 30), (-4, 11)), "erfinv": ((-1, 1), (-0.1, 0.1), (0.99, 1)),
    "lgamma": ((-10, 10), (0.5, 3), (-40, 200)), "digamma": ((-10, 10), (0.5, 3), (-40, 200)),
    "pow": ((0.1, 10), (-40, 40), (0.9, 1.1)), "atan2": ((-2, 2),), "hypot": ((-2, 2),),
}


def samples(name: str, dtype: DType, count: int, seed: int = 0) -> Floats:
    """Arguments: specials, ``count`` random bit patterns, ``count`` uniform ones in each range, and range ends."""
    rng = np.random.default_rng(seed)
    kind = dtype.numpy
    word = np.uint32 if kind == np.float32 else np.uint64
    patterns = rng.integers(0, np.iinfo(word).max, count, dtype=word, endpoint=True).view(kind)
    info = np.finfo(kind)
    edges = [info.max, info.tiny, info.smallest_subnormal, info.tiny - info.smallest_subnormal, info.eps]
    parts = [np.array(SPECIALS, kind), np.array(edges, kind), -np.array(edges, kind), patterns]
    for low, high in RANGES[name]:
        part = rng.uniform(low, high, count).astype(kind)
        parts += [part, np.nextafter(np.array([low, low, high, high], kind), np.array([9e9, -9e9] * 2, kind))]
        small = 2.0 ** rng.uniform(-40, 0, count // 4)
        parts.append((low + small * (high - low)).astype(kind))
    return np.concatenate(parts)


def errors(got: Floats, want: Floats, scale: Floats | None = None) -> Floats:
    """|got - want| in ulp of got's dtype at want (at ``scale`` if given); infinite where only one is NaN or infinite."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        size = np.abs(want) if scale is None else scale
        exponent = np.frexp(np.where(np.isfinite(size), size, 1))[1] - 1
        unit = np.ldexp(np.ones_like(want), np.maximum(exponent - info.nmant, info.minexp - info.nmant))
        out = np.abs(got.astype(want.dtype) - want) / unit
        # overflow is as good as rounding to infinity: compare with the next power of two
        top = np.ldexp(want.dtype.type(1), info.maxexp)
        near = np.isinf(got) & np.isfinite(want) & (np.sign(got) == np.sign(want))
        out = np.where(near, np.abs(top - np.abs(want)) / unit, out)
        same = (np.isnan(got) & np.isnan(want)) | (got == rounded)
        signs = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
        out = np.where(same & (out != out), 0, out)
        out = np.where(same & np.isinf(rounded), 0, out)
        bad = (np.isnan(got) != np.isnan(want)) | signs | (out != out)
    return np.asarray(np.where(bad, np.inf, out))


def _extreme(x: Floats) -> NDArray[np.bool_]:
    """Within two binades of the ends of the range of finite numbers, where the fast variants are not accurate."""
    info = np.finfo(x.dtype if x.dtype.itemsize == 4 else np.float64)
    size = np.abs(x)
    return np.asarray((x != 0) & ((size < 4 * info.tiny) | (size > info.max / 4) & np.isfinite(x)))


@dataclass(frozen=True, slots=True)
class Measurement:
    """The largest error of one function and the arguments that show it."""

    name: str
    dtype: DType
    ulp: float
    where: tuple[float, ...]
    got: float
    want: float

    def __str__(self) -> str:
        at = ", ".join(repr(float(v)) for v in self.where)
        return f"{self.name:9}{self.dtype.short:5}{self.ulp:9.3f}  at ({at}): {self.got:.9g}, true {self.want:.9g}"


def measure(name: str, dtype: DType, count: int = 200_000, *, fast: bool = False, seed: int = 0) -> Measurement:
    """The largest error found on the samples of ``name``."""
    count = max(count // _SLOW.get((name, dtype.name), 1), 100)
    x = samples(name, dtype, count, seed)
    y = None
    if FUNCTIONS[name].arity == 2:
        rng = np.random.default_rng(seed + 1)
        y = rng.permutation(samples(name, dtype, count, seed + 2))
        grid = np.array(SPECIALS, dtype.numpy)
        x = np.concatenate([x, np.repeat(grid, grid.size)])
        y = np.concatenate([y, np.tile(grid, grid.size)])
    got = compiled(name, dtype, fast)(x, y)
    want = reference(name, x, y)
    e = errors(got, want, scale_of(name, x, want))
    if fast:
        with np.errstate(all="ignore"):
            want = want.astype(x.dtype)
        e = np.where(_extreme(x) | _extreme(want), 0, e)
        if name in ("sin", "cos"):
            e = np.where(np.abs(x) >= moderate_limit(dtype), 0, e)
    i = int(np.argmax(e))
    at = (float(x[i]),) if y is None else (float(x[i]), float(y[i]))
    return Measurement(name, dtype, float(e[i]), at, float(got[i]), float(want[i]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rlx.tools.ulp", description=str(__doc__).split("\n")[0])
    parser.add_argument("names", nargs="*", help="functions (default: all)")
    parser.add_argument("--fast", action="store_true", help="measure the fast variants")
    parser.add_argument("--samples", type=int, default=200_000, help="random arguments per range")
    parser.add_argument("--dtype", default="", help="only this dtype")
    options = parser.parse_args()
    print("function dtype max ulp  where")
    for name in options.names or (FAST if options.fast else FUNCTIONS):
        for dtype in (float32, float64):
            if not options.dtype or as_dtype(options.dtype) == dtype:
                print(measure(name, dtype, options.samples, fast=options.fast), flush=True)


if __name__ == "__main__":
    main()
