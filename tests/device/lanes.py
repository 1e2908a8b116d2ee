"""A device of workgroups in NumPy, for tests of grid kernels without a driver: all lanes of a launch walk through it in
step, and what only some hardware would punish is an error.

Checked: loads and stores stay inside their buffers (except what a ``select`` did not choose), all lanes of a workgroup
meet a barrier and all of a subgroup an exchange, and no lane reads what another one wrote, or overwrites what another
one wrote or read, in workgroup or global memory, without a barrier between. (Of three lanes or more that read at
once, two are remembered.) Memory that nobody wrote holds values that show in results.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rlx.compile.memory import place
from rlx.core.caps import Caps
from rlx.core.dtype import ALL, DType, bfloat16
from rlx.device.base import Device, Executable, refuse_form
from rlx.device.python import prims
from rlx.device.python.device import _pack, _unpack
from rlx.ir import loop as L
from rlx.render.c import spells

Arr = np.ndarray[Any, Any]
#: Who touched an element: a lane by its number; nobody; lanes of several workgroups; or, from ``GROUP`` down and two
#: numbers for each workgroup, its lanes before a barrier that all of them met, and several of its lanes since.
NOBODY, MANY, GROUP = -1, -2, -4
#: A byte of memory that nobody wrote: a NaN of no use, an odd negative integer.
FILL = 0xF1
ATOMICS = ("i32", "u32", "f32", "i64", "u64", "f64")
COMBINE = {"add": np.add, "min": np.minimum, "max": np.maximum}


class LaneError(AssertionError):
    """A kernel did what no device allows, or what only some devices do as hoped."""


def host(dtype: DType) -> np.dtype[Any]:
    """The NumPy type in which values of a dtype are computed."""
    return np.dtype(np.float32) if dtype is bfloat16 else dtype.numpy


class LanesDevice(Device):
    """Capabilities of our choice; ``exchange`` lanes trade values in subgroups of eight."""

    def __init__(self, lanes: int = 64, shared: int = 16_384, *, exchange: bool = True, atomics: bool = True,
                 overlap: bool = False, cores: int = 2) -> None:
        self.name = "lanes"
        features = {f"atomic-{k}-{s}" for k in COMBINE for s in ATOMICS} if atomics else set()
        features |= {name for name, has in (("exchange", exchange), ("overlap", overlap)) if has}
        dtypes = frozenset(ALL)
        self.caps = Caps(name="lanes", dtypes=dtypes, schedule="grid", index_bits=32, spells=spells(dtypes),
                         cores=cores, max_workgroup=lanes, shared_bytes=shared, subgroup=8 if exchange else 0,
                         max_binding_bytes=1 << 30, features=frozenset(features))
        self.claims = {}
        #: Kernels launched, by name, and what they were made of.
        self.launched: list[L.Kernel] = []

    def empty(self, dtype: DType, shape: Sequence[int]) -> Arr:
        return np.full(prod(shape) * dtype.itemsize, FILL, np.uint8)

    def upload(self, array: Arr) -> Arr:
        return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).copy()

    def download(self, storage: Arr, dtype: DType, shape: Sequence[int]) -> Arr:
        return storage.view(dtype.numpy).reshape(tuple(shape))

    def load(self, program: L.Program) -> Executable:
        return _Loaded(self, place(program))

    def load_graph(self, graph: Any) -> Executable:
        refuse_form(self, "graph")

    def synchronize(self) -> None:
        return None


class _Loaded(Executable):
    """The host's side: steps one after another."""

    def __init__(self, device: LanesDevice, program: L.Program) -> None:
        self.device, self.program = device, program

    def run(self, inputs: Sequence[Arr], outputs: Sequence[Arr]) -> None:
        arena = np.full(self.program.arena, FILL, np.uint8)
        self.env: dict[str, Arr] = {}
        for b in self.program.buffers:
            raw = {"input": lambda b=b: inputs[b.slot], "output": lambda b=b: outputs[b.slot],
                   "const": lambda b=b: np.ascontiguousarray(b.data, b.dtype.numpy).reshape(-1).view(np.uint8).copy(),
                   "temp": lambda b=b: arena[b.offset:b.offset + b.nbytes]}[b.role]()
            self.env[b.name] = raw[:b.nbytes].view(b.dtype.numpy)
        with np.errstate(all="ignore"):
            self._steps(self.program.steps)

    def _steps(self, steps: Sequence[L.Step]) -> None:
        for s in steps:
            match s:
                case L.Launch(kernel=k, buffers=names):
                    self.device.launched.append(k)
                    run_kernel(k, [self.env[n] for n in names], self.device.caps.subgroup or 1)
                case L.Copy(dst=d, src=c):
                    self.env[d][...] = self.env[c]
                case L.While(head=head, pred=p, body=body):
                    self._steps(head)
                    while self.env[p][0]:
                        self._steps(body)
                        self._steps(head)
                case L.Branch(pred=p, then=then, orelse=orelse):
                    self._steps(then if self.env[p][0] else orelse)
                case L.Repeat(count=n, counter=c, body=body):
                    for turn in range(n if isinstance(n, int) else int(self.env[n][0])):
                        if c in self.env:
                            self.env[c][0] = turn
                        self._steps(body)
                case L.Native(claim=name):
                    raise LaneError(f"a native call {name!r} on a device without claims")


