"""Run an expansion: strict LLVM IR of a scalar function, compiled into a loop over NumPy arrays.

Deliberately apart from the renderers, so that a measured error is the formula's own and a renderer
can be compared with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlx.ir.expand import Function
from rlx.ir.loop import Expr

Floats = NDArray[Any]

_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "i1",
    "int32": "i32",
    "uint32": "i32",
    "int64": "i64",
    "uint64": "i64",
}
_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_ORDER = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_INTRINSIC = {
    "abs": "fabs",
    "floor": "floor",
    "trunc": "trunc",
    "round": "roundeven",
    "sqrt": "sqrt",
    "fma": "fma",
}


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
        if e.op == "cast":
            return f"{'sitofp' if source.kind == 'i' else 'uitofp'} {s} {a[0]} to {t}"
        if e.op == "mulhi":
            double = f"i{2 * source.bits}"
            wide = [self.emit(f"zext {s} {x} to {double}") for x in a]
            product = self.emit(f"mul {double} {wide[0]}, {wide[1]}")
            high = self.emit(f"lshr {double} {product}, {source.bits}")
            return f"trunc {double} {high} to {s}"
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
        if e.dtype.kind == "f":
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
    signature = f"define internal {t} @{f.name}({arguments}) alwaysinline"
    return f"{head}\n{signature} {{\n{body}\n  ret {t} {out}\n}}\n"


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
    """The foreign function ``run(out, a, b, n)`` that a module defines, compiled for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    module = llvm.parse_assembly(text)
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = True
    passes = llvm.create_pass_builder(target, options)
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    _engines.append(engine)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return kind(engine.get_function_address("run"))


def compile_function(f: Function) -> Callable[..., Floats]:
    """A scalar function as a function of one or two NumPy arrays."""
    dtype = f.result.dtype
    t = _TYPES[dtype.name]
    args = ", ".join(f"{t} %{v}" for v in ("x", "y")[: len(f.params)])
    run = compile_text(scalar_text(f) + _LOOP.format(t=t, name=f.name, args=args))

    def call(x: Floats, y: Floats | None = None) -> Floats:
        x = np.ascontiguousarray(x, dtype.numpy)
        y = x if y is None else np.ascontiguousarray(y, dtype.numpy)
        out = np.empty_like(x)
        run(out.ctypes.data, x.ctypes.data, y.ctypes.data, x.size)
        return out

    return call
