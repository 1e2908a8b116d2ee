"""Import floors, cycles, who may name a device or an op, and what ``import rlx`` may import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import floors

ROOT = Path(__file__).parents[2]
RULES = (floors.floor_violations, floors.cycles, floors.device_names, floors.named_ops,
         floors.stray_directories)
HEAVY = ("cupy", "pyopencl", "wgpu", "moderngl", "mlx", "matplotlib", "scipy", "numba", "llvmlite", "torch",
         "jax", "pyamg", "imageio", "scipy_openblas64")


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_the_house_keeps(rule):
    assert rule(ROOT) == []


def test_every_package_of_the_tree_has_a_floor():
    assert len(floors.modules(ROOT)) > 10
    for name in floors.modules(ROOT):
        floors.floor(name)


BROKEN = {  # rule, files, part of a line it must report
    "up": (floors.floor_violations,
           {"rlx/ir/a.py": "def f():\n    from rlx.ops import b\n", "rlx/ops/b.py": ""},
           "rlx/ir/a.py:2: rlx.ir imports rlx.ops.b"),
    "sideways": (floors.floor_violations,
                 {"splat/a.py": "import rlx.nn.b", "nn/b.py": ""},
                 "rlx.splat imports rlx.nn.b"),
    "relative": (floors.floor_violations,
                 {"linalg/a.py": "from ..sparse import b", "sparse/b.py": ""},
                 "rlx.linalg imports rlx.sparse.b"),
    "from a device to another": (
        floors.floor_violations,
        {"rlx/device/x/a.py": "from rlx.device.y import b", "rlx/device/y/b.py": ""},
        "rlx.device.x imports rlx.device.y.b"),
    "shared device code to a device": (
        floors.floor_violations,
        {"rlx/device/base.py": "import rlx.device.x", "rlx/device/x/__init__.py": ""},
        "rlx.device imports rlx.device.x"),
    "the public names": (floors.floor_violations, {"rlx/core/a.py": "import rlx"}, "rlx.core imports rlx,"),
    "typing only": (floors.floor_violations,
                    {"rlx/core/a.py": "if TYPE_CHECKING:\n    from rlx.ir.b import B", "rlx/ir/b.py": ""},
                    "rlx.core imports rlx.ir.b"),
    "cycle": (floors.cycles,
              {"rlx/ir/a.py": "from rlx.ir import b", "rlx/ir/b.py": "def f():\n import rlx.ir.c",
               "rlx/ir/c.py": "from .a import x", "rlx/ir/d.py": "from rlx.ir.a import y"},
              "rlx.ir.a <-> rlx.ir.b <-> rlx.ir.c"),
    "cycle through the package": (
        floors.cycles,
        {"rlx/ir/__init__.py": "from .a import x", "rlx/ir/a.py": "from rlx.ir import y"},
        "rlx.ir <-> rlx.ir.a"),
    "device in a string": (floors.device_names,
                           {"rlx/compile/a.py": '"""cpu is fine here"""\nx = "on the cpu"'},
                           "rlx/compile/a.py:2: names the device 'cpu'"),
    "device as a key": (floors.device_names, {"rlx/compile/a.py": 'x = {"CUDA": 1}'},
                        "names the device 'cuda'"),
    "device found by its folder": (
        floors.device_names,
        {"rlx/render/a.py": 'x = "toaster"', "rlx/device/toaster/__init__.py": ""},
        "names the device 'toaster'"),
    "import of a device": (floors.device_names,
                           {"rlx/render/a.py": "import rlx.device.x", "rlx/device/x/a.py": ""},
                           "imports rlx.device"),
    "op in a string": (floors.named_ops,
                       {"rlx/ops/a.py": "@op\ndef softplus(x): ...", "rlx/runtime/b.py": 'x = ["softplus"]'},
                       "names the op 'softplus' of rlx.ops.a"),
    "no __init__": (floors.stray_directories, {"rlx/ir/deep/a.py": ""}, "rlx/ir/deep"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_tree_is_found(tmp_path, case):
    rule, files, message = BROKEN[case]
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = rule(tmp_path)
    assert any(message in line for line in found), found


def test_a_sound_tree_passes(tmp_path):
    files = {"rlx/__init__.py": "from rlx.runtime.a import x", "rlx/runtime/__init__.py": "",
             "rlx/runtime/a.py": "from rlx.ir import b", "rlx/ir/__init__.py": "",
             "rlx/ir/b.py": "import numpy",
             "rlx/render/__init__.py": 'dialect = "opencl"; help = "written in python"',
             "sparse/__init__.py": "import rlx\nfrom rlx.ir import b", "rlx/device/__init__.py": "",
             "rlx/device/x/__init__.py": "from rlx.device import base", "rlx/device/base.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [rule(tmp_path) for rule in RULES] == [[]] * len(RULES)


def test_importing_rlx_imports_nothing_heavy():
    code = ("import sys, rlx\n"
            f"print(*sorted(set({HEAVY!r}) & {{m.partition('.')[0] for m in sys.modules}}))")
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
