"""Floor 4: transforms of traced functions: derivatives, batching, implicit differentiation."""

from rlx.transform import batch_control as _batch_control  # registers the rules of loops
from rlx.transform import control as _control
from rlx.transform.batch import vmap
from rlx.transform.custom import checkpoint, custom_gradient
from rlx.transform.derive import grad, jvp, linearize, value_and_grad, vjp
from rlx.transform.implicit import custom_linear_solve, custom_root, fixed_point
from rlx.transform.jacobians import hessian, hvp, jacobian

__all__ = ["_batch_control", "_control", "checkpoint", "custom_gradient", "custom_linear_solve", "custom_root",
           "fixed_point",
           "grad", "hessian", "hvp", "jacobian", "jvp", "linearize", "value_and_grad", "vjp", "vmap"]
