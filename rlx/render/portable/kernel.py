"""Rewrites kernels statement by statement, and programs kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.core.dtype import DType, uint32
from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.ir.loop import Expr, Stmt, const, expr, var
from rlx.ir.walk import expressions, inside, statements
from rlx.render.portable import convert
from rlx.render.portable.arith import bits, op, u
from rlx.render.portable.expression import Rewriter
from rlx.render.portable.forms import form
from rlx.render.portable.helper import Helper


@dataclass(frozen=True, slots=True)
class Portable:
    """A kernel over the types a device has, the helpers it calls, and the parameters it stores to by atomics."""

    kernel: L.Kernel
    helpers: tuple[Helper, ...]
    atomic: frozenset[str]


def make_portable(k: L.Kernel, native: frozenset[DType], features: frozenset[str] = frozenset()) -> Portable:
    """``k`` in terms of 32-bit types, bool, and ``native``; ``features`` may name ``fma-f32`` and
    ``fma-f64`` (it rounds once)."""
    helpers: dict[str, Helper] = {}
    r = Rewriter(native, features, {p.name: p.dtype for p in k.params}, helpers, rewrite_block)
    body = rewrite_block(r, k.body)
    params = []
    for p in k.params:
        held = form(p.dtype, native)
        access = "rw" if p.name in r.atomic else p.access
        params.append(L.Param(p.name, held.cell, held.cells(p.size), access))
    return Portable(L.Kernel(k.name, tuple(params), body, k.notes), _ordered(helpers), frozenset(r.atomic))


def _ordered(helpers: dict[str, Helper]) -> tuple[Helper, ...]:
    """Helpers after the helpers they call, equal for equal kernels."""
    done: dict[str, Helper] = {}

    def visit(h: Helper) -> None:
        if h.name in done:
            return
        for name in sorted(_called(h)):
            visit(helpers[name])
        done[h.name] = h

    for name in sorted(helpers):
        visit(helpers[name])
    return tuple(done.values())


def _called(h: Helper) -> set[str]:
    roots = [h.result, *(e for s in statements(h.body) for e in expressions(s))]
    return {e.value for e in inside(*roots) if e.op == "call"}


def rewrite_block(r: Rewriter, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of one block, in order."""
    outside, r.here = r.here, []
    r.forget()
    for s in body:
        _statement(r, s)
    made, r.here = r.here, outside
    r.forget()
    return tuple(made)


def _statement(r: Rewriter, s: Stmt) -> None:
    match s:
        case L.Let(name=n, value=e):
            _let(r, n, e)
            return
        case L.Register(name=n, init=e):
            parts = r.lower(e)
            r.here.extend(L.Register(k, p) for k, p in zip(_names(n, len(parts)), parts, strict=True))
        case L.Assign(name=n, value=e):
            _assign(r, s)
        case L.Store(buffer=b, index=i, value=e):
            _store(r, b, r.one(i), r.lower(e))
        case L.Atomic():
            _atomic(r, s)
        case L.Array(name=n, dtype=d, size=size, space=space):
            _array(r, n, d, size, space)
        case L.For():
            _for(r, s)
        case L.If(cond=c, then=t, orelse=o):
            cond = r.one(c)
            r.here.append(L.If(cond, rewrite_block(r, t), rewrite_block(r, o)))
        case L.Loop(cond=c, body=inner):
            _loop(r, c, inner)
        case _:
            r.here.append(s)
    r.forget()


def _names(name: str, parts: int) -> list[str]:
    return [name] if parts == 1 else [f"{name}_{k}" for k in range(parts)]


def _let(r: Rewriter, name: str, e: Expr) -> None:
    parts = r.lower(e)
    if len(parts) == 1 and parts[0].dtype.kind in "iu" and r.is_natural(parts[0]):
        r.nonnegative.add(name)
    if len(parts) == 1 and (narrow := r.narrowed(parts[0])) is not None:
        r.widened[name] = r.name(narrow)
    r.here.extend(L.Let(k, p) for k, p in zip(_names(name, len(parts)), parts, strict=True))


