"""What the devices' claims on splatting share: the frame of one use, and which uses they take."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.core import dtype as dt
from rlx.ir.claim import Call

#: The threshold of the op's definition: one step of an 8-bit image.
MIN_ALPHA = 1 / 255
#: Sides of a tile in pixels, and features at most.
TILES, CHANNELS = (8, 16, 32), 8


@dataclass(frozen=True)
class Frame:
    """The image, its tiles, the number of features and Gaussians, and the limits of compositing."""

    width: int
    height: int
    tile: int
    channels: int
    count: int
    max_alpha: float
    stop: float

    @property
    def columns(self) -> int:
        """Tiles in a row."""
        return -(-self.width // self.tile)

    @property
    def tiles(self) -> int:
        """Tiles of the image."""
        return self.columns * -(-self.height // self.tile)

    @property
    def lanes(self) -> int:
        """Pixels of a tile."""
        return self.tile * self.tile


def frame(attrs: dict[str, object], features: tuple[int, ...]) -> Frame:
    """The frame of one use of the op."""
    read = {k: attrs[k] for k in ("width", "height", "tile", "max_alpha", "stop")}
    return Frame(channels=features[1], count=features[0], **read)  # type: ignore[arg-type]


def accepts(call: Call) -> str | None:
    """None for float32 Gaussians, few features and a usual tile; else the reason."""
    kinds = {d for d, _ in call.inputs}
    if kinds != {dt.float32, dt.int32}:
        return f"needs float32 Gaussians and int32 lists, got {', '.join(sorted(d.name for d in kinds))}"
    if call.attrs["tile"] not in TILES:
        return f"has tiles of {', '.join(map(str, TILES))} pixels, not {call.attrs['tile']}"
    n, channels = call.inputs[2][1]
    if not 1 <= channels <= CHANNELS:
        return f"composites 1 to {CHANNELS} features, got {channels}"
    if n == 0 or call.inputs[4][1][0] == 0:
        return "has nothing to draw"
    return None
