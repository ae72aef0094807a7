"""A value that was asked for while a program is traced: what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.core.errors import TraceError

if TYPE_CHECKING:
    from retrograd.core.spec import Spec

__all__ = ["asked"]

_OPTION = 'rg.jit(f, static=("n",))      if it is an option, such as a length: list its name'

# what people write: who needs the value, and what to do about it
_CASES = {
    "bool": (
        "`if`, `while`, `and`, `or` and bool() need",
        "rg.where(condition, a, b), rg.cond or rg.while_loop; an option goes into static=",
    ),
    "int": ("int() needs", _OPTION),
    "index": ("range(), shapes and slices need", _OPTION),
    "float": ("float() needs", "the tensor itself; or return it, and float() outside"),
    "complex": ("complex() needs", "the tensor itself; or return it, and complex() outside"),
    "item": (".item() needs", "the tensor itself; or return it, and .item() outside"),
    "format": ("a format needs", "return it and print outside"),
    "tolist": (".tolist() needs", "return it, and .tolist() outside"),
    "numpy": (
        "NumPy needs",
        "rg's function of that name in place of NumPy's; or return it, and np.asarray outside",
    ),
}


def asked(who: str, spec: Spec) -> TraceError:
    """The refusal of a value that is not there yet."""
    what, hint = _CASES[who]
    return TraceError(
        f"{what} the value of a tensor, but while tracing it has only a spec: {spec}", hint=hint
    )
