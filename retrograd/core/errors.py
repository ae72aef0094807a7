"""What can go wrong, one class for each thing a caller can do about it.

    RetrogradError
    ├── ShapeError (ValueError)        shapes that do not fit each other
    ├── DtypeError (TypeError)         a dtype the op does not take
    ├── ArgumentError (ValueError)     an option out of its range
    ├── BoundsError (IndexError)       an index outside its axis
    ├── DerivativeError (ValueError)   no derivative exists, or it was consumed
    ├── BudgetError (MemoryError)      a budget of bytes that nothing fits in
    ├── DonatedError (ValueError)      a tensor whose memory a compiled call was given
    ├── FrozenError (AttributeError)   a field of a module or optimizer that was assigned to
    ├── TraceError (TypeError)         a value asked for where there is only a spec
    ├── AliasError (RuntimeError)      memory that the tape needs was changed from outside
    ├── NonFiniteError (ArithmeticError)  debug.nans() found the first NaN or infinity
    ├── CheckError (AssertionError)    debug.check found its condition false
    ├── ExtraError (ImportError)       an optional package that is not installed
    └── OpError (TypeError)            for authors: an op's rules do not fit its forward

Every message reads `who: what is wrong, with the values; what would be right`, then
`at` the user's line and, where one exists, `try` a line of code that would work.
"""

from __future__ import annotations

from typing import Any

from retrograd.core.where import Where, here, retold


class RetrogradError(Exception):
    """The root of all errors of this package.

    >>> import retrograd as rg
    >>> try:
    ...     rg.matmul(rg.ones((2, 3)), rg.ones((4, 5)))
    ... except rg.RetrogradError as error:
    ...     print(type(error).__name__)
    ShapeError
    """

    def __init__(self, message: str, *, at: Where | None = None, hint: str = "") -> None:
        self.message = message
        self.at = at or retold.get() or here(2)
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [self.message]
        if self.at is not None:
            lines.append(f"  at  {self.at}")
        if self.hint:
            lines.append(f"  try {self.hint}")
        return "\n".join(lines)

    def located(self, at: Where | None) -> RetrogradError:
        """This error, pointing at another line of the user's."""
        self.at = at or self.at
        self.args = (self._text(),)
        return self

    def __reduce__(self) -> Any:
        """Pickle with the user's line as text: other processes do not have the code."""
        state = {**self.__dict__, "at": None if self.at is None else str(self.at)}
        return _again, (type(self), self.args, state)


def _again(kind: type[RetrogradError], args: tuple[str], state: dict[str, Any]) -> Any:
    """An error as it was, from what pickling stored."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ShapeError(RetrogradError, ValueError):
    """Shapes that do not fit each other.

    >>> import retrograd as rg
    >>> rg.ones((2, 3)) + rg.ones(4)  # wrong: 3 and 4 do not broadcast
    Traceback (most recent call last):
    ...
    retrograd.core.errors.ShapeError: add: ...
    >>> (rg.ones((2, 3)) + rg.ones(3)).shape  # right
    (2, 3)
    """


class DtypeError(RetrogradError, TypeError):
    """A dtype that the op does not take.

    >>> import retrograd as rg
    >>> rg.tensor([1, 2], requires_grad=True)  # wrong: integers have no gradient
    Traceback (most recent call last):
    ...
    retrograd.core.errors.DtypeError: tensor: ...
    >>> rg.tensor([1.0, 2.0], requires_grad=True).shape  # right
    (2,)
    """


class ArgumentError(RetrogradError, ValueError):
    """An option outside its range.

    >>> import retrograd as rg
    >>> rg.sum(rg.ones((2, 3)), axis=5)  # wrong: there are two axes
    Traceback (most recent call last):
    ...
    retrograd.core.errors.ArgumentError: sum: ...
    """


class BoundsError(RetrogradError, IndexError):
    """An index outside its axis.

    >>> import retrograd as rg
    >>> rg.arange(3)[7]  # wrong
    Traceback (most recent call last):
    ...
    retrograd.core.errors.BoundsError: ...
    """


class DerivativeError(RetrogradError, ValueError):
    """No derivative exists, or what it needs was consumed by an earlier backward.

    >>> import retrograd as rg
    >>> x = rg.tensor(2.0, requires_grad=True)
    >>> y = x * x
    >>> y.backward()
    >>> y.backward()  # wrong: the first call consumed what was kept
    Traceback (most recent call last):
    ...
    retrograd.core.errors.DerivativeError: backward: ...
    """


class TraceError(RetrogradError, TypeError):
    """A value was asked for where there is only a spec, or a traced tensor escaped."""


class BudgetError(RetrogradError, MemoryError):
    """Bytes that are not enough: nothing ran, or all that ran before is still valid.

    `minimum` is the smallest budget found that would do, and `bound` what no plan can go
    below; both are None where the program is not known beforehand, as in eager code.
    """

    def __init__(
        self,
        message: str,
        *,
        minimum: int | None = None,
        bound: int | None = None,
        at: Where | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, at=at or retold.get() or here(2), hint=hint)
        self.minimum, self.bound = minimum, bound


class DonatedError(RetrogradError, ValueError):
    """A tensor was used after a compiled function had been given its memory to write in.

    >>> import retrograd as rg
    >>> step = rg.jit(lambda w: w - 0.1, donate=("w",))
    >>> w = rg.ones(3)
    >>> new = step(w)
    >>> w + 1  # wrong
    Traceback (most recent call last):
    ...
    retrograd.core.errors.DonatedError: ...
    >>> new + 1  # right
    tensor([1.9, 1.9, 1.9])
    """


class FrozenError(RetrogradError, AttributeError):
    """A field of a module or optimizer was assigned to; they do not change once made.

    >>> import retrograd as rg
    >>> norm = rg.nn.LayerNorm(3)
    >>> norm.eps = 0.1  # wrong
    Traceback (most recent call last):
    ...
    retrograd.core.errors.FrozenError: LayerNorm.eps ...
    >>> norm.replace(eps=0.1).eps  # right
    0.1
    """


class AliasError(RetrogradError, RuntimeError):
    """Memory that a later backward needs was changed from outside."""


class NonFiniteError(RetrogradError, ArithmeticError):
    """An op made a NaN or an infinity from finite operands, while rg.debug.nans() watched.

    >>> import retrograd as rg
    >>> with rg.debug.nans():
    ...     rg.log(rg.zeros(2))
    Traceback (most recent call last):
    ...
    retrograd.core.errors.NonFiniteError: log: ...
    """


class CheckError(RetrogradError, AssertionError):
    """A condition that rg.debug.check was given is false; the message is the caller's.

    >>> import retrograd as rg
    >>> rg.debug.check(rg.asarray([1.0, -1.0]) > 0, "rates must be positive")
    Traceback (most recent call last):
    ...
    retrograd.core.errors.CheckError: check: rates must be positive; false in 1 of 2 ...
    """


class ExtraError(RetrogradError, ImportError):
    """A function needs an optional package, which is not installed; the message names it."""


class OpError(RetrogradError, TypeError):
    """For authors of ops: a rule does not fit its forward."""
