"""A mistyped switch is noticed."""

import subprocess
import sys

import pytest

import rlx
from rlx.core import flags
from rlx.core.errors import ValueIssue


def test_a_variable_that_is_no_flag_is_named_with_the_nearest():
    assert flags.unknown(["RLX_THREAD", "RLX_DEVICE", "PATH", "RLX_BENCH_MATRICES"]) == [("RLX_THREAD", "RLX_THREADS")]


def test_importing_warns_of_it_and_goes_on():
    run = subprocess.run([sys.executable, "-c", "import rlx; print(rlx.ones(2).sum().item())"], capture_output=True,
                         text=True, env={"RLX_NONSENSE": "1", "PATH": "/usr/bin:/bin", "HOME": "/tmp"}, check=True)
    assert run.stdout == "2.0\n" and run.stderr.count("RLX_NONSENSE is not a flag of rlx") == 1


def test_text_that_cannot_be_dumped_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with rlx.flags(dump=str(tmp_path / "file" / "folder")), pytest.raises(ValueIssue, match="cannot be written") as e:
        rlx.jit(lambda x: x * 3.25 + 1)(rlx.ones(3)).tolist()
    assert "RLX_DUMP" in e.value.do


def test_blocks_that_overlap_leave_nothing():
    start = flags.state()
    first, second, third = rlx.flags(device="python"), rlx.flags(device="null", math="fast"), rlx.flags(threads=1)
    first.__enter__()
    inside = flags.snapshot()
    second.__enter__()
    assert (flags.get("device"), flags.get("math")) == ("null", "fast")
    first.__exit__(None, None, None)                        # as another thread would: before the block within it
    assert (flags.get("device"), flags.snapshot().device) == ("null", "null")
    third.__enter__()
    second.__exit__(None, None, None)
    assert (flags.get("device"), flags.get("math"), flags.get("threads")) == ("cpu", "precise", 1)
    third.__exit__(None, None, None)
    assert flags.get("threads") == 0 and flags.snapshot().device == "cpu" and flags.snapshot() is not inside
    with rlx.flags(device="python"):
        assert rlx.ones(2).device == "python"
    assert rlx.ones(2).device == "cpu" and flags.state()[1:] == start[1:]


def test_a_block_that_ends_in_order_puts_the_generation_back():
    start = flags.state()
    with rlx.flags(math="fast"):
        assert flags.state() != start
        with rlx.flags(math="precise"):
            assert flags.get("math") == "precise"
        assert flags.get("math") == "fast"
    assert flags.state() == start
