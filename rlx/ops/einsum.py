"""``rlx.einsum``: sums of products named by their indices, contracted two at a time.

Each operand first gives up repeated indices (a diagonal) and indices that nobody else uses (a sum). Then the pair
whose contraction leaves the smallest result, less what it takes away, is contracted as one ``dot``, until one is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import cast, promote
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ops.linear import dot
from rlx.ops.movement import broadcast_to, permute_dims, reshape


@dataclass(frozen=True, slots=True)
class Equation:
    """Parsed subscripts: the labels of each operand's axes, and of the result's."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]


def parse(subscripts: str, ranks: list[int]) -> Equation:
    """Labels for operands of these ranks. Axes under an ellipsis are called ``...0``, ``...1``, from the right."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueIssue(f"einsum {subscripts!r} names {len(terms)} operands, {len(ranks)} were given",
                         why="each operand has one term", do="separate the terms by commas")
    labels = [_labels(t, r, subscripts) for t, r in zip(terms, ranks, strict=True)]
    dots = sorted({s for term in labels for s in term if s.startswith("...")}, key=lambda s: -int(s[3:]))
    if arrow:
        result = tuple(s for c in right.replace("...", "\0") for s in (dots if c == "\0" else (c,)))
    else:
        every = [s for term in labels for s in term]
        result = (*dots, *sorted(s for s in set(every) if every.count(s) == 1 and not s.startswith("...")))
    if len(set(result)) != len(result) or any(s not in {t for term in labels for t in term} for s in result):
        raise ValueIssue(f"einsum {subscripts!r}", why="the result names an index twice, or one that no operand has",
                         do="name each index of the result once")
    return Equation(tuple(labels), result)


def _labels(term: str, rank: int, subscripts: str) -> tuple[str, ...]:
    before, dots, after = term.partition("...")
    if any(not c.isalpha() for c in before + after):
        raise ValueIssue(f"einsum {subscripts!r}", why=f"the term {term!r} has a character that is not a letter",
                         do="name indices by letters, and the rest by one ellipsis")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise ShapeError(f"einsum {subscripts!r}: the term {term!r} does not fit an array of {rank} dimensions",
                         why="each axis has one letter", do="name every axis, or use an ellipsis")
    return (*before, *[f"...{i}" for i in range(hidden - 1, -1, -1)], *after)


@dataclass(slots=True)
class _Term:
    """An operand and the labels of its axes."""

    x: Array
    labels: tuple[str, ...]


def _diagonalised(t: _Term) -> _Term:
    """Repeated labels become one axis: their diagonal."""
    for s in dict.fromkeys(t.labels):
        while t.labels.count(s) > 1:
            a = t.labels.index(s)
            b = t.labels.index(s, a + 1)
            if t.x.shape[a] != t.x.shape[b]:
                raise ShapeError(f"einsum index {s!r} names axes of sizes {t.x.shape[a]} and {t.x.shape[b]}",
                                 why="a diagonal has equal sizes", do="rename one of the indices")
            t = _Term(FUNCTIONS["diagonal"](t.x, 0, a, b), (*(v for i, v in enumerate(t.labels) if i not in (a, b)), s))
    return t


def _summed(t: _Term, keep: set[str]) -> _Term:
    """Labels that nobody else needs are summed."""
    axes = tuple(i for i, s in enumerate(t.labels) if s not in keep)
    if not axes:
        return t
    return _Term(FUNCTIONS["sum"](t.x, axis=axes, dtype=t.x.dtype), tuple(s for s in t.labels if s in keep))


def _squeezed(t: _Term, sizes: dict[str, int]) -> _Term:
    """Axes of size 1 where the index is larger are dropped: they broadcast."""
    axes = tuple(i for i, s in enumerate(t.labels) if t.x.shape[i] == 1 and sizes[s] != 1)
    if not axes:
        return t
    return _Term(FUNCTIONS["squeeze"](t.x, axis=axes), tuple(s for i, s in enumerate(t.labels) if i not in axes))


def _product(a: _Term, b: _Term, keep: set[str]) -> _Term:
    """The contraction of two operands over the labels that nobody else needs, as one ``dot``."""
    common = [s for s in a.labels if s in b.labels]
    contract = [s for s in common if s not in keep]
    batch = [s for s in common if s in keep]
    pairs = [(tuple(a.labels.index(s) for s in g), tuple(b.labels.index(s) for s in g)) for g in (contract, batch)]
    free = [s for s in (*a.labels, *b.labels) if s not in common]
    if not contract:
        return _outer(a, b, batch, free)
    return _Term(dot(a.x, b.x, pairs[0], pairs[1]), (*batch, *free))


def _outer(a: _Term, b: _Term, batch: list[str], free: list[str]) -> _Term:
    """With nothing to sum, a product of broadcast arrays, which fuses with its neighbours."""
    labels = (*batch, *free)
    x, y = (reshape(permute_dims(t.x, [t.labels.index(s) for s in labels if s in t.labels]),
                    [t.x.shape[t.labels.index(s)] if s in t.labels else 1 for s in labels]) for t in (a, b))
    return _Term(x * y, labels)


def _cost(a: _Term, b: _Term, keep: set[str], sizes: dict[str, int]) -> tuple[int, int]:
    """What a pair's contraction adds to memory, and how many products it takes."""
    def size(labels: set[str]) -> int:
        n = 1
        for s in labels:
            n *= sizes[s]
        return n
    both = set(a.labels) | set(b.labels)
    return size(both & keep) - size(set(a.labels)) - size(set(b.labels)), size(both)


