"""The flags: name, environment variable, default, help. The documentation is printed from this table."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlx.core.errors import ValueIssue


@dataclass(frozen=True, slots=True)
class Flag:
    """One switch. ``keyed`` flags are part of every compile-cache key."""

    name: str
    default: Any
    parse: Callable[[str], Any]
    help: str
    keyed: bool = False
    choices: tuple[str, ...] = ()

    @property
    def env(self) -> str:
        return "RLX_" + self.name.upper()


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("", "0", "false", "no", "off", "1", "true", "yes", "on"):
        raise ValueError("it is 0 or 1")
    return word not in ("", "0", "false", "no", "off")


def _count(text: str) -> int:
    n = int(text)
    if n < 0:
        raise ValueError("it counts, so it is at least 0")
    return n


TABLE: dict[str, Flag] = {f.name: f for f in (
    Flag("device", "cpu", str, "device used when none is named"),
    Flag("kernel_dispatch", "prefer_native", str, "policy of every compile", True,
         ("prefer_native", "common", "strict")),
    Flag("dispatch_report", False, _bool, "print the dispatch report of every compile"),
    Flag("cache_dir", "", str, "directory of the disk cache (default: the user's cache directory)"),
    Flag("cache", True, _bool, "keep compiled objects on disk"),
    Flag("cache_size", 1 << 30, _count, "bytes the disk cache may grow to"),
    Flag("threads", 0, _count, "threads of the cpu device (0: every core this process may use)"),
    Flag("math", "precise", str, "accuracy of elementwise functions", True, ("precise", "fast")),
    Flag("check", "", str, "run-time check that names the op, its line, and whether its input was already bad",
         choices=("", "nan")),
    Flag("verify", False, _bool, "run the IR verifier after every pass"),
    Flag("dump", "", str, "directory for the text of every level of each compile"),
)}

#: Environment variables of this prefix are read by the benchmarks and tests, not by the library.
_OTHERS = ("RLX_BENCH_", "RLX_TEST_")

#: The settings of the blocks that are entered, in order, and what they come to.
_blocks: list[dict[str, Any]] = []
_values: dict[str, Any] = {}
_changing = threading.Lock()


def unknown(names: Iterable[str]) -> list[tuple[str, str]]:
    """The names that look like a flag's variable and are none, each with the nearest one."""
    known = [f.env for f in TABLE.values()]
    strange = [n for n in names if n.startswith("RLX_") and n not in known and not n.startswith(_OTHERS)]
    if not strange:
        return []
    from difflib import get_close_matches
    return [(n, (get_close_matches(n, known, 1, 0.0) or [""])[0]) for n in sorted(strange)]


def _warn_unknown() -> None:
    for name, nearest in unknown(os.environ):
        import warnings
        warnings.warn(f"{name} is not a flag of rlx and has no effect; the nearest is {nearest} (python -m rlx flags "
                      "lists them)", RuntimeWarning, stacklevel=2)


_warn_unknown()


def get(name: str) -> Any:
    """The current value: set in Python, else the environment variable, else the default."""
    values = _values
    if name in values:
        return values[name]
    flag = TABLE[name]
    text = os.environ.get(flag.env)
    if text is None:
        return flag.default
    return _check(flag, text, flag.env)


def _check(flag: Flag, text: Any, source: str) -> Any:
    try:
        value = flag.parse(str(text)) if isinstance(text, (str, int)) else text
    except ValueError as e:
        raise ValueIssue(f"{source}={text!r} is not valid", why=str(e), do=flag.help) from None
    if flag.choices and value not in flag.choices:
        raise ValueIssue(f"{source}={text!r} is not valid", why=f"{flag.name} takes one of a fixed set",
                         do=f"use one of {', '.join(flag.choices)}")
    return value


#: Raised to a new number by every change made in Python, and put back when a block ends: programs watch it.
GENERATION = ctypes.c_int64(0)
_generation = [0]
_generations = itertools.count(1)


def _set_generation(n: int) -> None:
    GENERATION.value = _generation[0] = n


def _use(blocks: list[dict[str, Any]], generation: int) -> None:
    """Make these the blocks that are entered, the last one deciding."""
    global _blocks, _values
    # Between, a number that is never used again: a thread that looks now keeps nothing of what it sees.
    _set_generation(next(_generations))
    _blocks, _values = blocks, {n: v for b in blocks for n, v in b.items()}
    _set_generation(generation)


@contextmanager
def flags(**settings: Any) -> Iterator[None]:
    """Set flags for a block: ``with rlx.flags(kernel_dispatch="common"): ...``

    They hold in all threads. Where blocks of several threads overlap, the one entered last decides, and whatever the
    order in which they end, nothing of them is left.
    """
    for name in settings:
        if name not in TABLE:
            raise ValueIssue(f"there is no flag {name!r}", why="flags are a fixed table",
                             do=f"use one of {', '.join(TABLE)}")
    checked = {n: _check(TABLE[n], v, f"flags({n})") for n, v in settings.items()}
    with _changing:
        below, generation = _blocks[:], _generation[0]
        _use([*below, checked], next(_generations))
    try:
        yield
    finally:
        with _changing:
            left = [b for b in _blocks if b is not checked]
            same = len(left) == len(below) and all(a is b for a, b in zip(left, below, strict=True))
            _use(left, generation if same else next(_generations))


def key() -> tuple[Any, ...]:
    """The values that change what a compile produces."""
    return tuple(get(n) for n, f in TABLE.items() if f.keyed)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The flags that every call depends on, one object for each combination."""

    key: tuple[Any, ...]
    device: str
    check: str


#: The environment as the process keeps it, where reading a variable is one look into a dict.
ENVIRON: Any = getattr(os.environ, "_data", os.environ)
#: The variables that a snapshot depends on, as that dict names them.
WATCHED: tuple[Any, ...] = tuple(
    os.environ.encodekey(f.env) if ENVIRON is not os.environ else f.env
    for f in TABLE.values() if f.keyed or f.name in ("device", "check"))
_W0, _W1, _W2, _W3 = WATCHED
_snapshots: dict[Any, Snapshot] = {}


def state() -> tuple[Any, ...]:
    """What a snapshot is made of, as it is now."""
    get = ENVIRON.get
    return (_generation[0], get(_W0), get(_W1), get(_W2), get(_W3))


def snapshot() -> Snapshot:
    """The present flags; the same object while they are the same."""
    now = state()
    found = _snapshots.get(now)
    if found is None:
        if len(_snapshots) > 1000:
            _snapshots.clear()
        found = _interned(key(), str(get("device")), str(get("check")))
        if state() == now:                              # else another thread changed them meanwhile
            _snapshots[now] = found
    return found


@cache
def _interned(key: tuple[Any, ...], device: str, check: str) -> Snapshot:
    return Snapshot(key, device, check)


def document() -> str:
    """A Markdown table of all flags."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for f in TABLE.values():
        text = f.help + (f" ({', '.join(filter(None, f.choices))})" if f.choices else "")
        rows.append(f"| `{f.env}` | `{f.default}` | {text} |")
    return "\n".join(rows)
