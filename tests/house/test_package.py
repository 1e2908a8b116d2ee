"""The package as it is installed: wheel, sdist and editable, each imported from another directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy
import pytest

from tests.house.tree import ROOT, files

DOMAINS = ("linalg", "sparse", "splat", "nn")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
OFFLINE = ["--no-deps", "--no-build-isolation", "--no-index"]


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of what a clone would hold, so that building leaves nothing in the tree."""
    copy = tmp_path_factory.mktemp("checkout")
    for path in files():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return copy


@pytest.fixture(scope="module")
def built(checkout, tmp_path_factory) -> tuple[Path, Path]:
    """(sdist, wheel), the wheel made from the sdist alone."""
    out = tmp_path_factory.mktemp("dist")
    backend = f"from setuptools import build_meta; build_meta.build_sdist({str(out)!r})"
    run(sys.executable, "-c", backend, cwd=checkout)
    (sdist,) = out.glob("*.tar.gz")
    run(*PIP, "wheel", *OFFLINE, "-w", str(out), str(sdist), cwd=out)
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def expected() -> set[str]:
    """Every file of the packages, under the name it is installed by."""
    names = {p.relative_to(ROOT).as_posix() for p in files() if p.suffix != ".pyc"}
    mapped = {f"rlx/{n}" for n in names if n.split("/")[0] in DOMAINS}
    return {n for n in names if n.startswith("rlx/")} | mapped


def test_the_wheel_made_from_the_sdist_holds_every_file(built):
    inside = {n for n in zipfile.ZipFile(built[1]).namelist() if not n.startswith("rlx-")}
    assert inside == expected()


def test_the_sdist_has_what_a_distributor_needs(built):
    with tarfile.open(built[0]) as tar:
        names = {n.partition("/")[2] for n in tar.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names


def imported_from(site: Path, cwd: Path) -> list[Path]:
    """Where ``rlx`` and the domain packages come from when ``site`` is the only place that has them."""
    code = ("import site, sys\n"
            f"site.addsitedir({str(site)!r})\n"
            # NumPy's directory last, and not as a site: it may hold another editable rlx
            f"sys.path.append({str(Path(numpy.__file__).parents[1])!r})\n"
            "import rlx, rlx.linalg, rlx.sparse, rlx.sparse.mtx, rlx.splat, rlx.nn\n"
            "print(rlx.__file__, rlx.sparse.mtx.__file__, rlx.nn.__file__, sep='\\n')")
    return [Path(line) for line in run(sys.executable, "-ISc", code, cwd=cwd).split("\n") if line]


def test_import_from_the_wheel(built, tmp_path):
    run(*PIP, "install", *OFFLINE, "--target", str(tmp_path / "site"), str(built[1]), cwd=tmp_path)
    for path in imported_from(tmp_path / "site", tmp_path):
        assert path.is_relative_to(tmp_path / "site")


@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_import_from_an_editable_install(checkout, tmp_path, mode):
    run(*PIP, "install", *OFFLINE, "--prefix", str(tmp_path / "p"), "--ignore-installed", "--config-settings",
        f"editable_mode={mode}", "-e", str(checkout), cwd=tmp_path)
    (site,) = (tmp_path / "p").rglob("site-packages")
    places = imported_from(site, tmp_path)
    assert len(places) == 3
    for path in places:
        assert path.resolve().is_relative_to(checkout.resolve())
