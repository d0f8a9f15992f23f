"""What `jigsaw bench` is asked to run and to compare with, from its arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import note, print_table
from jigsaw_opt.cli.common.progress import Rows
from jigsaw_opt.cli.plans.check import CHECK_FAILED
from jigsaw_opt.errors import MissingEngineError, Problem, Problems, UsageError, malformed, wrong_input
from jigsaw_opt.text import counted, named, nearest, readable, suggestion

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.bench.against import Against, Change
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
    certify_limit = None
    with problems.of("--certify"):
        certify_limit = None if arguments.certify is None else _seconds(arguments.certify)
    entries: list[Entry] = []
    for source in arguments.sources:
        with problems.of(source):
            entries += _entries(source)
    entries = _with_objectives(problems, arguments.objectives, entries)
    with problems.of("options"):
        Options(work_limit=arguments.work_limit, gap=arguments.gap, threads=arguments.threads)
    problems.tell()
    _require_engines(solvers)
    design = Design(solvers, seeds, limits, arguments.work_limit, arguments.gap, arguments.threads, certify_limit)
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
        told = f"no objective {text!r}; {nearest(text, get_args(Objective))}"
        raise UsageError(told, code="unknown-value", path="--objective")
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


GATE: Arguments = {
    "--against DIR|FILE": "older runs: their folder or file of rows; exit code 7 where these are worse",
    "--level SHARE = 0.05": "significance of what is worse",
    "--measures NAMES": "what is compared (default: objective,primal_dual_integral)",
}


class Gate:
    """Older runs, and how new ones compare with them.

    `folder`: where the older runs are: their folder, or a file of rows. `measures`: names of what is compared, with
    commas between them; None for all.
    """

    def __init__(self, folder: Path, level: float, measures: str | None) -> None:
        from jigsaw_opt.sweeps.bench.against import COMPARED
        from jigsaw_opt.sweeps.bench.summary import is_row
        from jigsaw_opt.sweeps.folder import rows_path
        from jigsaw_opt.sweeps.record import read_rows

        self._measures = list(COMPARED) if measures is None else [name.strip() for name in measures.split(",")]
        wrong = []
        if not 0 < level < 1:
            wrong.append(Problem("--level", f"--level is between 0 and 1, not {level}", code="out-of-range"))
        for name in self._measures:
            if name not in COMPARED:
                told = f"no measure {name!r}; there are {', '.join(COMPARED)}"
                wrong.append(Problem("--measures", told, code="unknown-value"))
        if wrong:
            raise UsageError.of(wrong)
        self.folder, self.level = folder, level
        self.judged: Against | None = None
        self._old = read_rows(rows_path(folder), is_row, note)

    @property
    def older(self) -> Rows:
        """The older runs."""
        return [*self._old.values()]

    def require(self, new: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Refuse runs none of which has an older one of the same task.

        `new`: key of each run, and the columns that say of what it is.
        """
        if not any(key in self._old for key, _ in new):
            what = f"none of its {len(self._old)} runs has the instance, solver, seed, limits and threads of a new one"
            what += "".join(_only_difference([*self._old.values()], [labels for _, labels in new]))
            raise wrong_input(str(self.folder), what, code="mismatch")

    def judge(self, rows: Rows) -> Mapping[str, Any]:
        """Compare runs with the older ones; what the summary says of it."""
        from jigsaw_opt.sweeps.bench.against import against

        self.judged = against(self._old, rows, self.level, self._measures)
        return {"against": {"folder": str(self.folder), **asdict(self.judged)}}

    @property
    def code(self) -> int:
        """Exit code of what was judged."""
        return CHECK_FAILED if self.judged and self.judged.regressions else 0

    def tell(self) -> None:
        """Print what was judged: a table, and what limits it."""
        if self.judged is None:
            return
        figures = ("instances", "better", "worse", "ratio", "95 % interval", "p", "p, Holm")
        print_table(("solver", "measure", *figures, "verdict"), map(_cells, self.judged.changes), figures)
        if self.judged.unpaired:
            note(f"{self.judged.unpaired} runs have no older one of the same task in {self.folder}")
        if self.judged.too_few:
            rows = f"{self.judged.too_few} of {counted(len(self.judged.changes), 'row')}"
            least = f"{self.judged.least_instances} instances or more in every row"
            note(f"{rows} can be neither worse nor better, for they have too few instances: it takes {least}")
        if self.judged.hosts > 1:
            note(f"{self.judged.hosts} machines made these runs, and each takes its own time for the same work")


_TASK = {
    "instance_sha256": "instance",
    "solver": "solver",
    "seed": "seed",
    "time_limit": "time limit",
    "work_limit": "work limit",
    "gap_limit": "gap limit",
    "threads": "threads",
    "certify_limit": "limit of the search for proofs",
}
"""By column that makes the key of a run, its name."""


def _only_difference(old: Rows, new: Rows) -> Iterator[str]:
    """Yield each thing that is all that keeps some old run from being that of a new one, with its values."""
    for column, name in _TASK.items():
        theirs, ours = (_by_others(rows, column) for rows in (old, new))
        both = theirs.keys() & ours.keys()
        if both:
            there, here = (
                sorted({"none" if value is None else str(value) for key in both for value in own[key]})
                for own in (theirs, ours)
            )
            values = "" if column == "instance_sha256" else f": {named(there)} there, {named(here)} here"
            yield f"; some differ only in {name}{values}"


def _by_others(rows: Rows, column: str) -> dict[tuple[Any, ...], set[Any]]:
    """Return values of a column by those of all others that make the key."""
    found: dict[tuple[Any, ...], set[Any]] = {}
    for row in rows:
        # Files of others may have a list where a number belongs.
        told = {key: value if isinstance(value := row.get(key), Hashable) else str(value) for key in _TASK}
        own = told.pop(column)
        found.setdefault(tuple(told.values()), set()).add(own)
    return found


def _cells(it: Change) -> tuple[object, ...]:
    from jigsaw_opt.sweeps.bench.summary import line_name

    interval = None if it.low is None else f"{it.low:.4f} to {it.high:.4f}"
    ratio = None if it.ratio is None else f"{it.ratio:.4f}"
    what = line_name(it.solver, it.time_limit), it.measure, it.instances, it.better, it.worse
    return *what, ratio, interval, f"{it.p:.3g}", f"{it.adjusted_p:.3g}", it.verdict
