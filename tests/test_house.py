"""The house rules, checked: sizes, exports, doors between rooms, what may not be there."""

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "retrograd"
SOURCES = sorted(PACKAGE.rglob("*.py"))
FILE_LIMIT, FUNCTION_LIMIT = 400, 40


def shown(path):
    return path.relative_to(ROOT).as_posix()


def parsed():
    """Each module of the package: its path as shown, and its syntax tree."""
    for path in SOURCES:
        yield shown(path), ast.parse(path.read_text(encoding="utf-8"))


def found(check):
    """The places ("file:line  what") that `check(tree)` yields as (node, what)."""
    return [
        f"{name}:{node.lineno}  {what}" for name, tree in parsed() for node, what in check(tree)
    ]


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


# -- sizes ---------------------------------------------------------------------------------


def table(rows, limit):
    """The ten largest, as text; what is over the limit is marked."""
    largest = sorted(rows, reverse=True)[:10]
    return "\n".join(f"{'>' if n > limit else ' '} {n:5}  {name}" for n, name in largest)


def test_files_are_short():
    rows = [(len(p.read_text(encoding="utf-8").splitlines()), shown(p)) for p in SOURCES]
    assert rows
    assert max(rows)[0] <= FILE_LIMIT, f"at most {FILE_LIMIT} lines\n{table(rows, FILE_LIMIT)}"


