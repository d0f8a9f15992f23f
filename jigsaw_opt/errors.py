"""The errors of the package, each with the exit code that the command line gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from numbers import Number
from typing import ClassVar, Literal, get_args

__all__ = [
    "CODES",
    "CheckFailedError",
    "Code",
    "EngineDiedError",
    "InfeasibleError",
    "InvalidInputError",
    "JigsawError",
    "MissingEngineError",
    "OutOfTimeError",
    "PluginError",
    "Problem",
    "Problems",
    "RunFailedError",
    "TooLargeError",
    "UsageError",
    "WrongPlanError",
    "argument",
    "giver_of",
    "kind_of",
    "malformed",
    "mismatch",
    "missing_option",
    "not_together",
    "out_of_range",
    "reason_of",
    "require_at_least",
    "spelled_by",
    "unsupported",
    "with_article",
    "wrong_input",
    "wrong_order",
]

_GIVERS = {
    "LayerGraph": "`read_layers` of jigsaw_opt.documents reads one",
    "Options": "as in Options(time_limit=10)",
    "Instance": "instances.load(NAME) and load_instance(PATH) give one",
    "Plan": "load_plan(PATH) and the plan of a Result are one",
    "BoundProof": "load_proof(PATH) and the bound_proof of a Result are one",
    "Fix": "as in Fix(before_us=1000)",
    "Cluster": "an Instance has one, and `cluster_in_words` of jigsaw_opt.simulation.inputs.cluster_files reads a text",
    "ReplayRequest": "as in ReplayRequest(instance, plan)",
}
"""What to call or to write for an argument, by the name of its type."""
_SPELLING: ContextVar[Callable[[str, object], str] | None] = ContextVar("spelling of arguments", default=None)


Code = Literal[
    "ambiguous",
    "broken-rule",
    "contradiction",
    "cycle",
    "damaged",
    "does-not-fit",
    "duplicate-field",
    "duplicate-name",
    "empty",
    "failed",
    "invalid",
    "malformed",
    "mismatch",
    "missing-field",
    "missing-option",
    "not-allowed",
    "not-json",
    "not-text",
    "not-together",
    "out-of-range",
    "outdated",
    "too-deep",
    "too-large",
    "too-many-problems",
    "unknown-field",
    "unknown-format",
    "unknown-name",
    "unknown-option",
    "unknown-value",
    "unreadable",
    "unsupported",
    "unwritable",
    "wrong-count",
    "wrong-order",
    "wrong-type",
]
"""A kind of problem. Sentences may change; the code of a problem stays, so programs compare codes."""
CODES: dict[Code, str] = {
    "ambiguous": "several things could be meant, and one is needed",
    "broken-rule": "a plan breaks a rule of the specification, or what has begun can no longer be kept",
    "contradiction": "two values of one input exclude each other",
    "cycle": "things wait for each other, or are part of each other, in a circle",
    "damaged": "a file is not as it was written",
    "does-not-fit": "more memory, GPUs or other resources are needed than there are",
    "duplicate-field": "a key stands twice in one object",
    "duplicate-name": "the same thing stands there twice",
    "empty": "something is needed, and there is nothing",
    "failed": "foreign code or an engine refused what it was given",
    "invalid": "anything else; also the default for problems that plug-ins report",
    "malformed": "a text breaks the grammar of its format, other than that of JSON",
    "mismatch": "two inputs, or two parts of one, do not belong together",
    "missing-field": "a key or a column is missing",
    "missing-option": "an argument is missing, or needs another one beside it",
    "not-allowed": "it would run code, or change something, that was not asked for",
    "not-json": "a text is not the JSON document that is expected",
    "not-text": "bytes are not UTF-8, or a text is not Unicode",
    "not-together": "two arguments exclude each other",
    "out-of-range": "a number is too small, too large or not finite",
    "outdated": "it is of an earlier format that is not read",
    "too-deep": "values are nested too deeply",
    "too-large": "there are more bytes, lines, values or digits than are taken",
    "too-many-problems": "the list of problems ends here, and the input may have more",
    "unknown-field": "a key or a column has no meaning",
    "unknown-format": "a file is of no format that is read here",
    "unknown-name": "nothing has this name",
    "unknown-option": "there is no argument of this name",
    "unknown-value": "a word is none of those that may stand there",
    "unreadable": "a file cannot be read or unpacked",
    "unsupported": "it is right, but what was asked for does not take it",
    "unwritable": "a file or folder cannot be written",
    "wrong-count": "there are too few or too many items",
    "wrong-order": "values or events do not follow each other as they must",
    "wrong-type": "a value is of another type than the one needed",
}
"""What each code means."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input.

    Parameters
    ----------
    path
        Place of the problem, as in ``$.jobs[2].model``, or the name of a file.
    message
        What is wrong, in the user's terms.
    hint
        What would put it right; empty where nothing certain can be said.
    code
        Its kind, one of `CODES`; it stays the same when the message is improved.
    """

    path: str
    message: str
    hint: str = ""
    code: Code = "invalid"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class JigsawError(Exception):
    """Anything that the package raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(JigsawError):
    """The call does not make sense: an unknown solver, an option out of range.

    Parameters
    ----------
    *told
        What is wrong: sentences, or problems whose path is the name of the argument.
    code, path
        Kind of the sentences, and the name of the argument or the thing that they are about; empty for none.

    Attributes
    ----------
    problems : tuple of Problem
        One for each of `told`.
    """

    exit_code = 2

    def __init__(self, *told: str | Problem, code: Code = "invalid", path: str = "") -> None:
        super().__init__(*map(str, told))
        self.problems = tuple(one if isinstance(one, Problem) else Problem(path, one, code=code) for one in told)

    def __str__(self) -> str:
        return "\n  ".join(self.args)

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> UsageError:
        """Return an error that tells the messages of problems alone, for they name the arguments as the caller does."""
        found = tuple(problems)
        error = cls(*(problem.message for problem in found))
        error.problems = found
        return error

    def problems_of(self, where: str) -> list[Problem]:
        """Return its problems as those of an input or an option; their messages name the arguments."""
        return [Problem(where, told, code=problem.code) for told, problem in zip(self.args, self.problems, strict=True)]


