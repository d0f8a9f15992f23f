"""C for functions on flat numbers that are written in a small part of Python, and the library that it becomes.

Only the standard library is used and nothing of this package is imported, so that setup.py can run this file alone.

Numbers are 64 bits wide. What Python says about the order of evaluation, about division and about the remainder of
negative numbers holds in C too, and so does each rounding of floating-point numbers; a function therefore computes the
same in both, unless an integer outgrows 64 bits. What is not understood is an error, never a guess.
"""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["KERNELS", "Translation", "build", "compiler", "digest_of", "sources"]

KERNELS = Path(__file__).parents[1] / "kernels"
_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fwrapv", "-ffp-contract=off", "-fno-builtin-pow", "-w")
"""No fused or folded operation on floats, which would round otherwise than Python, and integers that wrap around."""
_INT, _BOOL, _FLOAT, _NUMBERS, _REALS, _NONE, _EVENTS, _LIST = "i", "b", "d", "I", "D", "n", "E", "L"
_C = dict(zip("ibdnIDEL", ["int64_t", "int64_t", "double", "void", "Numbers", "Reals", "Events", "List"], strict=True))
_ITEM = {_NUMBERS: _INT, _REALS: _FLOAT, _LIST: _INT, _EVENTS: "(iii)"}
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.BitOr: "|",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_HEAD = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef CHECKED
#include <stdio.h>
#define AT(of, n) (*({ __typeof__(of) list = (of); int64_t at = (n); if (at < 0 || at >= list.size) { \
    fprintf(stderr, "line %d: %s at %lld of %lld\n", __LINE__, #of, (long long)at, (long long)list.size); abort(); } \
    list.at + at; }))
