"""A small writer of LLVM IR functions, for claims that call libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final


@final
class Emit:
    """The text of one ``define internal void @name(ptr %bufs, ...)``, written in order.

    Values are strings: an SSA name or a literal. Counters live in stack slots, which the optimiser makes
    registers.
    """

    def __init__(self, name: str, params: str = "ptr %bufs") -> None:
        self.name = name
        self._params = params
        self._entry: list[str] = []
        self._body: list[str] = []
        self._declared: dict[str, str] = {}
        self._count = 0

    def let(self, text: str) -> str:
        """``%new = text``; returns ``%new``."""
        name = f"%v{self._next()}"
        self._body.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self._body.append(f"  {text}")

    def buffer(self, index: int) -> str:
        """The pointer at a place of the buffer table."""
        at = self.let(f"getelementptr ptr, ptr %bufs, i64 {index}")
        return self.let(f"load ptr, ptr {at}")

    def slot(self, type_: str, value: str | int | float | None = None, count: int = 1) -> str:
        """A stack slot, set to ``value`` here: what a Fortran routine takes its scalars by."""
        name = f"%s{self._next()}"
        self._entry.append(f"  {name} = alloca {type_}, i64 {count}, align 16")
        if value is not None:
            self.do(f"store {type_} {value}, ptr {name}")
        return name

    def at(self, pointer: str, type_: str, *terms: tuple[str | int, int]) -> str:
        """``pointer + sum(index * stride)`` in elements of the type; terms are (index, stride)."""
        total = "0"
        for index, stride in terms:
            if stride:
                part = str(index) if stride == 1 else self.let(f"mul i64 {index}, {stride}")
                total = part if total == "0" else self.let(f"add i64 {total}, {part}")
        return pointer if total == "0" else self.let(f"getelementptr {type_}, ptr {pointer}, i64 {total}")

    def call(self, symbol: str, args: Sequence[tuple[str, str | int]], returns: str = "void") -> str:
        """Call a library function with (type, value) arguments, declaring it; returns its value's name, if
        any.
        """
        self._declared[symbol] = f"declare {returns} @{symbol}({', '.join(t for t, _ in args)})"
        text = f"call {returns} @{symbol}({', '.join(f'{t} {v}' for t, v in args)})"
        if returns != "void":
            return self.let(text)
        self.do(text)
        return ""

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Code that runs when the i1 holds."""
        number = self._next()
        self.do(f"br i1 {condition}, label %yes{number}, label %end{number}")
        self._body.append(f"yes{number}:")
        yield
        self.do(f"br label %end{number}")
        self._body.append(f"end{number}:")

    @contextmanager
    def loop(self, stop: str | int, start: str | int = 0) -> Iterator[str]:
        """A loop over [start, stop); gives the index as i64."""
        number = self._next()
        counter = f"%i{number}"
        self._entry.append(f"  {counter} = alloca i64")
        self.do(f"store i64 {start}, ptr {counter}")
        self.do(f"br label %test{number}")
        self._body.append(f"test{number}:")
        index = self.let(f"load i64, ptr {counter}")
        more = self.let(f"icmp slt i64 {index}, {stop}")
        self.do(f"br i1 {more}, label %body{number}, label %done{number}")
        self._body.append(f"body{number}:")
        yield index
        self.do(f"store i64 {self.let(f'add i64 {index}, 1')}, ptr {counter}")
        self.do(f"br label %test{number}")
        self._body.append(f"done{number}:")

    def text(self) -> str:
        """The declarations and the function."""
        head = f"define internal void @{self.name}({self._params}) {{"
        return "\n".join([*self._declared.values(), head, "entry:", *self._entry,
                          "  br label %start", "start:", *self._body, "  ret void", "}", ""])

    def _next(self) -> int:
        self._count += 1
        return self._count


def digits(index: str, extents: Sequence[int], emit: Emit) -> list[str]:
    """A linear index taken apart, last extent fastest."""
    found: list[str] = []
    for extent in reversed(extents[1:]):
        found.append(emit.let(f"urem i64 {index}, {extent}"))
        index = emit.let(f"udiv i64 {index}, {extent}")
    return [index, *reversed(found)] if extents else []


def driver(name: str, units: int, parallel: bool) -> str:
    """``@name(bufs)``, which calls ``@name.tile(bufs, g)`` for g < units: over the pool, or in turn."""
    e = Emit(name)
    if units == 1:
        e.do(f"call void @{name}.tile(ptr %bufs, i64 0)")
    elif parallel:
        e.call("rlx_parallel_for", [("ptr", f"@{name}.tile"), ("ptr", "%bufs"), ("i64", units)])
    else:
        with e.loop(units) as g:
            e.do(f"call void @{name}.tile(ptr %bufs, i64 {g})")
    return e.text()
