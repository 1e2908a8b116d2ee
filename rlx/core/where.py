"""Source locations: the user's file and line that made a node, kept through every rewrite."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ROOT = os.path.dirname(_HOME)
#: Directories whose frames are rlx's own: the package and the domain packages beside it.
INTERNAL: tuple[str, ...] = tuple(
    os.path.join(base, name) + os.sep
    for base, names in ((_ROOT, ("rlx", "linalg", "sparse", "splat", "nn")),)
    for name in names
)


@dataclass(frozen=True, slots=True)
class Where:
    """``file:line`` in the user's code, and through which rlx function it came (``via``)."""

    file: str
    line: int
    via: str = ""

    @property
    def short(self) -> str:
        """``dir/file.py:12``, the last two parts of the path."""
        if not self.file:
            return "unknown"
        tail = os.sep.join(self.file.split(os.sep)[-2:])
        return f"{tail}:{self.line}" + (f" via {self.via}" if self.via else "")

    def __str__(self) -> str:
        return self.short


UNKNOWN = Where("", 0)
#: The tools are programs that use rlx: their lines are a user's.
_TOOLS = os.path.join(_HOME, "tools") + os.sep
_cache: dict[tuple[object, int], Where] = {}
_internal: dict[str, bool] = {}


def is_internal(file: str) -> bool:
    """Whether code of that file is rlx's own."""
    known = _internal.get(file)
    if known is None:
        known = _internal[file] = file.startswith(("<frozen", *INTERNAL)) and not file.startswith(_TOOLS)
    return known


def here(depth: int = 1) -> Where:
    """The nearest caller outside rlx, as a :class:`Where`."""
    frame = sys._getframe(depth)
    while frame is not None and is_internal(frame.f_code.co_filename):
        if frame.f_back is None:
            break
        frame = frame.f_back
    key = (frame.f_code, frame.f_lineno)
    found = _cache.get(key)
    if found is None:
        if len(_cache) > 100_000:
            _cache.clear()
        found = _cache[key] = Where(frame.f_code.co_filename, frame.f_lineno)
    return found