#else
#define AT(of, n) ((of).at[n])
#endif
typedef struct { int64_t *at, size; } Numbers;
typedef struct { double *at; int64_t size; } Reals;
typedef struct { int64_t v0, v1, v2; } T_iii;
typedef struct { int64_t *at, size, room; } List;
typedef struct { T_iii *at; int64_t size, room; } Events;
#define OWNED __attribute__((cleanup(release)))
static inline void release(void *list) { free(*(void **)list); }
static inline int64_t floordiv(int64_t a, int64_t b) { int64_t q = a / b; return q - ((a % b != 0) & ((a ^ b) < 0)); }
static inline int64_t modulo(int64_t a, int64_t b) { return a - floordiv(a, b) * b; }
static inline int64_t min_i(int64_t a, int64_t b) { return b < a ? b : a; }
static inline int64_t max_i(int64_t a, int64_t b) { return b > a ? b : a; }
static inline double min_d(double a, double b) { return b < a ? b : a; }
static inline double max_d(double a, double b) { return b > a ? b : a; }
static void *larger(void *at, int64_t size, int64_t *room, size_t width) {
    if (size < *room) return at;
    at = realloc(at, (*room = 2 * *room + 16) * width);
    if (at == NULL) abort();
    return at;
}
static inline void append(List *list, int64_t value) {
    list->at = larger(list->at, list->size, &list->room, sizeof value);
    list->at[list->size++] = value;
}
static inline int before(T_iii a, T_iii b) {
    return a.v0 != b.v0 ? a.v0 < b.v0 : a.v1 != b.v1 ? a.v1 < b.v1 : a.v2 < b.v2;
}
static void heappush(Events *heap, T_iii value) {
    heap->at = larger(heap->at, heap->size, &heap->room, sizeof value);
    int64_t here = heap->size++;
    for (int64_t up; here > 0 && before(value, heap->at[up = (here - 1) / 2]); here = up) heap->at[here] = heap->at[up];
    heap->at[here] = value;
}
static T_iii heappop(Events *heap) {
    T_iii top = heap->at[0], last = heap->at[--heap->size];
    int64_t here = 0, down;
    while ((down = 2 * here + 1) < heap->size) {
        if (down + 1 < heap->size && before(heap->at[down + 1], heap->at[down])) down++;
        if (!before(heap->at[down], last)) break;
        heap->at[here] = heap->at[down];
        here = down;
    }
    heap->at[here] = last;
    return top;
}
"""


class Translation:
    """Modules in C: the functions that are decorated with `kernel`, and those that they call.

    Parameters
    ----------
    modules
        Source by the name of the module, as others import from it.

    Attributes
    ----------
    text
        The translation. For each kernel it exports ``call_NAME``, which takes numbers as they are and arrays and named
        tuples by address.

    Raises
    ------
    SyntaxError
        A function uses what has no translation.
    """

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = {name: _Module(name, ast.parse(source)) for name, source in modules.items()}
        self._structs: dict[str, tuple[tuple[str, str], ...]] = {}
        self._tuples: dict[str, None] = {}
        self._functions: dict[str, str] = {}
        self._heads: list[str] = []
        kernels = [(each, one) for each in self._modules.values() for one in each.functions.values() if _is_kernel(one)]
        exported = [self._exported(module, function) for module, function in kernels]
        structs = [
            f"typedef struct {{ {' '.join(f'{_C[kind]} {field}_;' for field, kind in fields)} }} {name};"
            for name, fields in self._structs.items()
        ]
        tuples = [f"typedef struct {{ {_members(kind)} }} {c_type(kind)};" for kind in self._tuples if kind != "(iii)"]
        self.text = "\n".join([_HEAD, *structs, *tuples, *self._heads, *self._functions.values(), *exported, ""])

    def resolve(self, module: _Module, name: str) -> tuple[_Module, ast.AST] | None:
        """Return where a name of a module is defined, and its definition."""
        while name in module.imports:
            home, name = module.imports[name]
            if home not in self._modules:
                return None
            module = self._modules[home]
        found = module.functions.get(name) or module.classes.get(name) or module.constants.get(name)
        return None if found is None else (module, found)

    def kind_of(self, module: _Module, hint: ast.expr) -> str:
        """Return the kind of an annotation."""
        known = {"int": _INT, "bool": _BOOL, "float": _FLOAT, "Numbers": _NUMBERS, "Reals": _REALS, "None": _NONE}
        text = ast.unparse(hint)
        if text in known:
            return known[text]
        if isinstance(hint, ast.Subscript) and isinstance(hint.slice, ast.Tuple) and text.startswith("tuple["):
            return self.tuple_of([self.kind_of(module, one) for one in hint.slice.elts])
        found = self.resolve(module, text)
        if found is None or not isinstance(found[1], ast.ClassDef):
            raise module.refusal(hint)
        home, definition = found[0], found[1]
        fields = [one for one in definition.body if isinstance(one, ast.AnnAssign)]
        kinds = tuple((ast.unparse(one.target), self.kind_of(home, one.annotation)) for one in fields)
        self._structs[text] = kinds
        return f"*{text}"

    def field(self, kind: str, name: str) -> str | None:
        """Return the kind of a field of a named tuple."""
        return dict(self._structs.get(kind[1:], ())).get(name)

    def tuple_of(self, kinds: Sequence[str]) -> str:
        """Return the kind of a tuple of numbers."""
        kind = f"({''.join(kinds)})".replace(_BOOL, _INT)
        self._tuples[kind] = None
        return kind

    def called(self, module: _Module, function: ast.FunctionDef) -> tuple[str, list[str], str]:
        """Return name, kinds of the arguments and of the result of a function, which is translated too."""
        assert function.returns is not None
        name = f"{module.name}__{function.name}"
        kinds = [self.kind_of(module, one.annotation) for one in function.args.args if one.annotation is not None]
        result = self.kind_of(module, function.returns)
        if name not in self._functions:
            self._functions[name] = ""
            arguments = ", ".join(
                f"{c_type(kind)} {one.arg}_" for kind, one in zip(kinds, function.args.args, strict=True)
            )
            head = f"static {c_type(result)} {name}({arguments})"
            self._heads.append(f"{head};")
            given = dict(zip((one.arg for one in function.args.args), kinds, strict=True))
            self._functions[name] = f"{head} {{\n{_Body(self, module, function, given, result).text}}}"
        return name, kinds, result

    def _exported(self, module: _Module, function: ast.FunctionDef) -> str:
        name, kinds, result = self.called(module, function)
        taken = [
            f"const {c_type(kind)} *a{n}" if kind in "ID" else f"{c_type(kind)} a{n}" for n, kind in enumerate(kinds)
        ]
        given = [f"*a{n}" if kind in "ID" else f"a{n}" for n, kind in enumerate(kinds)]
        return f"{c_type(result)} call_{function.name}({', '.join(taken)}) {{ return {name}({', '.join(given)}); }}"


class _Module:
    """What a module defines, and where its other names come from."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name = name
        self.functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
        self.classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
        self.imports = {
            alias.asname or alias.name: ((one.module or "").rpartition(".")[2], alias.name)
            for one in tree.body
            if isinstance(one, ast.ImportFrom)
            for alias in one.names
        }
        self.constants: dict[str, ast.expr] = {}
        for one in tree.body:
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
                self.constants[one.targets[0].id] = one.value
            elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple):
                assert isinstance(one.value, ast.Tuple)
                names = (ast.unparse(target) for target in one.targets[0].elts)
                self.constants |= dict(zip(names, one.value.elts, strict=True))

    def refusal(self, node: ast.AST) -> SyntaxError:
        """Return the error that code has no translation."""
        return SyntaxError(f"{self.name}, line {getattr(node, 'lineno', 0)}: no translation for {ast.unparse(node)}")