def missing_option(path: str, told: str) -> UsageError:
    """Return the error of an argument, called `path`, that is missing or needs another one beside it."""
    return UsageError(told, code="missing-option", path=path)


def not_together(path: str, told: str) -> UsageError:
    """Return the error of an argument that another one excludes."""
    return UsageError(told, code="not-together", path=path)


def malformed(path: str, told: str) -> UsageError:
    """Return the error of a text that breaks the grammar of its argument."""
    return UsageError(told, code="malformed", path=path)


def out_of_range(path: str, told: str) -> UsageError:
    """Return the error of a number that is too small, too large or not finite."""
    return UsageError(told, code="out-of-range", path=path)


def require_at_least(least: int, **numbers: int) -> None:
    """Raise `UsageError` at the first of these arguments that is below `least`."""
    for name, number in numbers.items():
        if number < least:
            raise out_of_range(name, f"{name} is at least {least}, not {number}")


def mismatch(path: str, told: str) -> UsageError:
    """Return the error of an argument that does not go with what else is given or there."""
    return UsageError(told, code="mismatch", path=path)


def wrong_order(path: str, told: str) -> UsageError:
    """Return the error of a call that comes too early or too late."""
    return UsageError(told, code="wrong-order", path=path)


def unsupported(path: str, told: str) -> UsageError:
    """Return the error of an argument that is right, but that what was asked for does not take."""
    return UsageError(told, code="unsupported", path=path)


class InvalidInputError(JigsawError):
    """An input that breaks its format; carries every problem found, not only the first.

    Parameters
    ----------
    problems
        At least one problem, in the order of the document.
    """

    exit_code = 3

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[InvalidInputError], tuple[tuple[Problem, ...]]]:
        """Return how to make it anew in another process."""
        return type(self), (self.problems,)


def wrong_input(path: str, message: str, hint: str = "", *, code: Code) -> InvalidInputError:
    """Return the error of an input with one problem."""
    return InvalidInputError([Problem(path, message, hint, code)])


class InfeasibleError(JigsawError):
    """What was asked for is proven not to exist."""

    exit_code = 4


class TooLargeError(JigsawError):
    """A valid instance with more blocks than this machine can hold a plan for."""

    exit_code = 5


class OutOfTimeError(JigsawError):
    """A limit of time or a cancel ended what was under way; a solve answers it with what it has."""

    exit_code = 5


