"""The backward pass: cotangents walk the tape from the latest node to the earliest.

The chores are done here, once for all ops: summing over broadcast axes, restoring dtypes,
adding up several uses in a fixed order (latest use first), skipping what needs nothing,
freeing what is consumed, calling hooks. The walk is a heap, not recursion.

First-order passes over concrete values run the rules on bare arrays (interpreter Raw);
otherwise the rules run on tensors under the current interpreter, and are differentiable.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heappushpop
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.autodiff.shown import Shown, adjoint, face, public
from retrograd.core import dtype as dt
from retrograd.core import replay
from retrograd.core.errors import DerivativeError, OpError, RetrogradError
from retrograd.core.executor import LIGHT
from retrograd.core.interpret import PURE, RAW, current, using
from retrograd.core.op import FUNCTIONS
from retrograd.core.quiet import loud, quiet
from retrograd.core.record import Deferred
from retrograd.core.tape import Joint, Leaf, Node, Pick
from retrograd.core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Pass:
    """One backward pass. `raw`: on arrays. `consume`: free each node when it is done.

    `constant`: kept values are constants to whoever differentiates this pass again.
    """

    def __init__(
        self, *, raw: bool, consume: bool, constant: bool = False, leaf_done: Any = None
    ) -> None:
        self.raw = raw
        self.constant = constant
        self.consume = consume
        self.leaf_done = leaf_done
        self.grads: dict[Node, Any] = {}
        self.leaves: dict[Node, Any] = {}  # complete
        self.arrived: dict[Node, Any] = {}  # of leaves, not complete yet
        self.owned: set[Node] = set()  # sums made here, which may be added to in place
        self.pending: dict[Node, int] = {}
        self.region: Any = None
        self.account = replay.accounting(replay.region_now.get())
        self.witness = current.get().witness

    def run(self, seeds: Iterable[tuple[Node, Any]]) -> dict[Node, Any]:
        """Pull the seeds back; the cotangents of the leaves, in the order they completed."""
        for node, g in seeds:
            self._add(node, g)
        if self.leaf_done is not None:
            self._count()
        if not self.raw:
            self._walk()
            return self.leaves
        token = quiet()
        try:
            with using(RAW):
                self._walk()
        finally:
            loud(token)
        return self.leaves

    def _walk(self) -> None:
        """Latest node first. `node` runs ahead of the heap, which chains never touch."""
        grads, consume = self.grads, self.consume
        simple = self.raw and self.witness is None and self.account is None
        heap = [(node.order, node) for node in grads]
        heapify(heap)
        while heap:
            node: Any = heappop(heap)[1]
            while node is not None:
                g, parents, kept = grads.pop(node), node.parents, node.kept
                if node.extras is not None:
                    g = self._hooked(node, g)
                usual = type(node) is Node and type(g) is not Shown and node.region is None
                if simple and usual and kept is not None:
                    try:
                        found = node.recipe.pull(node.op, g, kept, len(parents))
                    except RetrogradError as error:
                        raise error.located(node.where) from error.__cause__
                    if consume:
                        node.kept, node.parents = None, ()
                else:
                    found = self._pull(node, g)
                soon = None
                for p, c in zip(parents, found, strict=True):
                    if p is None or c is None:
                        continue
                    if type(c) is tuple or c.shape != p.shape or c.dtype is not p.dtype:
                        c = self._fit(c, p, node)
                    if p.op is None or p in grads:
                        self._add(p, c)
                    elif soon is None:
                        grads[p], soon = c, p
                    else:
                        grads[p] = c
                        heappush(heap, (p.order, p))
                if self.pending:
                    self._settle(parents)
                node = heappushpop(heap, (soon.order, soon))[1] if heap and soon else soon
        self._end()

    def _end(self) -> None:
        if self.region is not None:
            self._enter(None)
        for leaf in sorted(self.arrived, key=lambda n: n.order):
            self._leaf(leaf)

    def _add(self, node: Node, c: Any) -> None:
        """One more cotangent for a leaf, which is not walked, or for a node that waits."""
        where = self.arrived if node.op is None else self.grads
        if node in self.owned:
            old = where[node]
            old += c
            return
        old = where.get(node)
        if old is None or self.account is None or type(c) is not np.ndarray:
            where[node] = c if old is None else self._sum(node, old, c)
            return
        self.account.before(c.nbytes)
        where[node] = self.account.count(self._sum(node, old, c))

    def _pull(self, node: Node, g: Any) -> Any:
        """The cotangents of one node's inputs, where there is more to it than a recipe."""
        if self.region is not node.region:
            self._enter(node.region)
        if type(node) is Pick:
            return ((node.index, g),)
        kept = node.kept
        if kept is None:
            raise consumed(node)
        try:
            if self.witness is not None:
                self.witness.check(node)
            if type(node) is Joint:
                g = self._filled(node, g)
            kept = self._kept(node)
            if self.account is not None:
                self.account.before_pull(node)
            if type(g) is Shown:
                found = (adjoint(node, g),)
            else:
                found = node.recipe.pull(node.op, g, kept, len(node.parents))
            if self.account is not None:
                self.account.after_pull(found)
        except RetrogradError as error:
            raise error.located(node.where) from error.__cause__
        if self.consume:
            node.kept, node.parents = None, ()
        return found

    def _kept(self, node: Node) -> Any:
        """What a node kept, as this pass needs it: arrays, or tensors."""
        op = node.op
        assert op is not None
        if op.saves:
            return _residuals(node, raw=self.raw or self.constant)
        if self.raw:
            return tuple(_map(_array, k) for k in node.kept)
        if self.constant:
            return tuple(_map(lambda v: _placed(v, None), k) for k in node.kept)
        keeps = node.recipe.keeps
        indices = range(len(node.kept)) if keeps is None else [k.index for k in keeps]
        return tuple(_tensors(v, node, i) for i, v in zip(indices, node.kept, strict=True))

    def _sum(self, node: Node, old: Any, new: Any) -> Any:
        if type(new) is list:  # of a joint: one slot for each output
            return [
                b if a is None else a if b is None else a + b
                for a, b in zip(old, new, strict=True)
            ]
        if self.raw and type(old) is np.ndarray and old.ndim:
            self.owned.add(node)  # the sum is ours: the next one is added in place
            if old.size >= LIGHT:
                return FUNCTIONS["add"](old, new)
        return old + new

    def _fit(self, c: Any, node: Node, source: Node) -> Any:
        """A cotangent in the shape and dtype of its node."""
        if type(c) is tuple:  # from a Pick to its Joint
            slots: list[Any] = [None] * len(node.specs)  # type: ignore[attr-defined]
            slots[c[0]] = c[1]
            return slots
        if c.shape != node.shape:
            if _cannot_shrink(c.shape, node.shape):
                raise OpError(
                    f"{source.op.name if source.op else 'leaf'}: its rule returns a cotangent "
                    f"of shape {c.shape} for an input of shape {node.shape}"
                )
            c = FUNCTIONS["sum_to"](c, node.shape)
        return c if c.dtype == node.dtype else FUNCTIONS["restore"](c, node.dtype)

    def _filled(self, node: Joint, g: list[Any]) -> list[Any]:
        """Zeros for the cotangents that never arrived, unless the rule takes None."""
        parts = getattr(node.recipe, "parts", ())
        op = node.op
        assert op is not None
        may = (
            set.intersection(*(op.optional(rule) for _, rule, _, _ in parts))
            if parts
            else set()
        )
        return [
            Pass._zeros(s, raw=self.raw)
            if c is None and i not in may and dt.is_inexact(s.dtype)
            else c
            for i, (c, s) in enumerate(zip(g, node.specs, strict=True))
        ]

    @staticmethod
    def _zeros(spec: Any, *, raw: bool) -> Any:
        zeros = np.zeros(spec.shape, spec.dtype)
        return zeros if raw else Tensor(zeros)

    def _hooked(self, node: Node, g: Any) -> Any:
        extras = node.extras
        assert extras is not None
        for hook in tuple(extras.hooks.values()):
            found = outside(_ask, hook, g, node)
            if found is not None:
                g = found.array if self.raw else found
        if extras.retain:
            extras.grad = outside(public, g)
        return g

    def _leaf(self, node: Node) -> None:
        """A leaf is complete."""
        g = self.arrived.pop(node)
        if node.extras is not None:
            g = self._hooked(node, g)
        self.leaves[node] = g
        if self.leaf_done is not None and isinstance(node, Leaf):
            self.leaf_done(node, g)

    def _enter(self, region: Any) -> None:
        """Leave checkpoint regions: what was replayed for them is dropped."""
        self.region = replay.move(self.region, region)

    # -- the moment a leaf is complete: counted only when somebody wants to know -------------

    def _count(self) -> None:
        """How many uses of each node are on the way to the seeds."""
        seen, stack = set(self.grads), list(self.grads)
        while stack:
            for p in stack.pop().parents:
                if p is not None:
                    self.pending[p] = self.pending.get(p, 0) + 1
                    if p not in seen:
                        seen.add(p)
                        stack.append(p)

    def _settle(self, parents: Iterable[Node | None]) -> None:
        stack = [p for p in parents if p is not None]
        while stack:
            p = stack.pop()
            self.pending[p] -= 1
            if self.pending[p]:
                continue
            if p in self.arrived:
                self._leaf(p)
            elif p not in self.grads:  # no gradient came: its own parents lose a use
                stack += [q for q in p.parents if q is not None]


