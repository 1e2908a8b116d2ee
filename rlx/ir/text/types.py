"""Types, sizes and attributes as text, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from rlx.core.dtype import DType
from rlx.core.errors import VerifyError
from rlx.core.shape import Apply, Dim, Shape, Size, Symbol
from rlx.ir.graph import Type
from rlx.ir.text.lex import NAME, SHORT, Scanner, scalar_text

_APPLY = ("floordiv", "mod", "max", "min")


# Sizes

def size_text(size: Size) -> str:
    """``3``, or a polynomial such as ``2*n*m + -1``; symbols that are no plain names are quoted."""
    if isinstance(size, int):
        return str(size)
    parts = []
    for monomial, c in size.terms:
        atoms = "*".join(_atom_text(a) for a in monomial)
        parts.append(str(c) if not monomial else atoms if c == 1 else f"{c}*{atoms}")
    return " + ".join(parts) or "0"


def _atom_text(a: Symbol | Apply) -> str:
    if isinstance(a, Symbol):
        return a.name if NAME.fullmatch(a.name) and a.name not in _APPLY else json.dumps(a.name)
    return f"{a.kind}({size_text(a.a)}, {size_text(a.b)})"


def type_text(t: Type) -> str:
    """``f64[3, n]``."""
    return f"{t.dtype.short}[{', '.join(map(size_text, t.shape))}]"


def symbols(sizes: Iterable[Size]) -> dict[str, Symbol]:
    """The symbols of some sizes by name. Raises VerifyError when one name has two bounds."""
    found: dict[str, Symbol] = {}
    stack: list[Size] = list(sizes)
    while stack:
        size = stack.pop()
        if isinstance(size, int):
            continue
        for monomial, _ in size.terms:
            for a in monomial:
                if isinstance(a, Apply):
                    stack += (a.a, a.b)
                elif found.setdefault(a.name, a) != a:
                    raise VerifyError(f"two dimensions are named {a.name}", why=f"{found[a.name]} and {a}",
                                      do="give each unknown size its own name")
    return found


def symbols_text(found: Mapping[str, Symbol]) -> str:
    """``dims n(1, 64), m(0, inf)``: what a graph's symbols are."""
    rows = [f"{_atom_text(s)}({s.low}, {'inf' if s.high == inf else int(s.high)})" for _, s in sorted(found.items())]
    return "dims " + ", ".join(rows)


class TypeReader:
    """Reads sizes, types and attributes, knowing the symbols declared so far."""

    def __init__(self, scan: Scanner, known: dict[str, Symbol]) -> None:
        self.scan, self.known = scan, known

    def size(self) -> Size:
        """A sum of products of integers, symbols and applications."""
        terms: dict[tuple[Any, ...], int] = {}
        while True:
            c, monomial = self._product()
            terms[monomial] = terms.get(monomial, 0) + c
            if not self.scan.accept("+"):
                break
        if set(terms) <= {()}:
            return terms.get((), 0)
        return Dim(tuple(terms.items()))

    def _product(self) -> tuple[int, tuple[Any, ...]]:
        c, atoms = 1, []
        while True:
            if self.scan.peek.kind == "number" or self.scan.peek.text == "-":
                c *= self.scan.integer()
            else:
                atoms.append(self._atom())
            if not self.scan.accept("*"):
                return c, tuple(atoms)

    def _atom(self) -> Symbol | Apply:
        scan = self.scan
        t = scan.peek
        name = scan.string() if t.kind == "string" else scan.word("a size")
        if t.kind == "word" and name in _APPLY:
            scan.expect("(")
            a = self.size()
            scan.expect(",")
            b = self.size()
            scan.expect(")")
            return Apply(name, _as_dim(a), _as_dim(b))
        if name not in self.known:
            scan.fail("a dimension that the graph's dims declare", t)
        return self.known[name]

    def shape(self) -> Shape:
        """``[3, n]``."""
        self.scan.expect("[")
        out: list[Size] = []
        while not self.scan.accept("]"):
            out.append(self.size())
            if not self.scan.accept(","):
                self.scan.expect("]")
                break
        return tuple(out)

    def type(self) -> Type:
        """``f64[3, n]``."""
        return Type(self.scan.dtype(), self.shape())

    def declare(self) -> None:
        """The rest of a ``dims`` line."""
        scan = self.scan
        while True:
            name = scan.string() if scan.peek.kind == "string" else scan.word("a dimension")
            scan.expect("(")
            low = scan.integer()
            scan.expect(",")
            high = scan.real()
            scan.expect(")")
            self.known[name] = Symbol(name, low, high)
            if not scan.accept(","):
                return

    def attribute(self) -> Any:
        """A scalar, a string, a dtype, ``none``, a size in brackets, or a tuple of attributes."""
        scan = self.scan
        t = scan.peek
        if t.kind == "string":
            return scan.string()
        if scan.at_number:
            return scan.real()
        if t.text == "[":
            scan.next()
            size = self.size()
            scan.expect("]")
            return _as_dim(size)
        if t.text == "(":
            return self._tuple()
        word = scan.word("an attribute")
        if word in ("true", "false"):
            return word == "true"
        if word == "none":
            return None
        if word == "complex":
            scan.expect("(")
            re = scan.real()
            scan.expect(",")
            im = scan.real()
            scan.expect(")")
            return complex(re, im)
        if word in SHORT:
            return SHORT[word]
        scan.fail("an attribute that the text can hold", t)

    def _tuple(self) -> tuple[Any, ...]:
        self.scan.expect("(")
        out = []
        while not self.scan.accept(")"):
            out.append(self.attribute())
            if not self.scan.accept(","):
                self.scan.expect(")")
                break
        return tuple(out)

    def attributes(self) -> tuple[tuple[str, Any], ...]:
        """``{axis = 1, kind = "sum"}``, or nothing."""
        out: list[tuple[str, Any]] = []
        if not self.scan.accept("{"):
            return ()
        while not self.scan.accept("}"):
            name = self.scan.word("the name of an attribute")
            self.scan.expect("=")
            out.append((name, self.attribute()))
            if not self.scan.accept(","):
                self.scan.expect("}")
                break
        return tuple(out)


def _as_dim(size: Size) -> Dim:
    return size if isinstance(size, Dim) else Dim((((), size),)) if size else Dim(())


# Attributes

def attribute_text(x: Any) -> str:
    """An attribute; one that the text cannot hold becomes ``opaque "its repr"``, which does not read back."""
    plain = scalar_text(x)
    if plain is not None:
        return plain
    if x is None:
        return "none"
    if isinstance(x, DType):
        return x.short
    if isinstance(x, Dim):
        return f"[{size_text(x)}]"
    if isinstance(x, tuple):
        inner = ", ".join(map(attribute_text, x))
        return f"({inner},)" if len(x) == 1 else f"({inner})"
    return f"opaque {json.dumps(repr(x))}"


def attributes_text(attrs: Iterable[tuple[str, Any]]) -> str:
    """``{axis = 1, kind = "sum"}``, or nothing."""
    body = ", ".join(f"{k} = {attribute_text(v)}" for k, v in attrs)
    return f" {{{body}}}" if body else ""
