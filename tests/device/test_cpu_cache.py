"""The object cache: found again by another process, rebuilt when damaged, done without when it cannot be
written.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlx.core import flags
from rlx.core.errors import CompileError
from rlx.device import _cache as cache
from rlx.device.cpu import jit

_TEXT = "define i32 @answer() {{\n  ret i32 {}\n}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with flags.flags(cache_dir=str(tmp_path), cache=True):
        yield tmp_path


def answer(text: str) -> int:
    library = jit.load(text, ("answer",), lambda name: None)
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(library["answer"])())


def entries(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> bytes:
        raise AssertionError("compiled again")
    monkeypatch.setattr(jit, "compile_object", refuse)


def test_second_load_compiles_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = _TEXT.format(41)
    assert answer(text) == 41 and len(entries(folder)) == 1
    no_compiler(monkeypatch)
    assert answer(text) == 41
    with pytest.raises(AssertionError):
        answer(_TEXT.format(42))


def test_another_process_finds_it(folder: Path) -> None:
    text = _TEXT.format(43)
    assert answer(text) == 43
    script = ("import sys, ctypes; from rlx.device.cpu import jit\n"
              "jit.compile_object = None\n"
              "library = jit.load(sys.argv[1], ('answer',), lambda n: None)\n"
              "print(ctypes.CFUNCTYPE(ctypes.c_int)(library['answer'])())")
    result = subprocess.run([sys.executable, "-c", script, text], capture_output=True, text=True, check=False,
                            env={**os.environ, "RLX_CACHE_DIR": str(folder)}, timeout=60)
    assert result.stdout == "43\n", result.stderr


def test_a_changed_byte_is_noticed(folder: Path) -> None:
    payload = bytes(range(256)) * 4
    for at in (0, 9, 40, 41, 500, -1):
        cache.write("aakey", payload)
        assert cache.read("aakey") == payload
        path, = entries(folder)
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(bytes(data))
        assert cache.read("aakey") is None
        assert entries(folder) == []


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "other"])
def test_damaged_entry_is_rebuilt(folder: Path, damage: str) -> None:
    text = _TEXT.format(44)
    answer(text)
    path, = entries(folder)
    good = path.read_bytes()
    path.write_bytes({"truncate": good[:-10], "flip": good[:-1] + bytes([good[-1] ^ 1]), "empty": b"",
                      "other": b"something else altogether" * 10}[damage])
    assert answer(text) == 44
    assert path.read_bytes() == good


def test_entry_that_is_whole_but_no_object_is_rebuilt(folder: Path) -> None:
    text = _TEXT.format(45)
    cache.write(jit.key_of(text), b"well kept nonsense")
    assert answer(text) == 45


def test_unwritable_directory_works_without_cache(tmp_path: Path) -> None:
    """A file stands where the directory should be: nobody can write there, not even root."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    with flags.flags(cache_dir=str(blocked)):
        assert answer(_TEXT.format(46)) == 46
        assert cache.read(jit.key_of(_TEXT.format(46))) is None


def test_switched_off(folder: Path) -> None:
    with flags.flags(cache=False):
        assert answer(_TEXT.format(47)) == 47
    assert entries(folder) == []


def test_user_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    with flags.flags(cache_dir=""):
        assert cache.directory() == Path("/somewhere/rlx/objects")


def test_processes_write_at_once(folder: Path) -> None:
    script = ("import sys, ctypes; from rlx.device.cpu import jit\n"
              "for i in range(20):\n"
              "    text = 'define i32 @answer() {\\n  ret i32 %d\\n}\\n' % i\n"
              "    library = jit.load(text, ('answer',), lambda n: None)\n"
              "    assert ctypes.CFUNCTYPE(ctypes.c_int)(library['answer'])() == i\n")
    env = {**os.environ, "RLX_CACHE_DIR": str(folder)}
    running = [subprocess.Popen([sys.executable, "-c", script], env=env, stderr=subprocess.PIPE)
               for _ in range(3)]
    for p in running:
        _, err = p.communicate(timeout=120)
        assert p.returncode == 0, err.decode()
    assert len(entries(folder)) == 20
    assert not [p for p in entries(folder) if p.suffix == ".tmp"]


def test_oldest_entries_go_first(folder: Path) -> None:
    with flags.flags(cache_size=1 << 20):
        for i in range(10):
            cache.write(f"{i:02}key", bytes(10_000))
            os.utime(folder / "objects" / f"{i:02}" / f"{i:02}key", (1000 + i, 1000 + i))
        assert cache.read("00key") is not None  # used again: now the newest
    cache.prune(folder / "objects", 50_000)
    assert [p.name for p in entries(folder)] == ["00key", "07key", "08key", "09key"]


def test_the_whole_cache_is_looked_at_now_and_then_and_stays_near_its_limit(folder: Path, monkeypatch) -> None:
    looks, prune = [], cache.prune
    monkeypatch.setattr(cache, "prune", lambda root, limit: (looks.append(root), prune(root, limit)))
    with flags.flags(cache_size=1 << 20):
        for i in range(400):
            cache.write(f"{i:03}key", i.to_bytes(2, "little") * 2_000)
    assert 1 <= len(looks) < 200
    assert sum(p.stat().st_size for p in entries(folder)) < (1 << 20) * 1.1


def test_abandoned_temporary_files_are_removed(folder: Path) -> None:
    cache.write("aakey", b"x")
    old, new = folder / "objects" / "aa" / "old.tmp", folder / "objects" / "aa" / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"y")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    cache.prune(folder / "objects", 1 << 20)
    assert [p.name for p in entries(folder)] == ["aakey", "new.tmp"]


def test_text_that_llvm_refuses(folder: Path) -> None:
    with pytest.raises(CompileError, match="does not take") as e:
        answer("define i32 @answer() { ret i64 0 }")
    assert "ret i64 0" in e.value.why or "type" in e.value.why
    with pytest.raises(CompileError, match="cannot be linked"):
        answer("declare i32 @nowhere_to_be_found()\ndefine i32 @answer() {\n"
               "  %x = call i32 @nowhere_to_be_found()\n  ret i32 %x\n}\n")


def test_programs_that_differ_in_a_dtype_have_objects_of_their_own(tmp_path, monkeypatch):
    """Caches know a program by its text: two casts, two constants, or two loads of another type are two programs."""
    import numpy as np

    import rlx
    from rlx.core import dtype as dt
    from rlx.ir import loop as L
    x = L.load("b0", L.const(0), dt.float32)
    kinds = [L.expr("cast", (x,), d) for d in dt.ALL]
    kinds += [L.const(1, dt.int32), L.const(1, dt.int64), L.const(1.0, dt.float32), L.const(-0.0, dt.float32),
              L.const(0.0, dt.float32),
              L.load("b0", L.const(0), dt.int32), L.var("t", dt.int32), L.var("t", dt.int64)]
    assert len({repr(e) for e in kinds}) == len(kinds)
    with rlx.flags(cache_dir=str(tmp_path)):
        data = np.array([1.7, -2.5, 300.0, 4.0], np.float32)
        for name, low, high in (("bool", 0, 1), ("int8", -128, 127), ("int32", -999, 999), ("uint8", 0, 255)):
            got = rlx.asarray(data).astype(name).astype("float64") * 1
            want = data != 0 if name == "bool" else np.clip(np.trunc(data), low, high)
            np.testing.assert_array_equal(np.asarray(got), want.astype("float64"))