def consumed(node: Node) -> DerivativeError:
    """A second backward over what the first one freed."""
    return DerivativeError(
        f"backward: what {node.op.name if node.op else 'leaf'} kept was consumed by an "
        f"earlier backward",
        at=node.where,
        hint="loss.backward(retain_graph=True) the first time",
    )


def outside(f: Callable[..., Any], *args: Any) -> Any:
    """Run user code as if no backward pass were going on around it."""
    level = current.get()
    with using(PURE if level is RAW else level):
        return f(*args)


def _ask(hook: Callable[[Tensor], Any], g: Any, node: Node) -> Tensor | None:
    """The cotangent that a hook puts in place of g, if it returns one."""
    found = hook(public(g))
    if found is None:
        return None
    found = FUNCTIONS["lift"](found)
    if found.shape != node.shape:
        raise DerivativeError(
            f"register_hook: the hook returned shape {found.shape} for a gradient of shape "
            f"{node.shape}; it must be the same, or None to leave the gradient as it is",
            at=node.where,
        )
    return face(found if found.dtype == node.dtype else FUNCTIONS["astype"](found, node.dtype))


def _cannot_shrink(big: tuple[int, ...], small: tuple[int, ...]) -> bool:
    lead = len(big) - len(small)
    return lead < 0 or any(n not in (m, 1) for m, n in zip(big[lead:], small, strict=True))


