"""Render a scene of 3D Gaussians from an orbiting camera: ``python examples/render_splats.py scene.spz -o orbit.gif``.

Scenes: .ply (original or PlayCanvas compressed), .splat, .spz. Outputs: .png (one view), .gif or .mp4 (a full turn;
.mp4 needs ``imageio-ffmpeg``). Pictures are written with imageio (``pip install rlx[viz]``).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from rlx import splat
from rlx.core.errors import RlxError


def orbit(g: splat.Gaussians, args: argparse.Namespace, count: int) -> list[splat.Camera]:
    """Cameras around the middle of the scene, far enough to see most of it."""
    means = np.asarray(g.means)
    low, high = np.percentile(means, [3, 97], axis=0)
    # Trained scenes have y downwards.
    up = {"-y": (0, -1, 0), "y": (0, 1, 0), "z": (0, 0, 1), "-z": (0, 0, -1)}[args.up]
    size = float(np.linalg.norm(high - low)) or 1.0
    turned = splat.Camera.orbit(count, center=(low + high) / 2, radius=args.distance * size, elevation=args.elevation,
                                up=up, width=args.width, height=args.height, fov=args.fov)
    first = round(args.angle / 360 * count) % count
    return turned[first:] + turned[:first]


def frames(g: splat.Gaussians, cameras: Sequence[splat.Camera], settings: splat.RenderSettings,
           device: str | None) -> Iterator[np.ndarray]:
    """8-bit pictures, one at a time."""
    for i, camera in enumerate(cameras):
        start = time.perf_counter()
        rgb = np.asarray(splat.render(g, camera, settings, device=device).rgb)
        progress(i + 1, len(cameras), time.perf_counter() - start)
        yield (np.clip(rgb, 0, 1) * 255 + 0.5).astype(np.uint8)


def progress(done: int, total: int, seconds: float) -> None:
    """A bar on the terminal: how many frames are done, and the speed of the last one."""
    filled = 30 * done // total
    end = "\n" if done == total else ""
    print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total}  {1 / max(seconds, 1e-9):5.1f} frames/s", end=end,
          file=sys.stderr, flush=True)


def write(path: Path, pictures: Iterator[np.ndarray], fps: int) -> None:
    """One picture, or an animation, by the ending of the name."""
    import imageio.v2 as imageio
    if path.suffix == ".png":
        imageio.imwrite(path, next(pictures))
        return
    kind = {"duration": 1000 / fps, "loop": 0} if path.suffix == ".gif" else {"fps": fps, "macro_block_size": 1}
    with imageio.get_writer(path, **kind) as writer:
        for p in pictures:
            # Video codecs take even sizes only.
            writer.append_data(p if path.suffix == ".gif" else p[:p.shape[0] // 2 * 2, :p.shape[1] // 2 * 2])


def lacking(path: Path) -> str | None:
    """What must be installed to write a file of this kind, or None."""
    if find_spec("imageio") is None:
        return "pictures are written with imageio: pip install rlx[viz]"
    if path.suffix == ".mp4" and find_spec("imageio_ffmpeg") is None and find_spec("av") is None:
        return ".mp4 needs an encoder: pip install imageio-ffmpeg (or write a .gif)"
    return None


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("scene", type=Path)
    p.add_argument("-o", "--output", type=Path, default=Path("orbit.png"))
    p.add_argument("--width", type=int, default=640)
    p.add_argument("--height", type=int, default=360)
    p.add_argument("--frames", type=int, default=48, help="views of a full turn (.gif, .mp4)")
    p.add_argument("--fps", type=int, default=24)
    p.add_argument("--fov", type=float, default=50.0, help="vertical field of view in degrees")
    p.add_argument("--distance", type=float, default=1.2, help="of the camera, in diameters of the scene")
    p.add_argument("--elevation", type=float, default=10.0, help="degrees above the scene's middle")
    p.add_argument("--angle", type=float, default=0.0, help="of the first view, in degrees")
    p.add_argument("--up", choices=["-y", "y", "z", "-z"], default="-y", help="which way is up in the scene")
    p.add_argument("--background", type=float, nargs=3, default=(1.0, 1.0, 1.0), metavar=("R", "G", "B"))
    p.add_argument("--antialiased", action="store_true")
    p.add_argument("--device", default=None)
    args = p.parse_args(argv)
    if args.output.suffix not in (".png", ".gif", ".mp4"):
        p.error(f"the output must end in .png, .gif or .mp4, not {args.output.suffix!r}")
    if (reason := lacking(args.output)) is not None:
        p.error(reason)
    if args.frames < 1:
        p.error("a turn has at least one frame")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Load, render, write."""
    args = parse(argv)
    try:
        g = splat.load(args.scene, device=args.device)
        print(f"{args.scene.name}: {g}", file=sys.stderr)
        # A still is one view of the turn that an animation would make.
        cameras = orbit(g, args, args.frames)
        cameras = cameras[:1] if args.output.suffix == ".png" else cameras
        settings = splat.RenderSettings(background=tuple(args.background), antialiased=args.antialiased)
        write(args.output, frames(g, cameras, settings, args.device), args.fps)
    except RlxError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
