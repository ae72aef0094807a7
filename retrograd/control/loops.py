"""while_loop and fori_loop: loops whose end the data decides, as ops with derivatives.

Forward mode is a loop over values and tangents side by side. Reverse mode needs every state
on the way: eager code has counted the steps when the loop ends, and keeps that many; a traced
program must know a bound, `max_steps`, and then the loop is a scan of that many steps, each of
which does nothing once the condition has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.batch import vmap
from retrograd.autodiff.forward import jvp
from retrograd.control.branch import cond
from retrograd.control.scan import Scan, ScanPull, scan
from retrograd.control.scan_push import captured_first, smooth
from retrograd.core import dtype as dt
from retrograd.core import tree
from retrograd.core.errors import (
    ArgumentError,
    DerivativeError,
    DtypeError,
    ShapeError,
    TraceError,
)
from retrograd.core.interpret import PURE, RAW, apply, current, lift, using
from retrograd.core.op import FUNCTIONS, Op, front, function, op
from retrograd.core.spec import Spec
from retrograd.core.tensor import Tensor
from retrograd.ir.evaluate import evaluate, silent
from retrograd.ir.graph import Graph
from retrograd.ir.trace import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["fori_loop", "while_loop"]


@op
class While(Op):
    """carry = body(consts, carry) as long as test(consts, carry) holds."""

    test: Graph  # inputs: consts, carry; output: one truth value
    body: Graph  # inputs: consts, carry; outputs: carry
    consts: int
    outputs = ("*results",)
    saves = True
    bodied = True
    host = "runs its body until its test fails"

    def shape(self, *args: Spec) -> tuple[Spec, ...]:
        return self.body.output_specs

    def forward(self, *args: Any) -> tuple[Any, ...]:
        with using(RAW):
            return tuple(self._loop(args)[0])

    def _loop(self, args: Sequence[Any], kept: list[Any] | None = None) -> tuple[Any, Any]:
        consts, carry = args[: self.consts], list(args[self.consts :])
        while bool(evaluate(self.test, *consts, *carry)[0]):
            if kept is not None:
                kept.append(carry)
            carry = [np.asarray(c) for c in evaluate(self.body, *consts, *carry)]
        return carry, kept

    def save(self, *args: Any) -> tuple[list[Any], Any]:
        """The results, and every carry on the way."""
        try:
            arrays = [a.array for a in args]
        except TraceError as error:
            raise DerivativeError(
                "while_loop: reverse mode while tracing, or over a mapped loop, must know how "
                "many steps there are at most",
                hint="rg.while_loop(test, body, init, max_steps=1000)",
            ) from error
        with using(RAW):
            carry, kept = self._loop(arrays, [])
        if current.get() is not PURE:  # inside another transform: as many steps, through it
            again = silent(self.body)
            return Scan(again, self.consts, len(carry), len(kept)).save(*args)
        rows = [
            np.stack([k[i] for k in kept]) if kept else np.zeros((0, *s.shape), s.dtype)
            for i, s in enumerate(self.body.output_specs)
        ]
        return [Tensor(c) for c in carry], (list(args), [Tensor(r) for r in rows])

    def batch(self, size: int, args: Sequence[Any], mapped: Sequence[bool]) -> tuple[Any, ...]:
        """Run until all are done; those that are done stay as they are."""
        n = self.consts
        args, mapped = list(args), list(mapped)
        args[n:] = front(size, args[n:], mapped[n:])
        axes = tuple(0 if m else None for m in [*mapped[:n], *[True] * (len(args) - n)])
        test = vmap(lambda *a: evaluate(self.test, *a), in_axes=axes)
        again = vmap(lambda *a: evaluate(silent(self.test), *a), in_axes=axes)
        body = vmap(lambda *a: evaluate(self.body, *a), in_axes=axes)

        def step(*a: Any) -> list[Any]:
            going = again(*a)[0]
            return [
                FUNCTIONS["where"](
                    FUNCTIONS["reshape"](going, (size, *(1,) * (new.ndim - 1))), new, old
                )
                for new, old in zip(body(*a), a[n:], strict=True)
            ]

        return looping(lambda *a: [FUNCTIONS["any"](test(*a)[0])], step, args, n)

    @classmethod
    def reverse(cls, mask: int) -> Any:
        return WhilePull(mask)

    @classmethod
    def ahead(cls, mask: int) -> Any:
        return WhilePush()

    @staticmethod
    def samples(rng):
        specs = [Spec((3,), dt.float64)] * 2
        test, extra = trace(lambda a, h: [FUNCTIONS["sum"](h) < 5.0], specs)
        body, more = trace(lambda a, h: [h + a * a], specs)
        test, bound = captured_first(test, len(extra)), [t.array for t in extra]
        wide, _ = trace(
            lambda *xs: evaluate(captured_first(body, len(more)), *xs[len(bound) :]),
            test.inputs,
        )
        a, h = rng.uniform(0.5, 1, 3), rng.uniform(0, 1, 3)
        yield While(test, wide, 1 + len(bound)), *bound, a, h


def looping(test: Any, body: Any, args: Sequence[Any], consts: int) -> tuple[Any, ...]:
    """While of two Python functions of flat tensors; what they capture becomes more consts."""
    specs = [a.spec for a in args]
    (a, first), (b, second) = trace(test, specs), trace(body, specs)
    wide = [t.spec for t in (*first, *second)]
    k, m = len(first), len(wide)
    inner = captured_first(a, k), captured_first(b, len(second))
    full = [*wide, *specs]
    tested, _ = trace(lambda *x: evaluate(inner[0], *x[:k], *x[m:]), full)
    stepped, _ = trace(lambda *x: evaluate(inner[1], *x[k:m], *x[m:]), full)
    return apply(While(tested, stepped, m + consts), *first, *second, *args)


class WhilePush:
    """jvp: values and tangents side by side; the test looks at the values."""

    keeps = None

    def keep(self, values: Any) -> Any:
        """The inputs."""
        return values[0]

    def push(self, op: While, tangents: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
        """The tangents of the last carry."""
        inputs, n = op.body.inputs, op.consts
        tested, once = silent(op.test), silent(op.body)
        hot = smooth(inputs)
        ts = {i: op.zeros(inputs[i]) if tangents[i] is None else tangents[i] for i in hot}
        consts, carry = [i for i in hot if i < n], [i for i in hot if i >= n]
        c = len(consts)

        def split(a: Sequence[Any]) -> tuple[list[Any], dict[int, Any]]:
            # consts, their tangents, carry, its tangents
            primals = [*a[:n], *a[n + c : n + c + len(inputs) - n]]
            given = dict(
                zip([*consts, *carry], [*a[n : n + c], *a[len(inputs) + c :]], strict=True)
            )
            return primals, given

        def test(*a: Any) -> list[Any]:
            return evaluate(tested, *split(a)[0])

        def body(*a: Any) -> list[Any]:
            primals, given = split(a)
            full = [given.get(i, p) for i, p in enumerate(primals)]
            outs, pushed = jvp(lambda *p: evaluate(once, *p), primals, full)
            return [*outs, *(pushed[i - n] for i in carry)]

        args = [*kept[:n], *(ts[i] for i in consts), *kept[n:], *(ts[i] for i in carry)]
        outs = looping(test, body, args, n + c)
        found = dict(zip(carry, outs[len(inputs) - n :], strict=True))
        return [found.get(i) for i in range(n, len(inputs))]


class WhilePull:
    """vjp: a scan backwards over the carries that the loop went through."""

    keeps = ()

    def __init__(self, mask: int) -> None:
        self.mask = mask

    def pull(self, op: While, g: Sequence[Any], kept: Any, count: int) -> list[Any]:
        """The cotangents of the inputs."""
        args, carries = kept
        steps = carries[0].shape[0] if carries else 0
        same = Scan(op.body, op.consts, count - op.consts, steps)
        return ScanPull(self.mask).pull(same, g, (args, carries), count)


@function
def while_loop(
    test: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    *,
    max_steps: int | None = None,
) -> Any:
    """carry = body(carry) as long as test(carry) holds; the last carry.

    The carry is a tree that keeps its structure, shapes and dtypes. With `max_steps` the loop
    is a scan of that many steps, which can be differentiated in reverse under every transform.
    """
    first, structure = tree.flatten(init)
    first = [lift(c) for c in first]

    def flat_test(*a: Any) -> list[Any]:
        found = lift(test(tree.unflatten(structure, a)))
        if found.shape != () or found.dtype != dt.bool:
            raise DtypeError(f"while_loop: test must return one truth value; got {found.spec}")
        return [found]

    def flat_body(*a: Any) -> list[Any]:
        leaves, given = tree.flatten(body(tree.unflatten(structure, a)))
        leaves = [lift(x) for x in leaves]
        if given != structure or [x.spec for x in leaves] != [x.spec for x in first]:
            raise ShapeError(
                f"while_loop: the carry is {structure} of {_list(first)}; body returns {given} "
                f"of {_list(leaves)}"
            )
        return leaves

    if max_steps is None:
        return tree.unflatten(structure, looping(flat_test, flat_body, first, 0))
    carry = _bounded(flat_test, flat_body, first, max_steps)
    return tree.unflatten(structure, carry)


def _list(leaves: Sequence[Any]) -> str:
    return ", ".join(str(x.spec) for x in leaves)


def _bounded(test: Any, body: Any, first: list[Any], steps: int) -> Any:
    if not isinstance(steps, int) or steps < 0:
        raise ArgumentError(f"while_loop: max_steps must be a count; got {steps!r}")

    def step(carry: Any, _: None) -> tuple[Any, None]:
        new = cond(test(*carry)[0], lambda *a: tuple(body(*a)), lambda *a: a, *carry)
        return tuple(new), None

    return scan(step, tuple(first), None, length=steps)[0]


@function
def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """carry = body(i, carry) for i from lower to upper - 1; the last carry.

    With Python integers for bounds it is a scan, so reverse mode needs nothing more.
    """
    if isinstance(lower, int) and isinstance(upper, int):
        numbers = FUNCTIONS["arange"](lower, max(upper, lower))
        return scan(lambda carry, i: (body(i, carry), None), init, numbers)[0]
    upper = lift(upper)
    start = FUNCTIONS["astype"](lift(lower), dt.int64)
    _, carry = while_loop(
        lambda state: state[0] < upper,
        lambda state: (state[0] + 1, body(state[0], state[1])),
        (start, init),
    )
    return carry
