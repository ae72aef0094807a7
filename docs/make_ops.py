"""Write docs/ops.md from the registry: every op, with what it keeps and how it compiles.

python docs/make_ops.py          write the page (make docs)
python docs/make_ops.py --check  say whether the page is up to date, and write nothing
"""

import inspect
import json
import re
import subprocess
import sys
from functools import cache
from itertools import groupby
from pathlib import Path
from types import FunctionType, ModuleType

import retrograd as rg
from retrograd.core.op import (
    FUNCTIONS,
    REGISTRY,
    Composite,
    Elementwise,
    Linear,
    Multilinear,
)

PAGE = Path(__file__).resolve().with_name("ops.md")
ROOMS = ("retrograd.ops", "retrograd.control")

HEAD = """\
# Ops

Made from the registry by `make docs`; a test holds this page to it. There is one section for
each file, and in it one entry for each op: what it computes, the answer it gives at special
points, and its block in short.

- *Inputs* in brackets are never differentiated: indices, masks. *Options* are the op's fields.
- *Keeps* says what stays in memory from the forward pass to the backward pass, for the gradient
  of which input. It is read from the signatures of the derivative rules, as the engine does it.
  "The spec of x" is a shape and a dtype, and no bytes. Where an input needs no gradient, what
  only its rule asks for is not kept.
- *Compiled* as: a kernel, an expansion into other ops, or a call to NumPy on the host, with the
  reason; see [compiler.md](compiler.md). Tests hold kernels and expansions to the NumPy code.

"""


def page() -> str:
    """The whole page."""
    for facade in rg.__all__:  # those that are loaded when first asked for
        getattr(rg, facade)
    ops = sorted(catalogue(), key=lambda cls: _order(cls.__module__))
    groups = {name: list(found) for name, found in groupby(ops, lambda cls: cls.__module__)}
    functions = public_functions()
    made = compositions(functions, {cls.name for cls in ops})
    known = {*groups, *made, *(f.__module__ for f in FUNCTIONS.values())}  # or it is a helper
    modules = [m for m in files() if m in known]
    links = " · ".join(f"[{_title(m)}](#{_title(m).replace('.', '')})" for m in modules)
    count = f"{len(ops)} ops in {len(groups)} files: {links}\n"
    parts = [section(m, groups.get(m, []), made.get(m, []), functions) for m in modules]
    return HEAD + count + "".join(parts)


@cache
def files() -> list[str]:
    """The modules of the catalogue that the public face brings, asked of a fresh process.

    In this one, tests may have imported what is not public yet.
    """
    code = "import json, sys, retrograd as rg; [getattr(rg, n) for n in rg.__all__]; "
    code += (
        "print(json.dumps([n for n, m in sys.modules.items() if not hasattr(m, '__path__')]))"
    )
    command = [sys.executable, "-c", code]
    root = PAGE.parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)  # noqa: S603
    return sorted((m for m in json.loads(done.stdout) if m.startswith(ROOMS)), key=_order)


def catalogue() -> list[type]:
    """The package's own ops, in the order they were defined."""
    return [cls for cls in REGISTRY.values() if cls.__module__ in files()]


def _order(module: str) -> tuple[int, str]:
    room = next(r for r in ROOMS if module.startswith(r))
    return ROOMS.index(room), module


def _title(module: str) -> str:
    return module.split(".", 2)[2]


def public_functions() -> dict[str, FunctionType]:
    """What users can call, by the name they call it: the package's names and its facades'."""
    found = {f"rg.{name}": getattr(rg, name) for name in rg.__all__}
    for name, facade in list(found.items()):
        if isinstance(facade, ModuleType):
            found |= {f"{name}.{n}": getattr(facade, n) for n in getattr(facade, "__all__", ())}
    mine = {n: f for n, f in found.items() if isinstance(f, FunctionType)}
    return {n: f for n, f in mine.items() if f.__module__.startswith(ROOMS)}


def compositions(functions: dict[str, FunctionType], op_names: set[str]) -> dict[str, list]:
    """The functions that do not bear the name of an op, by module; each under one name."""
    seen: set[int] = set()
    found: dict[str, list[str]] = {}
    for name in sorted(functions, key=lambda n: (n.count("."), n)):
        f = functions[name]
        if f.__name__ not in op_names and id(f) not in seen and f.__module__.startswith(ROOMS):
            seen.add(id(f))
            found.setdefault(f.__module__, []).append(name)
    return found


def section(module: str, ops: list[type], made: list[str], functions: dict) -> str:
    """One file: its sentence, its ops, its functions."""
    words = inspect.getdoc(sys.modules[module]) or ""
    sentence = words.partition("\n\n")[0] if ops or made else words
    path = module.replace(".", "/") + ".py"
    text = f"\n## {_title(module)}\n\n{plain(sentence)}\n(`{path}`)\n"
    text += "".join(entry(cls, functions) for cls in ops)
    if made:
        title = "Functions made of ops" if ops else "Functions"
        lines = [f"- {_function(name, functions[name])}\n" for name in made]
        text += f"\n**{title}**\n\n" + "".join(lines)
    return text