class _Body:
    """The body of a function in C.

    Parameters
    ----------
    whole
        The translation that it becomes a part of.
    module, function
        What is translated.
    given
        Kinds of its arguments, by name.
    result
        Kind of what it returns.

    Attributes
    ----------
    text
        Its lines.
    """

    def __init__(
        self, whole: Translation, module: _Module, function: ast.FunctionDef, given: dict[str, str], result: str
    ) -> None:
        self._whole, self._module, self._kinds, self._result = whole, module, dict(given), result
        self._number = 0
        self._found: dict[str, str] = {}
        # A name has the kind that all its values fit: they are looked through until nothing is new.
        while True:
            known = dict(self._kinds)
            lines = list(self._block(function.body))
            if known == self._kinds:
                break
        own = [
            f"{'OWNED ' if kind in (_LIST, _EVENTS) else ''}{c_type(kind)} {name}_ = {'0' if kind in 'ibd' else '{0}'};"
            for name, kind in self._kinds.items()
            if name not in given
        ]
        self.text = "".join(f"    {line}\n" for line in (*own, *lines))

    def _block(self, body: Iterable[ast.stmt]) -> Iterator[str]:
        for one in body:
            yield from self._statement(one)

    def _statement(self, node: ast.stmt) -> Iterator[str]:
        match node:
            case ast.Expr(ast.Constant()):
                return
            case ast.Expr(value):
                yield f"{self._expression(value)[0]};"
            case ast.Assign(targets, value):
                yield from self._assign(targets, value)
            case ast.AugAssign(target, operator, value):
                yield from self._augment(node, target, operator, value)
            case ast.If(test, body, rest):
                yield f"if ({self._test(test)}) {{"
                yield from self._block(body)
                if rest:
                    yield "} else {"
                    yield from self._block(rest)
                yield "}"
            case ast.While(test, body, []):
                yield f"while ({self._test(test)}) {{"
                yield from self._block(body)
                yield "}"
            case ast.For(ast.Name(name), iterable, body, []):
                yield from self._for(name, iterable)
                yield from self._block(body)
                yield "}"
            case ast.Continue():
                yield "continue;"
            case ast.Break():
                yield "break;"
            case ast.Return(None):
                yield "return;"
            case ast.Return(value):
                assert value is not None
                yield f"return {self._as(value, self._result)};"
            case _:
                raise self._module.refusal(node)

    def _for(self, name: str, iterable: ast.expr) -> Iterator[str]:
        at = self._fresh()
        self._set_kind(iterable, name, _INT)
        match iterable:
            case ast.Call(ast.Name("range"), given):
                texts = [self._as(one, _INT) for one in given]
                first, end = texts[:2] if len(texts) > 1 else ("0", texts[0])
                step = texts[2] if len(texts) > 2 else "1"
                yield (
                    f"for (int64_t {at} = {first}, {at}_end = {end}, {at}_by = {step};"
                    f" {at}_by > 0 ? {at} < {at}_end : {at} > {at}_end; {at} += {at}_by) {{ {name}_ = {at};"
                )
            case _:
                text, kind = self._expression(iterable)
                if kind != _LIST:
                    raise self._module.refusal(iterable)
                yield f"for (int64_t {at} = 0; {at} < {text}.size; {at}++) {{ {name}_ = {text}.at[{at}];"

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> Iterator[str]:
        match targets, value:
            case [ast.Tuple(names)], ast.Tuple(values):
                yield "{"
                parts = [self._kept(one) for one in values]
                yield from (line for _, line, _ in parts)
                for target, (name, _, kind) in zip(names, parts, strict=True):
                    yield self._store(target, name, kind)
                yield "}"
            case [ast.Tuple(names)], _:
                name, line, kind = self._kept(value)
                if len(names) != len(kind) - 2:
                    raise self._module.refusal(value)
                yield f"{{ {line}"
                for number, target in enumerate(names):
                    yield self._store(target, f"{name}.v{number}", kind[1 + number])
                yield "}"
            case [target], ast.List([item]):
                text, kind = self._expression(item)
                name = self._name(target)
                self._set_kind(value, name, _EVENTS if kind == "(iii)" else _LIST)
                yield f"{name}_.size = 0;"
                yield f"heappush(&{name}_, {text});" if kind == "(iii)" else f"append(&{name}_, {text});"
            case [ast.Name(_) as target], _:
                yield self._store(target, *self._expression(value))
            case _:
                name, line, kind = self._kept(value)
                yield f"{{ {line}"
                for target in targets:
                    yield self._store(target, name, kind)
                yield "}"

    def _augment(self, node: ast.stmt, target: ast.expr, operator: ast.operator, value: ast.expr) -> Iterator[str]:
        text, kind = self._expression(value)
        place, own = self._place(target, kind)
        if (own == _INT and kind == _FLOAT) or type(operator) not in (ast.Add, ast.Sub, ast.Mult):
            raise self._module.refusal(node)
        sign = _OPERATORS[type(operator)]
        if _calls(value):
            # What is called may change what is added to.
            yield f"{{ __typeof__({place}) *to = &{place}, old = *to; *to = old {sign} ({text}); }}"
        else:
            yield f"{place} {sign}= {text};"

    def _kept(self, value: ast.expr) -> tuple[str, str, str]:
        """Return the name of a variable that holds a value, the line that fills it, and the kind of the value."""
        (text, kind), name = self._expression(value), self._fresh()
        return name, f"{c_type(kind)} {name} = {text};", kind

    def _store(self, target: ast.expr, text: str, kind: str) -> str:
        place, own = self._place(target, kind)
        if isinstance(target, ast.Subscript) and own == _INT and kind == _FLOAT:
            raise self._module.refusal(target)
        return f"{place} = {text};"

    def _place(self, target: ast.expr, kind: str) -> tuple[str, str]:
        """Return where to store a value, and the kind of what is there."""
        if isinstance(target, ast.Name):
            self._set_kind(target, target.id, kind)
            return f"{target.id}_", self._kinds[target.id]
        if isinstance(target, ast.Subscript):
            return self._expression(target)
        raise self._module.refusal(target)

    def _set_kind(self, node: ast.AST, name: str, kind: str) -> None:
        old = self._kinds.get(name, kind)
        if old != kind and not {old, kind} <= {_INT, _BOOL, _FLOAT}:
            raise self._module.refusal(node)
        self._kinds[name] = old if old == kind else _FLOAT if _FLOAT in (old, kind) else _INT

    def _name(self, target: ast.expr) -> str:
        if not isinstance(target, ast.Name):
            raise self._module.refusal(target)
        return target.id

    def _fresh(self) -> str:
        self._number += 1
        return f"t{self._number}"

    def _as(self, value: ast.expr, kind: str) -> str:
        """Return an expression of a given kind; only integers become floats by themselves."""
        text, own = self._expression(value)
        own_numbers = own in (_INT, _BOOL) and kind in (_INT, _BOOL, _FLOAT)
        if own != kind and not own_numbers and not (own[0] == kind[0] == "(" and len(own) == len(kind)):
            raise self._module.refusal(value)
        return text

    def _test(self, value: ast.expr) -> str:
        """Return a condition: any integer is one."""
        if isinstance(value, ast.BoolOp):
            sign = " && " if isinstance(value.op, ast.And) else " || "
            return f"({sign.join(map(self._test, value.values))})"
        text, kind = self._expression(value)
        if kind not in (_INT, _BOOL):
            raise self._module.refusal(value)
        return text

    def _expression(self, node: ast.expr) -> tuple[str, str]:  # noqa: C901
        """Return an expression, and its kind."""
        match node:
            case ast.Constant(bool(value)):
                return str(int(value)), _BOOL
            case ast.Constant(int(value)):
                return f"INT64_C({value})", _INT
            case ast.Constant(float(value)):
                return value.hex(), _FLOAT
            case ast.Name(name):
                return self._named(node, name)
            case ast.Attribute(value, name):
                text, kind = self._expression(value)
                found = self._whole.field(kind, name)
                if found is not None:
                    return f"{text}->{name}_", found
            case ast.Subscript(value, ast.Slice(None, ast.expr() as upper, None)):
                text, kind = self._expression(value)
                if kind in (_NUMBERS, _REALS):
                    return f"(({c_type(kind)}){{{text}.at, min_i({text}.size, {self._as(upper, _INT)})}})", kind
            case ast.Subscript(value, index):
                text, kind = self._expression(value)
                if kind == "(iii)" and isinstance(index, ast.Constant):
                    return f"{text}.v{index.value!r}", _INT
                if kind in _ITEM:
                    return f"AT({text}, {self._as(index, _INT)})", _ITEM[kind]
            case ast.Tuple(values):
                return self._in_order(values, lambda parts: self._tuple(parts))
            case ast.UnaryOp(ast.USub(), value):
                text, kind = self._expression(value)
                return f"(-{text})", _INT if kind == _BOOL else kind
            case ast.UnaryOp(ast.Not(), value):
                return f"(!{self._test(value)})", _BOOL
            case ast.BoolOp(operator, values):
                parts = [self._expression(one) for one in values]
                if all(kind == _BOOL for _, kind in parts):
                    sign = " && " if isinstance(operator, ast.And) else " || "
                    return f"({sign.join(text for text, _ in parts)})", _BOOL
            case ast.IfExp(test, value, other):
                (text, kind), (rest, its) = self._expression(value), self._expression(other)
                if kind == its or {kind, its} <= {_INT, _BOOL, _FLOAT}:
                    joined = kind if kind == its else _FLOAT if _FLOAT in (kind, its) else _INT
                    return f"({self._test(test)} ? {text} : {rest})", joined
            case ast.BinOp(left, operator, right):
                return self._in_order([left, right], lambda parts: self._arithmetic(node, operator, parts))
            case ast.Compare(left, operators, rest):
                if len(rest) == 1:
                    return self._in_order([left, *rest], lambda parts: self._compared(node, operators, parts))
                if not _calls(node):
                    return self._compared(node, operators, [self._expression(one) for one in (left, *rest)])
            case ast.Call(ast.Name(name), values, []):
                return self._call(node, name, values)
            case ast.Call(ast.Attribute(value, "clear"), [], []):
                return f"({self._expression(value)[0]}.size = 0)", _NONE
            case ast.Call(ast.Attribute(value, "append"), [item], []):
                return f"append(&{self._expression(value)[0]}, {self._as(item, _INT)})", _NONE
        raise self._module.refusal(node)

    def _named(self, node: ast.expr, name: str) -> tuple[str, str]:
        if name in self._kinds:
            return f"{name}_", self._kinds[name]
        found = self._whole.resolve(self._module, name)
        if found is None or not isinstance(found[1], ast.expr):
            raise self._module.refusal(node)
        return self._expression(found[1])

    def _in_order(self, values: Sequence[ast.expr], then: Any) -> tuple[str, str]:
        """Return what is made of expressions; where one calls a function they are evaluated from left to right."""
        parts = [self._expression(one) for one in values]
        if len(values) < 2 or not any(map(_calls, values)):
            result: tuple[str, str] = then(parts)
            return result
        names = [self._fresh() for _ in parts]
        lines = "".join(f"{c_type(kind)} {name} = {text}; " for name, (text, kind) in zip(names, parts, strict=True))
        text, kind = then([(name, kind) for name, (_, kind) in zip(names, parts, strict=True)])
        return f"({{ {lines}{text}; }})", kind

    def _tuple(self, parts: Sequence[tuple[str, str]]) -> tuple[str, str]:
        kind = self._whole.tuple_of([kind for _, kind in parts])
        return f"(({c_type(kind)}){{{', '.join(text for text, _ in parts)}}})", kind

    def _compared(
        self, node: ast.expr, operators: Sequence[ast.cmpop], parts: Sequence[tuple[str, str]]
    ) -> tuple[str, str]:
        signs = [_OPERATORS.get(type(one)) for one in operators]
        if None in signs or not {kind for _, kind in parts} <= {_INT, _BOOL, _FLOAT}:
            raise self._module.refusal(node)
        pairs = zip(parts, signs, parts[1:], strict=False)
        return f"({' && '.join(f'{one[0]} {sign} {two[0]}' for one, sign, two in pairs)})", _BOOL

    def _arithmetic(self, node: ast.expr, operator: ast.operator, parts: Sequence[tuple[str, str]]) -> tuple[str, str]:
        (left, one), (right, two) = parts
        if not {one, two} <= {_INT, _BOOL, _FLOAT}:
            raise self._module.refusal(node)
        real = _FLOAT in (one, two)
        match operator:
            case ast.FloorDiv() if not real:
                return f"floordiv({left}, {right})", _INT
            case ast.Mod() if not real:
                return f"modulo({left}, {right})", _INT
            case ast.Pow() if one == _FLOAT:
                return f"pow({left}, {right})", _FLOAT
            case ast.Div():
                return f"((double){left} / (double){right})", _FLOAT
            case ast.Add() | ast.Sub() | ast.Mult():
                return f"({left} {_OPERATORS[type(operator)]} {right})", _FLOAT if real else _INT
            case ast.LShift() | ast.RShift() | ast.BitOr() if not real:
                return f"({left} {_OPERATORS[type(operator)]} {right})", _INT
        raise self._module.refusal(node)

    def _call(self, node: ast.expr, name: str, values: Sequence[ast.expr]) -> tuple[str, str]:
        if name == "len":
            text, kind = self._expression(values[0])
            if kind in _ITEM:
                return f"{text}.size", _INT
            raise self._module.refusal(node)
        if name in ("heappush", "heappop"):
            texts = [self._expression(one)[0] for one in values]
            return f"{name}(&{', '.join(texts)})", "(iii)" if name == "heappop" else _NONE
        if name in ("int", "float"):
            kind = _INT if name == "int" else _FLOAT
            return f"(({_C[kind]}){self._expression(values[0])[0]})", kind
        if name in ("min", "max"):
            return self._in_order(values, lambda parts: self._extreme(node, name, parts))
        found = self._whole.resolve(self._module, name)
        if found is None or not isinstance(found[1], ast.FunctionDef):
            raise self._module.refusal(node)
        called, kinds, result = self._whole.called(found[0], found[1])
        for value, kind in zip(values, kinds, strict=True):
            self._as(value, kind)
        text, _ = self._in_order(values, lambda parts: (f"{called}({', '.join(text for text, _ in parts)})", result))
        return text, result

    def _extreme(self, node: ast.expr, name: str, parts: Sequence[tuple[str, str]]) -> tuple[str, str]:
        kinds = {kind for _, kind in parts}
        if not kinds <= {_INT, _FLOAT} or len(parts) < 2:
            raise self._module.refusal(node)
        kind = _FLOAT if _FLOAT in kinds else _INT
        text = parts[0][0]
        for other, _ in parts[1:]:
            text = f"{name}_{kind}({text}, {other})"
        return text, kind


