"""What a module needs once, whatever kernels use it: declarations, helper functions and metadata."""

from __future__ import annotations


class Helpers:
    """Collects declarations, internal functions and metadata; :meth:`text` prints them in a fixed order.

    ``fast`` picks the cheaper expansions of transcendental functions where there are some.
    """

    __slots__ = ("fast", "_declared", "_functions", "_metadata", "_known")

    def __init__(self, *, fast: bool = False) -> None:
        self.fast = fast
        self._declared: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._metadata: list[str] = []
        self._known: dict[str, str] = {}

    def declare(self, name: str, returns: str, args: tuple[str, ...], attributes: str = "") -> str:
        """Declare an external function or intrinsic; declaring it again does nothing. Returns ``@name``."""
        self._declared[name] = (
            f"declare {returns} @{name}({', '.join(args)}){' ' if attributes else ''}{attributes}"
        )
        return f"@{name}"

    def has(self, name: str) -> bool:
        """Whether an internal function of this name is defined or being defined."""
        return name in self._functions

    def define(self, name: str, text: str) -> None:
        """Keep the text of an internal function; an empty text reserves the name while it is rendered."""
        self._functions[name] = text

    def metadata(self, body: str) -> str:
        """The reference ``!n`` of a uniqued node ``!{body}``."""
        if body not in self._known:
            self._known[body] = self._add(f"!{{{body}}}")
        return self._known[body]

    def access_group(self) -> str:
        """A new access group: memory accesses that a parallel loop may reorder."""
        return self._add("distinct !{}")

    def loop(self, properties: tuple[str, ...]) -> str:
        """A new loop node with these property nodes (``!{!"llvm.loop...", ...}`` bodies)."""
        nodes = [self.metadata(p) for p in properties]
        return self._add(f"distinct !{{!{len(self._metadata)}, {', '.join(nodes)}}}")

    def _add(self, text: str) -> str:
        self._metadata.append(text)
        return f"!{len(self._metadata) - 1}"

    def text(self) -> str:
        """Everything collected: declarations and functions by name, metadata by number."""
        parts = [self._declared[n] for n in sorted(self._declared) if n not in self._functions]
        parts += ["\n" + self._functions[n] for n in sorted(self._functions)]
        if self._metadata:
            parts.append("")
        parts += [f"!{i} = {text}" for i, text in enumerate(self._metadata)]
        return "\n".join(parts) + "\n"
