"""The table: each of our ops, and how torch and jax are asked for the same thing.

A row is `Row(torch=..., jax=...)`, functions of the op and its inputs, or a sentence that says
why there is nothing to compare with. Where a peer has no function of that name but says the
same thing in a few words, those words stand here. `by(name)` is a function that both have.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from peers.against import F, jnn, jnp, jsp, lax, torch
from peers.words import (
    along,
    cast,
    cast_jax,
    chosen_jax,
    chosen_torch,
    different,
    exclusive,
    faded,
    folded_jax,
    folded_torch,
    index_added,
    indexed,
    jax_add,
    multiplied,
    over,
    places,
    recurred,
    recurred_jax,
    reduced,
    reductions,
    repeated_jax,
    repeated_torch,
    runs,
    scanned_jax,
    scanned_torch,
    searched,
    set_rows,
    shifted,
    sinc,
    topk,
    torch_add,
    torch_key,
    torch_pad,
    torch_put,
    turned,
    unfolded_jax,
    unique,
    won,
)

from retrograd.ops import slices


@dataclass(frozen=True)
class Row:
    """How the peers are asked; None where one cannot say it."""

    torch: object = None
    jax: object = None
    values_only: object = None  # peer -> why its gradients are not compared
    where: object = None  # (peer, op, *arrays) -> whether the peer can say this sample
    more: object = None  # rng -> further samples


def by(name, jax=None, module=None):
    """A function of both, called on the inputs alone."""
    return Row(
        torch=lambda op, *xs: getattr(torch, name)(*xs),
        jax=lambda op, *xs: getattr(module or jnp, jax or name)(*xs),
    )


KEYED = "draws of our own generator: other bits by design; laws are held by tests of random"
PLACES = "a check of indices that gives them back; what uses them is compared"

# -- the table -------------------------------------------------------------------------------

PEERS = {
    # arithmetic
    "Add": by("add"),
    "Subtract": by("subtract"),
    "Multiply": by("multiply"),
    "Divide": by("divide"),
    "Reciprocal": by("reciprocal"),
    "Positive": by("positive"),
    "Negative": by("negative"),
    "FloorDivide": Row(
        torch=lambda op, a, b: torch.div(a, b, rounding_mode="floor"),
        jax=lambda op, a, b: jnp.floor_divide(a, b),
    ),
    "Remainder": by("remainder"),
    "Fmod": by("fmod"),
    # dtypes and complex numbers
    "Astype": Row(torch=cast, jax=cast_jax),
    "Real": by("real"),
    "Imag": Row(
        torch=lambda op, x: x.imag if x.is_complex() else torch.zeros_like(x),
        jax=lambda op, x: jnp.imag(x),
    ),
    "Conj": by("conj"),
    "MakeComplex": Row(
        torch=lambda op, re, im: torch.complex(*torch.broadcast_tensors(re, im)),
        jax=lambda op, re, im: lax.complex(*jnp.broadcast_arrays(re, im)),
    ),
    # selection and magnitude
    "Where": by("where"),
    "Maximum": by("maximum"),
    "Minimum": by("minimum"),
    "Clip": Row(  # torch's backward wants bounds no larger than x
        torch=lambda op, *xs: torch.clip(*torch.broadcast_tensors(*xs)),
        jax=lambda op, *xs: jnp.clip(*xs),
    ),
    "Abs": by("abs"),
    "Modulus": by("abs"),
    "Sign": by("sign"),
    "ComplexSign": Row(
        torch=lambda op, x: torch.sgn(x),
        jax=lambda op, x: jnp.sign(x),
        values_only={"jax": "it takes the sign of complex numbers for a constant"},
    ),
    "Hypot": by("hypot"),
    "Copysign": by("copysign"),
    "Nextafter": Row(
        torch=lambda op, a, b: torch.nextafter(a, b),
        jax=lambda op, a, b: jnp.nextafter(a, b),
        values_only=dict.fromkeys(("torch", "jax"), "it has no derivative there"),
    ),
    "Floor": by("floor"),
    "Ceil": by("ceil"),
    "Trunc": by("trunc"),
    "Round": by("round"),
    "StopGradient": Row(torch=lambda op, x: x.detach(), jax=lambda op, x: lax.stop_gradient(x)),
    # comparison and logic
    "Equal": by("eq", jax="equal"),
    "NotEqual": by("not_equal"),
    "Less": by("less"),
    "LessEqual": by("less_equal"),
    "Greater": by("greater"),
    "GreaterEqual": by("greater_equal"),
    "Isnan": by("isnan"),
    "Isinf": by("isinf"),
    "Isfinite": by("isfinite"),
    "Signbit": by("signbit"),
    "LogicalAnd": by("logical_and"),
    "LogicalOr": by("logical_or"),
    "LogicalXor": by("logical_xor"),
    "LogicalNot": by("logical_not"),
    "BitwiseAnd": by("bitwise_and"),
    "BitwiseOr": by("bitwise_or"),
    "BitwiseXor": by("bitwise_xor"),
    "BitwiseInvert": by("bitwise_not"),
    "BitwiseLeftShift": by("bitwise_left_shift"),
    "BitwiseRightShift": by("bitwise_right_shift"),
    # exponential, trigonometric, hyperbolic
    "Exp": by("exp"),
    "Exp2": by("exp2"),
    "Expm1": by("expm1"),
    "Log": by("log"),
    "Log2": by("log2"),
    "Log10": by("log10"),
    "Log1p": by("log1p"),
    "Logaddexp": by("logaddexp"),
    "Sigmoid": by("sigmoid", module=jnn),
    "Softplus": Row(torch=lambda op, x: F.softplus(x), jax=lambda op, x: jnn.softplus(x)),
    "LogSigmoid": Row(
        torch=lambda op, x: F.logsigmoid(x), jax=lambda op, x: jnn.log_sigmoid(x)
    ),
    "Logit": by("logit", module=jsp),
    "Xlogy": by("xlogy", module=jsp),
    "Xlog1py": Row(
        torch=lambda op, x, y: torch.special.xlog1py(x, y),
        jax=lambda op, x, y: jsp.xlog1py(x, y),
    ),
    "Square": by("square"),
    "Sqrt": by("sqrt"),
    "Rsqrt": by("rsqrt", module=lax),
    "Cbrt": Row(jax=lambda op, x: jnp.cbrt(x)),
    "IntegerPower": Row(
        torch=lambda op, x: torch.pow(x, op.n), jax=lambda op, x: lax.integer_pow(x, op.n)
    ),
    "Pow": by("pow", jax="power"),
    **{name: by(name.lower()) for name in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan")},
    **{name: by(name.lower()) for name in ("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh")},
    "Atan2": by("atan2", jax="arctan2"),
    "Sinc": Row(
        torch=lambda op, x: torch.sinc(x),
        jax=sinc,
        where=lambda peer, op, x: peer == "jax" or not op.order,
    ),
    # special functions
    "Erf": by("erf", module=jsp),
    "Erfc": by("erfc", module=jsp),
    "Erfinv": by("erfinv", module=jsp),
    "Ndtr": Row(torch=lambda op, x: torch.special.ndtr(x), jax=lambda op, x: jsp.ndtr(x)),
    "Ndtri": Row(torch=lambda op, p: torch.special.ndtri(p), jax=lambda op, p: jsp.ndtri(p)),
    "LogNdtr": Row(
        torch=lambda op, x: torch.special.log_ndtr(x), jax=lambda op, x: jsp.log_ndtr(x)
    ),
    "InverseMills": Row(
        torch=lambda op, x: (
            torch.exp(-x * x / 2 - torch.special.log_ndtr(x)) / (2 * np.pi) ** 0.5
        ),
        jax=lambda op, x: jnp.exp(-x * x / 2 - jsp.log_ndtr(x)) / (2 * np.pi) ** 0.5,
    ),
    "Lgamma": by("lgamma", jax="gammaln", module=jsp),
    "Digamma": Row(
        torch=lambda op, x: torch.digamma(x),
        jax=lambda op, x: jsp.digamma(x),
        values_only={"torch": "its trigamma is good to 1e-10; jax's is compared"},
    ),
    "Polygamma": Row(jax=lambda op, x: jsp.polygamma(op.n, x)),  # torch: as for digamma
    # reductions
    "Sum": Row(
        reduced(lambda op, x: x.sum(-1)),
        over(jnp.sum),
        more=reductions("Sum"),
    ),
    "SumTo": Row(
        torch=lambda op, x: x.sum_to_size(op.to),
        jax=lambda op, x: jnp.sum(x, axis=op.stretched(x.shape)).reshape(op.to),
    ),
    "Prod": Row(
        reduced(lambda op, x: x.prod(-1)),
        over(jnp.prod),
        more=reductions("Prod"),
    ),
    "Variance": Row(
        torch=reduced(lambda op, x: x.var(-1, correction=op.correction)),
        jax=lambda op, x: jnp.var(x, axis=op.axis, ddof=op.correction, keepdims=op.keepdims),
        more=reductions("Variance", low=1),
        where=lambda peer, op, x: peer == "jax" or x.size,  # torch warns of no numbers
    ),
    "Max": Row(
        torch=reduced(lambda op, x: x.amax(-1)),
        jax=over(jnp.max),
        more=reductions("Max", low=1, draw=different),
    ),
    "Min": Row(
        torch=reduced(lambda op, x: x.amin(-1)),
        jax=over(jnp.min),
        more=reductions("Min", low=1, draw=different),
    ),
    "Top": Row(
        torch=reduced(lambda op, x: x.amax(-1)),
        jax=over(jnp.max),
        more=reductions("Top", low=1, draw=different),
    ),
    "LogSumExp": Row(
        torch=reduced(lambda op, x: torch.logsumexp(x, -1)),
        jax=over(jsp.logsumexp),
        more=reductions("LogSumExp", low=1),
    ),
    "AnyTrue": Row(
        reduced(lambda op, x: x.any(-1)),
        over(jnp.any),
        more=reductions("AnyTrue"),
    ),
    "AllTrue": Row(
        reduced(lambda op, x: x.all(-1)),
        over(jnp.all),
        more=reductions("AllTrue"),
    ),
    "Argmax": Row(
        torch=lambda op, x: torch.argmax(x, op.axis, op.keepdims),
        jax=lambda op, x: jnp.argmax(x, op.axis, keepdims=op.keepdims),
    ),
    "Argmin": Row(
        torch=lambda op, x: torch.argmin(x, op.axis, op.keepdims),
        jax=lambda op, x: jnp.argmin(x, op.axis, keepdims=op.keepdims),
    ),
    "Weights": Row(
        torch=lambda op, x, total: torch.exp(x - total),
        jax=lambda op, x, total: jnp.exp(x - total),
    ),
    # along an axis
    "CumulativeSum": Row(
        torch=turned(lambda op, x: x.cumsum(op.axis), torch.flip),
        jax=turned(lambda op, x: jnp.cumsum(x, op.axis), jnp.flip),
        more=along("CumulativeSum"),
    ),
    "CumulativeProd": Row(
        torch=turned(
            exclusive(
                torch.cat,
                torch.ones_like,
                lambda x, d: x.cumprod(d),
            ),
            torch.flip,
        ),
        jax=turned(
            exclusive(
                jnp.concatenate,
                jnp.ones_like,
                jnp.cumprod,
            ),
            jnp.flip,
        ),
        more=along("CumulativeProd"),
    ),
    "CumulativeMax": Row(
        torch=lambda op, x: x.cummax(op.axis).values,
        jax=lambda op, x: lax.cummax(x, op.axis),
        more=along("CumulativeMax", different),
    ),
    "CumulativeMin": Row(
        torch=lambda op, x: x.cummin(op.axis).values,
        jax=lambda op, x: lax.cummin(x, op.axis),
        more=along("CumulativeMin", different),
    ),
    "CumulativeLogSumExp": Row(
        torch=lambda op, x: x.logcumsumexp(op.axis),
        jax=lambda op, x: lax.cumlogsumexp(x, op.axis),
        more=along("CumulativeLogSumExp"),
    ),
    "Literal": "a constant of a traced program; there is nothing to compute",
    "Iota": "a range of a traced program, whose values rg.arange's tests compare",
    "Finite": "it raises or does nothing, and has no result to compare with",
    "Within": "it raises or does nothing to its values; what uses them is compared",
    "Name": "the same values under a label; there is nothing to compute",
    "FastTanh": "a tanh for fast_math, whose bound tests of the compiler hold",
    "MultiplyAdd": "a multiply and add for fast_math; tests of the compiler compare it",
    "Ranked": "what sorting functions are made of; those are compared",
    "ScanFew": "a part of the derivative of scan, which is compared whole",
    "ScanRevolve": "a part of the derivative of scan, which is compared whole",
    "Print": "it prints, and has no result to compare with",
    "Check": "it raises or does nothing, and has no result to compare with",
    "RunPlace": "where runs of equal numbers begin; neither has it",
    "RunningBlame": "the derivative of cumulative_max, whose gradients are compared",
    "Fading": Row(
        torch=lambda op, x: faded(x, lambda y: y.exp(), torch.cat, torch.zeros_like),
        jax=lambda op, x: faded(x, jnp.exp, jnp.concatenate, jnp.zeros_like),
    ),
    "Shift": Row(
        torch=lambda op, x: shifted(op, x, torch.zeros_like, torch.cat),
        jax=lambda op, x: shifted(op, x, jnp.zeros_like, jnp.concatenate),
    ),
    "Recurrence": Row(torch=recurred, jax=recurred_jax),
    "Scan": Row(torch=scanned_torch, jax=scanned_jax),
    "Cond": Row(torch=chosen_torch, jax=chosen_jax),
    "While": Row(
        torch=repeated_torch,
        jax=repeated_jax,
        values_only={"jax": "its while_loop has no reverse mode"},
    ),
    "Sort": Row(
        torch=lambda op, x: torch.sort(
            x, dim=op.axis, descending=op.descending, stable=op.stable
        )[0],
        jax=lambda op, x: jnp.sort(x, op.axis, descending=op.descending, stable=op.stable),
        more=along("Sort", different, descending=True),
    ),
    "Argsort": Row(
        torch=lambda op, x: torch.argsort(
            x, dim=op.axis, descending=op.descending, stable=True
        ),
        jax=lambda op, x: jnp.argsort(x, op.axis, descending=op.descending, stable=True),
        more=along("Argsort"),
    ),
    "Topk": Row(torch=lambda op, x: torch.topk(x, op.k, op.axis, op.largest), jax=topk),
    "Searchsorted": Row(
        torch=lambda op, x1, x2: torch.searchsorted(x1, x2, right=op.right), jax=searched
    ),
    "Unique": Row(jax=unique),
    "Nonzero": Row(
        jax=lambda op, x: jnp.stack(jnp.nonzero(x, size=op.size, fill_value=op.fill)),
    ),
    # shapes
    "Reshape": Row(
        torch=lambda op, x: x.reshape(op.to), jax=lambda op, x: jnp.reshape(x, op.to)
    ),
    "BroadcastTo": Row(
        torch=lambda op, x: torch.broadcast_to(x, op.to),
        jax=lambda op, x: jnp.broadcast_to(x, op.to),
    ),
    "PermuteDims": Row(
        torch=lambda op, x: x.permute(op.axes), jax=lambda op, x: jnp.permute_dims(x, op.axes)
    ),
    "Concat": Row(
        torch=lambda op, *xs: torch.cat(xs, op.axis),
        jax=lambda op, *xs: jnp.concatenate(xs, op.axis),
    ),
    "Split": Row(
        torch=lambda op, x: torch.split(x, op.sizes, op.axis),
        jax=lambda op, x: jnp.split(x, np.cumsum(op.sizes)[:-1], op.axis),
    ),
    "Stack": Row(
        torch=lambda op, *xs: torch.stack(xs, op.axis),
        jax=lambda op, *xs: jnp.stack(xs, op.axis),
    ),
    "Unstack": Row(
        torch=lambda op, x: torch.unbind(x, op.axis),
        jax=lambda op, x: jnp.unstack(x, axis=op.axis),
    ),
    "Flip": Row(
        torch=lambda op, x: torch.flip(x, op.axes), jax=lambda op, x: jnp.flip(x, op.axes)
    ),
    "Roll": Row(
        torch=lambda op, x: torch.roll(x, op.by, op.axes) if op.axes else x,
        jax=lambda op, x: jnp.roll(x, op.by, op.axes),
    ),
    "Pad": Row(
        torch=torch_pad,
        jax=lambda op, x: jnp.pad(x, op.widths, constant_values=op.value) if op.widths else x,
    ),
    "Unfold": Row(
        torch=lambda op, x: x.unfold(op.axis, op.span, op.step)[..., :: op.dilation],
        jax=unfolded_jax,
    ),
    "Fold": Row(torch=folded_torch, jax=folded_jax),
    "Diagonal": Row(
        torch=lambda op, x: torch.diagonal(x, op.offset, -2, -1),
        jax=lambda op, x: jnp.diagonal(x, op.offset, -2, -1),
    ),
    "OnDiagonal": Row(
        torch=lambda op, x: torch.diagonal_scatter(
            torch.zeros(*x.shape[:-1], op.rows, op.columns, dtype=x.dtype), x, op.offset, -2, -1
        ),
        jax=lambda op, x: (
            jnp.zeros((*x.shape[:-1], op.rows, op.columns), x.dtype)
            .at[
                ...,
                max(-op.offset, 0) + np.arange(x.shape[-1]),
                max(op.offset, 0) + np.arange(x.shape[-1]),
            ]
            .set(x)
        ),
    ),
    # parts and indices
    "Slice": Row(
        torch=lambda op, x: x.reshape(-1)[torch_key(places(op)(x.shape))],
        jax=lambda op, x: x[slices.key(op.parts)],
    ),
    "Unslice": Row(
        torch=lambda op, x: torch_put(torch.zeros(op.to, dtype=x.dtype), places(op)(op.to), x),
        jax=lambda op, x: jnp.zeros(op.to, x.dtype).at[slices.key(op.parts)].set(x),
    ),
    "SliceSet": Row(
        torch=lambda op, x, values: torch_put(x, places(op)(x.shape), values),
        jax=lambda op, x, values: x.at[slices.key(op.parts)].set(values),
    ),
    "TakeAlongAxis": Row(
        torch=lambda op, x, i: torch.take_along_dim(x, i % x.shape[op.axis], op.axis),
        jax=lambda op, x, i: jnp.take_along_axis(x, i, op.axis),
    ),
    "AddAlongAxis": Row(
        torch=lambda op, x, i: torch.zeros(
            *x.shape[: op.axis], op.length, *x.shape[op.axis + 1 :], dtype=x.dtype
        ).scatter_add(op.axis, i, x),
        jax=lambda op, x, i: (
            jnp.zeros((*x.shape[: op.axis], op.length, *x.shape[op.axis + 1 :]), x.dtype)
            .at[tuple(i if a == op.axis else g for a, g in enumerate(np.indices(i.shape)))]
            .add(x)
        ),
    ),
    "Index": Row(
        torch=indexed(lambda x, order: x.permute(order), torch_key),
        jax=indexed(jnp.permute_dims, np.asarray),
    ),
    "IndexAdd": Row(
        torch=index_added(lambda x, order: x.permute(order), torch.zeros, torch_add),
        jax=index_added(
            jnp.permute_dims,
            jnp.zeros,
            jax_add,
        ),
    ),
    "Targets": Row(
        jax=lambda op, i: jnp.ravel_multi_index(tuple(i), op.sizes, mode="wrap").reshape(-1)
    ),
    "TargetsAlong": Row(
        torch=lambda op, i: torch.gather(
            torch.arange(prod(op.to)).reshape(op.to), op.axis, i % op.to[op.axis]
        ).reshape(-1)
    ),
    "RowNumbers": PLACES,
    "OneHot": Row(
        torch=lambda op, i: F.one_hot(i, op.classes).to(getattr(torch, str(op.dtype))),
        jax=lambda op, i: jnn.one_hot(i, op.classes, dtype=op.dtype),
    ),
    "SetRows": Row(
        torch=set_rows(lambda x, where, v: x.index_copy(0, torch_key(where), v)),
        jax=set_rows(lambda x, where, v: x.at[where].set(v)),
    ),
    "WonRows": Row(
        torch=lambda op, x, i: x[i] * torch.tensor(won(i))[:, None],
        jax=lambda op, x, i: x[i] * won(i)[:, None],
    ),
    "ProdRows": Row(
        torch=lambda op, v, i: multiplied(op, v, i, torch, others=False),
        jax=lambda op, v, i: multiplied(op, v, i, jnp, others=False),
    ),
    "OtherRows": Row(
        torch=lambda op, v, i: multiplied(op, v, i, torch, others=True),
        jax=lambda op, v, i: multiplied(op, v, i, jnp, others=True),
    ),
    "Runs": Row(jax=runs),
    "ExtremeRows": Row(
        torch=lambda op, x, v, i: x.scatter_reduce(
            0, i[:, None].expand(v.shape), v, "amax" if op.largest else "amin"
        ),
    ),
    # products
    "Matmul": by("matmul"),
    # random
    "RandomUniform": KEYED,
    "RandomNormal": KEYED,
    "RandomExponential": KEYED,
    "RandomGumbel": KEYED,
    "RandomTruncatedNormal": KEYED,
    "RandomGamma": KEYED,
    "RandomBits": KEYED,
    "RandomBernoulli": KEYED,
    "RandomInteger": KEYED,
    "RandomPermutation": KEYED,
    "RandomPoisson": KEYED,
    "FoldKey": KEYED,
    "SplitKey": KEYED,
    "Between": Row(
        torch=lambda op, u, low, high: low + (high - low) * u,
        jax=lambda op, u, low, high: low + (high - low) * u,
    ),
    "GammaSlope": Row(
        jax=lambda op, a, y: (
            lax.random_gamma_grad(*jnp.broadcast_arrays(a, jnp.exp(y))) / jnp.exp(y)
        ),
        values_only={"jax": "it does not differentiate random_gamma_grad"},
        # compiling it takes seconds for each shape
        where=lambda peer, op, a, y: not op.in_a and not op.in_y and a.shape in ((), (3, 1)),
    ),
}