def c_type(kind: str) -> str:
    """Return the type in C of a kind."""
    if kind[0] == "*":
        return f"const {kind[1:]} *"
    return f"T_{kind[1:-1]}" if kind[0] == "(" else _C[kind]


def _members(kind: str) -> str:
    return " ".join(f"{_C[one]} v{number};" for number, one in enumerate(kind[1:-1]))


def _calls(node: ast.AST) -> bool:
    """Return whether an expression calls a function that may change something."""
    plain = {"len", "int", "float", "min", "max"}
    return any(isinstance(one, ast.Call) and ast.unparse(one.func) not in plain for one in ast.walk(node))


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(one).partition("(")[0] == "kernel" for one in function.decorator_list)


def sources(folder: Path = KERNELS) -> list[Path]:
    """Return the files that the library is made of."""
    return [one for one in sorted(folder.glob("*.py")) if one.stem != "__init__"]


def digest_of(paths: Iterable[Path]) -> str:
    """Return what tells a library of these files from one of others."""
    known = sha256()
    for path in (Path(__file__), *paths):
        known.update(sha256(path.read_bytes()).digest())
    return known.hexdigest()


def compiler() -> list[str] | None:
    """Return the command of a C compiler: that of ``CC``, that of the system, or Zig's; None where there is none."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if found is None and find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
    return None if found is None else [found]


def build(library: Path, paths: Sequence[Path], flags: Sequence[str] = ()) -> None:
    """Compile kernels, and write the library whole or not at all: some seconds.

    Parameters
    ----------
    library
        The file to write.
    paths
        Modules of kernels, and those that they import from.
    flags
        More flags of the compiler.

    Raises
    ------
    OSError
        There is no C compiler, it failed, or the file cannot be written.
    """
    command = compiler()
    if command is None:
        raise FileNotFoundError("no C compiler")
    text = Translation({path.stem: path.read_text("utf-8") for path in paths}).text
    digest = f'const char kernels_digest[] = "{digest_of(paths)}";\n'
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=f".{library.name}.") as folder:
        source, made = Path(folder, "kernels.c"), Path(folder, library.name)
        source.write_text(text + digest, "utf-8")
        done = subprocess.run(
            [*command, *_FLAGS, *flags, str(source), "-o", str(made), "-lm"], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise OSError(f"{command[0]} failed: {done.stderr.strip()[-1000:]}")
        made.chmod(0o755)
        made.replace(library)
