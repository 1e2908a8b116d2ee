"""The operators, by topic; importing this fills the table."""

from rlx.formats.onnx.operators import control as control
from rlx.formats.onnx.operators import conv as conv
from rlx.formats.onnx.operators import elementwise as elementwise
from rlx.formats.onnx.operators import index as index
from rlx.formats.onnx.operators import linear as linear
from rlx.formats.onnx.operators import movement as movement
from rlx.formats.onnx.operators import norm as norm
from rlx.formats.onnx.operators import pool as pool
from rlx.formats.onnx.operators import quantize as quantize
from rlx.formats.onnx.operators import recurrent as recurrent
from rlx.formats.onnx.operators import reduce as reduce
from rlx.formats.onnx.operators import resize as resize
from rlx.formats.onnx.operators import sequence as sequence
from rlx.formats.onnx.operators import signal as signal
from rlx.formats.onnx.table import TABLE as TABLE
