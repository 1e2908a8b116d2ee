"""``python -m rlx demo [solve factorize render learn]``: the four domains on one device, with their pictures.

Each part prints what it did and how its program was placed, and leaves a picture or a table in ``out/``. Nothing is
downloaded: the matrix is one that the package pyamg ships, the scene and the figures to learn are made by formula.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from rlx.core import flags
from rlx.core.errors import RlxError
from rlx.tools.demo.setting import Setting

#: part -> what it shows; each is a module with ``main(setting) -> bool``.
PARTS = {
    "solve": "a sparse system by conjugate gradients",
    "factorize": "dense factorizations, measured as LAPACK's own tests do",
    "render": "a scene of 3D Gaussians",
    "learn": "a network that learns to read figures",
}


def main(argv: Sequence[str]) -> int:
    """Run the parts; the exit status is 0 when each reached what it is meant to."""
    args = _parse(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    device = args.device or str(flags.get("device"))
    setting = Setting(device, args.out, args.report, args.matrix, args.dtype, args.rtol)
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: plots are left out (pip install 'rlx[demo]')\n", file=sys.stderr)
    parts = args.parts or (["solve"] if args.matrix else list(PARTS))
    begin, failed = perf_counter(), []
    for name in parts:
        print(f"== {name}: {PARTS[name]}, on {device}")
        try:
            good = importlib.import_module(f"{__name__}.{name}").main(setting)
        except RlxError as e:
            print(f"{type(e).__name__}: {e}", file=sys.stderr)
            good = False
        if not good:
            failed.append(name)
        print()
    made = sorted(p.name for p in args.out.iterdir())
    print(f"{len(parts) - len(failed)} of {len(parts)} parts as they should be, in {perf_counter() - begin:.1f} s"
          + (f"; not {', '.join(failed)}" if failed else ""))
    print(f"in {args.out}{'/' if str(args.out)[-1] != '/' else ''}: {', '.join(made)}")
    return 1 if failed else 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rlx demo", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all by default)")
    parser.add_argument("--device", default=None, help="where to run (see python -m rlx doctor)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="directory for the files made")
    parser.add_argument("--report", action="store_true", help="print every node of the programs, not their sums")
    parser.add_argument("--matrix", type=Path, help="solve: a symmetric positive definite .mtx or .mtx.gz file")
    parser.add_argument("--dtype", default=None, choices=("float32", "float64"),
                        help="solve and factorize: default float64, float32 where the device has no float64")
    parser.add_argument("--rtol", type=float, default=None, help="solve: default 1e-8, 1e-5 in float32")
    args = parser.parse_args(argv)
    unknown = [p for p in args.parts if p not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    return args
