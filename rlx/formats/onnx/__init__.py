"""ONNX models as rlx programs, through the ``onnx`` package (``pip install 'rlx[onnx]'``).

``load`` gives a :class:`Model`: a pytree of weights that is called with arrays, on any device, under ``jit``, ``grad``
and ``vmap``. :data:`TABLE` has a row for each operator; those that the standard defines by others need none.
"""

from rlx.formats.onnx.graph import Port as Port
from rlx.formats.onnx.model import Model as Model
from rlx.formats.onnx.model import load as load
from rlx.formats.onnx.table import TABLE as TABLE
from rlx.formats.onnx.table import Call as Call
from rlx.formats.onnx.table import operator as operator