def _function(name: str, f: FunctionType) -> str:
    signature = inspect.signature(f)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    shown = signature.replace(parameters=bare, return_annotation=signature.empty)
    words = inspect.getdoc(f).partition(">>>")[0].split()
    return f"`{name}{shown}`: {plain(' '.join(words))}"


def entry(cls: type, functions: dict[str, FunctionType]) -> str:
    """One op: what it computes, its function, its block."""
    named = [n for n, f in functions.items() if cls.name == f.__name__ == n.rpartition(".")[2]]
    facts = [
        *(_function(n, functions[n]) for n in named[:1]),
        f"*{family(cls)}*, inputs {inputs(cls)}{outputs(cls)}{options(cls)}.",
        derivative(cls),
        f"Compiled as {compiled(cls)}.",
    ]
    doc = plain(inspect.cleandoc(cls.__doc__))
    return f"\n### {cls.name}\n\n{doc}\n\n" + "".join(f"- {fact}\n" for fact in facts)


def plain(text: str) -> str:
    """Text as Markdown that looks the same: signs of formulas are escaped, but not in code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_<|]|^[-+#>](?= ?\S))", r"\\\1", p) for p in parts[::2]]
    return "`".join(parts)


def family(cls: type) -> str:
    """How its derivative is written."""
    families = (Elementwise, Linear, Multilinear, Composite)
    names = [f.__name__ for f in families if issubclass(cls, f)]
    return " and ".join(names) or "Op"


def inputs(cls: type) -> str:
    """The parameters of forward; in brackets where nothing can flow back."""
    if cls.variadic:
        return f"`*{cls.inputs[0]}`"
    fixed = cls.inputs if cls.no_derivative else cls.fixed
    if not cls.inputs:
        return "none"
    return ", ".join(f"(`{n}`)" if n in fixed else f"`{n}`" for n in cls.inputs)


def outputs(cls: type) -> str:
    """Said where there are several."""
    if isinstance(cls.outputs, property):
        return f", outputs {cls.outputs.__doc__.rstrip('.').lower()}"
    if len(cls.outputs) == 1:
        return ""
    return f", outputs {', '.join(f'`{n}`' for n in cls.outputs)}"


def options(cls: type) -> str:
    """The fields."""
    pairs = zip(cls.fields, cls.defaults, strict=True)
    shown = [f"`{name}: {_kind(cls, name)}{_default(value)}`" for name, value in pairs]
    return f", options {', '.join(shown)}" if shown else ""


def _kind(cls: type, name: str) -> str:
    notes = (vars(base).get("__annotations__", {}) for base in cls.__mro__)
    return next(str(note[name]) for note in notes if name in note)


def _default(value: object) -> str:
    required = type(value) is object  # what stands for "none given"
    return "" if required else f" = {value!r}"


def derivative(cls: type) -> str:
    """What is kept for the backward pass, or why there is none."""
    if cls.no_derivative:
        return f"No derivative: {cls.no_derivative}."
    if cls.saves:
        return f"Keeps what its `save` gives: {inspect.getdoc(cls.save)}"
    moving = cls.moving(1 if cls.variadic else len(cls.inputs))
    if not moving:
        return "Nothing flows back through it."
    said = {i: kept(cls, 1 << i) for i in moving}
    if len(set(said.values())) == 1:
        return f"Keeps {said[moving[0]]}." if said[moving[0]] else "Differentiated as expanded."
    parts = [f"{what} for `{cls.inputs[i]}`" for i, what in said.items()]
    return f"Keeps {'; '.join(parts)}."


def kept(cls: type, mask: int) -> str:
    """What the reverse rule of one input asks for; empty where it is the expansion's affair."""
    recipe = cls.reverse(mask)
    if recipe is None:
        known = cls.ahead(mask) is not None
        return "every input and output (reverse mode follows from its jvp)" if known else ""
    values = [f"`{k.name}`" for k in recipe.keeps if not k.spec]
    specs = [f"the spec of `{k.name}`" for k in recipe.keeps if k.spec]
    return ", ".join(values + specs) or "nothing"


def compiled(cls: type) -> str:
    """By which of the three ways."""
    if hasattr(cls, "lower"):
        return "a kernel"
    if hasattr(cls, "expand") and not cls.host:
        return "an expansion"
    own = "kernels of its own, else " if cls.native else ""
    return f"{own}a host call: {cls.host}" if cls.host else "nothing yet"


def main(arguments: list[str]) -> int:
    """Write the page, or compare."""
    text = page()
    if arguments == ["--check"]:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("docs/ops.md is up to date" if same else "docs/ops.md is old; run: make docs")
        return 0 if same else 1
    if arguments:
        print(__doc__)
        return 2
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote docs/ops.md: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
