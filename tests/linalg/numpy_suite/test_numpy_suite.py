"""Collects the classes of NumPy's own tests of numpy.linalg, after aiming them at rlx.linalg."""

from __future__ import annotations

import numpy.linalg.tests.test_linalg as suite

from tests.linalg.numpy_suite.conftest import aim

aim(suite)
globals().update({name: thing for name, thing in vars(suite).items()
                  if name.startswith("Test") and isinstance(thing, type)})
