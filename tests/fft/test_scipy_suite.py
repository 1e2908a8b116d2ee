"""SciPy's own tests of scipy.fft on foreign arrays, aimed at rlx: it takes the place of a backend that SciPy knows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy.fft.tests", reason="SciPy was installed without its tests")

#: A module of the name of SciPy's strict backend that holds rlx's public names, and counts the transforms asked of it.
BACKEND = '''
import atexit
import sys
from pathlib import Path
from types import SimpleNamespace

import rlx
from rlx.array.hooks import hooks

__version__, __array_api_version__ = "9.9", "2024.12"
calls = []


def counted(f):
    def call(*args, **kwargs):
        calls.append(f.__name__)
        return f(*args, **kwargs)
    return call


globals().update({n: getattr(rlx, n) for n in dir(rlx) if not n.startswith("_") and n not in (
    "distributed", "formats", "nn", "random", "sparse", "splat", "testing")})
__array_namespace_info__ = rlx.__array_namespace_info__
fft = SimpleNamespace(**{n: counted(getattr(rlx.fft, n)) for n in rlx.fft.__all__})
hooks.namespace = lambda version: sys.modules[__name__]
set_array_api_strict_flags = dict
counts = Path.cwd() / "transforms"
atexit.register(lambda: counts.write_text(str(len(calls))))
'''


#: One axis, and all that is not a transform: each of the others compiles many programs of several axes, for minutes.
CHOSEN = "array_api_strict and not fftn and not fft2 and not identity and not dtypes and not norm"


def test_scipys_tests_of_transforms(tmp_path: Path) -> None:
    (tmp_path / "array_api_strict.py").write_text(BACKEND, encoding="utf-8")
    places = (str(tmp_path), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))
    settings = {"PYTHONPATH": os.pathsep.join(p for p in places if p), "SCIPY_ARRAY_API": '["array_api_strict"]',
                "RLX_VERIFY": "0"}
    # As a plugin it is imported before SciPy's conftest, which finds a strict backend that is installed first.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "array_api_strict",
               "-k", CHOSEN, "--pyargs", "scipy.fft.tests.test_basic", "scipy.fft.tests.test_helper"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900,
                         env={**os.environ, **settings})
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed and int(passed[1]) >= 25, run.stdout[-2000:]
    assert int((tmp_path / "transforms").read_text(encoding="utf-8")) >= 10
