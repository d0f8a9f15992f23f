"""The kernels as one module for Cython, which becomes an extension module when the package is built.

Only the standard library is used and nothing of this package is imported, so that setup.py can run this file alone.
The kernels stay plain Python with annotations. What changes for Cython is that numbers are 64 bits wide, lists of them
are structs of a pointer and a size, named tuples are structs of such, and the functions of all modules are in one.
Cython infers the types of variables, writes the C, and refuses what needs Python.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from textwrap import indent

KERNELS = Path(__file__).parents[1] / "kernels"
FLAGS = (
    *("-O3", "-g0", "-fwrapv", "-ffp-contract=off", "-fno-builtin-pow", "-w"),
    *("-fno-fast-math", "-fno-unsafe-math-optimizations"),
)
"""No fused or folded operation on floats, which would round otherwise than Python, and integers that wrap around.

They come behind what the environment asks for. The linker needs them, too: for ``-ffast-math`` or ``-Ofast`` it adds
code that rounds tiny floats to 0 in the whole process.
"""
_TYPES = {
    "int": "long long",
    "bool": "long long",
    "float": "double",
    "None": "void",
    "Numbers": "Numbers",
    "Reals": "Reals",
}
_FORMATS = {"Numbers": "lq", "Reals": "d"}
_PLAIN = {"float", "int", "len", "max", "min", "range"}
_HEAD = r'''# cython: language_level=3, infer_types=True, cpow=True, freethreading_compatible=True
from cpython.buffer cimport PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from operator import index

cdef extern from *:
    """
    #ifdef CHECKED
    #include <stdio.h>
    #include <stdlib.h>
    static long long within_(long long n, long long size) {{
        if (n < 0 || n >= size) {{ fprintf(stderr, "%lld of %lld\\n", n, size); abort(); }}
        return n;
    }}
    #else
    #define within_(n, size) (n)
    #endif
    """
    long long within_(long long n, long long size) noexcept nogil

ctypedef struct Numbers:
    long long *at
    long long size

ctypedef struct Reals:
    double *at
    long long size

cdef inline long long int_(double value) noexcept nogil:
    return <long long>value

cdef inline double float_(double value) noexcept nogil:
    return value

cdef inline long long truth_(bint value) noexcept nogil:
    return value

cdef class Packed:
    """Addresses and sizes of some arrays, which stay where they are as long as this is there."""
    cdef list views
    cdef Numbers at[{most}]

cdef Packed pack(arrays, formats):
    cdef Py_buffer buffer
    found = Packed()
    found.views = [memoryview(array) for array in arrays]
    for n, (view, known) in enumerate(zip(found.views, formats, strict=True)):
        if view.ndim != 1 or view.readonly or (len(view) > 0 and (view.format not in known or not view.c_contiguous)):
            raise TypeError(f"no array of 64 bits that can be written to: {{arrays[n]!r}}")
        PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
        found.at[n].at, found.at[n].size = <long long *>buffer.buf, len(view)
        PyBuffer_Release(&buffer)
    return found

cdef Packed packed(numbers, formats):
    if numbers.packed is None:
        numbers.packed = pack(numbers, formats)
    return numbers.packed

SOURCES = "{digest}"
'''


def kernel_modules(folder: Path = KERNELS) -> list[Path]:
    """Return the files of the kernels."""
    return [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]


def digest(paths: Iterable[Path]) -> str:
    """Return what tells an extension module of these files from one of others."""
    return sha256(b"\0".join(path.read_bytes() for path in (Path(__file__), *paths))).hexdigest()


def write_c(name: str, folder: Path, paths: Sequence[Path]) -> str:
    """Write an extension module of kernels in C, and return the path of the file."""
    from Cython.Build import cythonize

    source = folder / f"{name}.pyx"
    folder.mkdir(parents=True, exist_ok=True)
    text = cython_source(paths)
    # What has not changed keeps its time, so that it is not compiled again.
    if not source.exists() or source.read_text("utf-8") != text:
        source.write_text(text, "utf-8")
    (made,) = cythonize(str(source), quiet=True)  # type: ignore[no-untyped-call]
    return str(made.sources[0])


def cython_source(paths: Sequence[Path]) -> str:
    """Return kernels as one module for Cython; functions that are decorated with `kernel` can be called from Python."""
    trees = {path.stem: ast.parse(path.read_text("utf-8"), path.name) for path in paths}
    own = {name: dict(_definitions(name, tree)) for name, tree in trees.items()}
    classes = [node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)]
    fields = {kind.name: [field for field in kind.body if isinstance(field, ast.AnnAssign)] for kind in classes}
    parts = [_HEAD.format(most=max(map(len, fields.values()), default=1), digest=digest(paths))]
    for kind in classes:
        rows = [f"{_type(field.annotation)} {ast.unparse(field.target)}" for field in fields[kind.name]]
        parts.append("\n    ".join([f"ctypedef struct {kind.name}:", *rows]))
    for name, tree in trees.items():
        names = own[name].copy()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                home = own.get(str(node.module).rpartition(".")[2], {})
                names.update((alias.name, home[alias.name]) for alias in node.names if alias.name in home)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                parts.append(_function(node, names))
                if any(ast.unparse(one) == "kernel" for one in node.decorator_list):
                    parts.append(_exported(node, names[node.name], fields))
    return "\n\n".join(parts) + "\n"


def _definitions(module: str, tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Return what the names of a module's functions and constants stand for."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, ast.Name(f"{module}__{node.name}")
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                yield from zip(map(ast.unparse, target.elts), value.elts, strict=True)
            else:
                yield ast.unparse(target), value


def _type(hint: ast.expr | None) -> str:
    """Return the type in Cython of an annotation."""
    if isinstance(hint, ast.Subscript) and isinstance(hint.slice, ast.Tuple):
        return f"({', '.join(map(_type, hint.slice.elts))})"
    name = "None" if hint is None else ast.unparse(hint)
    return _TYPES.get(name, f"const {name} *")


def _function(node: ast.FunctionDef, names: Mapping[str, ast.expr]) -> str:
    """Return a function with types, in terms of the whole module."""
    for one in ast.walk(node):
        if sum(map(_calls, _operands(one))) > 1:
            raise SyntaxError(f"{node.name}, line {getattr(one, 'lineno', 0)}: two calls in {ast.unparse(one)}")
    stored = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    given = [(argument.arg, _type(argument.annotation)) for argument in node.args.args]
    known = {name: value for name, value in names.items() if name not in {*stored, *dict(given)}}
    taken = ", ".join(f"{kind} {name}" for name, kind in given)
    body = "\n".join(ast.unparse(_InCython(known).visit(statement)) for statement in node.body)
    head = f"cdef {_type(node.returns)} {ast.unparse(names[node.name])}({taken}) noexcept nogil:"
    return f"{head}\n{indent(body, '    ')}"


def _exported(node: ast.FunctionDef, function: ast.expr, fields: Mapping[str, Sequence[ast.AnnAssign]]) -> str:
    """Return what Python calls: it takes the arrays of its arguments, and runs beside other threads."""
    taken, packs, passed = [], [], []
    for argument in node.args.args:
        name, hint, kind = argument.arg, ast.unparse(argument.annotation or argument), _type(argument.annotation)
        if hint in _FORMATS:
            packs.append(f"cdef Packed {name}_ = pack(({name},), {(_FORMATS[hint],)})")
            passed.append(f"(<{kind} *>{name}_.at)[0]")
        elif hint in fields:
            formats = tuple(_FORMATS[ast.unparse(field.annotation)] for field in fields[hint])
            packs.append(f"cdef Packed {name}_ = packed({name}, {formats})")
            passed.append(f"<{kind}>{name}_.at")
        else:
            # Cython by itself would round a float down.
            packs.append(f"cdef {kind} {name}_ = {name if hint == 'float' else f'index({name})'}")
            passed.append(f"{name}_")
        taken.append(name)
    lines = [*packs, f"cdef {_type(node.returns)} found", "with nogil:"]
    lines += [f"    found = {ast.unparse(function)}({', '.join(passed)})", "return found"]
    return "\n    ".join([f"def {node.name}({', '.join(taken)}):", *lines])


def _operands(node: ast.AST) -> Sequence[ast.AST]:
    """Return the parts of an expression that C may evaluate in any order."""
    match node:
        case ast.BinOp(left, _, right):
            return left, right
        case ast.Compare(left, _, others):
            return left, *others
        case ast.Call(_, arguments):
            return arguments
        case ast.AugAssign(target, _, value):
            return target, value
    return ()


def _calls(node: ast.AST) -> bool:
    """Return whether an expression calls a function of the kernels."""
    return any(isinstance(one, ast.Call) and ast.unparse(one.func) not in _PLAIN for one in ast.walk(node))


class _InCython(ast.NodeTransformer):
    """Changes statements of a kernel to what Cython understands as numbers and structs.

    `names`: what the names of functions and constants stand for.
    """

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the name of a function in the whole module, or the value of a constant."""
        return deepcopy(self._names.get(node.id, node))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Return a number for a truth value."""
        return ast.Constant(int(node.value)) if isinstance(node.value, bool) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Return a number for a truth value, so that Cython infers one type where both meet."""
        self.generic_visit(node)
        return ast.Call(ast.Name("truth_"), [node], [])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Return a number for a truth value."""
        self.generic_visit(node)
        return ast.Call(ast.Name("truth_"), [node], []) if isinstance(node.op, ast.Not) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Return an item, in a build that is `CHECKED` only of a place that there is, or the first items of a list."""
        self.generic_visit(node)
        items, size = ast.Attribute(node.value, "at"), ast.Attribute(node.value, "size")
        match node.slice:
            case ast.Slice(None, ast.expr() as upper, None):
                return ast.Call(ast.Name("Numbers"), [items, upper], [])
            case ast.Slice():
                raise SyntaxError(f"line {node.lineno}: only the first items of a list can be taken")
        return ast.Subscript(items, ast.Call(ast.Name("within_"), [node.slice, size], []))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Return a size for a length, and a conversion in C."""
        self.generic_visit(node)
        match node.func:
            case ast.Name("len"):
                return ast.Attribute(node.args[0], "size")
            case ast.Name("int" | "float" as name):
                node.func = ast.Name(f"{name}_")
        return node
