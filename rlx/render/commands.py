"""From a program's steps to commands of an interface with command buffers: Vulkan, WebGPU, OpenGL.

``while`` over straight steps runs on the device: every dispatch of the body is *indirect*, and a gate kernel writes its
workgroup counts, which are zero once the predicate was false. The host records some iterations at a time and only asks
now and then whether the loop is done. ``if`` is gated alike. Loops around loops are run by the host.

Grammar::

    plan    := kernel* command* flags args
    command := dispatch kernel buffer* slot?        slot: three counts in the args buffer; none: a plain dispatch
             | copy dst src
             | batch flag command*                  reset the flag, repeat the commands while it is set
             | times n command*
             | host-while command* pred command*    the host reads pred after the first commands
             | host-if pred command* command*
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from rlx.core.dtype import DType, bool_, int32, uint32
from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.ir.loop import Expr, Kernel, Stmt, const, expr, load

#: Workgroups in one dimension that every implementation launches (the WebGPU default limit).
MAX_GROUPS = 65_535
#: A counted loop of at most this many turns is recorded turn by turn inside a batch.
UNROLL = 64
#: The names of the two buffers that gates use.
FLAGS, ARGS = "rlx_flags", "rlx_args"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run kernel number ``kernel`` over ``buffers``; with a ``slot`` its counts come from the args buffer."""

    kernel: int
    buffers: tuple[str, ...]
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class CopyBuffer:
    dst: str
    src: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Set flag ``flag``, then repeat ``body`` until it is clear. Turns after that change nothing."""

    flag: int
    start: Dispatch
    body: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Times:
    count: int
    body: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class HostWhile:
    head: tuple[Command, ...]
    pred: str
    body: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class HostIf:
    pred: str
    then: tuple[Command, ...]
    orelse: tuple[Command, ...]


Command = Dispatch | CopyBuffer | Batch | Times | HostWhile | HostIf


@dataclass(frozen=True, slots=True)
class Plan:
    """Kernels and commands of a program; ``flags`` and ``args`` are the words of the gates' buffers."""

    kernels: tuple[Kernel, ...]
    commands: tuple[Command, ...]
    flags: int
    args: int


def plan(program: L.Program) -> Plan:
    """The program as commands. Raises CompileError for a native step."""
    work = _Planner({b.name: b for b in program.buffers})
    commands = work.steps(program.steps)
    return Plan(tuple(work.kernels), tuple(commands), work.flags, 3 * work.slots)


def is_straight(commands: Sequence[Command]) -> bool:
    """Whether the host decides nothing: the commands can be recorded once."""
    return all(isinstance(c, Dispatch | CopyBuffer) or (isinstance(c, Times) and is_straight(c.body)
                                                        and c.count * dispatch_count(c.body) < 1024)
               for c in commands) and dispatch_count(commands) < 1024


def dispatch_count(commands: Sequence[Command]) -> int:
    """Dispatches recorded when every loop of unknown length runs once."""
    n = 0
    for c in commands:
        match c:
            case Dispatch():
                n += 1
            case Times(count=k, body=body):
                n += k * dispatch_count(body)
            case Batch(body=body):
                n += 1 + dispatch_count(body)
            case HostWhile(head=a, body=b) | HostIf(then=a, orelse=b):
                n += dispatch_count(a) + dispatch_count(b)
            case _:
                pass
    return n


def buffer_names(commands: Sequence[Command]) -> set[str]:
    """Every buffer that a dispatch names."""
    out: set[str] = set()
    for c in commands:
        match c:
            case Dispatch(buffers=names):
                out.update(names)
            case Batch(start=s, body=body):
                out |= set(s.buffers) | buffer_names(body)
            case Times(body=body):
                out |= buffer_names(body)
            case HostWhile(head=a, body=b) | HostIf(then=a, orelse=b):
                out |= buffer_names(a) | buffer_names(b)
            case _:
                pass
    return out