def test_functions_are_short():
    rows = [
        (node.end_lineno - node.lineno + 1, f"{name}:{node.lineno} {node.name}")
        for name, tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert rows
    assert max(rows)[0] <= FUNCTION_LIMIT, (
        f"at most {FUNCTION_LIMIT} lines, signature and docstring included\n"
        f"{table(rows, FUNCTION_LIMIT)}"
    )


# -- exports -------------------------------------------------------------------------------


def namespaces():
    """The package and its public modules: rg, rg.linalg, rg.testing..."""
    import retrograd as rg

    inner = [getattr(rg, n) for n in rg.__all__]
    return [rg, *(m for m in inner if isinstance(m, ModuleType))]


def public(module):
    """Public names and what they stand for, by __all__ where there is one."""
    names = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
    return {name: getattr(module, name) for name in names}


def test_all_is_sorted_and_without_doubles():
    for module in namespaces():
        names = list(getattr(module, "__all__", []))
        assert names == sorted(set(names)), f"{module.__name__}.__all__ is not sorted(set(...))"


def test_all_is_what_is_exported():
    import retrograd as rg

    visible = {
        name
        for name, value in vars(rg).items()
        # a room becomes an attribute merely by being imported; that exports nothing
        if not name.startswith("_") and not _is_ours(value)
    }
    listed = {n for n, v in public(rg).items() if not n.startswith("_") and not _is_ours(v)}
    assert visible - listed == set(), "exported, and not in __all__"
    assert listed - visible == set(), "in __all__, and not exported"


def _is_ours(value):
    return isinstance(value, ModuleType) and value.__name__.startswith("retrograd.")


def test_public_modules_are_ours():
    foreign = [m.__name__ for m in namespaces() if m.__name__.split(".")[0] != "retrograd"]
    assert not foreign


def test_public_names_are_documented_and_typed():
    faults = []
    for module in namespaces():
        for name, value in public(module).items():
            who = f"{module.__name__}.{name}"
            if not (getattr(value, "__module__", None) or "").startswith("retrograd"):
                continue  # a number, a dtype
            if isinstance(value, FunctionType | type) and not inspect.getdoc(value):
                faults.append(f"{who} has no docstring")
            if isinstance(value, FunctionType):
                annotation = inspect.signature(value).return_annotation
                if annotation is inspect.Signature.empty:
                    faults.append(f"{who} has no return annotation")
    assert not faults, "\n".join(faults)


# -- numbers that are written twice --------------------------------------------------------


def test_readme_names_the_python_version_of_pyproject():
    (wanted,) = re.findall(r">=(\d+\.\d+)", project()["requires-python"])
    said = set(re.findall(r"Python (\d+\.\d+)", readme()))
    assert said == {wanted}, f"README says Python {sorted(said)}, pyproject.toml {wanted}"


def test_readme_names_the_dependencies_of_pyproject():
    """The README has one paragraph that begins `Dependencies:`, each name in `code`."""
    wanted = {re.match(r"[\w-]+", d).group() for d in project()["dependencies"]}
    paragraphs = re.findall(r"^Dependencies:.*?(?=\n\n|\Z)", readme(), re.MULTILINE | re.DOTALL)
    assert len(paragraphs) == 1, "README needs one paragraph `Dependencies: ...`"
    said = set(re.findall(r"`([\w-]+)`", paragraphs[0]))
    assert said == wanted


def test_readme_names_extras_that_exist():
    said = {
        e for found in re.findall(r"retrograd\[([\w,]+)\]", readme()) for e in found.split(",")
    }
    assert said <= set(project()["optional-dependencies"])


def test_the_version_is_the_same_everywhere():
    import retrograd as rg

    assert getattr(rg, "__version__", project()["version"]) == project()["version"]


# -- what may not be there -----------------------------------------------------------------

MACHINE_PATH = re.compile(
    r"(?<![\w.:/~$)}\]-])(?:/(?:home|Users|root|work|opt|mnt|tmp|var|private)/\w|[A-Z]:\\Users)"
)


def text_files():
    """What git holds or would hold, decoded; binary files are left out."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git working tree")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listing.decode().split("\0")):
        path = ROOT / name
        if path.is_file():
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_no_file_names_a_place_on_somebodys_machine():
    faults = [
        f"{name}:{number}  {line.strip()[:80]}"
        for name, text in text_files()
        for number, line in enumerate(text.splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not faults, "\n".join(faults)


UNSAFE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node, "." * node.level + (node.module or "")


def called(node):
    """The name a call goes by: `open` for open(...), `cwd` for Path.cwd()."""
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def calls(tree):
    return ((n, called(n)) for n in ast.walk(tree) if isinstance(n, ast.Call))


def test_nothing_is_unpickled():
    assert not found(lambda t: ((n, m) for n, m in imports(t) if m.split(".")[0] in UNSAFE))


def test_no_text_is_run_as_code():
    runs = {"eval", "exec", "builtins.eval", "builtins.exec"}
    where = found(lambda t: ((n, m) for n, m in calls(t) if ast.unparse(n.func) in runs))
    assert all(
        line.startswith("retrograd/jit/straight.py:") for line in where
    )  # of our own, see there


def test_imports_are_absolute():
    assert not found(lambda t: ((n, m) for n, m in imports(t) if m.startswith(".")))


def test_nothing_depends_on_the_current_directory():
    def relative(tree):
        for node, name in calls(tree):
            if name in {"chdir", "cwd", "getcwd"}:
                yield node, name
            first = node.args[0] if node.args else None
            if name in {"open", "Path"} and isinstance(getattr(first, "value", None), str):
                yield node, f"{name}({first.value!r})"

    assert not found(relative)


HEAVY = {"hypothesis", "jax", "llvmlite", "matplotlib", "rich", "safetensors", "scipy", "torch"}


def test_importing_is_light():
    """`import retrograd` brings NumPy; the rest comes when it is asked for."""
    code = "import json, sys, retrograd; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(json.loads(done.stdout))


def test_the_doors_between_rooms():
    """The contracts of pyproject.toml, as `lint-imports` reads them."""
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports_command as main; main()"
    command = [sys.executable, "-c", code, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- facts about an op live on the op ------------------------------------------------------

FEW = 4  # so many names of ops side by side are a list of ops


def op_names():
    from retrograd.core.op import REGISTRY

    return {name for cls in REGISTRY.values() for name in (cls.__name__, cls.name)}


def literal_names(node):
    """Strings and names that a literal collection holds; of a dict, its keys."""
    if isinstance(node, ast.Dict):
        items = node.keys
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        items = node.elts
    elif isinstance(node, ast.Call) and called(node) == "split":
        text = getattr(getattr(node.func, "value", None), "value", "")
        return text.replace(",", " ").split() if isinstance(text, str) else []
    else:
        return []
    names = [
        getattr(i, "value", None) if isinstance(i, ast.Constant) else _class(i) for i in items
    ]
    return [n for n in names if isinstance(n, str)]


def _class(node):
    """The name of a class mentioned in a collection: Exp, elementary.Exp."""
    name = getattr(node, "id", getattr(node, "attr", "")) or ""
    return name if name[:1].isupper() else None


def op_lists(tree, names):
    """Collections of op names, but for __all__, which is what a facade is made of."""
    exports = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        if "__all__" in ast.unparse(getattr(node, "target", None) or node.targets[0])
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        listed = sorted(names & set(literal_names(node)))
        if len(listed) >= FEW and id(node) not in exports:
            yield node, ", ".join(listed)


def test_there_is_no_list_of_ops():
    names = op_names()
    faults = [
        f"{name}:{node.lineno}  {what}"
        for name, tree in parsed()
        if not name.startswith("retrograd/ops/")
        for node, what in op_lists(tree, names)
    ]
    assert not faults, "\n".join(["say it on the op (an attribute, a family):", *faults])


@pytest.mark.parametrize(
    "text",
    [
        "UNARY = ['exp', 'log', 'sin', 'cos']",
        "UNARY = {'Exp', 'Log', 'Sin', 'Cos'}",
        "isinstance(op, (Exp, Log, elementary.Sin, Cos))",
        "RULES = {'exp': 1, 'log': 2, 'sin': 3, 'cos': 4}",
        "'exp log sin cos'.split()",
    ],
)
def test_a_list_of_ops_is_found(text):
    names = {"exp", "log", "sin", "cos", "Exp", "Log", "Sin", "Cos"}
    assert list(op_lists(ast.parse(text), names))
    assert not list(op_lists(ast.parse("__all__ = ['exp', 'log', 'sin', 'cos']"), names))
