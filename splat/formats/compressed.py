"""PlayCanvas's compressed PLY: 16 bytes a Gaussian, quantized within chunks of 256, and bytes for the harmonics."""

from __future__ import annotations

import numpy as np

from rlx.core.errors import FormatError
from rlx.splat.formats.files import Cloud
from rlx.splat.formats.header import columns, header
from rlx.splat.formats.ply import harmonics, rest_names
from rlx.splat.ops.sh import C0

CHUNK = 256
_AXES = "xyz"
_PACKED = ["packed_position", "packed_rotation", "packed_scale", "packed_color"]
#: Bits of the three parts of a packed vector, from the top.
_BITS = (11, 10, 11)
#: Harmonics are bytes over [-4, 4).
_SH_RANGE = 8.0


def is_compressed(tables: dict[str, np.ndarray]) -> bool:
    """Whether the tables are those of this format."""
    return "chunk" in tables and "packed_position" in (tables["vertex"].dtype.names or ())


def decode(tables: dict[str, np.ndarray], what: str) -> Cloud:
    """The Gaussians of ``chunk``, ``vertex`` and (optional) ``sh`` tables."""
    v, chunk = tables["vertex"], tables["chunk"]
    n = len(v)
    if len(chunk) != -(-n // CHUNK):
        raise FormatError(
            f"{what}: {len(chunk)} chunks for {n} Gaussians", why=f"a chunk has {CHUNK}", do="get the file again"
        )
    packed = [_words(v, name, what) for name in _PACKED]
    of = np.arange(n) // CHUNK
    means = _lerp(_vector(packed[0]), chunk, of, [f"_{a}" for a in _AXES], what)
    scales = np.exp(_lerp(_vector(packed[2]), chunk, of, [f"_scale_{a}" for a in _AXES], what))
    color = _unorm(packed[3], (8, 8, 8, 8))
    rgb = color[:, :3]
    if "min_r" in (chunk.dtype.names or ()):
        rgb = _lerp(rgb, chunk, of, ["_r", "_g", "_b"], what)
    return Cloud(means, scales, _rotation(packed[1]), color[:, 3], harmonics((rgb - 0.5) / C0, _rest(tables, n, what)))


def _words(v: np.ndarray, name: str, what: str) -> np.ndarray:
    if name not in (v.dtype.names or ()) or v.dtype[name].kind != "u" or v.dtype[name].itemsize != 4:
        raise FormatError(f"{what}: no uint property {name}", why="a compressed PLY has four packed words a Gaussian",
                          do="get the file again")
    return v[name].astype(np.uint32)


def _unorm(word: np.ndarray, bits: tuple[int, ...]) -> np.ndarray:
    """The fields of a word, from the top, as fractions of their largest value."""
    out, shift = [], 32
    for b in bits:
        shift -= b
        out.append(((word >> np.uint32(shift)) & np.uint32((1 << b) - 1)).astype(np.float32) / ((1 << b) - 1))
    return np.stack(out, axis=1)


def _vector(word: np.ndarray) -> np.ndarray:
    return _unorm(word, _BITS)


def _lerp(t: np.ndarray, chunk: np.ndarray, of: np.ndarray, names: list[str], what: str) -> np.ndarray:
    """Fractions between the minimum and maximum of their chunk."""
    low = columns(chunk, [f"min{x}" for x in names], what)[of]
    high = columns(chunk, [f"max{x}" for x in names], what)[of]
    out: np.ndarray = low * (1 - t) + high * t
    return out


def _rotation(word: np.ndarray) -> np.ndarray:
    """Quaternions from three 10-bit components and the place of the largest, which is the positive remainder."""
    small = (_unorm(word << np.uint32(2), (10, 10, 10)) - 0.5) * np.float32(np.sqrt(2))
    rest = np.sqrt(np.maximum(1 - (small ** 2).sum(axis=1), 0))
    largest = (word >> np.uint32(30)).astype(np.intp)
    out = np.empty((len(word), 4), np.float32)
    for k in range(4):
        rows = largest == k
        out[rows] = np.insert(small[rows], k, rest[rows], axis=1)
    return out


def _rest(tables: dict[str, np.ndarray], n: int, what: str) -> np.ndarray:
    if "sh" not in tables:
        return np.zeros((n, 0), np.float32)
    table = tables["sh"]
    if len(table) != n:
        raise FormatError(
            f"{what}: {len(table)} rows of harmonics for {n} Gaussians", why="each has one", do="get the file again"
        )
    b = columns(table, rest_names(table, what), what)
    # Bytes stand for the middle of their interval, but for the ends.
    t = np.where(b == 0, 0, np.where(b == 255, 1, (b + 0.5) / 256))
    return ((t - 0.5) * _SH_RANGE).astype(np.float32)


# Writing

def encode(c: Cloud) -> list[bytes]:
    """The parts of a file. Gaussians are put in Morton order, so that chunks are small."""
    order = _morton(c.means)
    c = Cloud(*[x[order] for x in c])
    n = len(c.means)
    chunks = -(-n // CHUNK)
    scales = np.clip(np.log(np.maximum(c.scales, 1e-30)), -20, 20)
    position, p_box = _quantize(c.means, chunks, _BITS)
    scale, s_box = _quantize(scales, chunks, _BITS)
    rgb, c_box = _quantize(c.sh[:, 0] * C0 + 0.5, chunks, (8, 8, 8))
    alpha = np.rint(np.clip(c.opacities, 0, 1) * 255).astype(np.uint32)
    color = (rgb[:, 0] << 24) | (rgb[:, 1] << 16) | (rgb[:, 2] << 8) | alpha
    words = np.stack([_join(position), _pack_rotation(c.rotations), _join(scale), color], axis=1).astype("<u4")
    names = [f"{end}{x}" for part in ([f"_{a}" for a in _AXES], [f"_scale_{a}" for a in _AXES], ["_r", "_g", "_b"])
             for end in ("min", "max") for x in part]
    elements = [("chunk", chunks, [(x, "float") for x in names]), ("vertex", n, [(x, "uint") for x in _PACKED])]
    parts = [np.concatenate([p_box, s_box, c_box], axis=1).astype("<f4").tobytes(), words.tobytes()]
    k = c.sh.shape[1] - 1
    if k:
        planar = c.sh[:, 1:].transpose(0, 2, 1).reshape(n, 3 * k)
        parts.append(np.clip(np.floor((planar / _SH_RANGE + 0.5) * 256), 0, 255).astype(np.uint8).tobytes())
        elements.append(("sh", n, [(f"f_rest_{i}", "uchar") for i in range(3 * k)]))
    return [header(elements), *parts]


def _quantize(x: np.ndarray, chunks: int, bits: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Integers of the given widths, and each chunk's minimum and maximum (chunks, 6)."""
    starts = np.arange(chunks) * CHUNK
    x = x.astype(np.float32)
    low = np.minimum.reduceat(x, starts) if chunks else np.zeros((0, 3), np.float32)
    high = np.maximum.reduceat(x, starts) if chunks else low
    of = np.arange(len(x)) // CHUNK
    size = (high - low)[of]
    t = np.where(size > 0, (x - low[of]) / np.where(size > 0, size, 1), 0)
    top = np.array([(1 << b) - 1 for b in bits], np.float32)
    return np.rint(np.clip(t, 0, 1) * top).astype(np.uint32), np.concatenate([low, high], axis=1)


def _join(q: np.ndarray) -> np.ndarray:
    out: np.ndarray = (q[:, 0] << 21) | (q[:, 1] << 11) | q[:, 2]
    return out


def _pack_rotation(q: np.ndarray) -> np.ndarray:
    q = q / np.maximum(np.linalg.norm(q, axis=1, keepdims=True), 1e-12)
    largest = np.abs(q).argmax(axis=1) if len(q) else np.zeros(0, np.intp)
    q = np.where(np.take_along_axis(q, largest[:, None], 1) < 0, -q, q)
    word = largest.astype(np.uint32)
    others = np.argsort(np.arange(4) == largest[:, None], axis=1, kind="stable")[:, :3]
    for v in np.take_along_axis(q, others, 1).T:
        word = (word << 10) | np.rint(np.clip(v / np.sqrt(2) + 0.5, 0, 1) * 1023).astype(np.uint32)
    return word


def _morton(means: np.ndarray) -> np.ndarray:
    """An order that keeps neighbours together: 10 bits of each axis, interleaved."""
    if not len(means):
        return np.zeros(0, np.intp)
    low, high = means.min(axis=0), means.max(axis=0)
    q = ((means - low) / np.maximum(high - low, 1e-12) * 1023).astype(np.uint32)
    code = np.zeros(len(means), np.uint32)
    for bit in range(10):
        for axis in range(3):
            code |= ((q[:, axis] >> bit) & 1) << np.uint32(3 * bit + axis)
    return np.argsort(code, kind="stable")
