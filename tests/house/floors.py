"""The rules of the house, checked on the syntax trees of a checkout: nothing is imported.

Every function takes the root of a tree and returns its violations as lines of text, so the rules themselves
are tested on small trees that break them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DOMAINS = ("linalg", "sparse", "splat", "nn")
#: Floor of each unit; a unit imports only from lower floors. ``rlx`` alone is the module of public names.
FLOORS = {
    "rlx.core": 0, "rlx.ir": 1, "rlx.array": 2, "rlx.ops": 3, "rlx.transform": 4, "rlx.compile": 4,
    "rlx.render": 5, "rlx.device": 6, "rlx.runtime": 7, "rlx.random": 8, "rlx.fft": 8,
    "rlx.formats": 8, "rlx.distributed": 8, "rlx.testing": 8, "rlx": 9,
    "rlx.linalg": 10, "rlx.sparse": 11, "rlx.splat": 12, "rlx.nn": 12, "rlx.tools": 13, "rlx.__main__": 14,
}
#: Devices that words in shared code must not name, whether their directory exists yet or not.
DEVICES = frozenset((
    "ane", "cortexm", "cpu", "cuda", "fpga", "gpu", "hexagon", "hip", "metal", "mlx", "null", "opencl",
    "opengl", "python", "rocm", "tpu", "vulkan", "webgpu", "wgpu",
))
#: Languages that share a device's name: a renderer may say which language it prints.
LANGUAGES = frozenset(("cuda", "hip", "metal", "opencl"))
#: Words with another meaning in a sentence; only a string that is nothing else names the device.
COMMON_WORDS = frozenset(("gpu", "metal", "null", "python", "hip", "cuda", "opencl"))
#: Units where an op's name in a string is an error. A unit joins when its code reads the registry only.
NO_OP_NAMES = ("rlx.core", "rlx.render", "rlx.runtime")


@dataclass(frozen=True, slots=True)
class Module:
    """A source file and the name it is imported by."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@cache
def modules(root: Path) -> dict[str, Module]:
    """Every module of ``rlx`` and the domain packages under ``root``, by name."""
    found = {}
    for top in ("rlx", *DOMAINS):
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts if top == "rlx" else ("rlx", *parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return found


def unit(name: str) -> str:
    """The unit a module belongs to: a floor's package, one device's directory, or ``rlx`` itself."""
    parts = name.split(".")
    if parts[:2] == ["rlx", "device"] and len(parts) > 2 and parts[2] not in ("base", "discover"):
        return ".".join(parts[:3])
    return ".".join(parts[:2])


def floor(name: str) -> float:
    """The unit's floor; a device's own directory stands on top of what all devices share.

    A directory whose name starts with ``_`` is no device but what some devices share: it is below them.
    """
    u = unit(name)
    if u.startswith("rlx.device._"):
        return FLOORS["rlx.device"] + 0.25
    if u.startswith("rlx.device."):
        return FLOORS["rlx.device"] + 0.5
    if u not in FLOORS:
        raise KeyError(f"{u} has no floor: place it in FLOORS")
    return FLOORS[u]


def imports(module: Module, known: dict[str, Module]) -> Iterator[tuple[int, str]]:
    """(line, module) of everything of rlx that a module imports, in functions too."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from ((node.lineno, m) for m in _resolve(alias.name, (), known))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.package.split(".")
                base = ".".join(above[: len(above) - node.level + 1] + ([base] if base else []))
            yield from ((node.lineno, m) for m in _resolve(base, [a.name for a in node.names], known))


def _resolve(base: str, names: Iterable[str], known: dict[str, Module]) -> Iterator[str]:
    if base != "rlx" and not base.startswith("rlx."):
        return
    inner = [f"{base}.{name}" for name in names if f"{base}.{name}" in known]
    yield from inner
    if len(inner) < len(list(names)) or not names:
        yield base


def floor_violations(root: Path) -> list[str]:
    """Imports that go up, sideways, or from one device to another."""
    known, out = modules(root), []
    for module in known.values():
        for line, target in imports(module, known):
            here, there = unit(module.name), unit(target)
            if here != there and floor(target) >= floor(module.name):
                place = f"{module.path.relative_to(root)}:{line}"
                out.append(f"{place}: {here} imports {target}, which is not below it")
    return out


def cycles(root: Path) -> list[str]:
    """Groups of modules that import each other, each as one line."""
    known = modules(root)
    graph = {m.name: sorted({t for _, t in imports(m, known)} & known.keys() - {m.name})
             for m in known.values()}
    return [" <-> ".join(sorted(group)) for group in _components(graph) if len(group) > 1]


def _components(graph: dict[str, list[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan's algorithm, with its own stack)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []
    for start in graph:
        work = [] if start in index else [(start, iter(graph[start]))]
        while work:
            node, targets = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    out.append(stack[at:])
                    del stack[at:]
            elif target not in index:
                work.append((target, iter(graph[target])))
            elif target in stack:
                low[node] = min(low[node], index[target])
    return out


def _docstrings(tree: ast.Module) -> set[int]:
    """Identities of the constants that are docstrings or bare strings."""
    return {id(n.value) for n in ast.walk(tree)
            if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}


def _strings(module: Module) -> Iterator[tuple[int, str]]:
    skip = _docstrings(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skip:
            yield node.lineno, node.value


def device_names(root: Path) -> list[str]:
    """Places in ``compile`` and ``render`` that name a device, in a string or an import."""
    present = {p.name for p in (root / "rlx" / "device").glob("*") if (p / "__init__.py").exists()}
    out = []
    for module in modules(root).values():
        if unit(module.name) not in ("rlx.compile", "rlx.render"):
            continue
        names = (DEVICES | present) - (LANGUAGES if unit(module.name) == "rlx.render" else frozenset())
        for line, text in _strings(module):
            words = {text.lower()} | (set(re.findall(r"[a-z0-9]+", text.lower())) - COMMON_WORDS)
            for name in sorted(words & names):
                out.append(f"{module.path.relative_to(root)}:{line}: names the device {name!r}")
        for line, target in imports(module, modules(root)):
            if target.startswith("rlx.device"):
                out.append(f"{module.path.relative_to(root)}:{line}: imports {target}")
    return out


def op_names(root: Path) -> dict[str, str]:
    """Ops defined with ``@op`` in ``ops`` and domain packages, each with the module that owns it."""
    found = {}
    for module in modules(root).values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef) and any(_is_op(d) for d in node.decorator_list):
                found[node.name] = module.name
    return found


def _is_op(node: ast.expr) -> bool:
    target = node.func if isinstance(node, ast.Call) else node
    return (target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")) == "op"


def named_ops(root: Path, units: Iterable[str] = NO_OP_NAMES) -> list[str]:
    """Strings in ``units`` that are exactly the name of a (non-primitive) op: what they say is the op's."""
    ops, out = op_names(root), []
    for module in modules(root).values():
        if unit(module.name) in units:
            out += [f"{module.path.relative_to(root)}:{line}: names the op {text!r} of {ops[text]}"
                    for line, text in _strings(module) if text in ops]
    return out


def stray_directories(root: Path) -> list[str]:
    """Directories with Python files but no ``__init__.py``: a wheel would leave them out."""
    folders = {m.path.parent for m in modules(root).values()}
    return sorted(str(f.relative_to(root)) for f in folders if not (f / "__init__.py").exists())
