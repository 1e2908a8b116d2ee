"""The ops of splatting, one file each."""

from rlx.splat.ops.intersect import count_tiles as count_tiles
from rlx.splat.ops.intersect import intersect as intersect
from rlx.splat.ops.places import rasterize_places as rasterize_places
from rlx.splat.ops.project import project as project
from rlx.splat.ops.rasterize import rasterize as rasterize
from rlx.splat.ops.sh import spherical_harmonics as spherical_harmonics
