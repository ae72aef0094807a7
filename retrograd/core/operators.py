"""What people type on a tensor: operators, methods and protocols, each a function by name.

Nothing is computed here. Every line looks a public function up in FUNCTIONS, which the ops
fill, so `core` needs no op and an operator is differentiable because its function is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import ArgumentError, DtypeError
from retrograd.core.op import FUNCTIONS, REGISTRY

level: Any = None  # the current interpreter: interpret.py puts it here


def _binary(name: str) -> tuple[Any, Any]:
    def forward(self: Any, other: Any) -> Any:
        if type(other) is type(self) or _is_operand(other):
            return FUNCTIONS[name](self, other)
        return NotImplemented

    def backward(self: Any, other: Any) -> Any:
        if _is_operand(other):
            return FUNCTIONS[name](other, self)
        return NotImplemented

    return forward, backward


def _direct(name: str) -> tuple[Any, Any]:
    """An operator that is one op and nothing else: the hot path, one call less."""
    found: list[Any] = []

    def forward(self: Any, other: Any) -> Any:
        if type(other) is type(self) or _is_operand(other):
            return level().call(found[0] if found else _lookup(name, found), (self, other))
        return NotImplemented

    def backward(self: Any, other: Any) -> Any:
        if _is_operand(other):
            return level().call(found[0] if found else _lookup(name, found), (other, self))
        return NotImplemented

    return forward, backward


def _quotient() -> tuple[Any, Any]:
    """Divide; 1 / x is an op of its own, whose slope needs no division."""
    found: list[Any] = []
    forward, divided = _direct("Divide")

    def backward(self: Any, other: Any) -> Any:
        if type(other) in (int, float) and other == 1:
            return level().call(found[0] if found else _lookup("Reciprocal", found), (self,))
        return divided(self, other)

    return forward, backward


def _lookup(name: str, found: list[Any]) -> Any:
    found.append(REGISTRY[name]())  # type: ignore[abstract]
    return found[0]


def _is_operand(other: Any) -> bool:
    return isinstance(other, _OPERANDS) or hasattr(other, "shape")


def _unary(name: str) -> Any:
    def method(self: Any) -> Any:
        return FUNCTIONS[name](self)

    return method


def _method(name: str) -> Any:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return FUNCTIONS[name](self, *args, **options)

    method.__name__ = name
    method.__doc__ = f"The same as `rg.{name}` of this tensor."
    return method


def _along(name: str) -> Any:
    def method(self: Any, *axis: Any, **options: Any) -> Any:
        if len(axis) == 1:
            return FUNCTIONS[name](self, axis=axis[0], **options)
        return FUNCTIONS[name](self, *axis, **options)

    method.__name__ = name
    method.__doc__ = f"The same as `rg.{name}` of this tensor; the axis may come first."
    return method


class Operators:
    """The operators and methods of Tensor."""

    __slots__ = ()
    __hash__ = object.__hash__

    __add__, __radd__ = _direct("Add")
    __sub__, __rsub__ = _direct("Subtract")
    __mul__, __rmul__ = _direct("Multiply")
    __truediv__, __rtruediv__ = _quotient()
    __floordiv__, __rfloordiv__ = _binary("floor_divide")
    __mod__, __rmod__ = _binary("remainder")
    __pow__, __rpow__ = _binary("pow")
    __matmul__, __rmatmul__ = _binary("matmul")
    __and__, __rand__ = _binary("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor")
    __lshift__, __rlshift__ = _binary("bitwise_left_shift")
    __rshift__, __rrshift__ = _binary("bitwise_right_shift")
    __eq__, _ = _binary("equal")  # type: ignore[assignment]
    __ne__, _ = _binary("not_equal")  # type: ignore[assignment]
    __lt__, _ = _binary("less")
    __le__, _ = _binary("less_equal")
    __gt__, _ = _binary("greater")
    __ge__, _ = _binary("greater_equal")
    __neg__ = _unary("negative")
    __pos__ = _unary("positive")
    __abs__ = _unary("abs")
    __invert__ = _unary("bitwise_invert")

    abs = _method("abs")
    all = _along("all")
    any = _along("any")
    argmax = _along("argmax")
    argmin = _along("argmin")
    argsort = _along("argsort")
    astype = _method("astype")
    clip = _method("clip")
    conj = _method("conj")
    cumprod = _method("cumprod")
    cumsum = _method("cumsum")
    dot = _method("dot")
    exp = _method("exp")
    flatten = _method("flatten")
    log = _method("log")
    max = _along("max")
    mean = _along("mean")
    min = _along("min")
    prod = _along("prod")
    ravel = _method("flatten")
    repeat = _method("repeat")
    round = _method("round")
    sigmoid = _method("sigmoid")
    sort = _along("sort")
    sqrt = _method("sqrt")
    squeeze = _method("squeeze")
    std = _along("std")
    sum = _along("sum")
    swapaxes = _method("swapaxes")
    take = _method("take")
    tanh = _method("tanh")
    topk = _method("topk")
    var = _along("var")

    shape: Any
    dtype: Any
    array: Any

    def reshape(self, *shape: Any, copy: Any = None) -> Any:
        """Another shape, as one tuple or as several numbers; one may be -1."""
        sizes = shape[0] if len(shape) == 1 else shape
        return FUNCTIONS["reshape"](self, sizes, copy=copy)

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order; reversed when none is given."""
        one = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
        order = axes[0] if one else axes
        return FUNCTIONS["permute_dims"](self, order or tuple(range(self.ndim))[::-1])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> str:
        """Where the data is."""
        return "cpu"

    def to_device(self, device: str, /, *, stream: Any = None) -> Any:
        """This tensor on `device`; there is one device for now."""
        if not isinstance(device, str) or device != "cpu" or stream is not None:
            raise ArgumentError(f"to_device: the one device is 'cpu'; got {device!r}")
        return self

    @property
    def T(self) -> Any:  # noqa: N802 - the standard's name
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ArgumentError(
                f"T: needs 2 axes; got shape {self.shape}", hint="x.mT for stacks of matrices"
            )
        return FUNCTIONS["permute_dims"](self, (1, 0))

    @property
    def mT(self) -> Any:  # noqa: N802 - the standard's name
        """The transpose of each matrix in a stack."""
        return FUNCTIONS["matrix_transpose"](self)

    @property
    def real(self) -> Any:
        """The real part."""
        return FUNCTIONS["real"](self)

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return FUNCTIONS["imag"](self)

    @property
    def at(self) -> Any:
        """Functional updates: `x.at[index].set(v)`, `.add`, `.multiply`, `.min`, `.max`."""
        return FUNCTIONS["at"](self)

    def __getitem__(self, index: Any) -> Any:
        """Slices, integers, ellipsis, None, integer and boolean arrays."""
        return FUNCTIONS["getitem"](self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Make this handle hold the updated values; what was recorded keeps the old ones."""
        self.replace(FUNCTIONS["at"](self)[index].set(value))  # type: ignore[attr-defined]

    def __iter__(self) -> Any:
        """Along the first axis."""
        if not self.shape:
            raise ArgumentError("iter: a tensor without axes cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    def __len__(self) -> int:
        """The length of the first axis."""
        if not self.shape:
            raise ArgumentError("len: a tensor without axes has no length")
        return self.shape[0]

    def __contains__(self, value: Any) -> bool:
        """Whether an element equals `value`."""
        return _is_operand(value) and bool(FUNCTIONS["any"](FUNCTIONS["equal"](self, value)))

    # -- out of the tensor world ---------------------------------------------------------

    def item(self) -> Any:
        """The only element, as a Python number."""
        if self.size != 1:
            raise ArgumentError(f"item: needs exactly one element; got shape {self.shape}")
        return self.array.item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self.array.tolist()

    def numpy(self) -> np.ndarray:
        """A read-only NumPy view of the values."""
        view = self.array.view()
        view.flags.writeable = False
        return view

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """For NumPy: a read-only view, or a copy where another dtype is asked for."""
        other = dtype is not None and np.dtype(dtype) != self.dtype
        if other and copy is False:
            raise ArgumentError(f"array: {self.dtype} as {dtype} is a copy; copy is False")
        return np.array(self.array, dtype=dtype) if copy or other else self.numpy()

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        """NumPy's ufuncs on tensors give tensors, differentiable as ever."""
        return FUNCTIONS["from_ufunc"](ufunc, method, args, options)

    def __array_function__(self, f: Any, types: Any, args: Any, options: Any) -> Any:
        """NumPy's functions on tensors give tensors, or a clear error."""
        return FUNCTIONS["from_numpy"](f, args, options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The module that holds the array API's functions."""
        return FUNCTIONS["namespace"](api_version)

    def __dlpack__(self, **options: Any) -> Any:
        """Share the memory with another library; see `rg.debug.aliasing`."""
        return FUNCTIONS["to_dlpack"](self, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where the data is: (1, 0) is the CPU."""
        return (1, 0)

    def _scalar(self, who: str) -> Any:
        if self.size != 1:
            raise ArgumentError(
                f"{who}: needs exactly one element; got shape {self.shape}",
                hint="rg.any(x) or rg.all(x)" if who == "bool" else "",
            )
        return self.array.reshape(())[()]

    def _real(self, who: str, kind: Any) -> Any:
        number = self._scalar(who)
        if self.dtype.kind == "c":
            raise DtypeError(
                f"{who}: {self.dtype} has an imaginary part", hint=f"{who}(x.real)"
            )
        try:
            return kind(number)
        except (ValueError, OverflowError) as error:
            raise ArgumentError(f"{who}: {number} has no integer value") from error

    def __bool__(self) -> bool:
        """The truth of the only element."""
        return bool(self._scalar("bool"))

    def __int__(self) -> int:
        """The only element."""
        return self._real("int", int)

    def __float__(self) -> float:
        """The only element."""
        return self._real("float", float)

    def __complex__(self) -> complex:
        """The only element."""
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        """The only element, if it is an integer."""
        if self.dtype.kind not in "iu" or self.shape:
            raise DtypeError(
                f"index: only an integer tensor without axes is an index; got "
                f"{self.dtype}{list(self.shape)}"
            )
        return int(self.array)

    def __repr__(self) -> str:
        """Values, dtype, and whether it is on the tape."""
        return FUNCTIONS["show"](self)

    def __format__(self, form: str) -> str:
        """A tensor of one element takes number formats."""
        return format(self._scalar("format").item(), form) if form else repr(self)

    def __copy__(self) -> Any:
        """Another handle on the same values and the same place on the tape."""
        return self.handle()  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: Any) -> Any:
        """A copy of the values; a leaf becomes a new leaf."""
        return FUNCTIONS["deepcopy"](self)

    def __reduce__(self) -> Any:
        """Pickle as values, dtype and whether a gradient is required."""
        return FUNCTIONS["rebuild"], (np.array(self.array), self.requires_grad)  # type: ignore[attr-defined]


_OPERANDS: tuple[type, ...] = (Operators, bool, int, float, complex, np.ndarray, np.generic)
