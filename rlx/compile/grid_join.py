"""Join launches of one workgroup each: a few scalars after a total cost less than their launch.

``launch combine; launch sqrt over []; copy x <- y`` -> one launch whose lanes meet at a barrier between the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rlx.core.caps import Caps
from rlx.core.dtype import DType
from rlx.ir import loop as L
from rlx.ir.loop import Expr, Stmt, expr

#: Elements up to which a copy is done by one workgroup among others' work.
SMALL_COPY = 256
#: Parts of one kernel at most.
MOST = 12
#: Buffers of one kernel at most: each is a parameter.
BUFFERS = 24


def join(steps: Sequence[L.Step], buffers: dict[str, L.Buffer], index: DType, caps: Caps,
         kernel: Callable[[L.Kernel, str], L.Kernel]) -> list[L.Step]:
    """The steps with runs of small launches joined; ``kernel`` names a kernel by what it does."""
    if "exchange" not in caps.features:
        return list(steps)
    out: list[L.Step] = []
    run: list[tuple[L.Step, _Part]] = []

    def end() -> None:
        while run and isinstance(run[0][0], L.Copy):
            out.append(run.pop(0)[0])
        if len(run) > 1:
            out.append(_joined([p for _, p in run], buffers, index, kernel))
        else:
            out.extend(s for s, _ in run)
        run.clear()

    for s in steps:
        part = _part(s, buffers, index)
        if part is None:
            end()
            out.append(s)
            continue
        if run and not _fits([p for _, p in run], part):
            end()
        run.append((s, part))
    end()
    return out


def _fits(run: list[_Part], part: _Part) -> bool:
    """Whether the part can follow: parts whose lanes meet at barriers are as wide as the widest."""
    parts = [*run, part]
    lanes = max(p.lanes for p in parts)
    names = {n for p in parts for n in p.names}
    return len(parts) <= MOST and len(names) <= BUFFERS and all(p.lanes == lanes for p in parts if p.meets)


class _Part:
    """A kernel of one workgroup: its lanes, what one lane does, and whether its lanes meet at barriers."""

    def __init__(self, kernel: L.Kernel, names: tuple[str, ...], lanes: int, lane: str, group: str,
                 body: tuple[Stmt, ...]) -> None:
        self.kernel, self.names, self.lanes = kernel, names, lanes
        self.lane, self.group, self.body = lane, group, body
        self.meets = _meets(body)


def _part(s: L.Step, buffers: dict[str, L.Buffer], index: DType) -> _Part | None:
    if isinstance(s, L.Copy):
        return _copy(s, buffers, index)
    if not isinstance(s, L.Launch):
        return None
    body = s.kernel.body
    if not any(isinstance(x, L.For) and x.kind in (L.GRID, L.BLOCK) for x in body):
        return _Part(s.kernel, s.buffers, 1, "", "", body) if not _loops(body) else None
    grid = body[0] if len(body) == 1 else None
    if not isinstance(grid, L.For) or grid.kind != L.GRID or grid.stop.value != 1:
        return None
    block = grid.body[0] if len(grid.body) == 1 else None
    if not isinstance(block, L.For) or block.kind != L.BLOCK:
        return None
    if any(isinstance(x, L.For) and x.kind == L.BLOCK for x in block.body):
        return None
    return _Part(s.kernel, s.buffers, int(block.stop.value), block.var, grid.var, block.body)


def _loops(body: tuple[Stmt, ...]) -> bool:
    """Whether one lane alone has much to do: then it is better off by itself."""
    return any(isinstance(x, L.For | L.Loop) for x in body)


def _copy(s: L.Copy, buffers: dict[str, L.Buffer], index: DType) -> _Part | None:
    b = buffers[s.dst]
    if not 0 < b.size <= SMALL_COPY:
        return None
    i = L.var("i", index)
    params = (L.Param("b0", b.dtype, b.size, "r"), L.Param("b1", b.dtype, b.size, "w"))
    body = (L.Store("b1", i, L.load("b0", i, b.dtype)),)
    return _Part(L.Kernel("copy", params, body), (s.src, s.dst), b.size, "i", "", body)


def _meets(body: tuple[Stmt, ...]) -> bool:
    for s in body:
        match s:
            case L.Barrier() | L.Exchange():
                return True
            case L.For(body=b) | L.Loop(body=b):
                if _meets(b):
                    return True
            case L.If(then=t, orelse=o):
                if _meets(t) or _meets(o):
                    return True
            case _:
                pass
    return False


def _joined(parts: list[_Part], buffers: dict[str, L.Buffer], index: DType,
            kernel: Callable[[L.Kernel, str], L.Kernel]) -> L.Step:
    """One kernel with the lanes of the widest part, and a barrier between the parts."""
    lanes = max(p.lanes for p in parts)
    names: dict[str, L.Param] = {}
    order: list[str] = []
    body: list[Stmt] = []
    arrays: dict[str, L.Array] = {}
    for k, p in enumerate(parts):
        renamed: dict[str, str] = {}
        for q, n in zip(p.kernel.params, p.names, strict=True):
            old = names.get(n)
            if old is None:
                order.append(n)
                names[n] = replace(q, name=f"b{len(order) - 1}")
            else:
                access = old.access if old.access == q.access else "rw"
                names[n] = replace(old, access=access, size=max(old.size, q.size))
            renamed[q.name] = names[n].name
        body.extend(_cut(_Renaming(k, renamed, p, arrays, index).block(p.body), p, lanes, index))
        if k + 1 < len(parts):
            body.append(L.Barrier())
    block = L.For("l", L.const(0, index), L.const(lanes, index), 1, L.BLOCK, (*arrays.values(), *body))
    grid = (L.For("g", L.const(0, index), L.const(1, index), 1, L.GRID, (block,)),)
    label = "_".join(p.kernel.name.rsplit("_", 1)[0] for p in parts)
    notes = "; ".join(p.kernel.notes or p.kernel.name for p in parts)
    made = L.Kernel("k", tuple(names[n] for n in order), grid, notes)
    return L.Launch(kernel(made, label), tuple(order))


def _cut(body: tuple[Stmt, ...], p: _Part, lanes: int, index: DType) -> tuple[Stmt, ...]:
    """Only the part's own lanes run it."""
    if p.lanes == lanes:
        return body
    return (L.If(L.less(L.var("l", index), L.const(p.lanes, index)), body),)


