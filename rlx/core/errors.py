"""Every error of rlx: one class a cause, four parts each (what, where, why, what to do)."""

from __future__ import annotations

from typing import Any


class RlxError(Exception):
    """Base of all errors. ``what`` failed, ``where`` (the user's file:line), ``why``, and what to ``do``."""

    def __init__(self, what: str, *, where: object = "", why: str = "", do: str = "") -> None:
        from rlx.core.where import here
        self.what, self.why, self.do = what, why, do
        self.where = str(where) if where else here().short
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        for label, text in (("where", self.where), ("why", self.why), ("do", self.do)):
            if text:
                parts.append(f"  {label + ':':6} {text}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.why, self.do))


def _rebuild(cls: type[RlxError], what: str, where: str, why: str, do: str) -> RlxError:
    return cls(what, where=where or "unknown", why=why, do=do)


class DTypeError(RlxError, TypeError):
    """A data type that the operation does not take, or that has no meaning here."""


class ShapeError(RlxError, ValueError):
    """Shapes that do not fit each other or the operation."""


class IndexOutOfBounds(RlxError, IndexError):
    """An index past the end of its axis."""


class ValueIssue(RlxError, ValueError):
    """A value that the operation has no meaning for (NaN in a matrix, a negative size)."""


class FormatError(RlxError, ValueError):
    """A file that is malformed, truncated, or whose header does not match its content."""


class DeviceError(RlxError, RuntimeError):
    """A device that is absent, unknown, mixed with another, or that failed."""


class CompileError(RlxError, RuntimeError):
    """A node with no legal lowering on the device asked for (the dispatch contract's refusal)."""


class VerifyError(RlxError, RuntimeError):
    """IR that breaks its own grammar: a bug in a pass, or in hand-written IR text."""


class TraceError(RlxError, TypeError):
    """A traced value was looked at: its content is not known while a function is being traced."""


class NotDifferentiableError(RlxError, TypeError):
    """A gradient was asked of an op that has none."""


class SolverError(RlxError, ArithmeticError):
    """A numerical breakdown that the caller asked to have raised."""
