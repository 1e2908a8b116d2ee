"""SPIR-V: the words of a module, and every sample run on the Vulkan driver that is here."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from rlx import device
from rlx.core.dtype import float32, float64, int32, int64, uint32, uint64
from rlx.render.portable import make_portable
from rlx.render.spirv import render_kernel
from tests.render import portable_samples as P

SAMPLES = P.samples()
SMALL = frozenset((int32, uint32, float32))
WIDE = SMALL | {int64, uint64, float64}
here = pytest.mark.skipif(device.available()["vulkan"] is not None, reason=str(device.available()["vulkan"]))


def instructions(words: bytes) -> list[tuple[int, ...]]:
    data = struct.unpack(f"<{len(words) // 4}I", words)
    assert data[:2] == (0x07230203, 0x00010300)
    out, at = [], 5
    while at < len(data):
        n = data[at] >> 16
        assert n > 0 and at + n <= len(data)
        out.append((data[at] & 0xFFFF, *data[at + 1:at + n]))
        at += n
    return out


@pytest.mark.parametrize("native", [SMALL, WIDE], ids=["small", "wide"])
@pytest.mark.parametrize("name", SAMPLES)
def test_words_are_well_formed(name: str, native: frozenset, tmp_path: Path) -> None:
    binary = render_kernel(make_portable(SAMPLES[name].kernel, native))
    found = instructions(binary.words)
    float_results = {i[2] for i in found if i[0] in (129, 131, 133, 136)}
    assert float_results <= {i[1] for i in found if i[0] == 71 and i[2] == 42}, "an operation may be contracted"
    capabilities = {i[1] for i in found if i[0] == 17}
    assert (11 in capabilities) == any(i[:1] == (21,) and i[2] == 64 for i in found)
    if shutil.which("spirv-val"):
        path = tmp_path / "k.spv"
        path.write_bytes(binary.words)
        done = subprocess.run(["spirv-val", "--target-env", "vulkan1.1", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@here
@pytest.mark.parametrize("name", SAMPLES)
def test_runs(name: str) -> None:
    P.check(device.find("vulkan"), SAMPLES[name])


def test_equal_kernels_have_equal_words() -> None:
    k = SAMPLES["exp"].kernel
    assert render_kernel(make_portable(k, SMALL)).words == render_kernel(make_portable(k, SMALL)).words