def grid_of(extents: tuple[int, ...]) -> tuple[int, int, int]:
    """Workgroups for the iterations of all grid loops: one flat index, split over two dimensions where it is long."""
    total = prod(extents)
    if total <= MAX_GROUPS:
        return total, 1, 1
    rows = -(-total // MAX_GROUPS)
    return -(-total // rows), rows, 1


@dataclass
class _Planner:
    buffers: dict[str, L.Buffer]
    kernels: list[Kernel] = field(default_factory=list)
    number: dict[Kernel, int] = field(default_factory=dict)
    flags: int = 0
    slots: int = 0

    # Host level

    def steps(self, steps: Sequence[L.Step]) -> list[Command]:
        out: list[Command] = []
        for s in steps:
            match s:
                case L.Launch():
                    out.append(self.launch(s))
                case L.Copy(dst=d, src=c):
                    out.append(CopyBuffer(d, c))
                case L.While():
                    out.extend(self.loop(s))
                case L.Repeat():
                    out.extend(self.repeat(s))
                case L.Branch():
                    out.extend(self.branch(s))
                case L.Native(claim=name):
                    raise CompileError(f"the native call {name!r} has no place in a command buffer",
                                       why="this device records kernels and copies",
                                       do="compile with the policy common")
        return out

    def launch(self, s: L.Launch, slot: int | None = None) -> Dispatch:
        kernel, names = merge_aliases(s.kernel, s.buffers)
        return self.dispatch(kernel, names, slot)

    def dispatch(self, kernel: Kernel, names: tuple[str, ...], slot: int | None = None) -> Dispatch:
        if kernel not in self.number:
            self.number[kernel] = len(self.kernels)
            self.kernels.append(kernel)
        return Dispatch(self.number[kernel], names, slot)

    def loop(self, s: L.While) -> list[Command]:
        if not (straight(s.head) and straight(s.body)):
            return [HostWhile(tuple(self.steps(s.head)), s.pred, tuple(self.steps(s.body)))]
        flag = self.flag()
        head = self.steps_gated(s.head, None)
        work = _Region()
        body = self.steps_gated(s.body, flag, work)
        gate = self.gate(s.pred, flag, flag, work.slots, None, [])
        return [Batch(flag, self.raise_flag(flag), (*head, gate, *body))]

    def repeat(self, s: L.Repeat) -> list[Command]:
        first = self.dispatch(*_set_counter(s.counter, self.buffers[s.counter].dtype))
        step = L.Launch(*_advance(s.counter, self.buffers[s.counter].dtype))
        if isinstance(s.count, int):
            return [first, Times(s.count, tuple(self.steps((*s.body, step))))]
        pred = f"{s.counter}_more"
        self.buffers[pred] = L.Buffer(pred, bool_, 1, "temp")
        dtypes = self.buffers[s.counter].dtype, self.buffers[s.count].dtype
        test = L.Launch(*_more(s.counter, s.count, pred, *dtypes))
        return [first, *self.loop(L.While((test,), pred, (*s.body, step)))]

    def branch(self, s: L.Branch) -> list[Command]:
        if straight((s,)):
            return self.steps_gated((s,), None)
        return [HostIf(s.pred, tuple(self.steps(s.then)), tuple(self.steps(s.orelse)))]

    # Gated

    def steps_gated(self, steps: Sequence[L.Step], flag: int | None, region: _Region | None = None) -> list[Command]:
        """Straight steps that run only while ``flag`` is set (None: always)."""
        out: list[Command] = []
        for s in steps:
            match s:
                case L.Copy(dst=d, src=c) if flag is None:
                    out.append(CopyBuffer(d, c))
                case L.Copy(dst=d, src=c):
                    out.append(self.gated(L.Launch(*_copy(self.buffers[d], self.buffers[c])), region))
                case L.Launch():
                    out.append(self.launch(s) if flag is None else self.gated(s, region))
                case L.Branch():
                    out.extend(self.branch_gated(s, flag))
                case L.Repeat(count=int(n)):
                    out.extend(self.repeat_gated(s, n, flag, region))
                case _:
                    raise AssertionError("only straight steps are gated")
        return out

    def gated(self, s: L.Launch, region: _Region | None) -> Dispatch:
        assert region is not None
        slot = self.slots
        self.slots += 1
        d = self.launch(s, slot)
        region.slots.append((slot, grid_of(self.kernels[d.kernel].grid())))
        return d

    def branch_gated(self, s: L.Branch, parent: int | None) -> list[Command]:
        yes, no = self.flag(), self.flag()
        a, b = _Region(), _Region()
        then, orelse = self.steps_gated(s.then, yes, a), self.steps_gated(s.orelse, no, b)
        return [self.gate(s.pred, parent, yes, a.slots, no, b.slots), *then, *orelse]

    def repeat_gated(self, s: L.Repeat, n: int, flag: int | None, region: _Region | None) -> list[Command]:
        dtype = self.buffers[s.counter].dtype
        first, step = L.Launch(*_set_counter(s.counter, dtype)), L.Launch(*_advance(s.counter, dtype))
        out = self.steps_gated((first,), flag, region)
        for _ in range(n):
            out.extend(self.steps_gated((*s.body, step), flag, region))
        return out

    def flag(self) -> int:
        self.flags += 1
        return self.flags - 1

    def raise_flag(self, flag: int) -> Dispatch:
        body = (L.Store("b0", const(flag, int32), const(1, uint32)),)
        return self.dispatch(Kernel(f"raise_{flag}", (L.Param("b0", uint32, flag + 1, "w"),), body), (FLAGS,))

    def gate(self, pred: str, parent: int | None, yes: int, yes_slots: list[Slot], no: int | None,
             no_slots: list[Slot]) -> Dispatch:
        """``yes = parent and pred; no = parent and not pred``, and the workgroup counts of what they gate."""
        one, zero = const(1, uint32), const(0, uint32)
        above: Expr = one if parent is None else load("b1", const(parent, int32), uint32)
        test = load("b0", const(0, int32), bool_)
        body: list[Stmt] = [L.Let("above", above), L.Let("yes", _where(test, L.var("above", uint32), zero))]
        body += [L.Store("b1", const(yes, int32), L.var("yes", uint32)), *_counts("yes", yes_slots)]
        if no is not None:
            body.append(L.Let("no", _where(test, zero, L.var("above", uint32))))
            body += [L.Store("b1", const(no, int32), L.var("no", uint32)), *_counts("no", no_slots)]
        params: tuple[L.Param, ...] = (L.Param("b0", self.buffers[pred].dtype, 1, "r"),
                                       L.Param("b1", uint32, max(yes, no or 0) + 1, "rw"))
        names: tuple[str, ...] = (pred, FLAGS)
        if yes_slots or no_slots:
            params = (*params, L.Param("b2", uint32, 3 * self.slots, "w"))
            names = (*names, ARGS)
        return self.dispatch(Kernel(f"gate_{yes}", params, tuple(body)), names)


Slot = tuple[int, tuple[int, int, int]]


@dataclass
class _Region:
    """The indirect dispatches that one flag gates."""

    slots: list[Slot] = field(default_factory=list)


def straight(steps: Sequence[L.Step]) -> bool:
    """Whether the steps need no loop of unknown length."""
    for s in steps:
        match s:
            case L.Launch() | L.Copy():
                pass
            case L.Branch(then=t, orelse=o):
                if not (straight(t) and straight(o)):
                    return False
            case L.Repeat(count=int(n), body=b):
                if n > UNROLL or not straight(b):
                    return False
            case _:
                return False
    return True


def merge_aliases(kernel: Kernel, names: tuple[str, ...]) -> tuple[Kernel, tuple[str, ...]]:
    """One parameter for each buffer: an interface refuses a buffer that is bound twice when one binding writes."""
    if len(set(names)) == len(names):
        return kernel, names
    first: dict[str, L.Param] = {}
    renamed: dict[str, str] = {}
    for p, n in zip(kernel.params, names, strict=True):
        kept = first.get(n)
        if kept is None:
            first[n] = p
            continue
        renamed[p.name] = kept.name
        access = kept.access if kept.access == p.access else "rw"
        first[n] = replace(kept, access=access, size=max(kept.size, p.size))
    body = rename_buffers(kernel.body, renamed)
    return Kernel(f"{kernel.name}_m{len(first)}", tuple(first.values()), body, kernel.notes), tuple(first)


def rename_buffers(body: tuple[Stmt, ...], names: dict[str, str]) -> tuple[Stmt, ...]:
    """The statements with buffers renamed."""
    memo: dict[Expr, Expr] = {}

    def e(x: Expr) -> Expr:
        if x not in memo:
            value = names.get(x.value, x.value) if x.op == "load" else x.value
            memo[x] = expr(x.op, tuple([e(a) for a in x.args]), x.dtype, value)
        return memo[x]

    def block(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple([one(s) for s in stmts])

    def one(s: Stmt) -> Stmt:
        match s:
            case L.For():
                return replace(s, start=e(s.start), stop=e(s.stop), body=block(s.body))
            case L.Let() | L.Assign():
                return replace(s, value=e(s.value))
            case L.Register():
                return replace(s, init=e(s.init))
            case L.Store() | L.Atomic():
                return replace(s, buffer=names.get(s.buffer, s.buffer), index=e(s.index), value=e(s.value))
            case L.If():
                return replace(s, cond=e(s.cond), then=block(s.then), orelse=block(s.orelse))
            case L.Loop():
                return replace(s, cond=e(s.cond), body=block(s.body))
            case _:
                return s

    return block(body)


def _where(c: Expr, a: Expr, b: Expr) -> Expr:
    return expr("select", (c, a, b), a.dtype)


def _counts(flag: str, slots: list[Slot]) -> list[Stmt]:
    return [L.Store("b2", const(3 * slot + k, int32), expr("mul", (L.var(flag, uint32), const(n, uint32)), uint32))
            for slot, groups in slots for k, n in enumerate(groups)]


def _set_counter(counter: str, dtype: DType) -> tuple[Kernel, tuple[str, ...]]:
    body = (L.Store("b0", const(0, int32), const(0, dtype)),)
    return Kernel(f"zero_{dtype.short}", (L.Param("b0", dtype, 1, "w"),), body), (counter,)


def _advance(counter: str, dtype: DType) -> tuple[Kernel, tuple[str, ...]]:
    zero = const(0, int32)
    body = (L.Store("b0", zero, expr("add", (load("b0", zero, dtype), const(1, dtype)), dtype)),)
    return Kernel(f"advance_{dtype.short}", (L.Param("b0", dtype, 1, "rw"),), body), (counter,)


def _more(counter: str, count: str, pred: str, c: DType, n: DType) -> tuple[Kernel, tuple[str, ...]]:
    zero = const(0, int32)
    limit = load("b1", zero, n)
    limit = limit if n == c else expr("cast", (limit,), c)
    body = (L.Store("b2", zero, expr("lt", (load("b0", zero, c), limit), bool_)),)
    params = (L.Param("b0", c, 1, "r"), L.Param("b1", n, 1, "r"), L.Param("b2", bool_, 1, "w"))
    return Kernel(f"more_{c.short}_{n.short}", params, body), (counter, count, pred)


def _copy(dst: L.Buffer, src: L.Buffer) -> tuple[Kernel, tuple[str, ...]]:
    """A copy as a kernel, so that it can be gated."""
    n, lanes = dst.size, 64
    groups = min(-(-n // lanes), 1024)
    at = expr("add", (expr("mul", (L.var("g", int32), const(lanes, int32)), int32), L.var("l", int32)), int32)
    put = L.Store("b1", L.var("i", int32), load("b0", L.var("i", int32), dst.dtype))
    each = L.For("i", at, const(n, int32), groups * lanes, L.SERIAL, (put,))
    block = L.For("l", const(0, int32), const(lanes, int32), 1, L.BLOCK, (each,))
    body = (L.For("g", const(0, int32), const(groups, int32), 1, L.GRID, (block,)),)
    params = (L.Param("b0", src.dtype, src.size, "r"), L.Param("b1", dst.dtype, n, "w"))
    return Kernel(f"copy_{dst.dtype.short}_{n}", params, body), (src.name, dst.name)


__all__ = ["ARGS", "FLAGS", "Batch", "Command", "CopyBuffer", "Dispatch", "HostIf", "HostWhile", "Plan", "Times",
           "buffer_names", "dispatch_count", "grid_of", "is_straight", "merge_aliases", "plan", "straight"]
