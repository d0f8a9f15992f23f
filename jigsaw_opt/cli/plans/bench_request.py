"""What `jigsaw bench` is asked for: the tasks and the engine, or all that is wrong with the arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, TypeVar, get_args

from jigsaw_opt.errors import (
    MissingEngineError,
    Problems,
    UsageError,
    malformed,
    wrong_input,
)
from jigsaw_opt.text import nearest, readable, suggestion

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.bench.trials import Entry
    from jigsaw_opt.sweeps.task import SweepTask

T = TypeVar("T")


def tasks_of(arguments: argparse.Namespace, problems: Problems) -> tuple[SweepTask, ...]:
    """Return the tasks that the arguments ask for.

    `problems`: what is wrong with other arguments; raised together with what is wrong with these.
    """
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.sweeps.bench.trials import Design, trials

    solvers = _listed(problems, "--solvers", arguments.solvers, _solver)
    seeds = _listed(problems, "--seeds", arguments.seeds, _seed)
    limits = _limits(problems, arguments)
    entries: list[Entry] = []
    for source in arguments.sources:
        with problems.of(source):
            entries += _entries(source)
    entries = _with_objectives(problems, arguments.objectives, entries)
    with problems.of("options"):
        Options(work_limit=arguments.work_limit, gap=arguments.gap, threads=arguments.threads)
    problems.tell()
    _require_engines(solvers)
    design = Design(solvers, seeds, limits, arguments.work_limit, arguments.gap, arguments.threads)
    return trials(entries, design)


def _listed(problems: Problems, option: str, text: str, read: Callable[[str], T]) -> list[T]:
    """Return the values between commas, each once."""
    values: dict[T, None] = {}
    for part in text.split(","):
        with problems.of(option):
            values[read(part.strip())] = None
    return list(values)


def _with_objectives(problems: Problems, text: str | None, entries: list[Entry]) -> list[Entry]:
    """Return the entries whose instance has one of the objectives between commas; all where none are given."""
    if text is None:
        return entries
    wanted = _listed(problems, "--objectives", text, _objective)
    kept = [entry for entry in entries if entry.instance.objective in wanted]
    with problems.of("--objectives"):
        if entries and wanted and not kept:
            raise UsageError(f"none of the instances has the objective {' or '.join(wanted)}", code="empty")
    return kept


def _objective(text: str) -> str:
    from jigsaw_opt.problem.instance import Objective

    if text not in get_args(Objective):
        raise UsageError(
            f"no objective {text!r}; {nearest(text, get_args(Objective))}", code="unknown-value", path="--objective"
        )
    return text


def _solver(text: str) -> str:
    from jigsaw_opt.solvers.registry import find

    return find(text).name


def _seed(text: str) -> int:
    from jigsaw_opt.solvers.options import Options

    try:
        seed = int(text)
    except ValueError as error:
        raise malformed("--seeds", f"a seed is a whole number, not {text!r}") from error
    return Options(seed=seed).seed


def _limits(problems: Problems, arguments: argparse.Namespace) -> list[float | None]:
    if arguments.time_limits is None:
        return [None if arguments.work_limit is not None else 10.0]
    return [*_listed(problems, "--time-limits", arguments.time_limits, _seconds)]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and seconds >= 0):
        raise malformed("--time-limits", f"a time limit is a number of seconds, not {text!r}")
    return seconds


def _entries(source: str) -> list[Entry]:
    """Return the instances of a set, or the one of any other source."""
    from jigsaw_opt.documents import exists
    from jigsaw_opt.instances import load, names, sets
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.sweeps.bench.trials import Entry

    if exists(source):
        return [Entry("files", readable(source), instance_from(source))]
    if source in sets():
        return [Entry(source, name, load(name)) for name in names(source)]
    hint = suggestion(source, sets())
    if hint and source.isalpha():  # as names of sets are, and no others
        raise wrong_input(source, "there is no such file, set, instance or family", hint, code="unknown-name")
    group = source.partition(":")[0].partition("/")[0]
    return [Entry(group, source, instance_from(source))]


def _require_engines(solvers: list[str]) -> None:
    from jigsaw_opt.solvers.registry import find

    for name in solvers:
        missing = find(name).unavailable()
        if missing is not None:
            raise MissingEngineError(f"the engine of solver {name!r}", missing)
