"""The package list: ``rlx`` as it lies, and the top-level domain directories as ``rlx.<domain>``.

Everything else about the package is in ``pyproject.toml``; this is code only because setuptools' own package
finder does not look through a ``package-dir`` mapping, and a hand-kept list would forget a directory.
"""

from setuptools import find_packages, setup

DOMAINS = ("linalg", "sparse", "splat", "nn")
CORE = find_packages(include=["rlx", "rlx.*"])
MAPPED = [f"rlx.{name}" for name in find_packages(include=[p for d in DOMAINS for p in (d, f"{d}.*")])]

setup(packages=CORE + MAPPED, package_dir={f"rlx.{d}": d for d in DOMAINS})
