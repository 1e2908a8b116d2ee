"""``python -m rlx doctor``: every device, what it can do here, or why it is absent and what to install."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from rlx import device as devices
from rlx.core.caps import Caps
from rlx.core.errors import RlxError

PACKAGES = ("numpy", "scipy", "scipy-openblas64", "llvmlite", "numba", "pyopencl", "wgpu", "cuda-bindings",
            "cupy-cuda13x")


def main(argv: Sequence[str]) -> int:
    """Print the devices, and what the packages under them are."""
    parser = argparse.ArgumentParser(prog="python -m rlx doctor", description=__doc__)
    parser.add_argument("--packages", action="store_true", help="also list the versions of the packages rlx builds on")
    args = parser.parse_args(argv)
    print(f"rlx on Python {platform.python_version()}, {platform.system()} {platform.machine()}\n")
    for name, reason in devices.available().items():
        print(f"{name:10} {'present  ' + _describe(name) if reason is None else 'absent   ' + reason}")
    if args.packages:
        print()
        for p in PACKAGES:
            print(f"{p:18} {_version(p)}")
    return 0


def _describe(name: str) -> str:
    try:
        opened = devices.find(name)
    except RlxError as e:
        return f"(but it did not open: {e.what}; {e.why})"
    claims = sorted({c.name for found in opened.claims.values() for c in found})
    slow = opened.native_calls_absent()
    calls = f"; compiled functions are called through Python: {slow}" if slow else ""
    return f"{describe_caps(opened.caps)}; {'claims ' + ', '.join(claims) if claims else 'no claims'}{calls}"


def describe_caps(c: Caps) -> str:
    """One line: schedule, the floating types computed, and the limits that matter."""
    floats = ", ".join(sorted((d.short for d in c.dtypes if d.is_inexact), key=lambda s: (s[0], len(s), s)))
    shape = f"{c.cores} cores, {c.vector_bytes * 8}-bit vectors" if c.schedule == "nest" else (
        f"workgroups to {c.max_workgroup}" if c.schedule == "grid" else "takes graphs")
    return f"{shape}; computes {floats}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