def run_kernel(k: L.Kernel, arrays: Sequence[Arr], subgroup: int) -> None:
    """Execute a kernel over these buffers, which ``arrays`` gives in the order of its parameters."""
    extents: dict[str, list[tuple[str, DType, int]]] = {L.GRID: [], L.BLOCK: []}
    body = k.body
    while len(body) == 1 and isinstance(body[0], L.For) and body[0].kind in extents:
        extents[body[0].kind].append((body[0].var, body[0].start.dtype, int(body[0].stop.value)))
        body = body[0].body
    groups, lanes = (prod([n for _, _, n in extents[kind]]) for kind in (L.GRID, L.BLOCK))
    run = _Run(k.name, groups, lanes, subgroup)
    for kind, number in ((L.GRID, run.group), (L.BLOCK, run.lane)):
        rest = number
        for name, dtype, n in reversed(extents[kind]):
            run.names[name] = (rest % n).astype(dtype.numpy)
            rest = rest // n
    seen: dict[int, _Memory] = {}
    for p, a in zip(k.params, arrays, strict=True):
        address = a.__array_interface__["data"][0]
        whose = seen.setdefault(address, _Memory(p.name, p.dtype, a, None, run))
        run.memory[p.name] = _Memory(p.name, p.dtype, a, None, run, whose.track, p.access)
    run.block(body, np.arange(groups * lanes))


