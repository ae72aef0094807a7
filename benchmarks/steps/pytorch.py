"""PyTorch: eager, or the loss through torch.compile; updates by its fused optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.steps.row import Arrays, Row

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


class Runner:
    """A row, ready to run; float64 and eager it is the reference."""

    def __init__(
        self, row: Row, threads: int = 2, *, compiled: bool = False, wide: bool = False
    ) -> None:
        torch.set_num_threads(threads)
        self.row, self.compiled = row, compiled
        self.dtype = torch.float64 if wide else torch.float32
        self.data = self._tensors(row.draw().data)
        loss = row.pytorch(torch)
        self.loss = torch.compile(loss) if compiled else loss
        self.restart()

    def _tensors(self, arrays: Arrays) -> dict[str, torch.Tensor]:
        return {n: self._tensor(n, a) for n, a in arrays.items()}

    def _tensor(self, name: str, array: np.ndarray) -> torch.Tensor:
        t = torch.from_numpy(array).clone()
        t = t.to(self.dtype) if t.is_floating_point() else t
        kind = self.row.layouts.get(name, "")
        if not kind:
            return t
        if kind == "t":
            return t.mT.contiguous()
        if kind == "conv":  # kernels [*k, in, out], as [out, in, *k]
            t = t.permute(t.ndim - 1, t.ndim - 2, *range(t.ndim - 2))
        if kind == "image":  # [n, *space, c], as [n, c, *space]
            t = t.permute(0, t.ndim - 1, *range(1, t.ndim - 1))
        return t.contiguous(memory_format=FORMATS.get(t.ndim, torch.contiguous_format))

    def restart(self) -> None:
        """Back to the weights of the start."""
        drawn = self.row.draw()
        self.params = self._tensors(drawn.params)
        self.buffers = self._tensors(drawn.buffers)
        if self.row.whole:
            return
        for p in self.params.values():
            p.requires_grad_()
        kind = torch.optim.AdamW if self.row.optimizer == "adamw" else torch.optim.SGD
        fused = self.dtype is torch.float32
        self.optimizer = kind(list(self.params.values()), lr=self.row.lr, fused=fused)

    def run(self, lr: float) -> Any:
        """One step."""
        if self.row.whole:
            return self.loss(self.params, self.data)
        self.optimizer.zero_grad(set_to_none=True)
        more = (self.buffers,) if self.buffers else ()
        value = self.loss(self.params, self.data, *more)
        value.backward()
        self.optimizer.step()
        return value.detach()

    def found(self, lr: float) -> Arrays:
        """Gradients of the last step, or the state, in the layouts of the row."""
        if self.row.whole:
            return {n: p.detach().numpy() for n, p in self.params.items()}
        return {n: self._back(n, p.grad) for n, p in self.params.items()}

    def _back(self, name: str, t: Any) -> np.ndarray:
        a, kind = t.detach().numpy(), self.row.layouts.get(name, "")
        if kind == "t":
            return a.swapaxes(-1, -2)
        if kind == "image":
            return np.moveaxis(a, 1, -1)
        return a.transpose(*range(2, a.ndim), 1, 0) if kind == "conv" else a
