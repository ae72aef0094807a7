"""Write docs/kinks.md: gradients at kinks and special points, ours and the peers' side by side.

python docs/make_kinks.py          our column computed anew, the peers' kept as they are
python docs/make_kinks.py --peers  all three columns computed anew (needs torch and jax)
"""

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np

import retrograd as rg

PAGE = Path(__file__).resolve().with_name("kinks.md")

HEAD = """\
# Gradients at kinks and special points

Where a function has no derivative, or where a formula for it divides zero by zero, an engine
must choose. These are our choices. The tests compute our column anew; those of the peers are
what PyTorch 2.13 and JAX 0.10 gave, in float64 on a CPU, and `make test-peers` asks them again.
A dash means that there is no such function, *refused* that there is no such gradient.

The rules behind the table:

- At a corner the slope is 0: it is the mean of both sides at `abs`, and it lets a minimum be a
  minimum. `clip` passes at its bounds, so that a parameter that sits on one can leave it.
- Ties share equally where the result does not say which operand it came from (`max`,
  `maximum`); where elements are picked (`topk`, `sort`, `cumulative_max`), one of them has it.
- An infinite slope stays infinite (`sqrt` at 0): hiding it would hide a mistake. But `norm`,
  `hypot` and `std` are 0 only at a minimum, and there their gradient is 0.
- Inside one op zero times infinity does not become NaN: products with zeros in them and powers
  of 0 have their true slopes; what is 0 by agreement (`xlogy`, `entr`) has slope 0 there;
  `logaddexp` of equal infinities shares like a tie. Between ops it does: `where` cannot undo an
  infinite slope in the branch that was not taken. `rg.log(rg.where(x > 0, x, 1.0))` can.
- What was overwritten gets no gradient; of several writes to one place the last one counts.

`slope(f, *at)` below is the gradient of the sum of f, one entry for each argument.

```python
import numpy as np
import retrograd as rg


def slope(f, *at):
    points = [rg.asarray(np.asarray(a)) for a in at]
    found = rg.grad(lambda *xs: rg.sum(f(*xs)), tuple(range(len(at))))(*points)
    found = [np.round(g.numpy() + 0.0, 4).tolist() for g in found]
    return found if len(found) > 1 else found[0]


inf, nan = float("inf"), float("nan")
twice, weights = np.array([0, 0]), np.array([1.0, 2.0, 3.0])
```
"""

SAME = "="  # the peer's spelling is ours, in its own namespace