class _Memory:
    """A buffer (one for the launch), a workgroup's array (a row each), or a lane's (a row each)."""

    def __init__(self, name: str, dtype: DType, data: Arr, rows: Arr | None, run: _Run,
                 track: Arr | None = None, access: str = "rw") -> None:
        self.name, self.dtype, self.data, self.rows, self.run, self.access = name, dtype, data, rows, run, access
        self.track = np.full((2, data.size), NOBODY, np.int64) if track is None else track

    def _flat(self, at: Arr, index: Arr, strict: bool) -> Arr:
        """Positions in ``data``; outside its row an error, or where nobody looks at the value, anywhere inside."""
        size = self.data.shape[-1]
        outside = (index < 0) | (index >= size)
        if strict and outside.any():
            raise LaneError(f"{self.run.name}: {self.name}[{int(index[outside][0])}] of {size}")
        index = np.clip(index.astype(np.int64), 0, max(size - 1, 0))
        return index if self.rows is None else self.rows[at] * size + index

    def load(self, at: Arr, index: Arr, strict: bool) -> Arr:
        flat = self._flat(at, index, strict)
        if not self.data.size:
            return np.zeros(len(at), host(self.dtype))
        if strict and "r" not in self.access:
            raise LaneError(f"{self.run.name} reads {self.name}, which it only writes")
        if strict and "w" in self.access:
            self._meet(self.track[0, flat], at, "reads what another lane wrote")
            self._read(flat, at)
        return _unpack(self.data.reshape(-1)[flat], self.dtype)

    def _read(self, flat: Arr, at: Arr) -> None:
        """Note the readers. Of lanes that read one element at once, the first and the last say who they are."""
        group = self.run.group[at]
        readers = self.track[1]
        before = readers[flat]
        lane = np.where(before >= 0, self.run.group[np.maximum(before, 0)], -1)
        whose = np.where(before >= 0, lane, np.where(before <= GROUP, (GROUP - before) // 2, group))
        single = (before == NOBODY) | (before == at) | (before == GROUP - 2 * group)
        several = np.where((whose == group) & (before != MANY), GROUP - 2 * group - 1, MANY)
        new = np.where(single, at, several)
        readers[flat] = new
        last = readers[flat]
        readers[flat[::-1]] = new[::-1]
        first = readers[flat]
        alike = first == last
        one = lambda t: np.where(t >= 0, self.run.group[np.maximum(t, 0)], np.where(t <= GROUP, (GROUP - t) // 2, -1))
        together = (one(first) == one(last)) & (one(first) >= 0)
        readers[flat] = np.where(alike, first, np.where(together, GROUP - 2 * one(first) - 1, MANY))

    def store(self, at: Arr, index: Arr, value: Arr) -> None:
        flat = self._flat(at, index, True)
        if "w" not in self.access:
            raise LaneError(f"{self.run.name} writes {self.name}, which it only reads")
        self._meet(self.track[0, flat], at, "overwrites what another lane wrote")
        self._meet(self.track[1, flat], at, "overwrites what another lane reads")
        if len(np.unique(flat)) != len(flat):
            raise LaneError(f"{self.run.name}: two lanes store to one element of {self.name}")
        self.track[0, flat] = at
        self.data.reshape(-1)[flat] = _pack(value, self.dtype)

    def _meet(self, who: Arr, at: Arr, what: str) -> None:
        mine = GROUP - 2 * self.run.group[at]
        if not ((who == NOBODY) | (who == at) | (who == mine)).all():
            raise LaneError(f"{self.run.name}: a lane {what} in {self.name}, with no barrier between")

    def barrier(self, groups: Arr) -> None:
        """What lanes of these workgroups did is known to all lanes of their own."""
        for t in self.track:
            whose = np.where(t >= 0, self.run.group[np.maximum(t, 0)], np.where(t <= GROUP, (GROUP - t) // 2, -1))
            met = np.isin(whose, groups)
            t[met] = GROUP - 2 * whose[met]
        if self.rows is None:
            return
        mine = np.isin(np.arange(self.data.shape[0]), groups)
        for t in self.track:  # a workgroup's own array: everything in it is known to all now
            t.reshape(self.data.shape)[mine] = NOBODY

    def atomic(self, at: Arr, index: Arr, value: Arr, kind: str) -> None:
        flat = self._flat(at, index, True)
        COMBINE[kind].at(self.data.reshape(-1), flat, value.astype(self.data.dtype))


class _Run:
    """One launch: every name has a value for each lane; statements act on the lanes that are there."""

    def __init__(self, name: str, groups: int, lanes: int, subgroup: int) -> None:
        self.name, self.groups, self.lanes, self.subgroup = name, groups, lanes, subgroup
        self.group, self.lane = (np.arange(groups * lanes) // lanes, np.arange(groups * lanes) % lanes)
        self.names: dict[str, Arr] = {}
        self.memory: dict[str, _Memory] = {}

    # Statements

    def block(self, body: Sequence[L.Stmt], at: Arr) -> None:
        for s in body:
            if len(at):
                self.statement(s, at)

    def statement(self, s: L.Stmt, at: Arr) -> None:
        match s:
            case L.Let(name=n, value=x) | L.Register(name=n, init=x) | L.Assign(name=n, value=x):
                self.put(n, at, self.value(x, at))
            case L.Store(buffer=b, index=i, value=x):
                index, value = self.values((i, x), at)
                self.memory[b].store(at, index, value)
            case L.Atomic(kind=kind, buffer=b, index=i, value=x):
                index, value = self.values((i, x), at)
                self.memory[b].atomic(at, index, value, kind)
            case L.If(cond=c, then=then, orelse=orelse):
                chosen = self.value(c, at)
                self.block(then, at[chosen])
                self.block(orelse, at[~chosen])
            case L.For():
                self.loop(s, at)
            case L.Loop(cond=c, body=body):
                while len(at := at[self.value(c, at)]):
                    self.block(body, at)
            case L.Array():
                self.array(s)
            case L.Exchange():
                self.exchange(s, at)
            case L.Barrier():
                self.barrier(at)
            case _:
                raise LaneError(f"{self.name}: {type(s).__name__} is for devices of cores")

    def loop(self, s: L.For, at: Arr) -> None:
        start, stop = self.values((s.start, s.stop), at)
        i = start.copy()
        while (going := i < stop).any():
            at, i, stop = at[going], i[going], stop[going]
            self.put(s.var, at, i)
            self.block(s.body, at)
            i = (i + s.step).astype(i.dtype)

    def array(self, s: L.Array) -> None:
        rows = self.group if s.space == "shared" else self.group * self.lanes + self.lane
        many = self.groups if s.space == "shared" else self.groups * self.lanes
        raw = np.full((many, max(s.size, 1) * s.dtype.itemsize), FILL, np.uint8)
        data = np.zeros(raw.size, bool).reshape(raw.shape) if s.dtype.kind == "b" else raw.view(s.dtype.numpy)
        self.memory[s.name] = _Memory(s.name, s.dtype, data, rows, self)

    def exchange(self, s: L.Exchange, at: Arr) -> None:
        if self.lanes % self.subgroup or s.distance >= self.subgroup:
            raise LaneError(f"{self.name}: exchange over {s.distance} lanes in subgroups of {self.subgroup}")
        value = self.value(s.value, at)
        there = np.zeros(self.groups * self.lanes, bool)
        there[at] = True
        partner = at ^ s.distance
        if not there[partner].all():
            raise LaneError(f"{self.name}: an exchange that not all lanes of a subgroup reach")
        whole = np.zeros(self.groups * self.lanes, value.dtype)
        whole[at] = value
        self.put(s.name, at, whole[partner])

    def barrier(self, at: Arr) -> None:
        arrived = np.bincount(self.group[at], minlength=self.groups)
        if not ((arrived == 0) | (arrived == self.lanes)).all():
            raise LaneError(f"{self.name}: a barrier that not all lanes of a workgroup reach")
        for m in self.memory.values():
            m.barrier(np.flatnonzero(arrived))

    def put(self, name: str, at: Arr, value: Arr) -> None:
        old = self.names.get(name)
        if old is None or old.dtype != value.dtype:
            old = self.names[name] = np.full(self.groups * self.lanes * value.dtype.itemsize, FILL, np.uint8).view(
                np.uint8 if value.dtype == bool else value.dtype).astype(value.dtype)
        old[at] = value

    # Expressions

    def value(self, x: L.Expr, at: Arr) -> Arr:
        return self.values((x,), at)[0]

    def values(self, xs: Sequence[L.Expr], at: Arr) -> list[Arr]:
        """Values for the lanes ``at``; shared parts are computed once."""
        done: dict[tuple[L.Expr, bool], Arr] = {}
        return [self.expr(x, at, True, done) for x in xs]

    def expr(self, x: L.Expr, at: Arr, strict: bool, done: dict[tuple[L.Expr, bool], Arr]) -> Arr:
        """``strict``: every lane really needs this value."""
        found = done.get((x, strict))
        if found is None:
            found = done[x, strict] = self.compute(x, at, strict, done)
        return found

    def compute(self, x: L.Expr, at: Arr, strict: bool, done: dict[tuple[L.Expr, bool], Arr]) -> Arr:
        if x.op == "const":
            return np.full(len(at), x.value, host(x.dtype))
        if x.op == "var":
            return self.names[x.value][at]
        lazy = x.op == "select" or (x.op in ("and", "or") and x.dtype.kind == "b")
        args = [self.expr(a, at, strict and not (lazy and k), done) for k, a in enumerate(x.args)]
        if x.op == "load":
            return self.memory[x.value].load(at, args[0], strict)
        if x.op == "cast":
            out = prims.cast(args[0], x.dtype)
        elif x.op == "bitcast":
            out = _unpack(_pack(args[0], x.args[0].dtype).view(x.dtype.numpy), x.dtype)
        else:
            out = np.asarray(prims.POINTWISE[x.op](*args))
        return _unpack(_pack(out, x.dtype), x.dtype) if x.dtype is bfloat16 else out.astype(x.dtype.numpy, copy=False)


