"""State-space models: recurrences, scans, rotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import retrograd as rg
from benchmarks.heavy.case import Case, Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

REASONS = {
    "recurrence": "a kernel each way",
    "selective": "a kernel each way; the states are computed again backward",
    "ssd": "a program each way; the forward pass is computed again backward",
    "conv": "a kernel each way",
    "rotation": "a kernel each way; sines and cosines of each angle twice",
    "quaternion": "a kernel each way",
}


def cases() -> Iterator[Case]:
    """All rows of this family."""
    from benchmarks.heavy import ssm_peers as peers

    draw = Draw(7)
    yield from _recurrences(draw, peers)
    yield from _mamba2(draw, peers)
    yield from _mamba3(draw, peers)
    yield from _rotations(draw, peers)


def _recurrences(draw: Draw, peers: Any) -> Iterator[Case]:
    pair = [draw.uniform(0.5, 1, 1024, 512), draw.normal(1024, 512)]
    linear = (rg.ssm.linear_recurrence, peers.two_levels)
    yield Case("linear_recurrence 1024 x 512", "recurrence", *linear, pair)
    wide, narrow = (2, 512, 256), (2, 512, 16)
    yield Case(
        "selective_scan 2x512x256, state 16",
        "selective",
        lambda *xs: rg.ssm.selective_scan(*xs, delta_softplus=True)[0],
        peers.selective_scan,
        [
            draw.normal(*wide),
            draw.normal(*wide),
            -draw.uniform(0.3, 2, 256, 16),
            draw.normal(*narrow),
            draw.normal(*narrow),
            draw.normal(256),
            draw.normal(*wide),
            draw.normal(256),
        ],
    )
    yield Case(
        "causal_conv1d 4x1024x256, 4 taps, state",
        "conv",
        lambda x, w, b, state: rg.ssm.causal_conv1d(x, w, b, state=state)[0],
        peers.causal_conv1d,
        [
            draw.normal(4, 1024, 256),
            draw.normal(4, 256),
            draw.normal(256),
            draw.normal(4, 3, 256),
        ],
    )


def _mamba2(draw: Draw, peers: Any) -> Iterator[Case]:
    arrays = [
        draw.normal(1, 1024, 8, 64),
        draw.uniform(0.01, 0.3, 1, 1024, 8),
        -draw.uniform(0.3, 2, 8),
        draw.normal(1, 1024, 1, 64),
        draw.normal(1, 1024, 1, 64),
        draw.normal(8),
    ]
    for algorithm in ("recompute", "serial", "minimal"):
        yield Case(
            f"ssd {algorithm} 1x1024x8x64, state 64",
            "ssd",
            lambda *xs, how=algorithm: rg.ssm.ssd(*xs[:5], D=xs[5], algorithm=how)[0],
            peers.mamba2,
            arrays,
        )


def _mamba3(draw: Draw, peers: Any) -> Iterator[Case]:
    for form in ("single", "double"):
        theirs = getattr(peers, form)
        for name, m, chunk in (("SISO", 1, 64), ("MIMO 4", 4, 16)):
            time, head = (1, 1024, 8), (1, 1024, m, 8, 64)
            yield Case(
                f"mamba3_scan {form}, {name}, 1x1024x8x64, state 64",
                "ssd",
                lambda *xs, form=form: rg.ssm.mamba3_scan(*xs, form=form)[0],
                lambda *xs, theirs=theirs, chunk=chunk: theirs(*xs, chunk),
                [
                    draw.normal(*head),
                    draw.uniform(0.01, 0.3, *time),
                    -draw.uniform(0.3, 2, *time),
                    draw.uniform(0.1, 0.9, *time),
                    draw.normal(*head),
                    draw.normal(*head),
                ],
            )


def _rotations(draw: Draw, peers: Any) -> Iterator[Case]:
    def ours(x: Any, rot: Any, dt: Any) -> Any:
        angles, _ = rg.ssm.running_angles(rg.ssm.rotation_angles(rot, dt), axis=1)
        return rg.ssm.rotate_pairs(x, angles)

    yield Case(
        "rotate_pairs by running_angles 2x1024x8x64",
        "rotation",
        ours,
        peers.turned,
        [
            draw.normal(2, 1024, 8, 64),
            draw.normal(2, 1024, 32),
            draw.uniform(0.01, 0.3, 2, 1024, 8),
        ],
    )
    q = draw.normal(512, 128, 4)
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    scans = (rg.ssm.quaternion_scan, peers.quaternion_scan)
    yield Case("quaternion_scan 512 x 128", "quaternion", *scans, [q])