# For each section: (the point in words, ours, PyTorch's, JAX's).
ROWS = {
    "Corners": [
        ("abs at 0", "slope(rg.abs, 0.0)", SAME, SAME),
        ("abs of a complex number at 0", "slope(rg.abs, 0j)", SAME, SAME),
        ("sign at 0", "slope(rg.sign, 0.0)", SAME, SAME),
        ("floor at 1", "slope(rg.floor, 1.0)", SAME, SAME),
        (
            "clip(x, 0, 1) at 0 and 1",
            "slope(lambda x: rg.clip(x, 0, 1), [0.0, 1.0])",
            SAME,
            SAME,
        ),
        ("clip(x, low, high) at x = low", "slope(rg.clip, 0.0, 0.0, 1.0)", SAME, SAME),
        ("remainder(x, y) at (4, 2)", "slope(rg.remainder, 4.0, 2.0)", SAME, SAME),
        ("copysign(x, y) at (0, 1)", "slope(rg.copysign, 0.0, 1.0)", SAME, SAME),
        (
            "1-norm at (0, 2)",
            "slope(lambda x: rg.vector_norm(x, ord=1), [0.0, 2.0])",
            "slope(lambda x: torch.linalg.vector_norm(x, ord=1), [0.0, 2.0])",
            "slope(lambda x: jnp.linalg.norm(x, ord=1), [0.0, 2.0])",
        ),
    ],
    "Ties": [
        ("maximum(x, y) at x = y", "slope(rg.maximum, 1.0, 1.0)", SAME, SAME),
        ("minimum(x, y) at x = y", "slope(rg.minimum, 1.0, 1.0)", SAME, SAME),
        ("fmax(x, y) at x = y", "slope(rg.fmax, 1.0, 1.0)", SAME, SAME),
        ("max of (1, 3, 3)", "slope(rg.max, [1.0, 3.0, 3.0])", SAME, SAME),
        (
            "max of (1, 3, 3) along an axis",
            "slope(lambda x: rg.max(x, axis=0), [1.0, 3.0, 3.0])",
            "slope(lambda x: torch.max(x, 0).values, [1.0, 3.0, 3.0])",
            SAME,
        ),
        ("min of (2, 2, 5)", "slope(rg.min, [2.0, 2.0, 5.0])", SAME, SAME),
        (
            "inf-norm at (2, -2)",
            "slope(lambda x: rg.vector_norm(x, ord=inf), [2.0, -2.0])",
            "slope(lambda x: torch.linalg.vector_norm(x, ord=inf), [2.0, -2.0])",
            "slope(lambda x: jnp.linalg.norm(x, ord=inf), [2.0, -2.0])",
        ),
        (
            "cumulative_max of (1, 3, 3)",
            "slope(rg.cumulative_max, [1.0, 3.0, 3.0])",
            "slope(lambda x: torch.cummax(x, 0).values, [1.0, 3.0, 3.0])",
            "slope(jax.lax.cummax, [1.0, 3.0, 3.0])",
        ),
        (
            "topk(x, 1) of (1, 3, 3)",
            "slope(lambda x: rg.topk(x, 1)[0], [1.0, 3.0, 3.0])",
            SAME,
            "slope(lambda x: jax.lax.top_k(x, 1)[0], [1.0, 3.0, 3.0])",
        ),
        (
            "sort of (5, 5, 1), times (1, 2, 3)",
            "slope(lambda x: rg.sort(x) * weights, [5.0, 5.0, 1.0])",
            "slope(lambda x: torch.sort(x, stable=True)[0] * weights, [5.0, 5.0, 1.0])",
            SAME,
        ),
        ("median of (2, 2, 1)", "slope(rg.median, [2.0, 2.0, 1.0])", SAME, SAME),
        ("median of (1, 2, 3, 4)", "slope(rg.median, [1.0, 2.0, 3.0, 4.0])", SAME, SAME),
    ],
    "Zeros": [
        ("sqrt at 0", "slope(rg.sqrt, 0.0)", SAME, SAME),
        ("cbrt at 0", "slope(rg.cbrt, 0.0)", None, SAME),
        ("log at 0", "slope(rg.log, 0.0)", SAME, SAME),
        ("reciprocal at 0", "slope(rg.reciprocal, 0.0)", SAME, SAME),
        ("asin at 1", "slope(rg.asin, 1.0)", SAME, SAME),
        ("sinc at 0", "slope(rg.sinc, 0.0)", SAME, SAME),
        ("x to the 0 at 0", "slope(lambda x: x**0, 0.0)", SAME, SAME),
        ("x to the 1 at 0", "slope(lambda x: x**1, 0.0)", SAME, SAME),
        ("x to the 2 at 0", "slope(lambda x: x**2, 0.0)", SAME, SAME),
        ("x to the 0.5 at 0", "slope(lambda x: x**0.5, 0.0)", SAME, SAME),
        ("pow(x, y) at (0, 0)", "slope(rg.pow, 0.0, 0.0)", SAME, SAME),
        ("pow(x, y) at (0, 2)", "slope(rg.pow, 0.0, 2.0)", SAME, SAME),
        ("pow(x, y) at (-2, 3)", "slope(rg.pow, -2.0, 3.0)", SAME, SAME),
        ("pow(x, y) at (-2, 0.5)", "slope(rg.pow, -2.0, 0.5)", SAME, SAME),
        (
            "norm at (0, 0)",
            "slope(rg.vector_norm, [0.0, 0.0])",
            "slope(torch.linalg.vector_norm, [0.0, 0.0])",
            "slope(jnp.linalg.norm, [0.0, 0.0])",
        ),
        ("hypot at (0, 0)", "slope(rg.hypot, 0.0, 0.0)", SAME, SAME),
        ("atan2 at (0, 0)", "slope(rg.atan2, 0.0, 0.0)", SAME, SAME),
        ("angle of a complex number at 0", "slope(rg.angle, 0j)", SAME, SAME),
        (
            "std of (2, 2, 2)",
            "slope(rg.std, [2.0, 2.0, 2.0])",
            "slope(lambda x: torch.std(x, correction=0), [2.0, 2.0, 2.0])",
            SAME,
        ),
        ("prod of (2, 0, 3)", "slope(rg.prod, [2.0, 0.0, 3.0])", SAME, SAME),
        ("prod of (2, 0, 0)", "slope(rg.prod, [2.0, 0.0, 0.0])", SAME, SAME),
        (
            "cumulative_prod of (2, 0, 3)",
            "slope(rg.cumulative_prod, [2.0, 0.0, 3.0])",
            "slope(lambda x: torch.cumprod(x, 0), [2.0, 0.0, 3.0])",
            "slope(jnp.cumprod, [2.0, 0.0, 3.0])",
        ),
        (
            "xlogy(x, y) at (0, 0)",
            "slope(rg.special.xlogy, 0.0, 0.0)",
            SAME,
            "slope(jax.scipy.special.xlogy, 0.0, 0.0)",
        ),
        (
            "entr(x) = -x log x at 0",
            "slope(rg.special.entr, 0.0)",
            "slope(torch.special.entr, 0.0)",
            "slope(jax.scipy.special.entr, 0.0)",
        ),
        (
            "where(x > 0, log(x), 0) at 0",
            "slope(lambda x: rg.where(x > 0, rg.log(x), 0.0), 0.0)",
            SAME,
            SAME,
        ),
    ],
    "Infinities and NaN": [
        ("logaddexp at (-inf, -inf)", "slope(rg.logaddexp, -inf, -inf)", SAME, SAME),
        ("logaddexp at (inf, inf)", "slope(rg.logaddexp, inf, inf)", SAME, SAME),
        ("logaddexp at (inf, 1)", "slope(rg.logaddexp, inf, 1.0)", SAME, SAME),
        *(
            (
                f"logsumexp of ({shown})",
                f"slope(rg.logsumexp, [{shown}])",
                f"slope(lambda x: torch.logsumexp(x, 0), [{shown}])",
                f"slope(jax.scipy.special.logsumexp, [{shown}])",
            )
            for shown in ("-inf, 1.0", "-inf, -inf", "inf, 1.0")
        ),
        (
            "cumulative_logsumexp of (-inf, 1)",
            "slope(rg.cumulative_logsumexp, [-inf, 1.0])",
            "slope(lambda x: torch.logcumsumexp(x, 0), [-inf, 1.0])",
            "slope(jax.lax.cumlogsumexp, [-inf, 1.0])",
        ),
        ("maximum(x, y) at (1, nan)", "slope(rg.maximum, 1.0, nan)", SAME, SAME),
    ],
    "Two writes to one place: gradients of x and of v": [
        (
            "x.at[[0, 0]].set(v)",
            "slope(lambda x, v: x.at[twice].set(v), [1.0, 2.0], [3.0, 4.0])",
            "slope(lambda x, v: torch.index_put(x, (twice,), v), [1.0, 2.0], [3.0, 4.0])",
            SAME,
        ),
        (
            "x.at[[0, 0]].add(v)",
            "slope(lambda x, v: x.at[twice].add(v), [1.0, 2.0], [3.0, 4.0])",
            "slope(lambda x, v: x.index_add(0, twice, v), [1.0, 2.0], [3.0, 4.0])",
            SAME,
        ),
        (
            "x.at[[0, 0]].multiply(v), v = (0, 4)",
            "slope(lambda x, v: x.at[twice].multiply(v), [1.0], [0.0, 4.0])",
            "slope(lambda x, v: x.index_reduce(0, twice, v, 'prod'), [1.0], [0.0, 4.0])",
            SAME,
        ),
        (
            "x.at[[0, 0]].max(v), all equal",
            "slope(lambda x, v: x.at[twice].max(v), [3.0], [3.0, 3.0])",
            "slope(lambda x, v: x.index_reduce(0, twice, v, 'amax'), [3.0], [3.0, 3.0])",
            SAME,
        ),
    ],
}


