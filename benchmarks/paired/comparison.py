"""What pairs of rows say: how much one arm differs from another, and whether chance would do the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from jigsaw_opt.sweeps.bench.against import sign_test
from jigsaw_opt.sweeps.bench.summary import proven_gap

Row = Mapping[str, Any]
Pair = tuple[Row, Row]


@dataclass(frozen=True, slots=True)
class Change:
    """How a value of the second arm differs from that of the first, as a share of the first.

    `mean` is over instances of the mean over seeds; `spread` is the standard deviation over seeds, None for one seed;
    `less` and `more` count instances; `p` is the two-sided sign test over them.
    """

    mean: float
    spread: float | None
    less: int
    more: int
    p: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms on the same cases; pairs are of the first arm and the second, seconds are means.

    Pairs of which a run failed count under `errors` only. `cpu_seconds` are those of the whole process.
    """

    instances: int
    runs: int
    errors: tuple[int, int]
    mean_gap: tuple[float, float]
    worst_gap: tuple[float, float]
    objective: Change
    bound: Change
    seconds: tuple[float, float]
    cpu_seconds: tuple[float, float]


def compared(pairs: Sequence[Pair]) -> Comparison | None:
    """The comparison of two arms, or None where no pair ended well."""
    good = [pair for pair in pairs if not any(row["error"] for row in pair)]
    if not good:
        return None
    sides = list(zip(*good, strict=True))
    gaps = [[proven_gap(row) for row in side] for side in sides]
    seconds, cpu = ([fmean(row[name] for row in side) for side in sides] for name in ("seconds", "cpu_seconds"))
    return Comparison(
        instances=len({first["instance_sha256"] for first, _ in good}),
        runs=len(good),
        errors=(
            sum(first["error"] is not None for first, _ in pairs),
            sum(row["error"] is not None for _, row in pairs),
        ),
        mean_gap=(fmean(gaps[0]), fmean(gaps[1])),
        worst_gap=(max(gaps[0]), max(gaps[1])),
        objective=_change(good, _objective_change),
        bound=_change(good, _bound_change),
        seconds=(seconds[0], seconds[1]),
        cpu_seconds=(cpu[0], cpu[1]),
    )


def grouped(pairs: Iterable[Pair], key: Callable[[Row], Any]) -> dict[Any, list[Pair]]:
    """Pairs by what their first row says, in order."""
    groups: dict[Any, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[key(pair[0])].append(pair)
    return groups


def _change(pairs: Sequence[Pair], change: Callable[[Row, Row], float]) -> Change:
    instances = [_mean(members, change) for members in grouped(pairs, lambda row: row["instance_sha256"]).values()]
    seeds = [_mean(members, change) for members in grouped(pairs, lambda row: row["seed"]).values()]
    less, more = sum(value < 0 for value in instances), sum(value > 0 for value in instances)
    spread = stdev(seeds) if len(seeds) > 1 else None
    return Change(fmean(instances), spread, less, more, sign_test(less, more))


def _mean(pairs: Sequence[Pair], change: Callable[[Row, Row], float]) -> float:
    return fmean(change(*pair) for pair in pairs)


def _objective_change(first: Row, second: Row) -> float:
    """1 where only the first arm has a plan, -1 where only the second has one."""
    before, after = first["objective"], second["objective"]
    if before is None or after is None:
        return float(before is not None) - float(after is not None)
    return float((after - before) / max(1, before))


def _bound_change(first: Row, second: Row) -> float:
    return float((second["bound"] - first["bound"]) / max(1, first["bound"]))
