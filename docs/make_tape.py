"""Write docs/tape.svg: the tape of a five-line program, drawn by `rg.debug.graph`."""

import linecache
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import retrograd as rg

PICTURE = Path(__file__).resolve().with_name("tape.svg")
STYLE = "text{font:12px sans-serif;fill:#222}.s{fill:#222;font-size:10.5px}"
PROGRAM = """\
x = rg.tensor(data, requires_grad=True)
w = rg.tensor(data, requires_grad=True)
y = rg.sin(x)
z = rg.exp(w)
loss = rg.sum(y * z)
"""


def tape() -> object:
    """What is on the tape after the program."""
    linecache.cache["program"] = (
        len(PROGRAM),
        None,
        PROGRAM.splitlines(keepends=True),
        "program",
    )
    names = {"rg": rg, "data": rg.ones((64, 32))}
    exec(compile(PROGRAM, "program", "exec"), names)  # noqa: S102 - so that its lines are shown
    return rg.debug.graph(names["loss"])


def picture() -> str:
    """The drawing of the page alone, as a file of its own."""
    with TemporaryDirectory() as folder:
        page = tape().save(Path(folder) / "tape.html").read_text(encoding="utf-8")
    (drawing,) = re.findall(r"<svg .*</svg>", page, re.DOTALL)
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
