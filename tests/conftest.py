"""Options and fixtures every test folder shares."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

#: Every compile of the test run is verified, pass by pass (RLX_VERIFY=0 turns it off).
os.environ.setdefault("RLX_VERIFY", "1")
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files from the code")
    parser.addoption("--devices", default=os.environ.get("RLX_TEST_DEVICES", ""),
                     help="further devices of the tests with a device, comma separated (RLX_TEST_DEVICES)")
    parser.addoption("--record-coverage", type=Path, default=None, metavar="FILE",
                     help="append how every sample went to a file for `python -m rlx coverage --from FILE`")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument ``device`` runs on cpu, python and what --devices names."""
    if "device" in metafunc.fixturenames:
        more = [d.strip() for d in metafunc.config.getoption("--devices").split(",") if d.strip()]
        metafunc.parametrize("device", list(dict.fromkeys(("cpu", "python", *more))))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one op on one device look at the same run: ``--dist loadgroup`` keeps them in one process."""
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if "op" in given and "device" in given:
            item.add_marker(pytest.mark.xdist_group(f"{given['op'].name}-{given['device']}"))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that works in float64 is skipped on a device that has none and refuses it by that reason.

    (The conformance suite asks for the refusals themselves.)
    """
    try:
        return (yield)
    except Exception as e:
        device = getattr(pyfuncitem, "callspec", None) and pyfuncitem.callspec.params.get("device")
        why = str(getattr(e, "why", "")).split(";")[0]
        if device and why in (f"{device} has no float64", f"{device} has no complex128"):
            pytest.skip(why)
        raise


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden("llvm/axpy.ll", text)``: the text equals the file under tests/golden (or replaces it)."""
    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run with --update-golden"
        assert text == path.read_text(encoding="utf-8")
    return compare
