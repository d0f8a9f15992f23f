"""No file is read in a way that could run code: nothing unpickles but processes that talk with their own children."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.modules import trees

UNSAFE = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "pickletools"}
ALLOWED = {
    # Pipes to its own children.
    "executor/processes.py": {"pickle.loads", "pickle.dumps", "pickle.PicklingError", "pickle.UnpicklingError"},
    "system/companions.py": {"pickle.PicklingError"},
    "executor/user_code/likeness.py": {"pickle.UnpicklingError"},  # which torch raises
}
ARRAYS = ("allow_pickle", False)
LOADERS = {"torch.load": ("weights_only", True), "np.load": ARRAYS, "numpy.load": ARRAYS}


def dotted(node: ast.expr) -> str:
    """A name such as ``torch.load``, or nothing."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(tree: ast.AST) -> Iterator[str]:
    """What of unsafe modules is used, and calls that may unpickle or run text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"import {one.name} as" for one in node.names if one.asname and one.name in UNSAFE)
            yield from (f"import {one.name}" for one in node.names if one.name in UNSAFE - {"pickle"})
        elif isinstance(node, ast.ImportFrom) and node.module in UNSAFE:
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Attribute) and dotted(node.value) in UNSAFE:
            yield dotted(node)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            keyword, value = LOADERS.get(name, ("", None))
            given = {one.arg: one.value for one in node.keywords}
            said = given.get(keyword)
            loads = name in LOADERS and not (isinstance(said, ast.Constant) and said.value is value)
            if loads or name in ("eval", "exec", "pandas.read_pickle", "pd.read_pickle"):
                yield name


def test_nothing_unpickles() -> None:
    used = {module: set(unsafe(tree)) for module, tree in trees().items()}
    assert {module: names for module, names in used.items() if names} == ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        *("import pickle\npickle.load(file)", "import pickle as safe", "from pickle import loads", "import marshal"),
        *("torch.load(path)", "torch.load(path, weights_only=False)", "torch.load(path, weights_only=safe)"),
        *("np.load(path, allow_pickle=True)", "pandas.read_pickle(path)", "class Own(pickle.Unpickler): pass"),
    ],
)
def test_what_unpickles_is_found_and_nothing_else(text: str) -> None:
    assert list(unsafe(ast.parse(text)))
    safe = "torch.load(path, weights_only=True)\nnp.load(path, allow_pickle=False)\njson.load(file)\nmodel.eval()"
    assert not list(unsafe(ast.parse(safe)))
