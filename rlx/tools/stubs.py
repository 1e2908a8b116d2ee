"""``python -m rlx.tools.stubs``: write ``rlx/__init__.pyi``, the public names with their signatures.

Functions come from the registry, where a type checker cannot see them; what this prints it can.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_overloads

import rlx
from rlx.core.dtype import DType
from rlx.ops.grids import BRACKETS

#: Names that an annotation may use; a signature's other names are private and become Any.
_KNOWN = frozenset(("Any", "Array", "Callable", "DType", "Path", "Sequence", "None", "bool", "bytes", "complex", "dict",
                    "float",
                    "int", "list", "object", "str", "tuple", "type"))
_HEADER = '''"""The public names of rlx. Written by ``python -m rlx.tools.stubs``: do not edit."""
# ruff: noqa

import builtins
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, overload

from rlx.array.array import Array as Array
from rlx.core.dtype import DType as DType
'''


def target() -> Path:
    """The file that is written."""
    return Path(rlx.__file__).with_suffix(".pyi")


def text() -> str:
    """The stub file."""
    functions, values, imports = [], [], []
    for name in dir(rlx):  # what is imported when it is first named is there too
        value = getattr(rlx, name, rlx)
        if inspect.ismodule(value) or name in ("Array", "DType", "__array_namespace_info__"):
            continue
        if isinstance(value, DType):
            values.append(f"{name}: Final[DType]")
        elif isinstance(value, (int, float, str)):
            values.append(f"{name}: Final[{type(value).__name__}]")
        elif value is None:
            values.append(f"{name}: None")
        elif name in BRACKETS:
            values.append(f"{name}: Any")
        elif callable(value) and (found := _source(value)) is not None:
            own = found[1] if found[1] == name else f"_{found[1]}"
            imports.append(f"from {found[0]} import {found[1]} as {own}")
            if own != name:  # importing under another name exports nothing from a stub
                values.append(f"{name} = {own}")
        elif callable(value):
            functions.append(_function(name, value))
    imports.append("from rlx.runtime.info import __array_namespace_info__ as __array_namespace_info__")
    return "\n".join([_HEADER.rstrip("\n"), *sorted(imports), "", *values, "", *functions]) + "\n"


def _source(value: Any) -> tuple[str, str] | None:
    """Where a checker can find the object itself: a class or function that its module defines under its own name."""
    module, name = getattr(value, "__module__", ""), getattr(value, "__name__", "")
    if module.startswith(("rlx.ops.", "rlx.array.interop")) and not inspect.isclass(value):
        return None
    return (module, name) if getattr(sys.modules.get(module), name, None) is value else None


def _function(name: str, f: Callable[..., Any]) -> str:
    """Its definition, or one for each of its overloads."""
    forms = get_overloads(f)
    return "\n".join(f"@overload\n{_definition(name, form)}" for form in forms) if forms else _definition(name, f)


def _definition(name: str, f: Callable[..., Any]) -> str:
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return f"def {name}(*args: Any, **kwargs: Any) -> Any: ..."
    parts, state = [], None
    for p in signature.parameters.values():
        if state is inspect.Parameter.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        if p.kind is p.KEYWORD_ONLY and state not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            parts.append("*")
        star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        parts.append(f"{star}{p.name}: {_annotation(p.annotation)}" + ("" if p.default is p.empty else " = ..."))
        state = p.kind
    if state is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    return f"def {name}({', '.join(parts)}) -> {_annotation(signature.return_annotation)}: ..."


class _Public(ast.NodeTransformer):
    """Known names as they are (``bool`` is a dtype here, so the builtin is spelled out); others become Any."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "Axis":
            return ast.parse("int | Sequence[int] | None", mode="eval").body
        if node.id == "bool":
            return ast.Attribute(ast.Name("builtins", ast.Load()), "bool", ast.Load())
        return node if node.id in _KNOWN else ast.Name("Any", ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name("Any", ast.Load())

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in _KNOWN:
            return self.generic_visit(node)  # type: ignore[return-value]
        return ast.Name("Any", ast.Load())


def _annotation(note: Any) -> str:
    if note is inspect.Parameter.empty:
        return "Any"
    if not isinstance(note, str):
        note = getattr(note, "__name__", "Any") if note is not None else "None"
    return ast.unparse(ast.fix_missing_locations(_Public().visit(ast.parse(note, mode="eval").body)))


def main() -> None:
    """Write the file."""
    target().write_text(text(), encoding="utf-8")
    print(target().name)


if __name__ == "__main__":
    main()
