"""Which text is plain enough for a fast parser that trusts its input.

``scipy.io.mmread`` is about twenty times faster than :func:`numpy.loadtxt`, and takes what it does not
understand for something else. Text that passes :func:`is_plain` holds only numbers both of them read alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SPACE, _DIGIT, _POINT, _EXPONENT, _MINUS, _PLUS, _OTHER = range(7)
_CLASS = np.full(256, _OTHER, dtype=np.uint8)
for _characters, _class in ((b" \t\r\n", _SPACE), (b"0123456789", _DIGIT), (b".", _POINT), (b"eE", _EXPONENT),
                            (b"-", _MINUS), (b"+", _PLUS)):
    _CLASS[list(_characters)] = _class

#: What may stand after each class of character. A sign opens a number or an exponent; a leading plus, nan,
#: inf and everything else that is rare is not plain.
_AFTER = {
    _SPACE: (_SPACE, _DIGIT, _POINT, _MINUS),
    _DIGIT: (_SPACE, _DIGIT, _POINT, _EXPONENT),
    _POINT: (_SPACE, _DIGIT, _EXPONENT),
    _EXPONENT: (_DIGIT, _MINUS, _PLUS),
    _MINUS: (_DIGIT, _POINT),
    _PLUS: (_DIGIT,),
}
_ALLOWED = np.zeros(64, dtype=bool)
for _before, _afters in _AFTER.items():
    _ALLOWED[[8 * _before + _after for _after in _afters]] = True


def is_plain(raw: NDArray[np.uint8], starts: NDArray[np.intp], width: int, integers: int) -> bool:
    """Whether every word of ``raw`` is a plain number.

    ``raw`` is a run of whole lines, ``starts`` where its words begin; every line has ``width`` words, the
    first ``integers`` of them integers. An integer is ``-?d+``, a float ``-?(d+.?d*|.d+)([eE][+-]?d+)?``.
    """
    returns = np.flatnonzero(raw == 13)
    if returns.size and (returns[-1] + 1 == raw.size or (raw[returns + 1] != 10).any()):
        return False  # to some parsers a carriage return alone ends a line
    kind = np.concatenate(([_SPACE], _CLASS[raw], [_SPACE])).astype(np.uint8)
    if not _ALLOWED[8 * kind[:-1] + kind[1:]].all():
        return False
    kind = kind[1:]  # kind[i] is raw[i]'s; one space more at the end, and kind[-1] is that space
    points, exponents = np.flatnonzero(kind == _POINT), np.flatnonzero(kind == _EXPONENT)
    if not ((kind[points - 1] == _DIGIT) | (kind[points + 1] == _DIGIT)).all():
        return False
    of_point = np.searchsorted(starts, points, side="right") - 1
    of_exponent = np.searchsorted(starts, exponents, side="right") - 1
    if (np.diff(of_point) == 0).any() or (np.diff(of_exponent) == 0).any():
        return False
    if integers and ((of_point % width < integers).any() or (of_exponent % width < integers).any()):
        return False
    # A sign may follow an exponent and a point a sign: 1e-.5. No point may stand behind its word's exponent.
    _, a, b = np.intersect1d(of_point, of_exponent, assume_unique=True, return_indices=True)
    return not (points[a] > exponents[b]).any()
