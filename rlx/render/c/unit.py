"""One source text being printed: its dialect, and the helper functions that its kernels turned out to need."""

from __future__ import annotations

from collections.abc import Callable

from rlx.ir.expand import Function
from rlx.render.c.dialect import Dialect


class Unit:
    """Helper functions by name, each after those it calls."""

    def __init__(
        self, dialect: Dialect, print_function: Callable[[Unit, Function], str], *, fast: bool = False
    ) -> None:
        self.d = dialect
        self.fast = fast
        self._print = print_function
        self._texts: dict[str, str] = {}
        self._begun: set[str] = set()
        #: Workgroup arrays, in dialects that declare them in the file.
        self.file_level: list[str] = []

    def need(self, name: str, make: Callable[[], str]) -> str:
        """The helper's name; ``make`` gives its text the first time."""
        if name not in self._begun:
            self._begun.add(name)
            self._texts[name] = make()
        return name

    def has(self, name: str) -> bool:
        """Whether the helper is there, or being made."""
        return name in self._begun

    def template(self, name: str, text: str, /, **names: str) -> str:
        """A helper from a template (see :meth:`Dialect.fill`); ``^`` stands for the function qualifier."""
        return self.need(name, lambda: self.d.fill(text, **names).replace("^", self.d.function).strip() + "\n")

    def straight(self, f: Function) -> str:
        """A straight-line function as a helper: its name."""
        return self.need(f.name, lambda: self._print(self, f))

    def helpers(self) -> str:
        """The text of all helpers, in the order in which they were finished."""
        return "\n".join(self._texts.values())
