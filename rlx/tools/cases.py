"""Cases: every sample of every op as arrays that a device takes, and the oracle's answer; for tests and tables."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import rlx.ops.oracle  # noqa: F401  (gives the primitives their samples)
from rlx.array.array import Array
from rlx.array.build import as_array, from_numpy
from rlx.array.define import apply
from rlx.array.host import from_host, to_host
from rlx.array.tree import flatten
from rlx.core import dtype as dt
from rlx.ir.op import REGISTRY, Op, Sample

#: Packages whose ops are registered when they are imported.
DOMAINS = ("linalg", "sparse", "splat", "nn")


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One sample of an op; ``half`` is the 16-bit float that takes the place of float32 in it."""

    op: Op
    sample: Sample
    number: int
    half: dt.DType | None = None

    @property
    def id(self) -> str:
        """``op[number-name]`` with the half type, for people and for ``-k``."""
        name = "-".join(p for p in (str(self.number), self.sample.name, self.half.short if self.half else "") if p)
        return f"{self.op.name}[{name}]"

    @property
    def dtype(self) -> dt.DType:
        """The widest inexact dtype among the arguments, else that of the first array: the column of the tables."""
        types = [self.half if self.half and a.dtype == np.float32 else dt.as_dtype(a.dtype) for a in self.hosts()]
        attr = self.sample.attrs.get("dtype")
        types = types or [attr if isinstance(attr, dt.DType) else dt.float64]
        inexact = [t for t in (*types, attr) if isinstance(t, dt.DType) and t.is_inexact]
        return max(inexact, key=lambda t: t.bits) if inexact else types[0]

    def hosts(self) -> list[Any]:
        """The NumPy arrays among the arguments, in order."""
        return [x for x in flatten(list(self.sample.args))[0] if isinstance(x, (np.ndarray, np.generic))]

    def arrays(self, device: str) -> list[Array]:
        """The arguments that are arrays, on a device."""
        return [from_numpy(h, self.half if self.half and h.dtype == np.float32 else None, device) for h in self.hosts()]

    def call(self, arrays: Sequence[Any], device: str | None = None) -> list[Array]:
        """The op on these arrays, its other arguments as in the sample; outputs as a flat list."""
        out = apply(self.op, self._filled(arrays), dict(self.sample.attrs), device)
        return [as_array(x) for x in flatten(out)[0]]

    def expected(self, change: Callable[[Any], Any] = lambda x: x) -> list[Any]:
        """The oracle's outputs on arguments that went through ``change``: for a half type, computed in float32 from
        the rounded arguments."""
        rounded = [change(_rounded(h, self.half) if self.half and h.dtype == np.float32 else h) for h in self.hosts()]
        ref = self.op.rules["ref"]
        with np.errstate(all="ignore"):
            out = ref(*self._filled(rounded), **self.sample.attrs)
        return [np.asarray(x) for x in flatten(out if isinstance(out, (tuple, list)) else [out])[0]]

    def _filled(self, arrays: Sequence[Any]) -> list[Any]:
        it = iter(arrays)

        def fill(x: Any) -> Any:
            if isinstance(x, (np.ndarray, np.generic)):
                return next(it)
            return type(x)(map(fill, x)) if type(x) in (list, tuple) else x
        return [fill(a) for a in self.sample.args]


def _rounded(x: Any, half: dt.DType) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(from_host(to_host(x, half), half), np.float32)


@cache
def load_domains() -> tuple[str, ...]:
    """Import the domain packages, so that their ops are registered; the names of those that came."""
    return tuple(d for d in DOMAINS if importlib.import_module(f"rlx.{d}"))


def ops() -> list[Op]:
    """Every registered op, the domains' too."""
    load_domains()
    return list(REGISTRY)


def cases(op: Op) -> list[Case]:
    """The op's samples, and for each that has float32 arguments a float16 and a bfloat16 one."""
    out: list[Case] = []
    for k, sample in enumerate(op.all_samples()):
        case = Case(op, sample, k)
        out.append(case)
        if op.primitive and not sample.edge and any(h.dtype == np.float32 for h in case.hosts()):
            if not _half_has_meaning(sample):
                continue
            out.extend(Case(op, sample, k, half) for half in (dt.float16, dt.bfloat16))
    return out


def _half_has_meaning(sample: Sample) -> bool:
    """Whether rounding the arguments leaves the sample as it is: its attributes name no width of bits."""
    return "dtype" not in sample.attrs and "example" not in sample.attrs


def function(group: Sequence[Case], device: str | None = None) -> Callable[..., Any]:
    """One function of all the cases' arrays, giving a list of outputs for each case."""
    def run(arrays: list[list[Any]]) -> list[list[Array]]:
        return [c.call(a, device) for c, a in zip(group, arrays, strict=True)]
    run.__name__ = f"samples_of_{group[0].op.name}"
    return run


def every() -> Iterator[Case]:
    """Every case of every op."""
    for op in ops():
        yield from cases(op)
