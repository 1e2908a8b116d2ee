"""Run an ONNX model: ``python examples/run_onnx.py MODEL.onnx [--input x=x.npy ...] [--device cpu] [--explain]``.

Inputs that are not given are drawn at random, a named or unknown size being 1 (``--size N=8`` sets others). Needs the
onnx package: ``pip install 'rlx[onnx]'``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

import rlx
from rlx.formats import onnx


def random_input(port: onnx.Port, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    """Normal numbers, or integers from 0 to 9, of the type the model asks for."""
    kind = (port.dtype or rlx.float32).numpy
    shape = [n if isinstance(n, int) else sizes.get(n or "", 1) for n in port.shape or ()]
    return (rng.standard_normal(shape) if kind.kind in "fc" else rng.integers(0, 10, shape)).astype(kind)


def main(argv: Sequence[str] | None = None) -> int:
    """Say what the model takes and gives, run it, and time a second run."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", type=Path)
    p.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy")
    p.add_argument("--size", action="append", default=[], metavar="NAME=NUMBER")
    p.add_argument("--device")
    p.add_argument("--explain", action="store_true", help="print what became of each operation")
    args = p.parse_args(argv)
    model = onnx.load(args.model, device=args.device)
    sizes = {name: int(number) for name, _, number in (s.partition("=") for s in args.size)}
    given = {name: np.load(file) for name, _, file in (s.partition("=") for s in args.input)}
    rng = np.random.default_rng(0)
    values = {port.name: given[port.name] if port.name in given else random_input(port, sizes, rng)
              for port in model.inputs}
    print(f"{len(model.weights)} weights of {sum(w.size for w in model.weights.values()):,} numbers")
    for port in model.inputs:
        print(f"takes {port}")
    for run in ("first run, compiling", "second run"):
        begin = perf_counter()
        outs = model(**values)
        outs = [np.asarray(x) for x in (outs if isinstance(outs, tuple) else (outs,))]
        print(f"{run}: {1000 * (perf_counter() - begin):.1f} ms")
    for port, x in zip(model.outputs, outs, strict=True):
        print(f"gives {port} = {x.dtype}{list(x.shape)}, {np.array2string(x.ravel()[:4], precision=4)}...")
    if args.explain:
        print(rlx.explain(lambda model, values: model(**values), model, values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
