"""Schedule a contraction as tiles: a workgroup loads slices of both operands into shared memory, each lane
keeps a small block of results in registers.

``C[m, n] = sum_k A[m, k] B[k, n]`` -> ``for k0: As, Bs <- A, B; for k: acc[i][j] += As[k][i] * Bs[k][j]``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from rlx.compile.emit import INLINE, Index
from rlx.compile.grid_form import LANES, MAX_GROUPS, GridForm, accumulator
from rlx.compile.group import POINT, REDUCE, Group, Member
from rlx.compile.index import sizes
from rlx.core.caps import Caps
from rlx.core.dtype import bool_, float32, float64
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr, Stmt

#: Lanes along each side of a workgroup's tile.
SIDE = 16
#: Depth of one slice.
DEPTH = 16
Epilogue = Callable[[Member, Index, Expr], tuple[Stmt, ...]]


@dataclass(frozen=True, slots=True)
class Shape:
    """A tiling: the contraction, its extents, and the results each lane keeps (``lane_rows`` by ``lane_columns``)."""

    member: Member
    batch: int
    m: int
    n: int
    k: int
    lane_rows: int
    lane_columns: int

    @property
    def rows(self) -> int:
        return SIDE * self.lane_rows

    @property
    def columns(self) -> int:
        return SIDE * self.lane_columns

    @property
    def tiles(self) -> tuple[int, int]:
        return -(-self.m // self.rows), -(-self.n // self.columns)


def find_tile(g: Group, caps: Caps) -> Shape | None:
    """The tiling of a group that is one contraction and points of its result, where tiles pay and fit."""
    reduces = [m for m in g.members if m.kind == REDUCE]
    if len(reduces) != 1 or any(m.kind not in (POINT, REDUCE) for m in g.members) or caps.max_workgroup < LANES:
        return None
    node = reduces[0].value.node
    if node.op != "dot":
        return None
    contract, batch = node.attr("contract"), node.attr("batch")
    left, right = (_free(sizes(x), contract[s], batch[s]) for s, x in enumerate(node.args))
    b, m, n = prod(sizes(node.args[0])[a] for a in batch[0]), prod(left), prod(right)
    k = prod(sizes(node.args[0])[a] for a in contract[0])
    if m < SIDE or n < SIDE or k < 8 or m * n < 1024:
        return None
    size = accumulator(reduces[0].value).itemsize
    for wide in (4, 2, 1):
        shape = Shape(reduces[0], b, m, n, k, min(wide, -(-m // SIDE)), min(wide, -(-n // SIDE)))
        many = b * prod(shape.tiles)
        if (shape.rows + 1 + shape.columns + 1) * DEPTH * size > caps.shared_bytes or many > MAX_GROUPS:
            continue
        if many >= 2 * caps.cores or wide == 1:
            return shape
    return None


def is_tiled(n: Node, caps: Caps) -> bool:
    """Whether a contraction on its own is scheduled in tiles."""
    v = n.outs[0]
    contract = n.attr("contract")[0]
    inner = tuple(sizes(n.args[0])[a] for a in contract)
    return bool(v.shape) and find_tile(Group(sizes(v), inner, [Member(v, REDUCE)]), caps) is not None


def operands(n: Node, caps: Caps) -> list[Value]:
    """The operands of a tiled contraction that are stored first: those computed from several arrays of their size.

    Every tile loads its slices of them again; ``(a * (b > 0)) @ w`` would load two arrays each time.
    """
    return [v for v in n.args if _arrays(v) > 1] if is_tiled(n, caps) else []


def _arrays(v: Value) -> int:
    """How many arrays of at least its own size an inlined value reads."""
    found, seen, stack = 0, {v}, [v]
    while stack:
        u = stack.pop()
        if u.node.op not in INLINE:
            found += prod(sizes(u)) >= prod(sizes(v))
            continue
        new = [a for a in u.node.args if a not in seen]
        seen.update(new)
        stack.extend(new)
    return found


def _free(shape: tuple[int, ...], contract: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for a, d in enumerate(shape) if a not in contract and a not in batch)


class Tile:
    """Builds the kernel of a tiling; ``epilogue`` emits what is done with one result."""

    def __init__(self, form: GridForm, shape: Shape, epilogue: Epilogue) -> None:
        self.form, self.shape, self.epilogue = form, shape, epilogue
        self.em, self.ix = form.em, form.ix
        node = shape.member.value.node
        self.node = node
        self.contract, self.batch = node.attr("contract"), node.attr("batch")
        self.dtype = accumulator(shape.member.value)

    def build(self) -> tuple[Stmt, ...]:
        """The kernel's body."""
        s, em, ix = self.shape, self.em, self.ix
        down, across = s.tiles
        with self.form.kernel(s.batch * down * across, LANES) as (g, lane):
            self.lane = lane
            self.lead = self._named(ix.div(g, down * across), s.batch)
            self.row0 = em.let(ix.scale(ix.mod(ix.div(g, across), down), s.rows))
            self.col0 = em.let(ix.scale(ix.mod(g, across), s.columns))
            self.lr, self.lc = em.let(ix.div(lane, SIDE)), em.let(ix.mod(lane, SIDE))
            zero = L.const(0, self.dtype)
            accs = [[em.register(zero, "c") for _ in range(s.lane_columns)] for _ in range(s.lane_rows)]
            self._slices(accs)
            self._results(accs)
        return self.form.body

    def _named(self, e: Expr, extent: int) -> Expr:
        """``e`` under a name that is known to lie in ``[0, extent)``."""
        if e.op == "const":
            return e
        name = self.em.name("n")
        self.em.here.append(L.Let(name, e))
        self.em.define(name)
        self.ix.extent[name] = extent
        return L.var(name, e.dtype)

    def _clamped(self, e: Expr, extent: int, exact: bool) -> Expr:
        return self._named(e if exact else L.expr("min", (e, self.ix.const(extent - 1)), self.ix.dtype), extent)

    def _slices(self, accs: list[list[Expr]]) -> None:
        """``for k0 in 0, 16, ..``: load, wait, multiply, wait."""
        s, em, ix = self.shape, self.em, self.ix
        em.open("k0")
        k0 = L.var("k0", ix.dtype)
        ix.extent["k0"] = s.k
        self._load("left", 0, k0, s.rows, self.row0, s.m, s.lane_rows)
        self._load("right", 1, k0, s.columns, self.col0, s.n, s.lane_columns)
        self.form.barrier()
        self._multiply(accs)
        self.form.barrier()
        body = em.close()
        em.here.append(L.For("k0", ix.const(0), ix.const(s.k), DEPTH, L.SERIAL, body))

    def _load(self, name: str, side: int, k0: Expr, width: int, first: Expr, extent: int, each: int) -> None:
        """Each lane loads ``each`` elements of the slice, neighbours in memory by neighbouring lanes."""
        em, ix, s = self.em, self.ix, self.shape
        array = self.form.shared(name, self.dtype, DEPTH * (width + 1))
        x = self.node.args[side]
        along = len(x.shape) - 1 in self.contract[side]
        for j in range(each):
            at = ix.offset(self.lane, j * LANES)
            kk, r = (ix.mod(at, DEPTH), ix.div(at, DEPTH)) if along else (ix.div(at, width), ix.mod(at, width))
            depth = ix.add(k0, kk)
            k = self._clamped(depth, s.k, s.k % DEPTH == 0)
            free = self._clamped(ix.add(first, r), extent, extent % width == 0)
            e = em.cast(em.value(x, self._index(side, free, k)), self.dtype)
            if s.k % DEPTH:
                e = L.select(L.less(depth, ix.const(s.k)), e, L.const(0, self.dtype))
            em.here.append(L.Store(array, ix.add(ix.scale(kk, width + 1), r), e))

    def _index(self, side: int, free: Expr, k: Expr) -> Index:
        """The operand's multi-index for flat free and contracted positions."""
        shape = sizes(self.node.args[side])
        contract, batch = self.contract[side], self.batch[side]
        rest = [a for a in range(len(shape)) if a not in contract and a not in batch]
        parts = dict(zip(batch, self.ix.split(self.lead, [shape[a] for a in batch]), strict=True))
        parts |= dict(zip(contract, self.ix.split(k, [shape[a] for a in contract]), strict=True))
        parts |= dict(zip(rest, self.ix.split(free, [shape[a] for a in rest]), strict=True))
        return tuple(parts[a] for a in range(len(shape)))

    def _multiply(self, accs: list[list[Expr]]) -> None:
        em, ix, s = self.em, self.ix, self.shape
        em.open("kk")
        kk = L.var("kk", ix.dtype)
        ix.extent["kk"] = DEPTH

        def take(name: str, width: int, lane: Expr, count: int) -> list[Expr]:
            found = []
            for j in range(count):
                e = L.load(name, ix.add(ix.scale(kk, width + 1), ix.offset(lane, SIDE * j)), self.dtype)
                found.append(em.let(e))
            return found

        left = take("left", s.rows, self.lr, s.lane_rows)
        right = take("right", s.columns, self.lc, s.lane_columns)
        for a, row in zip(left, accs, strict=True):
            for b, acc in zip(right, row, strict=True):
                if self.dtype in (float32, float64):
                    e = L.expr("fma", (a, b, acc), self.dtype)
                else:
                    e = L.expr("add", (acc, L.expr("mul", (a, b), self.dtype)), self.dtype)
                em.here.append(L.Assign(acc.value, e, True))
        em.loop("kk", ix.const(0), ix.const(DEPTH), L.UNROLL)

    def _results(self, accs: list[list[Expr]]) -> None:
        """The epilogue at every result of the lane that lies inside the matrix."""
        em, ix, s = self.em, self.ix, self.shape
        node = self.node
        shapes = [_free(sizes(x), self.contract[k], self.batch[k]) for k, x in enumerate(node.args)]
        lead = ix.split(self.lead, [sizes(node.args[0])[a] for a in self.batch[0]])
        for i, row in enumerate(accs):
            for j, acc in enumerate(row):
                r, c = (
                    ix.add(self.row0, ix.offset(self.lr, SIDE * i)),
                    ix.add(self.col0, ix.offset(self.lc, SIDE * j)),
                )
                ok = L.const(True, bool_)
                if s.m % s.rows:
                    ok = L.both(ok, L.less(r, ix.const(s.m)))
                if s.n % s.columns:
                    ok = L.both(ok, L.less(c, ix.const(s.n)))
                em.open()
                m, n = self._named(r, s.m), self._named(c, s.n)
                outer = (*lead, *ix.split(m, shapes[0]), *ix.split(n, shapes[1]))
                stmts = self.epilogue(self.shape.member, outer, acc)
                inner = em.close() + stmts
                em.here.extend(inner if ok.op == "const" else (L.If(ok, inner),))
