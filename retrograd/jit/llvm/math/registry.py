"""The functions that kernels may call, each with the error that its tests hold it to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from retrograd.jit.llvm.build import Fn
from retrograd.jit.llvm.math.num import Num
from retrograd.jit.loops import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrograd.jit.llvm.text import Val

__all__ = ["BOUNDS", "FUNCTIONS", "Bound", "function"]


class Bound(NamedTuple):
    """Largest error in units of the last place, by dtype, with and without fma."""

    f32: float
    f64: float
    f32_plain: float
    f64_plain: float

    def of(self, bits: int, *, fma: bool) -> float:
        """The bound for floats of so many bits."""
        if bits == 32:
            return self.f32 if fma else self.f32_plain
        return self.f64 if fma else self.f64_plain


FUNCTIONS: dict[str, Callable[..., Val]] = {}
BOUNDS: dict[str, Bound] = {}

Formula = Any  # Num, ... -> Num


def function(
    f32: float = 0.51,
    f64: float = 0.51,
    *,
    plain: tuple[float, float] | None = None,
    outline: bool = False,
    wide: bool = False,
) -> Callable[[Formula], Formula]:
    """Offer a formula under its name, with its bounds in ulps.

    `plain`: the bounds on machines without fma, where they differ. `outline`: the formula is
    a function of the module, called, not repeated. `wide`: float32 is computed in float64.
    """

    def offer(formula: Formula) -> Formula:
        name = formula.__name__.rstrip("_")
        BOUNDS[name] = Bound(f32, f64, *(plain or (f32, f64)))

        def inline(f: Fn, *args: Val) -> Val:
            nums = [Num(f, a, f"f{a.type.bits}") for a in args]
            return formula(*(n.widened() for n in nums) if wide else nums).narrowed().val

        def outlined(f: Fn, *args: Val) -> Val:
            t = args[0].type
            own = f"math_{name}_{t.suffix}"

            def write() -> None:
                names = [f"x{i}" for i in range(len(args))]
                inner = Fn(f.module, own, [(n, t) for n in names], t, attributes=_CALLED)
                inner.done(inline(inner, *(inner.arg(n) for n in names)))

            found = f.call(f.module.once(own, write), t, *args)
            assert found is not None
            return found

        FUNCTIONS[name] = outlined if outline else inline
        vocabulary.FUNCTIONS.add(name)
        return formula

    return offer


_CALLED = "noinline nounwind"