def page(peers: dict[str, tuple[str, str]]) -> str:
    """The whole page, with the peers' answers as given."""
    return HEAD + "".join(section(name, rows, peers) for name, rows in ROWS.items())


def section(name: str, rows: list, peers: dict[str, tuple[str, str]]) -> str:
    """A table, and our column of it as code that runs."""
    text = f"\n## {name}\n\n| at | retrograd | PyTorch | JAX |\n|---|---|---|---|\n"
    code = ""
    for words, ours, _, _ in rows:
        answer = answer_of(ours, OURS)
        torch, jax = peers.get(words, ("?", "?"))
        text += f"| {words} | {answer} | {torch} | {jax} |\n"
        code += f"{ours}  # -> {answer}\n"
    return f"{text}\n```python\n{code}```\n"


def answer_of(expression: str, names: dict) -> str:
    """What an expression of the table gives, as text."""
    try:
        return str(eval(expression, names))  # noqa: S307 - the expressions above
    except (NotImplementedError, RuntimeError):
        return "*refused*"


def slope_by(gradient) -> object:
    """`slope` of the page, given how a library differentiates a sum."""

    def slope(f, *at):
        found = gradient(f, [np.asarray(a) for a in at])
        found = [np.round(np.asarray(g) + 0.0, 4).tolist() for g in found]
        return found if len(found) > 1 else found[0]

    return slope


