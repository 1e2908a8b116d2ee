"""A function body under construction: numbered names, blocks, and stack slots gathered in the entry block."""

from __future__ import annotations

from rlx.render.llvm.helpers import Helpers
from rlx.render.llvm.types import CONTRACT, suffix

#: Instructions whose result depends on their text alone.
_REPEATABLE = frozenset(
    (
        "add",
        "sub",
        "mul",
        "sdiv",
        "udiv",
        "srem",
        "urem",
        "shl",
        "lshr",
        "ashr",
        "and",
        "or",
        "xor",
        "icmp",
        "fcmp",
        "select",
        "zext",
        "sext",
        "trunc",
        "fpext",
        "fptrunc",
        "sitofp",
        "uitofp",
        "bitcast",
        "getelementptr",
        "fadd",
        "fsub",
        "fmul",
        "fdiv",
        "fneg",
    )
)

_PURE = "nocallback nofree nosync nounwind speculatable willreturn memory(none)"


class Builder:
    """Appends instructions. ``contract`` holds the fast-math flags of plain multiply, add and subtract.

    ``cases`` says what a function with a rare case becomes: ``all`` of it, its ``common`` case alone, or
    ``check``: the common case, and 1 stored to the i32 slot ``flag`` where the rare one would be needed.
    """

    __slots__ = ("cases", "flag", "helpers", "contract", "block", "_slots", "_lines", "_count", "_known")

    def __init__(self, helpers: Helpers, *, contract: bool = True) -> None:
        self.helpers = helpers
        self.contract = CONTRACT if contract else ""
        self.block = "entry"
        self.cases = "all"
        self.flag = ""
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._known: dict[str, str] = {}

    def name(self, stem: str = "t") -> str:
        """A new local name without its sigil."""
        self._count += 1
        return f"{stem}{self._count}" if stem == "t" else f"{stem}.{self._count}"

    def op(self, text: str, stem: str = "t") -> str:
        """``%new = text``; returns ``%new``, or the name that holds the same computation in this block."""
        known = self._known.get(text)
        if known is not None:
            return known
        name = f"%{self.name(stem)}"
        self._lines.append(f"  {name} = {text}")
        if text.split(" ", 1)[0] in _REPEATABLE:
            self._known[text] = name
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}")

    def start(self, block: str) -> None:
        """Begin a block; the one before must have ended in a branch."""
        self._lines.append(f"{block}:")
        self.block = block
        self._known.clear()

    def jump(self, block: str, tail: str = "") -> None:
        self.do(f"br label %{block}{tail}")

    def branch(self, cond: str, then: str, orelse: str) -> None:
        self.do(f"br i1 {cond}, label %{then}, label %{orelse}")

    def slot(self, type_: str, count: int = 1, align: int = 0) -> str:
        """A stack slot of ``count`` elements, allocated once in the entry block."""
        name = f"%{self.name('s')}"
        size = f", i64 {count}" if count != 1 else ""
        self._slots.append(f"  {name} = alloca {type_}{size}{f', align {align}' if align else ''}")
        return name

    def call(self, function: str, returns: str, *args: tuple[str, str], flags: str = "") -> str:
        """Call ``@function`` with (type, value) arguments."""
        return self.op(f"call {flags}{returns} @{function}({', '.join(f'{t} {v}' for t, v in args)})")

    def intrinsic(self, name: str, type_: str, *args: str, flags: str = "") -> str:
        """Call ``llvm.name`` overloaded on ``type_``, whose arguments and result all have that type."""
        full = f"llvm.{name}.{suffix(type_)}"
        self.helpers.declare(full, type_, (type_,) * len(args), _PURE)
        return self.call(full, type_, *((type_, a) for a in args), flags=flags)

    def text(self, header: str) -> str:
        """The whole function."""
        return "\n".join((f"{header} {{", "entry:", *self._slots, *self._lines, "}", ""))