class MissingEngineError(JigsawError):
    """An optional library is not installed.

    `install`: the ``pip install`` argument that brings it.
    """

    exit_code = 6

    def __init__(self, what: str, install: str) -> None:
        self.what, self.install = what, install
        super().__init__(f"{what} is not installed; run: pip install '{install}'")

    def __reduce__(self) -> tuple[type[MissingEngineError], tuple[str, str]]:
        """Return how to make it anew in another process."""
        return type(self), (self.what, self.install)


class EngineDiedError(JigsawError):
    """The process of an engine ended before its work did: it was killed, or it crashed.

    `code`: its exit code, or minus the number of the signal that ended it; None where nobody knows.
    """

    def __init__(self, engine: str, code: int | None) -> None:
        self.engine, self.code = engine, code
        super().__init__(f"{engine} died: {_how(code)}")

    def __reduce__(self) -> tuple[type[EngineDiedError], tuple[str, int | None]]:
        """Return how to make it anew in another process."""
        return type(self), (self.engine, self.code)


def _how(code: int | None) -> str:
    if code is None:
        return "its process is gone"
    if code >= 0:
        return f"it ended with exit code {code}"
    import signal

    known = {number.value: number.name for number in signal.Signals}
    return f"it was ended by {known.get(-code, f'signal {-code}')}"


class RunFailedError(JigsawError):
    """A run on real hardware stopped: a process was killed, a model raised, a loss is no number."""


class CheckFailedError(JigsawError):
    """A plan that was given, to be shown or carried out, breaks a rule, or a proof that was given is wrong."""

    exit_code = 7


class PluginError(JigsawError):
    """Code that others have registered or handed over: it does not load, or raised what only a bug raises."""


class WrongPlanError(JigsawError):
    """A plan was made here, checked, and breaks a rule: a bug in what made it, never the user's fault."""


@dataclass(slots=True)
class Problems:
    """Gathers what is wrong with several inputs, so that all of it is told at once and nothing twice."""

    _of_calls: dict[Problem, None] = field(default_factory=dict)
    _of_inputs: dict[Problem, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._of_calls or self._of_inputs)

    @contextmanager
    def of(self, where: str, argument: str = "") -> Iterator[None]:
        """Keep what the block raises.

        `argument`: path of a usage error, whose message then begins with `where`; empty for `where` as the path.
        """
        try:
            yield
        except InvalidInputError as error:
            for problem in error.problems:
                within = problem.path.startswith("$")
                self._of_inputs[replace(problem, path=f"{where} {problem.path}") if within else problem] = None
        except UsageError as error:
            source = f"{where}: " if argument not in ("", where) else ""
            for problem in error.problems_of(argument or where):
                self._of_calls[replace(problem, message=source + problem.message)] = None

    def include(self, other: Problems) -> None:
        """Keep what another has kept, too."""
        self._of_calls |= other._of_calls
        self._of_inputs |= other._of_inputs

    def tell(self) -> None:
        """Raise what was kept, if anything: one error, that of invalid input where any of it is invalid input."""
        if self._of_inputs:
            raise InvalidInputError([*self._of_calls, *self._of_inputs])
        if self._of_calls:
            raise UsageError(*self._of_calls)


def argument(name: str, value: object = None) -> str:
    """Return how an argument is written, with its value if any: as in ``too_wide='skip'``, or as `spelled_by` says.

    `value`: its value; None for the name alone.
    """
    spelling = _SPELLING.get()
    if spelling is not None:
        return spelling(name, value)
    return name if value is None else f"{name}={value!r}"


@contextmanager
def spelled_by(spelling: Callable[[str, object], str]) -> Iterator[None]:
    """Have `argument` write names and values as the caller does, within the block."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


def giver_of(expected: object) -> str:
    """Return what to call or to write for an argument of a type; empty where nobody has said it."""
    kinds = [expected, *get_args(expected)]
    return next((_GIVERS[name] for kind in kinds if (name := getattr(kind, "__name__", "")) in _GIVERS), "")


def kind_of(given: object) -> str:
    """Return in a few words what an argument is: a text or a number as it is, anything else by its type."""
    if given is None or isinstance(given, str | Number):
        return repr(given)
    return with_article(type(given).__name__)


def with_article(name: str) -> str:
    """Return the name of a type behind ``a`` or ``an``."""
    return f"{'an' if name[0] in 'AEIOUaeio' else 'a'} {name}"


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file could not be read or written, in the words of the operating system where it has any."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