def _ours(f, arrays):
    numbers = tuple(range(len(arrays)))
    return rg.grad(lambda *xs: rg.sum(f(*xs)), numbers)(*map(rg.asarray, arrays))


COMMON = {"np": np, "inf": float("inf"), "nan": float("nan")}
ARRAYS = {"twice": np.array([0, 0]), "weights": np.array([1.0, 2.0, 3.0])}
OURS = {**COMMON, **ARRAYS, "rg": rg, "slope": slope_by(_ours)}


def torch_names() -> dict:
    """PyTorch, with our `slope`."""
    torch = import_module("torch")

    def gradient(f, arrays):
        points = [torch.tensor(a, requires_grad=True) for a in arrays]
        torch.sum(f(*points)).backward()
        return [p.grad for p in points]

    arrays = {name: torch.tensor(a) for name, a in ARRAYS.items()}
    return {**COMMON, **arrays, "torch": torch, "slope": slope_by(gradient)}


def jax_names() -> dict:
    """JAX in float64, with our `slope`."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    import_module("jax.scipy.special")

    def gradient(f, arrays):
        numbers = tuple(range(len(arrays)))
        return jax.grad(lambda *xs: jnp.sum(f(*xs)), numbers)(*map(jnp.asarray, arrays))

    def slope(f, *at):
        with jax.enable_x64(True):
            return slope_by(gradient)(f, *at)

    return {**COMMON, **ARRAYS, "jax": jax, "jnp": jnp, "slope": slope}


def ask_peers() -> dict[str, tuple[str, str]]:
    """The peers' answers, by the words of the table."""
    names, other = torch_names(), jax_names()
    return {
        words: (_peer(ours, torch, "torch", names), _peer(ours, jax, "jnp", other))
        for rows in ROWS.values()
        for words, ours, torch, jax in rows
    }


def _peer(ours: str, theirs: str | None, module: str, names: dict) -> str:
    if theirs is None:
        return "–"
    return answer_of(re.sub(r"\brg\.", f"{module}.", ours) if theirs == SAME else theirs, names)


def written_peers() -> dict[str, tuple[str, str]]:
    """The peers' answers as the page has them."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    rows = re.findall(r"^\| (.+) \| .+ \| (.+) \| (.+) \|$", text, re.MULTILINE)
    return {words: (torch, jax) for words, torch, jax in rows}


def main(arguments: list[str]) -> int:
    """Write the page."""
    if arguments not in ([], ["--peers"]):
        print(__doc__)
        return 2
    PAGE.write_text(page(ask_peers() if arguments else written_peers()), encoding="utf-8")
    print("wrote docs/kinks.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
