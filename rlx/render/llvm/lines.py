"""The lines of one LLVM function under construction, its values numbered in order."""

from __future__ import annotations


class Lines:
    """Instructions written one after the other, and taken out a block at a time."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def op(self, text: str) -> str:
        """``%v = text``; the value's name."""
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def taken(self) -> list[str]:
        """The lines written since the last call."""
        lines, self.lines = self.lines, []
        return lines
