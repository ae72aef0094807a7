"""checkpoint(f): keep the inputs of f, compute the rest again when a derivative needs it."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from retrograd.core import tree
from retrograd.core.interpret import apply
from retrograd.core.op import Linear, function, op
from retrograd.core.replay import Region, region_now
from retrograd.core.spec import Spec
from retrograd.core.tensor import Box, Tensor
from retrograd.memory.eager import Budgeted
from retrograd.memory.ledger import Ledger
from retrograd.memory.policy import Keeping, Policy
from retrograd.memory.sizes import bytes_of
from retrograd.memory.spill import directory_of, shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["checkpoint", "name"]


@function
def checkpoint(
    f: Callable[..., Any] | None = None,
    *,
    policy: str = "nothing",
    names: Sequence[str] = (),
    offload: Sequence[str] = (),
    spill: Any = None,
    budget: int | str | None = None,
) -> Callable[..., Any]:
    """f, keeping none of its intermediate values for the backward pass, only its inputs.

    They are computed again when they are needed, by the same ops on the same arrays: gradients
    are the same to the bit, and nothing but arithmetic runs twice. `policy` says what is kept
    all the same: "nothing", "everything", "dots" (what products and convolutions made), "cheap"
    (all but what is made element by element); `names`: what `rg.name(x, "label")` labelled.
    Those in `offload` go to a file, in the directory `spill`. With a `budget` of bytes, what
    fits is kept, as in `rg.budget` with that `spill`. In compiled programs the budget of
    `rg.jit` decides.
    """
    if f is None:
        given = {"policy": policy, "names": names, "offload": offload}
        return partial(checkpoint, **given, spill=spill, budget=budget)
    directory = directory_of("checkpoint", spill)
    keeps = Policy(policy, frozenset(names), frozenset(offload), directory)
    limit = None if budget is None else bytes_of("checkpoint", budget)

    @wraps(f)
    def checkpointed(*args: Any, **options: Any) -> Any:
        outer = region_now.get()
        region: Region = Keeping(outer, keeps)
        if limit is not None:
            region = Budgeted(Ledger(limit, shelf=shelf(directory)), outer)
        token = region_now.set(region)
        try:
            out = f(*args, **options)
        finally:
            region_now.reset(token)
        return tree.map(lambda x: _leave(x, region), out)

    return checkpointed


@op
class Name(Linear):
    """The same values, with a label that a checkpoint's policy can ask for."""

    label: str

    def shape(self, x: Spec) -> Spec:
        return x

    def forward(self, x):
        return x.copy()

    def transpose(self, g):
        return g

    def expand(self, x):
        return x

    @staticmethod
    def samples(rng):
        yield Name("hidden"), rng.normal(size=(3, 2))


def name(x: Any, label: str) -> Any:
    """x under a label, by which `rg.checkpoint(f, names=[label])` keeps it."""
    return apply(Name(label), x)


def _leave(x: Any, region: Region) -> Any:
    """A result of the region: held, or a value of the region around this one."""
    if isinstance(x, Box):
        return x.remake(lambda t: _leave(t, region))
    if not isinstance(x, Tensor):
        return x
    x = x.handle()
    if x._cell is not None and x._cell.step.region is region:
        x._data = x.array
        if region.outer is None:
            x._cell = None
        else:
            return region.outer.adopt(x)
    return x
