"""GPUs and links in the mixed-integer model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables, add_both
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.problem.compiled.critical import candidate_levels, tails_us

if TYPE_CHECKING:
    import pulp


class _Operation(NamedTuple):
    """An operation that may occupy a resource; operations of one job on one resource follow each other in time.

    `name`: its name, unique among the operations of the resource. `start, end`: its start and end, in microseconds.
    `earliest, latest`: its start lies no earlier, its end no later. `lasting`: literal that it lasts at all where that
    depends on the placement, else None.
    """

    name: str
    start: Expression
    end: Expression
    earliest: int
    latest: int
    least: int
    lasting: pulp.LpVariable | None = None

    def may_precede(self, other: _Operation) -> bool:
        """Return whether the times allow this operation to end before the other starts."""
        return self.earliest + self.least <= other.latest - other.least


def add_blocks_disjoint(model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Require that blocks on a GPU do not overlap (specification: exclusive).

    `model`: the program, which receives columns and rows.
    """
    for g in range(len(eligibility.gpus)):
        inside = [job_vars for job_vars in jobs if g in job_vars.assigned]
        for one, two in combinations(inside, 2):
            meet = add_both(model, f"meet_{g}_{one.number}_{two.number}", [one.assigned[g], two.assigned[g]])
            _add_disjoint(model, f"{g}", meet, _blocks(model, eligibility, one, g), _blocks(model, eligibility, two, g))


def _blocks(model: AlgebraicModel, eligibility: GpuEligibility, job_vars: JobVariables, g: int) -> list[_Operation]:
    times = block_us(job_vars.job, eligibility.gpu_type(g))
    candidates, tails = candidate_levels(job_vars.job), tails_us(times, job_vars.shortest)
    after = min(tails[d - 1] - times[d - 1] for d in candidates)
    return [
        _Operation(
            f"{job_vars.number}_{i}",
            starts[g],
            starts[g] + model.total(times[d - 1] * literal for d, literal in job_vars.levels[i][g].items()),
            job_vars.earliest(i),
            job_vars.latest(i) - after,
            times[candidates[0] - 1],
        )
        for i, starts in enumerate(job_vars.starts)
    ]


def add_transfers_disjoint(model: AlgebraicModel, jobs: Sequence[JobVariables]) -> None:
    """Require that transfers over a link do not overlap; one order serves all links that two jobs share.

    `model`: the program, which receives columns and rows.

    Notes
    -----
    Specification: exclusive.
    """
    operations = [_transfers(job_vars) for job_vars in jobs]
    for one, two in combinations(range(len(jobs)), 2):
        common = sorted(set(jobs[one].links) & set(jobs[two].links))
        if common and operations[one] and operations[two]:
            meet = model.binary(f"share_{one}_{two}")
            for k in common:
                # One direction suffices: to meet without need only orders operations that need no order.
                model.add(meet >= jobs[one].links[k] + jobs[two].links[k] - 1, f"share_{one}_{two}_{k}")
            _add_disjoint(model, "link", meet, operations[one], operations[two])


def _transfers(job_vars: JobVariables) -> list[_Operation]:
    """Return the transfers that may last for some time: one of no duration overlaps nothing."""
    found, latency = [], job_vars.channel.latency
    for i, exchanges in enumerate(job_vars.exchanges):
        for b, exchange in enumerate(exchanges, 1):
            certain = job_vars.job.transfers[b - 1].payload_bytes > 0 or latency.values[0] > 0
            if not certain and not latency.steps:
                continue
            lasting = None if certain else latency.steps[0]
            times = (job_vars.earliest(i), job_vars.latest(i), job_vars.shortest[b - 1])
            found.append(_Operation(f"{job_vars.number}_{i}_{b}", exchange.start, exchange.end, *times, lasting))
    return found


def _add_disjoint(
    model: AlgebraicModel, resource: str, meet: pulp.LpVariable, ones: Sequence[_Operation], twos: Sequence[_Operation]
) -> None:
    """Order two operations of different jobs that meet on the resource: one ends before the other starts."""
    first = {}
    for one in ones:
        for two in twos:
            name = f"{resource}_{one.name}_{two.name}"
            conditions = [literal for literal in (one.lasting, two.lasting) if literal is not None]
            both = add_both(model, f"both_{name}", [meet, *conditions]) if conditions else meet
            # `before` chooses the order where the two meet, and is 0 where the time windows rule that order out.
            before = model.integer(f"first_{name}", 0, int(one.may_precede(two)))
            if not two.may_precede(one):
                model.add(before == both, f"only_{name}")
            # The largest overlap that the windows allow is the big M of either order.
            model.add(two.start >= one.end - max(0, one.latest - two.earliest) * (1 - before), f"before_{name}")
            model.add(one.start >= two.end - max(0, two.latest - one.earliest) * (1 - both + before), f"after_{name}")
            # An operation that may have no duration has no place in the order then, so only others are compared.
            if not conditions:
                first[one.name, two.name] = before
    _add_monotone(model, first, ones, twos)


def _add_monotone(
    model: AlgebraicModel,
    first: dict[tuple[str, str], pulp.LpVariable],
    ones: Sequence[_Operation],
    twos: Sequence[_Operation],
) -> None:
    """Keep orders consistent: what comes before an operation comes before all later operations of its job."""
    for one in ones:
        for two, later in pairwise(two for two in twos if (one.name, two.name) in first):
            sooner, name = first[one.name, two.name], f"monotone_{first[one.name, two.name].name}_two"
            model.add(sooner <= first[one.name, later.name], name)
    for two in twos:
        for one, later in pairwise(one for one in ones if (one.name, two.name) in first):
            sooner, name = first[one.name, two.name], f"monotone_{first[one.name, two.name].name}_one"
            model.add(first[later.name, two.name] <= sooner, name)