@public
def einsum(subscripts: str, /, *operands: Any, optimize: Any = True) -> Array:
    """Sums of products of arrays with named indices: ``einsum("ij,jk->ik", a, b)`` is the matrix product.

    Letters that the result (after ``->``) does not name are summed; without ``->`` it names, in alphabetic order,
    those that occur once. ``...`` stands for axes that broadcast. With ``optimize=False`` operands are contracted
    from left to right, else greedily.

    >>> import rlx
    >>> rlx.einsum("ij,j->i", rlx.asarray([[1, 2], [3, 4]]), rlx.asarray([10, 1]))
    Array([12, 34], int64[2] on cpu)
    """
    if not operands:
        raise ValueIssue("einsum without operands", why="there is nothing to multiply",
                         do="pass an array for each term")
    xs = promote(*operands)
    logical = xs[0].dtype == dt.bool_
    if logical:
        xs = [cast(x, dt.int64) for x in xs]
    eq = parse(subscripts, [x.ndim for x in xs])
    terms = [_diagonalised(_Term(x, s)) for x, s in zip(xs, eq.operands, strict=True)]
    sizes = _sizes(terms, subscripts)
    terms = [_squeezed(t, sizes) for t in terms]
    while len(terms) > 1:
        i, j = _next(terms, eq, sizes) if optimize else (0, 1)
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        keep = set(eq.result).union(*[t.labels for t in rest])
        a, b = (_summed(terms[k], keep | set(terms[m].labels)) for k, m in ((i, j), (j, i)))
        terms = [_product(a, b, keep), *rest] if not optimize else [*rest, _product(a, b, keep)]
    out = _summed(terms[0], set(eq.result))
    y = permute_dims(out.x, [out.labels.index(s) for s in eq.result if s in out.labels])
    shape = [sizes[s] for s in eq.result]
    y = broadcast_to(reshape(y, [sizes[s] if s in out.labels else 1 for s in eq.result]), shape)
    return FUNCTIONS["not_equal"](y, 0) if logical else y


def _next(terms: list[_Term], eq: Equation, sizes: dict[str, int]) -> tuple[int, int]:
    """The pair to contract next."""
    def rank(pair: tuple[int, int]) -> tuple[int, int]:
        keep = set(eq.result).union(*[t.labels for k, t in enumerate(terms) if k not in pair])
        return _cost(terms[pair[0]], terms[pair[1]], keep, sizes)
    return min(((i, j) for i in range(len(terms)) for j in range(i + 1, len(terms))), key=rank)


def _sizes(terms: list[_Term], subscripts: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for t in terms:
        for s, n in zip(t.labels, t.x.shape, strict=True):
            if sizes.get(s, 1) == 1:
                sizes[s] = n
            elif n not in (1, sizes[s]):
                raise ShapeError(f"einsum {subscripts!r}: index {s!r} has sizes {sizes[s]} and {n}",
                                 why="an index has one size", do="check the operands' shapes against the subscripts")
    return sizes