def _map(f: Callable[[Any], Any], value: Any) -> Any:
    return tuple(f(v) for v in value) if type(value) is tuple else f(value)


def _array(value: Any) -> Any:
    return value.array if isinstance(value, (Tensor, Deferred)) else value


def _tensors(value: Any, node: Node, index: int) -> Any:
    """A kept value as the tensor that it was, on its old place on the tape."""
    op = node.op
    assert op is not None
    if type(value) is tuple:  # the inputs of a variadic op
        return tuple(_placed(v, p) for v, p in zip(value, node.parents, strict=True))
    inputs = 1 if op.variadic else len(op.inputs)
    if index < inputs:
        return _placed(value, node.parents[index])
    if type(node) is Joint:
        pick = node.picks[index - inputs]  # of a result that nobody holds: made again
        return _placed(value, pick and (pick() or Pick(node, index - inputs)))
    return _placed(value, node)


def _placed(value: Any, node: Node | None) -> Any:
    if isinstance(value, Deferred) and value.cell.spec is not None:
        return Tensor(None, node, value.cell)  # its bytes may go and come back
    if isinstance(value, (np.ndarray, Deferred)):
        return Tensor(_array(value), node)
    return value


def _residuals(node: Node, *, raw: bool) -> Any:
    """What a `save` rule kept; computed again on the tape where it must be differentiated."""
    args, residuals = node.kept
    if raw or args is None:
        return residuals
    return node.op.save(*args)[1]  # type: ignore[union-attr]