class _Renaming:
    """Copies statements with a part's own names: buffers as the joined kernel has them, the rest with its number."""

    def __init__(self, k: int, buffers: dict[str, str], part: _Part, arrays: dict[str, L.Array], index: DType) -> None:
        self.k, self.buffers, self.arrays = k, dict(buffers), arrays
        self.fixed: dict[str, Expr] = {}
        if part.lane:
            self.fixed[part.lane] = L.var("l", index)
        if part.group:
            self.fixed[part.group] = L.const(0, index)
        self.memo: dict[Expr, Expr] = {}

    def name(self, n: str) -> str:
        return f"{n}_p{self.k}"

    def expr(self, e: Expr) -> Expr:
        found = self.memo.get(e)
        if found is None:
            if e.op == "var":
                found = self.fixed.get(e.value) or L.var(self.name(e.value), e.dtype)
            else:
                value = self.buffers[e.value] if e.op == "load" else e.value
                found = expr(e.op, tuple([self.expr(a) for a in e.args]), e.dtype, value)
            self.memo[e] = found
        return found

    def block(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple([t for s in stmts for t in self.one(s)])

    def one(self, s: Stmt) -> tuple[Stmt, ...]:
        e, n = self.expr, self.name
        match s:
            case L.For():
                return (replace(s, var=n(s.var), start=e(s.start), stop=e(s.stop), body=self.block(s.body)),)
            case L.Let():
                return (L.Let(n(s.name), e(s.value)),)
            case L.Exchange():
                return (replace(s, name=n(s.name), value=e(s.value)),)
            case L.Register():
                return (L.Register(n(s.name), e(s.init)),)
            case L.Assign():
                return (replace(s, name=n(s.name), value=e(s.value)),)
            case L.Array():
                return self._array(s)
            case L.Store() | L.Atomic():
                return (replace(s, buffer=self.buffers[s.buffer], index=e(s.index), value=e(s.value)),)
            case L.If():
                return (replace(s, cond=e(s.cond), then=self.block(s.then), orelse=self.block(s.orelse)),)
            case L.Loop():
                return (replace(s, cond=e(s.cond), body=self.block(s.body)),)
            case _:
                return (s,)

    def _array(self, s: L.Array) -> tuple[Stmt, ...]:
        """Shared arrays of one name are one: a barrier stands between the parts."""
        if s.space != "shared":
            self.buffers[s.name] = self.name(s.name)
            return (replace(s, name=self.name(s.name)),)
        name = f"{s.name}_{s.dtype.short}"
        self.buffers[s.name] = name
        old = self.arrays.get(name)
        self.arrays[name] = replace(s, name=name, size=max(s.size, old.size if old else 0))
        return ()