def _assign(r: Rewriter, s: L.Assign) -> None:
    parts = r.lower(s.value)
    if len(parts) == 1:
        r.here.append(L.Assign(s.name, parts[0], s.reassoc))
        return
    # Both parts are computed before either register changes.
    parts = tuple(map(r.name, parts))
    r.here.extend(L.Assign(f"{s.name}_{k}", p) for k, p in enumerate(parts))


def _for(r: Rewriter, s: L.For) -> None:
    start, stop = r.one(s.start), r.one(s.stop)
    if r.is_natural(start):
        r.nonnegative.add(s.var)
    r.here.append(L.For(s.var, start, stop, s.step, s.kind, rewrite_block(r, s.body)))


def _loop(r: Rewriter, cond: Expr, body: tuple[Stmt, ...]) -> None:
    """``while c`` -> ``go = c; while go {...; go = c}`` where the condition needs statements of its own."""
    before = len(r.here)
    first = r.one(cond)
    if len(r.here) == before:
        r.here.append(L.Loop(first, rewrite_block(r, body)))
        return
    go = var(r.fresh("go"), first.dtype)
    r.here.append(L.Register(go.value, first))
    inner = rewrite_block(r, (*body, L.Assign(go.value, cond)))
    r.here.append(L.Loop(go, inner))


def _array(r: Rewriter, name: str, dtype: DType, size: int, space: str) -> None:
    """Arrays in registers or shared memory hold narrow elements one a cell: lanes never share a word."""
    r.memory[name] = dtype
    held = r.form(dtype)
    if held.per_word:
        r.loose.add(name)
        r.here.append(L.Array(name, held.parts[0] if dtype.kind != "b" else uint32, size, space))
        return
    r.here.append(L.Array(name, held.cell, held.cells(size), space))


def _store(r: Rewriter, buffer: str, index: Expr, parts: tuple[Expr, ...]) -> None:
    dtype = r.memory[buffer]
    held = r.form(dtype)
    if buffer in r.loose:
        value = parts[0] if dtype.kind != "b" else expr("cast", parts, uint32)
        r.here.append(L.Store(buffer, index, value))
        return
    if held.wide:
        at = r.name(op("mul", index, const(2, index.dtype)))
        parts = tuple(map(r.name, parts))
        r.here.extend(L.Store(buffer, op("add", at, const(k, index.dtype)), p) for k, p in enumerate(parts))
        return
    if not held.per_word:
        r.here.append(L.Store(buffer, index, parts[0]))
        return
    at = r.name(bits(index, uint32))
    width = 32 // held.per_word
    by = r.name(op("mul", op("and", at, u(held.per_word - 1)), u(width)))
    word = r.name(bits(op("shr", at, u((held.per_word - 1).bit_length())), index.dtype))
    keep = expr("not", (op("shl", u(2**width - 1), by),), uint32)
    value = r.name(op("shl", convert.pack(r, parts[0], dtype), by))
    r.atomic.add(buffer)
    r.here.append(L.Atomic("and", buffer, word, keep))
    r.here.append(L.Atomic("or", buffer, word, value))


def _atomic(r: Rewriter, s: L.Atomic) -> None:
    """Word-sized atomics stay; renderers spell those a language lacks as loops of compare-and-swap."""
    dtype = r.memory[s.buffer]
    held = r.form(dtype)
    parts = r.lower(s.value)
    if held.wide or held.per_word:
        raise CompileError(f"an atomic {s.kind} on {dtype.name} has no form here", why="the device has 32-bit atomics",
                           do="use a 32-bit dtype, or another device")
    r.atomic.add(s.buffer)
    r.here.append(L.Atomic(s.kind, s.buffer, r.one(s.index), parts[0]))
