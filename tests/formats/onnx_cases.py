"""ONNX's own node tests as cases for rlx, and what of them rlx declares that it does not do."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

#: Why cases are refused, by what their names match. Each must still be refused, with an error: none may be wrong.
GAPS = {
    "rlx has no floats of 8 or 4 bits": r"FLOAT8|FLOAT4|e4m3|e5m2|e8m0|float4e2m1",
    "integers of 4 and 2 bits are constants only": r"INT4|INT2|_u?int4|_u?int2(_|$)",
    "rlx has no strings": r"STRING|_string|strnorm|regex_full|tfidf|label_encoder",
    "random numbers are not the standard's": r"bernoulli|training_dropout(?!_zero_ratio)",
    "decoding pictures is another library's": r"image_decoder",
    "training steps are rlx.nn's": r"^test_(adagrad|adam|momentum)|nesterov_momentum|gradient_of",
    "trees are no array programs": r"tree_ensemble",
    "the standard has no function for it without graphs":
        r"flexattention_(score_mod|prob_mod|causal_mask|soft_cap|relative_positional)",
    "convolution by offsets is not there": r"deform_conv",
    "the standard's largest of a region is of weighted corners": r"roialign_mode_max",
}


def gap(name: str) -> str | None:
    """Why a case is not passed, or None."""
    return next((why for why, pattern in GAPS.items() if re.search(pattern, name)), None)


@cache
def cases() -> dict[str, list[Any]]:
    """The cases by the operator that they are about, without those that spell operators out by others."""
    from onnx.backend.test import loader
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    out: dict[str, list[Any]] = {}
    # Expanded cases are the same computed by other operators, which have cases of their own.
    for case in [c for c in found if "_expanded" not in c.name]:
        op = case.model.graph.node[0].op_type if len(case.model.graph.node) == 1 else case.name.split("_")[1]
        out.setdefault(op, []).append(case)
    return out


@dataclass(frozen=True)
class Stored:
    """A case that is kept in files."""

    name: str
    model: Any
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


def stored() -> list[Any]:
    """The small whole models that come with the package: made by hand, and exported by PyTorch."""
    from onnx.backend.test import loader
    return [c for kind in ("simple", "pytorch-converted", "pytorch-operator")
            for c in loader.load_model_tests(kind=kind)]


def read(case: Any) -> Stored:
    """The files of a stored case, in memory."""
    import onnx
    folder = Path(case.model_dir)

    def values(data: Path, what: str) -> list[Any]:
        files = sorted(data.glob(f"{what}_*.pb"), key=lambda f: int(f.stem.rpartition("_")[2]))
        return [onnx.TensorProto.FromString(f.read_bytes()) for f in files]
    data = [(values(d, "input"), values(d, "output")) for d in sorted(folder.glob("test_data_set_*"))]
    return Stored(case.name, onnx.load(folder / "model.onnx"), data, case.rtol, case.atol)


def tensor(x: Any) -> Any:
    """The value of a message of the test data."""
    import onnx
    from onnx import numpy_helper
    if isinstance(x, list):
        return [tensor(v) for v in x]
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, onnx.SequenceProto):
        return numpy_helper.to_list(x)
    return numpy_helper.to_optional(x) if isinstance(x, onnx.OptionalProto) else x


def run(case: Any, device: str) -> None:
    """Load and run one case; an AssertionError where outputs differ."""
    from rlx.formats import onnx as frontend
    from rlx.formats.onnx.table import upload

    def on_device(v: Any) -> Any:
        if isinstance(v, list):
            return [on_device(w) for w in v]
        return v if v is None else upload(v, device)
    model = frontend.load(case.model, device=device)
    for inputs, outputs in case.data_sets:
        with np.errstate(all="ignore"):
            got = model(*[on_device(tensor(v)) for v in inputs])
        got = list(got) if isinstance(got, tuple) else [got]
        _same(got, [tensor(v) for v in outputs], case.rtol, max(case.atol, 1e-6))


def _same(got: Any, want: Any, rtol: float, atol: float) -> None:
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            _same(g, w, rtol, atol)
        return
    if want is None:
        assert got is None
        return
    assert got.dtype.name == want.dtype.name
    assert got.shape == want.shape
    # Half precision: two units in the last place, of 11 bits and of 8.
    rtol = {"float16": 2.0 ** -9, "bfloat16": 2.0 ** -6}.get(want.dtype.name, rtol)
    wide = want.astype(np.float32) if want.dtype.name == "bfloat16" else want
    np.testing.assert_allclose(np.asarray(got), wide, rtol=rtol, atol=atol)
