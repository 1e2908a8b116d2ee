"""Gaussian splatting: scenes, cameras, differentiable rendering.

>>> import rlx.splat as splat
>>> g = splat.Gaussians.create([[0, 0, 0]], [[.3, .3, .3]], [[1, 0, 0, 0]], [0.9], [[[1, 0, 0]]])
>>> splat.render(g, splat.Camera.look_at((0, 0, -3), width=32, height=24)).rgb.shape
(24, 32, 3)
"""

from rlx.splat.formats import load as load
from rlx.splat.formats import save as save
from rlx.splat.metrics import psnr as psnr
from rlx.splat.metrics import ssim as ssim
from rlx.splat.ops import count_tiles as count_tiles
from rlx.splat.ops import intersect as intersect
from rlx.splat.ops import project as project
from rlx.splat.ops import rasterize as rasterize
from rlx.splat.ops import spherical_harmonics as spherical_harmonics
from rlx.splat.render import Image as Image
from rlx.splat.render import bucket as bucket
from rlx.splat.render import capacity as capacity
from rlx.splat.render import check_room as check_room
from rlx.splat.render import render as render
from rlx.splat.types import Camera as Camera
from rlx.splat.types import Gaussians as Gaussians
from rlx.splat.types import RenderSettings as RenderSettings
