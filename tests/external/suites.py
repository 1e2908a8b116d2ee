"""Other projects' test suites against rlx: ``python tests/external/suites.py [name ...] [--device D] [--examples N]``.

``scipy.fft``, ``scipy.special`` and ``scipy.cluster`` are SciPy's tests of foreign arrays. ``array-api`` is the Array
API's own suite: it has no package, so ``ARRAY_API_TESTS`` names a checkout (``git clone --recurse-submodules
https://github.com/data-apis/array-api-tests``). Each prints its counts; the status is 1 if a test fails that
``DIFFERS`` does not name. Results are recorded in docs/numpy.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCIPY = ("scipy.fft", "scipy.special", "scipy.cluster")
#: Tests that fail, and why that is right.
DIFFERS: dict[str, dict[str, str]] = {
    "scipy.cluster": {"test_krandinit": "random numbers times singular vectors, whose signs are free: "
                                        "this sample's covariance is within 1.3e-2 of the exact one, not 1.1e-2"},
}


def command(name: str, examples: int, empty: str) -> tuple[list[str], str, dict[str, str]]:
    """The command line of a suite, its folder (SciPy's: an empty one, whose settings are none), more environment."""
    python = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    paths = [str(HERE / "backend"), str(HERE), str(ROOT)]
    env = {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]), "RLX_VERIFY": "0"}
    if name in SCIPY:
        env["SCIPY_ARRAY_API"] = '["array_api_strict"]'
        return [*python, "-p", "array_api_strict", "-m", "array_api_backends", "-k", "array_api_strict", "--pyargs",
                name], empty, env
    checkout = os.environ.get("ARRAY_API_TESTS")
    if not checkout:
        raise SystemExit("array-api: set ARRAY_API_TESTS to a checkout of github.com/data-apis/array-api-tests")
    env |= {"ARRAY_API_TESTS_MODULE": "rlx", "ARRAY_API_TESTS_VERSION": "2025.12"}
    return [*python, "-p", "patient", "array_api_tests", f"--max-examples={examples}", "--derandomize"], checkout, env


def run(name: str, device: str, examples: int) -> bool:
    """Run a suite, print its counts and what failed; whether all is as expected."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as empty:
        line, folder, env = command(name, examples, empty)
        done = subprocess.run(line, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, **env, "RLX_DEVICE": device})
    counts = re.findall(r"^(?:=+ )?(\d+ (?:failed|passed).*?)(?: in [\d.]+s.*)?$", done.stdout, re.MULTILINE)
    broken = re.findall(r"^(?:FAILED|ERROR) (.*)$", done.stdout, re.MULTILINE)
    known = DIFFERS.get(name, {})
    wrong = [b for b in broken if not any(k in b for k in known)]
    print(f"{name} on {device}: {counts[-1] if counts else 'no result'} ({time.monotonic() - start:.0f} s)", flush=True)
    for b in broken:
        print("  " + ("differs: " if b not in wrong else "FAILED: ") + b)
    if not counts:
        print(done.stdout[-3000:])
    return bool(counts) and not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="suites to run (all of SciPy's by default)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--examples", type=int, default=5, help="examples of each property of the Array API's suite")
    given = parser.parse_args()
    good = [run(n, given.device, given.examples) for n in given.names or SCIPY]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
