"""check(instance, plan): every broken rule of SPEC sections 4 and 5."""

from __future__ import annotations

from collections import Counter

from jigsaw_opt.checking.definitions import ModelTable, Network
from jigsaw_opt.checking.depth import check_levels
from jigsaw_opt.checking.document import check_belonging, check_period, check_shape
from jigsaw_opt.checking.lanes import Lanes
from jigsaw_opt.checking.placement import Memory, Places, check_placement
from jigsaw_opt.checking.timing import check_timing, iteration_end
from jigsaw_opt.checking.violation import Findings, Violation
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan

__all__ = ["check"]


def check(instance: Instance, plan: Plan) -> tuple[Violation, ...]:
    """List every rule that a plan breaks; an empty tuple says that it is correct.

    Parameters
    ----------
    instance
        A valid instance.
    plan
        Any plan document; parts that are missing are reported, and what is left is still checked.
    """
    found = Findings()
    check_belonging(instance, plan, found)
    check_period(instance, plan, found)
    period = plan.period_us if instance.horizon == "cyclic" and (plan.period_us or 0) >= 1 else None
    checker = _JobChecker(instance, period, found)
    numbers = {job.name: number for number, job in enumerate(instance.jobs)}
    ends: dict[int, int] = {}
    for place, job in enumerate(plan.jobs):
        number = numbers.get(job.name)
        if number is not None:
            end = checker.check(number, job, place)
            if end is not None:
                ends[number] = end
    checker.finish()
    _check_objective(instance, plan, ends, found)
    return tuple(found)


class _JobChecker:
    """Checks jobs one by one and gathers what they put on GPUs, links and memory."""

    def __init__(self, instance: Instance, period: int | None, found: Findings) -> None:
        self.instance, self.period, self.found = instance, period, found
        self.tables = {name: ModelTable(model) for name, model in instance.models.items()}
        self.places, self.network = Places(instance.cluster), Network(instance.cluster)
        self.memory = Memory()
        self.gpus, self.links = Lanes(("GPU", "block"), period), Lanes(("link", "transfer"), period)

    def check(self, number: int, plan: JobPlan, place: int) -> int | None:
        """Check job `number` at `$.jobs[place]`; returns its end if its shape is whole."""
        path = f"$.jobs[{place}]"
        job = self.instance.jobs[number]
        table = self.tables[job.model]
        whole = check_shape(job, table.depth, plan, path, self.found)
        in_range = whole and check_levels(job, table.depth, plan, path, self.found)
        servers = check_placement(plan, table, self.places, path, self.found)
        links = None if servers is None else self.network.path(dict(Counter(servers)))
        if servers is not None and links is None:
            self.found.add("4.1", f"{path}.gpus", "no route joins its servers")
        if in_range and servers is not None:
            durations = [table.durations(self.instance.cluster.servers[s].gpu_type) for s in servers]
            check_timing(job, table, durations, links, plan, self.period, path, self.found)
            self._hold(table, plan, list(servers))
        self._occupy(plan, place, links.links if links is not None else ())
        return iteration_end(plan.iterations[-1]) if whole else None

    def finish(self) -> None:
        """Check what all jobs share."""
        self.gpus.check(self.found)
        self.links.check(self.found)
        self.memory.check(self.found)

    def _hold(self, table: ModelTable, plan: JobPlan, servers: list[int]) -> None:
        for worker, (gpu, server) in enumerate(zip(plan.gpus, servers, strict=True)):
            deepest = max(iteration.blocks[worker].level for iteration in plan.iterations)
            self.memory.place(gpu, self.places.servers[server], table.state, table.activations[deepest - 1])

    def _occupy(self, plan: JobPlan, place: int, links: tuple[str, ...]) -> None:
        for number, iteration in enumerate(plan.iterations):
            for worker, (gpu, block) in enumerate(zip(plan.gpus, iteration.blocks, strict=False)):
                self.gpus.occupy(gpu, block.start_us, block.end_us, place, number, worker)
            for link in links:
                for index, transfer in enumerate(iteration.transfers):
                    self.links.occupy(link, transfer.start_us, transfer.end_us, place, number, index)


def _check_objective(instance: Instance, plan: Plan, ends: dict[int, int], found: Findings) -> None:
    """The stated objective, bound and status (SPEC 4.6); not where jobs are missing or cut short."""
    if len(ends) == len(instance.jobs):
        actual: int | None
        if instance.objective == "makespan":
            actual = max(ends.values())
        elif instance.objective == "weighted_completion":
            actual = sum(job.weight * ends[number] for number, job in enumerate(instance.jobs))
        else:
            actual = plan.period_us
        if actual is not None and plan.objective != actual:
            found.add("4.6", "$.objective", f"the objective of this plan is {actual}, not {plan.objective}")
    if plan.bound > plan.objective:
        found.add("4.6", "$.bound", f"the bound {plan.bound} exceeds the objective {plan.objective}")
    if plan.status == "optimal" and plan.bound != plan.objective:
        found.add("4.6", "$.status", f"optimal, but bound {plan.bound} and objective {plan.objective} differ")
