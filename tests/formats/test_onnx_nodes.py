"""ONNX's own tests of every operator and of small models, on the device that runs the programs in Python."""

from __future__ import annotations

import warnings

import pytest

from rlx.core.errors import RlxError
from tests.formats import onnx_cases

pytest.importorskip("onnx", reason="the onnx package is not installed")


@pytest.mark.parametrize("op", sorted(onnx_cases.cases()))
def test_every_case_of_an_operator_passes_or_is_a_declared_gap(op):
    failed = []
    for case in onnx_cases.cases()[op]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                onnx_cases.run(case, "python")
        except (RlxError, AssertionError, TypeError, ValueError) as e:
            if onnx_cases.gap(case.name) is None or not isinstance(e, RlxError):
                failed.append(f"{case.name}: {type(e).__name__} {e}")
        else:
            if onnx_cases.gap(case.name) is not None:
                failed.append(f"{case.name} passes and is declared a gap")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in onnx_cases.stored()])
def test_whole_models_give_the_outputs_stored_with_them(case):
    if onnx_cases.gap(case.name) is None:
        onnx_cases.run(onnx_cases.read(case), "python")
        return
    with pytest.raises(RlxError):
        onnx_cases.run(onnx_cases.read(case), "python")


def test_what_is_declared_is_a_small_part():
    names = [c.name for group in onnx_cases.cases().values() for c in group]
    gaps = [n for n in names if onnx_cases.gap(n)]
    assert len(names) > 1000 and len(gaps) < len(names) * 0.15
