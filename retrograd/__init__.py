"""Automatic differentiation and a compiler for array programs, in Python you can read.

The face of the package. Names follow the Python array API standard; each family of functions
lists its own names, so that a new op is public without a change here. `rg.nn`, `rg.linalg`,
`rg.fft`, `rg.special`, `rg.random`, `rg.distances`, `rg.ssm`, `rg.optim`, `rg.tree`, `rg.debug`
and `rg.testing` are namespaces of their own.
"""

from importlib import import_module as _import_module

from retrograd.autodiff import derived as _derived  # a vjp from a jvp, and the reverse
from retrograd.autodiff.backward import *
from retrograd.autodiff.batch import *
from retrograd.autodiff.checkpoint import *
from retrograd.autodiff.custom import *
from retrograd.autodiff.forward import *
from retrograd.autodiff.grad import *
from retrograd.autodiff.reverse import *
from retrograd.control import revolve as _revolve  # scans that keep few carries
from retrograd.control.branch import *
from retrograd.control.loops import *
from retrograd.control.pairs import *
from retrograd.control.scan import *
from retrograd.core import protocols as _protocols  # what NumPy sees of a tensor
from retrograd.core import tree
from retrograd.core.dtype import (
    bfloat16,
    bool,
    can_cast,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from retrograd.core.errors import (
    AliasError,
    ArgumentError,
    BoundsError,
    BudgetError,
    CheckError,
    DerivativeError,
    DonatedError,
    DtypeError,
    ExtraError,
    FrozenError,
    NonFiniteError,
    OpError,
    RetrogradError,
    ShapeError,
    TraceError,
)
from retrograd.core.info import (
    __array_api_version__,
    __array_namespace_info__,
    e,
    inf,
    nan,
    newaxis,
    pi,
)
from retrograd.core.interpret import apply
from retrograd.core.op import Composite, Elementwise, Linear, Multilinear, Op, op
from retrograd.core.protocols import from_dlpack
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.jit.api import jit  # the function; the room of that name is behind it
from retrograd.jit.planned import Plan, plan
from retrograd.jit.threads import get_threads, set_threads
from retrograd.memory.eager import budget
from retrograd.ops import at as _at  # Tensor.at
from retrograd.ops import getitem as _getitem  # Tensor[...]
from retrograd.ops.arithmetic import *
from retrograd.ops.cast import *
from retrograd.ops.compare import *
from retrograd.ops.complex import *
from retrograd.ops.create import *
from retrograd.ops.cumulative import *
from retrograd.ops.diagonal import *
from retrograd.ops.einsum import *
from retrograd.ops.elementary import *
from retrograd.ops.extrema import *
from retrograd.ops.gather import *
from retrograd.ops.grid import *
from retrograd.ops.hyperbolic import *
from retrograd.ops.join import *
from retrograd.ops.linalg import *
from retrograd.ops.logic import *
from retrograd.ops.logsumexp import *
from retrograd.ops.magnitude import *
from retrograd.ops.masks import *
from retrograd.ops.norm import *
from retrograd.ops.pad import *
from retrograd.ops.power import *
from retrograd.ops.product import *
from retrograd.ops.quantile import *
from retrograd.ops.recur import *
from retrograd.ops.reduce import *
from retrograd.ops.remainder import *
from retrograd.ops.rounding import *
from retrograd.ops.scatter import *
from retrograd.ops.select import *
from retrograd.ops.shape import *
from retrograd.ops.sort import *
from retrograd.ops.trigonometric import *
from retrograd.ops.turn import *
from retrograd.ops.unique import *
from retrograd.ops.windows import *

from retrograd import random  # isort: skip - it stands on the families above

__version__ = "0.1.0"
# Namespaces of their own, loaded when first asked for: imports stay short.
_LATER = ("debug", "distances", "fft", "linalg", "nn", "optim", "special", "ssm", "testing")
__all__ = sorted(
    {name for name in vars() if not name.startswith("_")}
    - {"autodiff", "control", "core", "ir", "ops"}
    | {"__array_api_version__", "__array_namespace_info__", "__version__", *_LATER}
)


def __getattr__(name: str) -> object:
    if name in _LATER:
        return _import_module(f"retrograd.{name}")
    raise AttributeError(f"retrograd has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
