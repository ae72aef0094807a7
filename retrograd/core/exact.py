"""Exact: a small array as a value: hashable, compared by its bits, written and read as text.

NaN equals NaN and 0.0 is not -0.0, as a program's constants must. In text a number is the
shortest decimal that gives the same bits again; where none does (a NaN with a payload), the
bits themselves, `0x7fc00001`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core import dtype as dt
from retrograd.core.quiet import loud, quiet
from retrograd.core.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Iterable


class Exact:
    """The bytes of an array in row-major order, with its spec."""

    __slots__ = ("data", "spec")
    data: bytes
    spec: Spec

    def __init__(self, array: Any) -> None:
        array = np.asarray(array)
        object.__setattr__(self, "data", array.tobytes())
        object.__setattr__(self, "spec", Spec(array.shape, array.dtype))

    def __setattr__(self, name: str, value: Any) -> None:
        """Refused: values do not change."""
        raise AttributeError(f"Exact.{name} cannot be set: it is a value")

    @property
    def array(self) -> np.ndarray:
        """The array; its memory is the value's own and cannot be written."""
        return np.frombuffer(self.data, self.spec.dtype).reshape(self.spec.shape)

    def __eq__(self, other: object) -> bool:
        """Equal spec and bits."""
        return isinstance(other, Exact) and self.spec == other.spec and self.data == other.data

    def __hash__(self) -> int:
        """Of spec and bits."""
        return hash((self.spec, self.data))

    def __repr__(self) -> str:
        """`float32[2](1.0, -0.0)`."""
        return f"{self.spec}({', '.join(words(self.array))})"


def words(array: np.ndarray) -> list[str]:
    """Each element as text that `read` turns into the same bits."""
    return [_word(v) for v in array.reshape(-1)]


def _word(value: Any) -> str:
    word = _decimal(value)
    same = _number(word, value.dtype).tobytes() == value.tobytes()
    return word if same else "0x" + value.tobytes()[::-1].hex()


def _decimal(value: Any) -> str:
    if value.dtype.kind == "c":
        return f"{_decimal(value.real)}:{_decimal(value.imag)}"
    return repr(value.item()) if value.dtype.kind in "biu" else str(value)


def read(texts: Iterable[str], spec: Spec) -> Exact:
    """The value whose elements are written so; ValueError where a text is no such number."""
    numbers = [_number(t, spec.dtype) for t in texts]
    if len(numbers) != spec.size:
        raise ValueError(f"{spec.size} numbers for {spec}; got {len(numbers)}")
    return Exact(np.array(numbers, spec.dtype).reshape(spec.shape))


def _number(text: str, dtype: np.dtype) -> Any:
    """One element, of the dtype to the bit."""
    if text.startswith("0x"):
        return np.frombuffer(bytes.fromhex(text[2:])[::-1], dtype)[0]
    if dtype.kind == "c":
        parts = np.array(
            [_number(t, dt.real_of(dtype)) for t in text.split(":")], dt.real_of(dtype)
        )
        return parts.view(dtype)[0]
    if dtype.kind == "b":
        return np.bool_({"True": True, "False": False}[text])
    token = quiet()
    try:
        return np.asarray(int(text) if dtype.kind in "iu" else float(text), dtype)[()]
    finally:
        loud(token)
