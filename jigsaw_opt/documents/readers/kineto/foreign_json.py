"""JSON as other programs write it: what is broken in strings and numbers is mended, and told; our own never is.

Some programs write names as they come: bytes that are no UTF-8, control characters, backslashes. Only a text that is no
JSON is mended. Every such part is replaced by U+FFFD, the character for what cannot be read, and a control character by
a space. Others print the numbers of an object as C does: ``inf`` and ``nan``, and with the decimal comma of the user's
language. What looks like that within a name is mended, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from jigsaw_opt.documents.parsing import checked, parse
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.text import Tell

_ESCAPE = re.compile(
    r'(?P<whole>\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB]..\\u[dD][c-fC-F]..))'
    r"|\\(?:u[0-9a-fA-F]{4})?"
)


def parsed_foreign(data: bytes | str, source: str, check: Callable[[Any, Report], None], tell: Tell) -> Any:
    """Return the tree of a document of another program.

    `tell`: called where anything is mended.
    """

    def read(report: Report) -> Any:
        tree, problems = _attempt(data, source)
        if any(problem.code != "duplicate-field" for problem in problems):
            mended, others = _attempt(_mended(data), source)
            if mended is not None:
                tell(f"{source}: mended: {problems[0].message}")
                tree, problems = mended, others
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


def _mended(data: bytes | str) -> str:
    """Return a text in which what other programs write is what JSON has for it."""
    text = (data if isinstance(data, str) else data.decode(errors="replace")).removeprefix("\ufeff")
    text = re.sub(r"[\x00-\x1f]", " ", text)
    text = _ESCAPE.sub(lambda found: found["whole"] or "\ufffd", text)
    text = re.sub(r"(:\s*-?)inf(?:inity)?(?=\s*[,}])", r"\1Infinity", text)
    text = re.sub(r":\s*-?nan(?=\s*[,}])", ": NaN", text)
    # Behind a comma an object has another key, so a number behind one is the fraction of the value.
    return re.sub(r"(:\s*-?[0-9]+),([0-9]+(?:[eE][-+]?[0-9]+)?\s*[,}])", r"\1.\2", text)
