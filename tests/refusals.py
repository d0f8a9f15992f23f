"""What an error refuses, by the code and the path of each problem: sentences may be improved, these stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.cli.common.output import print_error
from jigsaw_opt.errors import InvalidInputError, JigsawError, UsageError


def refused(error: InvalidInputError | UsageError) -> list[str]:
    """Return each problem as ``code path``, or as its code alone where it has no path."""
    return [f"{problem.code} {problem.path}".rstrip() for problem in error.problems]


def told(call: Callable[[], object]) -> str:
    """Return the text of the error that a call raises, and nothing where it raises none."""
    try:
        call()
    except JigsawError as error:
        return str(error)
    return ""


def carries(told: object, *data: str) -> bool:
    """Return whether a text, or the text of an error, has these names, numbers and words, in this order."""
    text, at = str(told), 0
    for one in data:
        at = text.find(one, at)
        if at < 0:
            return False
        at += len(one)
    return True


def require_data(told: object, *data: str) -> None:
    """Require that a text `carries` these names, numbers and words."""
    assert carries(told, *data), f"no {', '.join(map(repr, data))} in: {told}"


@contextmanager
def refuses(*expected: str, naming: Iterable[str] = ()) -> Iterator[pytest.ExceptionInfo[InvalidInputError]]:
    """Expect an input to be refused for all of these problems, in this order; semicolons part several in one text.

    `naming` are names and numbers that the messages carry, in their order.
    """
    with pytest.raises(InvalidInputError) as caught:
        yield caught
    assert refused(caught.value) == [one for text in expected for one in text.split("; ")]
    require_data(caught.value, *naming)


@contextmanager
def misuse(*expected: str, naming: Iterable[str] = ()) -> Iterator[pytest.ExceptionInfo[UsageError]]:
    """Expect a call to be refused for these problems, as `refuses` takes them."""
    with pytest.raises(UsageError) as caught:
        yield caught
    assert refused(caught.value) == [one for text in expected for one in text.split("; ")]
    require_data(caught.value, *naming)


def ends(expected: str, *words: object) -> None:
    """Expect a command to end with an exit code and to refuse what stands behind it, as in ``3: cycle $.jobs; ...``.

    Of an error without problems it is the name of its type, as in ``4: InfeasibleError``.
    """
    told: list[str] = []

    def shown(error: JigsawError) -> None:
        told.extend(refused(error) if isinstance(error, InvalidInputError | UsageError) else [type(error).__name__])
        print_error(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jigsaw_opt.cli.common.output.print_error", shown)
        code = main([str(word) for word in words])
    assert f"{code}: {'; '.join(told)}" == expected


@contextmanager
def fails(kind: type[Exception], *data: str) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error of a kind that lists no problems, whose message carries these names and numbers in this order."""
    with pytest.raises(kind) as caught:
        yield caught
    require_data(caught.value, *data)
