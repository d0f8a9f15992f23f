"""Parse bytes into a tree of JSON values, and report what `json` itself lets pass."""

from __future__ import annotations

import gc
import json
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jigsaw_opt.documents.file_bytes import MEMORY_FOR_ANY, MOST_MEMORY_A_BYTE
from jigsaw_opt.errors import wrong_input
from jigsaw_opt.problem.rules.report import Repeats, Report, quoted, report_oddities

_KEY = re.compile(r"(?:---\s*\n)?[A-Za-z]\w*:(?:\s|$)")
_YAML = "YAML is not read: print JSON, as kubectl get ... -o json does"
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_LONGEST_INTEGER = 4300
_MISSING = object()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a growing tree that holds no cycles, over and over."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def parsed(data: bytes | str, source: str, check: Callable[[Any, Report], None], top: str = "{") -> Any:
    """Return the tree of a document that is right."""
    return checked(lambda report: parse(data, source, report, top), source, check)


def checked(read: Callable[[Report], Any], source: str, check: Callable[[Any, Report], None]) -> Any:
    """Return the tree that `read` gives, where it is right; None is no tree."""
    report = Report()
    try:
        tree = read(report)
        if tree is not None:
            check(tree, report)
    except RecursionError:
        raise wrong_input(source, "nested too deeply", code="too-deep") from None
    report.raise_if_any()
    return tree


def parse(data: bytes | str, source: str, report: Report, top: str = "{") -> Any:
    """Parse one JSON document whose top is an object, or what `top` says.

    The tree, or None (no document is ``null``) if there is none.

    `data`: the document; bytes are UTF-8 without a byte order mark. `source`: what problems with the document as a
    whole are said of: ``$`` or a file name. `report`: receives duplicate keys and lone surrogates, which leave a tree
    to look at further, and what leaves none: text that is no JSON, or so many values in so few bytes that their tree
    would take far more memory than the text.
    """
    text = _text(data, source, report, top)
    if text is None or _is_too_dense(text, len(data), source, report):
        return None
    repeats: Repeats = {}

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) < len(pairs):
            repeats[id(built)] = built, [key for key, _ in pairs if built.pop(key, _MISSING) is _MISSING]
            built.update(pairs)
        return built

    try:
        tree = json.loads(text, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        column, what = _column(data, error), error.msg.removesuffix(" at")
        report.add(source, f"not JSON: {what} at line {error.lineno}, column {column}", code="not-json")
        return None
    except ValueError:  # the only other one: int() refuses to convert so many digits
        report.add(source, f"an integer has more than {_LONGEST_INTEGER} digits", code="too-large")
        return None
    if repeats or ("\\u" in text and _SURROGATE_ESCAPE.search(text)):
        report_oddities(tree, report, "$", repeats)
    return tree


def _text(data: bytes | str, source: str, report: Report, top: str) -> str | None:
    try:
        text = data.decode() if isinstance(data, bytes) else data
        if isinstance(data, str) and not data.isascii():
            data.encode()
    except UnicodeDecodeError as error:
        report.add(source, f"not UTF-8: {error.reason} at byte {error.start}", "save it as UTF-8", code="not-text")
        return None
    except UnicodeEncodeError as error:
        report.add(source, f"not Unicode text: lone surrogate at character {error.start}", code="not-text")
        return None
    start = text[:1000].lstrip(" \t\r\n")
    if text.startswith("\ufeff"):
        told = "save it as UTF-8 without a byte order mark"
        report.add(source, "starts with a byte order mark", told, code="not-text")
    elif not text or text.isspace():
        report.add(source, "empty; an object is expected", code="not-json")
    elif start and start[0] != top:  # a large file of something else would take long to parse
        told = f"not a JSON object: it starts with {quoted(start[:10])}"
        report.add(source, told, _YAML if _KEY.match(start) else "", code="not-json")
    else:
        # One character may make all of a text four times as large; escaped it says the same.
        return text if text.isascii() else _escaped(text)
    return None


def _escaped(text: str) -> str:
    """Return a JSON text in ASCII alone."""
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _column(data: bytes | str, error: json.JSONDecodeError) -> int:
    """Return the column of an error in the document, which may have been escaped."""
    if data.isascii():
        return error.colno
    lines = data.split(b"\n", error.lineno) if isinstance(data, bytes) else data.split("\n", error.lineno)
    line = lines[error.lineno - 1]
    line = line.decode() if isinstance(line, bytes) else line
    return 1 + bisect_left(range(len(line)), error.colno - 1, key=lambda end: len(_escaped(line[:end])))


def _is_too_dense(text: str, size: int, source: str, report: Report) -> bool:
    """Return whether the tree may take too much memory; judged by the characters that begin and part values."""
    lists, objects, commas, keys = map(text.count, "[{,:")
    strings = max(0, text.count('"') // 2 - keys)
    numbers = max(0, commas - strings)
    # Bytes that CPython takes for each; an object is made from a list of its pairs, which matters for long ones, and a
    # string has more of them where it is not ASCII.
    tree = 72 * lists + 80 * objects + 9 * commas + 43 * keys + 64 * strings + 32 * numbers
    tree += 120 * max(0, keys - 8 * objects) + 24 * min(strings, text.count("\\u"))
    if tree <= MEMORY_FOR_ANY or tree + size + sys.getsizeof(text) <= MOST_MEMORY_A_BYTE * size:
        return False
    values = lists + objects + strings + numbers
    told = f"about {values} values in {size} bytes, far more than a document of this size has"
    report.add(source, told, code="too-large")
    return True
