"""What becomes of a plan that repeats phases when parts fail: each phase in its order.

A phase is a cyclic plan, whose least period in its order is that of any cyclic plan after a failure. Phases keep their
repetitions and follow one another as before, each as early as the one before it and the releases of its jobs let it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Phase, PhaseGroup, Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.resolve.failures import (
    FailedPart,
    FailureEffect,
    FailureEffects,
    PhaseLoss,
    TransferChange,
    left_of,
)
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder


def effects_on(instance: Instance, plan: Plan) -> FailureEffects | PhaseFailures:
    """Return the effects of failures on a plan that `jigsaw_opt.checking.check` accepts for the instance."""
    return PhaseFailures(instance, plan) if plan.is_phased else FailureEffects(KeptOrder.of(instance, plan))


class PhaseFailures:
    """Effects of failures on a plan whose phases are repeated a number of times.

    `instance, plan`: A plan that `jigsaw_opt.checking.check` accepts for the instance.
    """

    def __init__(self, instance: Instance, plan: Plan) -> None:
        plan.require_no_moves("what a failure does is found only where jobs stay on their GPUs")
        self._instance, self.cluster = instance, instance.cluster
        self._effects: list[list[tuple[Phase, FailureEffects]]] = []
        for group in plan.groups:
            kept = [KeptOrder.of(*plan.alone(instance, phase)) for phase in group.phases]
            self._effects.append(
                [(phase, FailureEffects(order)) for phase, order in zip(group.phases, kept, strict=True)]
            )

    def cause(self, failed: Sequence[FailedPart]) -> tuple[object, ...]:
        """Return, by phase, what stops and what is rerouted."""
        return tuple(effects.cause(failed) for own in self._effects for _, effects in own)

    def of(self, failed: Sequence[FailedPart]) -> FailureEffect:
        """Return the effect of the failure of some parts at once."""
        by_phase = {
            (g, p): (phase, effects.of(failed))
            for g, own in enumerate(self._effects)
            for p, (phase, effects) in enumerate(own)
        }
        stopped = {name for _, effect in by_phase.values() for name in effect.stopped}
        rerouted = {name: way for _, effect in by_phase.values() for name, way in effect.rerouted.items()}
        losses = tuple(
            PhaseLoss(*at, effect.stopped, phase.cycle_us, effect.objective)
            for at, (phase, effect) in by_phase.items()
            if effect.stopped or effect.rerouted
        )
        groups, lost = self._groups(failed)
        ends = _ends_us(groups)
        names = [job.name for job in self._instance.jobs]
        late = {job.name for job in self._instance.jobs if job.deadline_us is not None} & {
            *stopped,
            *lost,
            *(job.name for job in self._instance.jobs if ends.get(job.name, 0) > (job.deadline_us or 0)),
        }
        return FailureEffect(
            tuple(failed),
            tuple(name for name in names if name in stopped),
            {name: rerouted[name] for name in names if name in rerouted},
            _transfers([effect for _, effect in by_phase.values()]),
            self._objective(ends) if ends and not lost else None,
            tuple(name for name in names if name in late),
            losses,
        )

    def left(self, failed: Sequence[FailedPart]) -> tuple[Instance, Plan]:
        """Return the instance of the jobs that run on what is left of the cluster, and their plan, timed anew."""
        groups, lost = self._groups(failed)
        if lost or not groups:
            raise ValueError("no job runs, or the order of a group does not say when")
        ends = _ends_us(groups)
        jobs = tuple(job for job in self._instance.jobs if job.name in ends)
        left = altered(self._instance, cluster=left_of(self.cluster, failed), jobs=jobs)
        return left, Plan(left.name, instance_sha256(left), "feasible", self._objective(ends), 0, groups)

    def _groups(self, failed: Sequence[FailedPart]) -> tuple[tuple[PhaseGroup, ...], set[str]]:
        """Return groups timed anew, and jobs that run in groups that cannot be timed any more.

        A group cannot be timed where a phase does not repeat, or a detour leads over a link of another group.
        """
        found, lost = [], set[str]()
        links = [self._links(own, failed) for own in self._effects]
        for g, own in enumerate(self._effects):
            others = set[str]().union(*links[:g], *links[g + 1 :])
            running = {
                job.name for phase, effects in own for job in phase.jobs if job.name not in effects.of(failed).stopped
            }
            phases = None if links[g] & others else self._phases(own, failed)
            if phases is None:
                lost |= running
            elif phases:
                found.append(PhaseGroup(tuple(phases)))
        return tuple(found), lost

    def _links(self, own: Sequence[tuple[Phase, FailureEffects]], failed: Sequence[FailedPart]) -> set[str]:
        """Return the names of links that the jobs of a group use after a failure."""
        return {name for _, effects in own for name in effects.links_after(failed)}

    def _phases(self, own: Sequence[tuple[Phase, FailureEffects]], failed: Sequence[FailedPart]) -> list[Phase] | None:
        """Return the phases of a group timed anew; None where one does not repeat."""
        releases = {job.name: job.release_us for job in self._instance.jobs}
        found, now = list[Phase](), 0
        for phase, effects in own:
            effect = effects.of(failed)
            if len(effect.stopped) == len(phase.jobs):
                continue
            if effect.objective is None:
                return None
            jobs, period_us = phase.jobs, phase.period_us
            if effect.stopped or effect.rerouted:
                plan = effects.left(failed)[1]
                jobs, period_us = plan.jobs, plan.objective
            begins = [releases[job.name] - job.start_us for job in jobs]
            again = replace(phase, start_us=max(now, *begins), period_us=period_us, jobs=jobs)
            found.append(again)
            now = again.end_us
        return found

    def _objective(self, ends: dict[str, int]) -> int:
        if self._instance.objective == "makespan":
            return max(ends.values())
        return sum(job.weight * ends[job.name] for job in self._instance.jobs if job.name in ends)


def _ends_us(groups: Sequence[PhaseGroup]) -> dict[str, int]:
    """Return when each job ends, in microseconds."""
    return {job.name: phase.end_of(job) for group in groups for phase in group.phases for job in phase.jobs}


def _transfers(effects: Sequence[FailureEffect]) -> dict[str, tuple[TransferChange, ...]]:
    """Return, by job, how long its transfers take at most over all phases."""
    found: dict[str, dict[str, TransferChange]] = {}
    for effect in effects:
        for job, changes in effect.transfers.items():
            own = found.setdefault(job, {})
            for change in changes:
                old = own.get(change.transfer, change)
                own[change.transfer] = TransferChange(
                    change.transfer, max(change.old_us, old.old_us), max(change.new_us, old.new_us)
                )
    return {job: tuple(own.values()) for job, own in found.items()}
