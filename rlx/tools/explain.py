"""``python -m rlx explain 'rlx.tanh(x @ w).sum()' x:f32[64,128] w:f32[128,8]``: where each node of an expression goes.

Arguments are ``name:type`` as IR text spells types. The expression sees ``rlx`` and the arguments.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

import rlx
from rlx.core.dtype import BY_NAME
from rlx.core.errors import FormatError
from rlx.runtime.execute import compile_for

_ARGUMENT = re.compile(r"(\w+):(\w+)\[([\d,\s]*)\]")


def main(argv: Sequence[str]) -> int:
    """Trace, legalize, and print the report (and the text of a level)."""
    parser = argparse.ArgumentParser(prog="python -m rlx explain", description=__doc__)
    parser.add_argument("expression", help="a Python expression over rlx and the arguments")
    parser.add_argument("arguments", nargs="*", help="name:dtype[sizes], for example x:f32[64,128]")
    parser.add_argument("--device", default=None)
    parser.add_argument("--policy", default=None, choices=("prefer_native", "common", "strict"))
    parser.add_argument("--text", choices=("hir", "mir", "lir"), help="also print the program at this level")
    args = parser.parse_args(argv)
    names, values = [], []
    for a in args.arguments:
        name, value = argument(a, args.device)
        names.append(name)
        values.append(value)
    code = compile(args.expression, "<expression>", "eval")

    def f(*xs: Any) -> Any:
        return eval(code, {"rlx": rlx, **dict(zip(names, xs, strict=True))})

    print(rlx.explain(f, *values, device=args.device, dispatch=args.policy).table())
    if args.text:
        traced = rlx.jit(f, device=args.device).trace(*values)
        print("\n" + compile_for(traced.graph, args.device).text(args.text))
    return 0


def argument(text: str, device: str | None) -> tuple[str, Any]:
    """The name, and zeros of the type, of ``name:dtype[sizes]``."""
    m = _ARGUMENT.fullmatch(text)
    if m is None or m[2] not in BY_NAME:
        raise FormatError(f"{text!r} is not an argument", why="it must be name:dtype[sizes]",
                          do="write for example x:f32[64,128]")
    shape = tuple(int(n) for n in m[3].split(",") if n.strip())
    return m[1], rlx.zeros(shape, dtype=BY_NAME[m[2]], device=device)
