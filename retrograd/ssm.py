"""rg.ssm: recurrences and state-space models: selective scan, SSD, Mamba-3, causal convolution.

>>> a, b = rg.full((4, 2), 0.5), rg.ones((4, 2))
>>> rg.ssm.linear_recurrence(a, b, axis=0)[-1]
tensor([1.875, 1.875])
"""

from retrograd.ops.ssm.causal_conv import causal_conv1d, causal_conv1d_step
from retrograd.ops.ssm.mamba3 import mamba3_scan, mamba3_step
from retrograd.ops.ssm.mamba3_coefficients import (
    Trapezoid,
    mamba3_coefficients,
    trapezoid,
    trapezoid_scale,
)
from retrograd.ops.ssm.mamba3_limit import mamba3_limit
from retrograd.ops.ssm.mamba3_ssd import double_ssd, single_ssd
from retrograd.ops.ssm.quaternion import (
    quaternion_conjugate,
    quaternion_multiply,
    quaternion_normalize,
    quaternion_rotate,
    quaternion_rotors,
    quaternion_scan,
)
from retrograd.ops.ssm.recurrence import linear_recurrence
from retrograd.ops.ssm.rotation import (
    rotate_pairs,
    rotation_angles,
    running_angles,
    wrap_angles,
)
from retrograd.ops.ssm.selective import selective_scan, selective_step
from retrograd.ops.ssm.ssd import ssd, ssd_step
from retrograd.ops.ssm.ssd_plain import segsum

__all__ = [
    "Trapezoid",
    "causal_conv1d",
    "causal_conv1d_step",
    "double_ssd",
    "linear_recurrence",
    "mamba3_coefficients",
    "mamba3_limit",
    "mamba3_scan",
    "mamba3_step",
    "quaternion_conjugate",
    "quaternion_multiply",
    "quaternion_normalize",
    "quaternion_rotate",
    "quaternion_rotors",
    "quaternion_scan",
    "rotate_pairs",
    "rotation_angles",
    "running_angles",
    "segsum",
    "selective_scan",
    "selective_step",
    "single_ssd",
    "ssd",
    "ssd_step",
    "trapezoid",
    "trapezoid_scale",
    "wrap_angles",
]
