"""Sentences on which solver is best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jigsaw_opt.sweeps.bench.against import Change
from jigsaw_opt.sweeps.bench.rivals import Winner, winners
from jigsaw_opt.sweeps.bench.summary import by_line, certified_gap, line_name
from jigsaw_opt.text import counted, printable

__all__ = ["verdicts"]

_MEASURES = {"objective": "the objective", "primal_dual_integral": "the gap over time, gap × s,"}
_MOST_RIVALS = 3


def verdicts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence a time limit and measure: the best solver, by how much, and whether chance would do the same."""
    lines = by_line(rows)
    for winner in winners(rows):
        if winner.rivals:
            yield _compared(winner)
        elif winner.measure == "objective":
            name = line_name(winner.solver, winner.time_limit)
            runs = lines[name]
            gap = 100 * sum(map(certified_gap, runs)) / len(runs)
            yield (
                f"{printable(name)} has no rival here: {counted(len(runs), 'run')} of"
                f" {counted(winner.instances, 'instance')}, with a mean certified gap of {gap:.3g} %."
            )
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        yield f"{counted(failed, 'run')} failed; that counts as no plan."


def _compared(winner: Winner) -> str:
    limit = "" if winner.time_limit is None else f" after {winner.time_limit:g} s"
    by = f"By {_MEASURES[winner.measure]}{limit}"
    best = printable(winner.solver)
    if not any(rival.better or rival.worse for rival in winner.rivals):
        others = " and ".join(printable(rival.solver) for rival in winner.rivals)
        return f"{by}, {best} and {others} are alike on all of {counted(winner.instances, 'instance')}."
    told = [f"{by}, {best} is best over {counted(winner.instances, 'instance')}."]
    told += [_rival(rival) for rival in winner.rivals[:_MOST_RIVALS]]
    more = len(winner.rivals) - _MOST_RIVALS
    if more > 0:
        told.append(f"{counted(more, 'more solver')} behind these.")
    return " ".join(told)


def _rival(change: Change) -> str:
    """Return how the winner stands to a rival; a ratio is that of the winner by the rival."""
    equal = change.instances - change.better - change.worse
    split = f"better on {change.better}, worse on {change.worse}, equal on {equal}"
    doubt = "may be chance" if change.verdict == "no clear change" else "is beyond chance"
    return f"{_difference(change)}: {split}, which {doubt} (sign test, p = {change.adjusted_p:.2g})."


def _difference(change: Change) -> str:
    rival = printable(change.solver)
    if change.ratio is None:
        return f"{rival} has no value on any instance where it has one"
    less = f"It has {abs(100 * (change.ratio - 1)):.3g} % {'less' if change.ratio <= 1 else 'more'} than {rival}"
    if change.low is None or change.high is None or change.low == change.high:
        return less
    return f"{less} (95 % interval {_signed(change.low)} to {_signed(change.high)} %)"


def _signed(ratio: float) -> str:
    return f"{round(100 * (ratio - 1), 4):z.3g}".replace("-", "−")
