"""JSON as other programs write it: what is broken in strings and numbers is mended, and told; our own never is.

Some programs write names as they come: bytes that are no UTF-8, control characters, backslashes. Only a text that is no
JSON is mended. Every such part is replaced by U+FFFD, the character for what cannot be read. Others print the numbers
of an object as C does: ``inf`` and ``nan``, and with the decimal comma of the user's language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jigsaw_opt.documents.parsing import checked, parse
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.text import Tell

_REPLACED = "\ufffd"
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_FAULT = re.compile(
    rf'(?:{_PAIR}|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}})'
    r"|(?P<surrogate>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(?P<backslash>\\)|(?P<control>[\x00-\x1f])"
)
_SUSPECT = re.compile(r"[\\\x00-\x1f]")
_EARLY_END = re.compile(r'\\"(?=\s*[,:}\]])')
_AFTER_STRING = re.compile(r"\s*[,:}\]]")
_NUMBER = re.compile(
    r"(?P<head>:\s*-?)(?:(?P<unbounded>inf(?:inity)?)|(?P<unknown>nan)|(?P<whole>[0-9]+),(?P<part>[0-9]+(?:[eE][-+]?[0-9]+)?))"
    r"(?=\s*[,}])"
)
"""The value of a key: behind a comma an object has another key, so a number behind one is the fraction of the value."""
_KINDS = {
    "byte": "no UTF-8",
    "surrogate": "half a surrogate pair",
    "backslash": "a lone backslash",
    "control": "a control character",
    "mark": "a byte order mark",
    "number": "a number that is none of JSON",
}


def parsed_foreign(data: bytes | str, source: str, check: Callable[[Any, Report], None], tell: Tell) -> Any:
    """Return the tree of a document of another program.

    `tell`: called with how many faults of which kind are mended, if there are any.
    """

    def read(report: Report) -> Any:
        tree, problems = _attempt(data, source)
        if problems:
            text, faults = _mended(data)
            if faults:
                tell(f"{source}: replaced: {', '.join(f'{_KINDS[kind]} ({n} times)' for kind, n in faults.items())}")
                tree, problems = _attempt(text, source)
        if tree is None:
            for problem in problems:
                report.note(problem)
        elif problems:  # nothing else leaves a tree, once half pairs are replaced
            tell(f"{source}: {len(problems)} keys stand more than once in an object: the last of each counts")
        return tree

    return checked(read, source, check)


def _attempt(text: bytes | str, source: str) -> tuple[Any, Sequence[Problem]]:
    """Return the tree of a text, None where there is none, and what is wrong with the text."""
    report = Report()
    try:
        return parse(text, source, report), report.problems
    except InvalidInputError as error:
        return None, error.problems


def _mended(data: bytes | str) -> tuple[str, Counter[str]]:
    """Return a text whose strings are ones of JSON, and how many faults of which kind it had."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    written = data.count(_REPLACED) if isinstance(data, str) else data.count(_REPLACED.encode())
    faults = +Counter(byte=text.count(_REPLACED) - written, mark=int(text.startswith("\ufeff")))
    text = text.removeprefix("\ufeff")
    parts: list[str] = []
    done = start = 0
    while (start := text.find('"', start)) >= 0:
        found = _STRING.match(text, start)
        end = found.end() if found else len(text)
        if not (found and _AFTER_STRING.match(text, end)) and (early := _EARLY_END.search(text, start, end)):
            end = early.end()  # a backslash stands before the quote that ends the string
            faults["backslash"] += 1
            parts += text[done : early.start()], _REPLACED, '"'
            done = end
        elif found and _SUSPECT.search(text, start, end):
            parts += text[done:start], _FAULT.sub(partial(_replacement, faults), found[0])
            done = end
        if found and (number := _NUMBER.match(text, end)):
            parts += text[done:end], _number(number)
            faults["number"] += 1
            done = end = number.end()
        start = end
    parts.append(text[done:])
    return "".join(parts), faults


def _number(found: re.Match[str]) -> str:
    """Return the value of a key, with what stands before it, as Python's JSON has it."""
    if found["whole"]:
        return f"{found['head']}{found['whole']}.{found['part']}"
    return ": NaN" if found["unknown"] else f"{found['head']}Infinity"


def _replacement(faults: Counter[str], found: re.Match[str]) -> str:
    if found.lastgroup is None:
        return found[0]
    faults[found.lastgroup] += 1
    return _REPLACED
