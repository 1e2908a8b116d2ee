"""Rewrites expressions of any dtype into expressions over the types a device has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.core.dtype import DType, bool_, float32, float64, int32, uint32, uint64
from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.ir.expand import FUNCTIONS, expansion
from rlx.ir.loop import Expr, Stmt, const, expr, var
from rlx.ir.walk import bottom_up
from rlx.render.pairs import pair_function
from rlx.render.portable import convert, integral, multiword, real, wide
from rlx.render.portable.arith import bits, cast, op, pick, test, u
from rlx.render.portable.convert import Parts
from rlx.render.portable.forms import Form, form
from rlx.render.portable.helper import Helper, invoke

#: Rewrites the statements of one block.
Block = Callable[["Rewriter", tuple[Stmt, ...]], tuple[Stmt, ...]]
_COMPARE = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_MIRROR = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Rewriter:
    """Expressions of one kernel. ``here`` takes the statements that name intermediate values."""

    def __init__(self, native: frozenset[DType], features: frozenset[str], memory: Mapping[str, DType],
                 helpers: dict[str, Helper], block: Block) -> None:
        self.native, self.features, self.memory, self.helpers = native, features, dict(memory), helpers
        self.here: list[Stmt] = []
        self.atomic: set[str] = set()
        self.loose: set[str] = set()
        self.nonnegative: set[str] = set()
        #: Names of 64-bit values that are a 32-bit value widened, and that value.
        self.widened: dict[str, Expr] = {}
        self.block = block
        self.count = 0
        self._named: dict[Expr, Expr] = {}

    # What conversions use

    def form(self, dtype: DType) -> Form:
        return form(dtype, self.native)

    def name(self, e: Expr) -> Expr:
        """A variable for ``e``, unless it is one or a constant."""
        if e.op in ("const", "var"):
            return e
        known = self._named.get(e)
        if known is None:
            known = self._named[e] = var(self.fresh("w"), e.dtype)
            self.here.append(L.Let(known.value, e))
        return known

    def fresh(self, prefix: str) -> str:
        """A name nothing else has."""
        self.count += 1
        return f"{prefix}_{self.count}"

    def forget(self) -> None:
        """Values may have changed, or the block ended: name them anew."""
        self._named = {}

    def helper(self, name: str, *args: Expr) -> Expr:
        """A call of one of the 16-bit conversions."""
        found = real.narrow_helpers()[name]
        return self.call(found, args)

    def call(self, helper: Helper, args: tuple[Expr, ...]) -> Expr:
        """A call of a helper, whose body is rewritten once."""
        if helper.name not in self.helpers:
            inner = Rewriter(self.native, self.features, {}, self.helpers, self.block)
            body = self.block(inner, helper.body)
            inner.here = list(body)
            (result,) = inner.lower(helper.result)
            self.helpers[helper.name] = Helper(helper.name, helper.params, tuple(inner.here), result)
        return invoke(helper, args)

    # Expressions

    def lower(self, e: Expr) -> Parts:
        """The parts of ``e``."""
        memo: dict[Expr, Parts] = {}
        for x in bottom_up((e,), memo, key=lambda x: x):
            memo[x] = self._one(x, [memo[a] for a in x.args])
        return memo[e]

    def one(self, e: Expr) -> Expr:
        """The single part of ``e``."""
        (part,) = self.lower(e)
        return part

    def _one(self, e: Expr, args: list[Parts]) -> Parts:
        if e.op == "const":
            return self._const(e.value, e.dtype)
        if e.op == "var":
            parts = self.form(e.dtype).parts
            return (var(e.value, parts[0]),) if len(parts) == 1 else tuple(
                [var(f"{e.value}_{k}", p) for k, p in enumerate(parts)])
        if e.op == "load":
            return self._load(e, args[0][0])
        if e.op == "call":
            return (expr("call", tuple([a[0] for a in args]), e.dtype, e.value),)
        return self.apply(e.op, e.dtype, [a.dtype for a in e.args], args, e)

    def _const(self, value: Any, dtype: DType) -> Parts:
        held = self.form(dtype)
        if dtype.is_complex:
            z = complex(value)
            return const(z.real, dtype.real), const(z.imag, dtype.real)
        if held.wide:
            return wide.words(int(value))
        if dtype.name == "float16":
            with np.errstate(over="ignore"):
                return (const(float(np.float16(value)), held.parts[0]),)
        if dtype.name == "bfloat16":
            return (const(_brain(float(value)), held.parts[0]),)
        if dtype.kind in "iu":
            n = int(value) & (1 << dtype.bits) - 1
            return (const(n - (1 << dtype.bits) if dtype.kind == "i" and n >> dtype.bits - 1 else n, held.parts[0]),)
        return (const(value, held.parts[0]),)

    def _load(self, e: Expr, index: Expr) -> Parts:
        dtype = self.memory[e.value]
        held = self.form(dtype)
        if e.value in self.loose:
            return (L.load(e.value, index, held.parts[0]),) if dtype.kind != "b" else (
                test("ne", L.load(e.value, index, uint32), u(0)),)
        if held.wide:
            at = self.name(op("mul", index, const(2, index.dtype)))
            return tuple([L.load(e.value, op("add", at, const(k, index.dtype)), held.cell) for k in (0, 1)])
        if not held.per_word:
            return (L.load(e.value, index, held.cell),)
        at = bits(index, uint32)
        step = (held.per_word - 1).bit_length()
        word = L.load(e.value, bits(op("shr", at, u(step)), index.dtype), uint32)
        return (convert.unpack(self, word, op("and", at, u(held.per_word - 1)), dtype),)

    def apply(self, name: str, dtype: DType, types: list[DType], args: list[Parts], e: Expr | None = None) -> Parts:
        """A primitive on rewritten arguments; ``types`` are their dtypes before."""
        if name == "cast":
            return convert.convert(self, args[0], types[0], dtype)
        if name == "bitcast":
            return convert.bitcast(self, args[0], types[0], dtype)
        if name == "select":
            c = self.name(args[0][0]) if len(args[1]) == 2 else args[0][0]
            return tuple([pick(c, a, b) for a, b in zip(args[1], args[2], strict=True)])
        src = types[0]
        if src.is_complex or name == "complex":
            return self._complex(name, src, dtype, args)
        if name in ("real", "conj"):
            return args[0]
        if src.kind == "b":
            return (self._bool(name, *[a[0] for a in args]),)
        if src.is_float:
            return (self._float(name, src, *[a[0] for a in args]),)
        if self.form(src).wide:
            return self._wide(name, src, args)
        return (self._integer(name, src, *[a[0] for a in args]),)

    # Kinds

    def _bool(self, name: str, x: Expr, *rest: Expr) -> Expr:
        if name == "not":
            return expr("not", (x,), bool_)
        y = rest[0]
        no_x, no_y = expr("not", (x,), bool_), expr("not", (y,), bool_)
        table: dict[str, Callable[[], Expr]] = {
            "and": lambda: expr("and", (x, y), bool_), "min": lambda: expr("and", (x, y), bool_),
            "mul": lambda: expr("and", (x, y), bool_), "add": lambda: expr("or", (x, y), bool_),
            "or": lambda: expr("or", (x, y), bool_), "max": lambda: expr("or", (x, y), bool_),
            "xor": lambda: expr("xor", (x, y), bool_), "ne": lambda: expr("xor", (x, y), bool_),
            "eq": lambda: expr("not", (expr("xor", (x, y), bool_),), bool_),
            "lt": lambda: expr("and", (no_x, y), bool_), "gt": lambda: expr("and", (x, no_y), bool_),
            "le": lambda: expr("or", (no_x, y), bool_), "ge": lambda: expr("or", (x, no_y), bool_),
        }
        return table[name]()

    def _float(self, name: str, dtype: DType, *args: Expr) -> Expr:
        if name in ("eq", "ne") and args[0] == args[1]:
            nan = expr("isnan", args[:1], bool_)
            return nan if name == "ne" else expr("not", (nan,), bool_)
        if name in _COMPARE or name == "isnan":
            return expr(name, args, bool_)
        exact = name in ("neg", "abs", "floor", "ceil", "trunc", "round", "min", "max", "sign", "copysign")
        if name == "nextafter" and dtype.bits == 16:
            return self._narrow_next(dtype, *args)
        y = self._real(name, *args)
        return y if exact else convert.round_to(self, y, dtype)

    def _narrow_next(self, dtype: DType, x: Expr, y: Expr) -> Expr:
        """The neighbour in a 16-bit format: one step of its bits, which a 16-bit integer counts."""
        kind = "half" if dtype.name == "float16" else "brain"
        a, b = (self.name(self.helper(f"{kind}_bits", v)) for v in (x, y))
        away = expr("xor", (test("lt", x, y), test("ge", a, u(0x8000))), bool_)
        moved = op("and", op("add", a, pick(away, u(1), u(0xFFFFFFFF))), u(0xFFFF))
        moved = pick(test("eq", x, const(0.0, x.dtype)), op("or", op("and", b, u(0x8000)), u(1)), moved)
        moved = pick(test("eq", x, y), b, moved)
        moved = pick(expr("isnan", (y,), bool_), b, moved)
        return self.helper(f"{kind}_value", pick(expr("isnan", (x,), bool_), a, moved))

    def _real(self, name: str, *args: Expr) -> Expr:
        d = args[0].dtype
        if name in FUNCTIONS:
            return self._function(name, d, args)
        if name in real.CORE:
            return expr(name, args, d)
        if name == "fma":
            return expr("fma", args, d) if f"fma-{d.short}" in self.features else self._fused(args)
        if name in ("min", "max"):
            return real.minimum(self.name(args[0]), self.name(args[1]), name == "min")
        if name == "sign":
            return real.sign(self.name(args[0]))
        if name == "copysign":
            return real.copysign(*args)
        if name == "nextafter":
            return real.nextafter(self.name, self.name(args[0]), self.name(args[1]))
        if name in ("rem", "floordiv"):
            x, y = self.name(args[0]), self.name(args[1])
            m = self.name(self.call(real.remainder(d), (x, y)))
            return (real.floor_remainder if name == "rem" else real.floor_quotient)(self.name, m, x, y)
        raise _unknown(name, d)

    def _fused(self, args: tuple[Expr, ...]) -> Expr:
        """float32 through float64, whose product of two is exact; else by halves."""
        if args[0].dtype == float32 and float64 in self.native:
            x, y, z = (cast(a, float64) for a in args)
            return cast(expr("add", (expr("mul", (x, y), float64), z), float64), float32)
        return self.call(real.fused(args[0].dtype), args)

    def _function(self, name: str, d: DType, args: tuple[Expr, ...]) -> Expr:
        found = expansion(name, d)
        if found is None:
            raise _unknown(name, d)
        body = tuple([L.Let(n, v) for n, v in found.lets])
        return self.call(Helper(found.name, found.params, body, found.result), args)

    def _integer(self, name: str, dtype: DType, *args: Expr) -> Expr:
        held = self.form(dtype)
        d = args[0].dtype
        if name in _COMPARE:
            return self._compare_narrow(name, *args) or expr(name, args, bool_)
        value = self._native_integer(name, dtype, d, *args)
        if not held.per_word:
            return value
        return value if name in ("and", "or", "xor", "min", "max", "sign", "rem", "shr", "popcount") else convert.wrap(
            value, dtype, held)

    def narrowed(self, e: Expr) -> Expr | None:
        """The 32-bit value of the same sign that a native 64-bit value is a conversion of, if it is one."""
        if e.op == "var":
            return self.widened.get(e.value)
        if e.op == "call" and e.value == convert.WIDEN:
            return e.args[0]
        if e.op == "cast" and e.dtype == uint64 and e.args[0].dtype == uint32:
            return e.args[0]
        return None

    def _compare_narrow(self, name: str, x: Expr, y: Expr) -> Expr | None:
        """``index-narrowing``: a comparison of widened values in 32 bits.

        It is cheaper, and Mesa 22.3 answers ``i64(i) >= 5`` wrongly.
        """
        if x.op == "const" and self.narrowed(y) is not None:
            return self._compare_narrow(_MIRROR[name], y, x)
        a, b = self.narrowed(x), self.narrowed(y)
        if a is None or (b is None and y.op != "const"):
            return None
        if b is None:
            low, high = (-(1 << 31), (1 << 31) - 1) if a.dtype == int32 else (0, (1 << 32) - 1)
            if not low <= y.value <= high:
                above = y.value > high
                return const(name == "ne" or name in (("lt", "le") if above else ("gt", "ge")), bool_)
            b = const(y.value, a.dtype)
        return expr(name, (a, b), bool_) if a.dtype == b.dtype else None

    def _native_integer(self, name: str, dtype: DType, d: DType, *args: Expr) -> Expr:
        if name in ("add", "sub", "mul", "and", "or", "xor", "not", "min", "max"):
            return op(name, *args) if name != "not" else expr("not", args, d)
        if name == "neg":
            return expr("sub", (const(0, d), args[0]), d)
        if name == "abs":
            return integral.absolute(self.name(args[0]))
        if name == "sign":
            return integral.sign(self.name(args[0]))
        if name in ("floordiv", "rem"):
            if args[1].op == "const" and args[1].value > 0 and self.is_natural(args[0]):
                return integral.natural_division(name, *args)
            return integral.division(self.name, name, self.name(args[0]), self.name(args[1]))
        if name == "pow":
            return self.call(integral.power(d), args)
        if name in ("shl", "shr"):
            return integral.shift(name, args[0], self.name(args[1]))
        if name == "mulhi":
            if dtype.bits < 32:
                return op("shr", expr("mul", args, d), u(dtype.bits))
            return self.call(integral.high_product(d), args)
        if name in ("popcount", "clz"):
            return self._count_bits(name, dtype, args[0])
        raise _unknown(name, d)

    def _count_bits(self, name: str, dtype: DType, x: Expr) -> Expr:
        d = x.dtype
        if d.bits == 64:
            low = integral.count_bits(name, self.name(x if d.kind == "u" else expr("bitcast", (x,), uint64)),
                                      lambda w: cast(w, uint32))
            return cast(low, d)
        raw = bits(x, uint32)
        if dtype.bits < 32:
            raw = op("and", raw, u(2**dtype.bits - 1))
        n = expr(name, (raw,), uint32)
        if name == "clz" and dtype.bits < 32:
            n = op("sub", n, u(32 - dtype.bits))
        return bits(n, d)

    def is_natural(self, e: Expr) -> bool:
        """Whether an index expression is surely not negative."""
        if e.op == "const":
            return bool(e.value >= 0)
        if e.dtype.kind == "u":
            return True
        if e.op == "var":
            return e.value in self.nonnegative
        if e.op in ("add", "mul", "quotient", "modulus", "min", "shr"):
            return all(map(self.is_natural, e.args))
        if e.op == "max":
            return any(map(self.is_natural, e.args))
        return e.op == "select" and all(map(self.is_natural, e.args[1:]))

    def _wide(self, name: str, dtype: DType, args: list[Parts]) -> Parts:
        named = [tuple(map(self.name, a)) for a in args]
        signed = dtype.kind == "i"
        a = named[0]
        b = named[1] if len(named) > 1 else a
        if name in _COMPARE:
            return (_compare(name, signed, a, b),)
        if name == "mul":
            carried = self.call(integral.high_product(uint32), (a[0], b[0]))
            return wide.mul(carried, a, b)  # type: ignore[arg-type]
        if name in ("add", "sub"):
            return {"add": wide.add, "sub": wide.sub}[name](self.name, a, b)  # type: ignore[arg-type]
        if name in ("and", "or", "xor", "not"):
            return (expr("not", a[:1], uint32), expr("not", a[1:], uint32)) if name == "not" else wide.each(name)(
                self.name, a, b)
        if name == "neg":
            return wide.neg(self.name, a)  # type: ignore[arg-type]
        if name == "abs":
            return wide.absolute(self.name, a) if signed else a  # type: ignore[arg-type]
        if name == "sign":
            some = cast(test("ne", op("or", a[0], a[1]), u(0)), uint32)
            minus = self.name(wide.negative(a)) if signed else const(False, bool_)  # type: ignore[arg-type]
            return wide.choose(minus, wide.words(-1), (some, u(0)))
        if name in ("min", "max"):
            first = self.name(_compare("lt" if name == "min" else "gt", signed, a, b))
            return wide.choose(first, a, b)  # type: ignore[arg-type]
        if name in ("shl", "shr"):
            by = wide.shift_count(self.name, b)  # type: ignore[arg-type]
            return wide.shl(self.name, a, by) if name == "shl" else wide.shr(self.name, a, by, signed)  # type: ignore[arg-type]
        if name in ("floordiv", "rem"):
            return wide.division(self.name, self.call, name, signed, a, b)  # type: ignore[arg-type]
        if name == "popcount":
            return op("add", *[expr("popcount", (w,), uint32) for w in a]), u(0)
        if name == "clz":
            return wide.clz(a), u(0)  # type: ignore[arg-type]
        if name in ("pow", "mulhi"):
            return tuple([self.call(h, (*a, *b)) for h in multiword.helpers(name, dtype)])
        raise _unknown(name, dtype)

    def _complex(self, name: str, src: DType, dtype: DType, args: list[Parts]) -> Parts:
        if name == "complex":
            return args[0][0], args[1][0]
        x = args[0]
        if name in ("real", "imag"):
            return (x[0 if name == "real" else 1],)
        if name == "conj":
            return x[0], expr("neg", (x[1],), x[1].dtype)
        if name in ("add", "sub", "neg"):
            return tuple([expr(name, tuple([a[k] for a in args]), src.real) for k in (0, 1)])
        if name in ("eq", "ne", "isnan"):
            first, second = (expr(name, tuple([a[k] for a in args]), bool_) for k in (0, 1))
            return (expr("and" if name == "eq" else "or", (first, second), bool_),)
        return self._pairs(name, src.real, [tuple(map(self.name, a)) for a in args])

    def _pairs(self, name: str, part: DType, args: list[Parts]) -> Parts:
        """The pair formula of a complex function, every step of it named."""
        params, results = pair_function(name, part)
        given = dict(zip(params, [p for a in args for p in a], strict=True))
        memo: dict[Expr, Expr] = dict(given)

        def visit(e: Expr) -> Expr:
            found = memo.get(e)
            if found is None:
                if e.op == "const":
                    found = self._const(e.value, e.dtype)[0]
                else:
                    inner = [visit(a) for a in e.args]
                    parts = self.apply(e.op, e.dtype, [a.dtype for a in e.args], [(a,) for a in inner])
                    found = self.name(parts[0])
                memo[e] = found
            return found

        return tuple([visit(r) for r in results])


def _compare(name: str, signed: bool, a: Parts, b: Parts) -> Expr:
    if name in ("eq", "ne"):
        same = wide.equal(a, b)  # type: ignore[arg-type]
        return same if name == "eq" else expr("not", (same,), bool_)
    if name in ("gt", "ge"):
        a, b = b, a
    return wide.less(signed, a, b, "lt" if name in ("lt", "gt") else "le")  # type: ignore[arg-type]


def _brain(x: float) -> float:
    """The nearest bfloat16."""
    b = np.array(x, np.float32).view(np.uint32)
    if np.isnan(x):
        return x
    rounded = (int(b) + 0x7FFF + ((int(b) >> 16) & 1)) & 0xFFFF0000
    return float(np.array(rounded, np.uint32).view(np.float32))


def _unknown(name: str, dtype: DType) -> CompileError:
    return CompileError(f"primitive {name!r} on {dtype.name} has no form in basic arithmetic",
                        why="neither an expansion nor a rule gives one", do="use another primitive or dtype")
