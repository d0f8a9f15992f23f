"""`jigsaw bench --against OLD`: runs beside older ones of the same tasks, and an exit code for what is worse."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import note, print_table
from jigsaw_opt.cli.common.sweeping import Rows
from jigsaw_opt.cli.plans.check import CHECK_FAILED
from jigsaw_opt.errors import Problem, UsageError, wrong_input
from jigsaw_opt.text import counted, named

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.bench.against import Against, Change


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
        heads = (
            "solver",
            "measure",
            "instances",
            "better",
            "worse",
            "ratio",
            "95 % interval",
            "p",
            "p, Holm",
            "verdict",
        )
        print_table(heads, map(_cells, self.judged.changes), heads[2:9])
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
