"""Write docs/tape.svg: the tape of a three-line program, drawn by `rg.debug.graph`."""

import re
import sys
from pathlib import Path

import retrograd as rg
from retrograd.debug.picture import page

PICTURE = Path(__file__).resolve().with_name("tape.svg")
STYLE = "text{font:12px sans-serif;fill:#222}.s{fill:#555;font-size:10.5px}"


def tape() -> object:
    """Three lines, and what is on the tape after them."""
    x = rg.ones((64, 32))
    w = rg.tensor(rg.ones((32, 16)), requires_grad=True)
    b = rg.tensor(rg.ones(16), requires_grad=True)
    h = rg.tanh(x @ w + b)
    loss = rg.sum(h * h)
    return rg.debug.graph(loss)


def picture() -> str:
    """The drawing of the page alone, as a file of its own."""
    (drawing,) = re.findall(r"<svg .*</svg>", page(tape()))
    start = '<svg xmlns="http://www.w3.org/2000/svg" '
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    drawing = drawing.replace("<svg ", start, 1)
    drawing = drawing.replace(">", f"><style>{STYLE}</style>{ground}", 1)
    return re.sub(r"(?=<(path|g|rect|text)\b)", "\n", drawing) + "\n"


def main() -> int:
    """Write the picture."""
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"wrote docs/tape.svg: {tape()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
