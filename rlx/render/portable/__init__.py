"""Named rewrites for devices with few types: the same kernel over 32-bit words, with the same meaning.

``i64-to-u32-pairs``, ``complex-to-pairs``, ``packed-storage`` (bool and narrow integers), ``f32-arithmetic``
(float16 and bfloat16), and every transcendental function as arithmetic.
"""

from rlx.render.portable.forms import RULES, Form, form, rewrites
from rlx.render.portable.helper import Helper
from rlx.render.portable.kernel import Portable, make_portable

__all__ = ["RULES", "Form", "Helper", "Portable", "form", "make_portable", "rewrites"]
