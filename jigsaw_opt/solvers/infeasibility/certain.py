"""Causes that rule out every plan, or a place of a job on an empty cluster, found without a search."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.infeasibility.guarantees import broken_alone
from jigsaw_opt.solvers.infeasibility.places import amount, causes_of_places, places_of, too_few
from jigsaw_opt.solvers.result import Conflict


def certain_causes(operations: Operations) -> tuple[Conflict, ...]:
    """Return causes that rule out every plan, found without a search; none if it finds no cause."""
    alone = list(broken_alone(operations)) if operations.instance.guaranteed_jobs else []
    fine: set[tuple[object, ...]] = set()
    for job in checking_deadline(operations.jobs):
        # Blocks of one model and width are one object, so its identity says which model it is.
        key = id(job.blocks), job.rule, job.iterations, job.route_policy
        if key not in fine:
            causes = [*_too_deep(job), *islice(causes_of_places(operations, places_of(job)), 1)]
            alone += causes
            if not causes:
                fine.add(key)
    for graph in checking_deadline(operations.task_graphs):
        alone += islice(causes_of_places(operations, places_of(graph)), 1)
    alone += _too_much_held(operations)
    if alone or operations.horizon == "finite":  # On the finite horizon jobs may follow one another.
        return tuple(alone)
    return tuple(_states_exceed_memory(operations))


def _too_much_held(operations: Operations) -> Iterator[Conflict]:
    """Yield jobs that hold more of something than there is, each alone, or together where they are always present."""
    for own in operations.instance.scarce_capacities:
        amounts = {name: own.amounts[name] for name in operations.names if name in own.amounts}
        for names in [[*amounts]] if operations.horizon == "cyclic" else [[name] for name in amounts]:
            wanted = sum(amounts[name] for name in names)
            if wanted > own.units:
                who = (
                    f"job {names[0]} holds" if len(names) == 1 else f"{len(names):,} jobs that are always present hold"
                )
                message = f"{who} {wanted:,} of {own.name}, and there are {own.units:,}"
                yield Conflict("held", tuple(names), f"{message}; {wanted - own.units:,} more are wanted")


def too_wide(instance: Instance) -> tuple[Conflict, ...]:
    """Return a conflict for each job with more workers than the cluster has GPUs of its types.

    `instance`: the instance, not compiled: it takes no more memory however many workers there are.
    """
    found, whole = [], instance.cluster.gpu_count
    servers, models = instance.cluster.servers, instance.models.items()
    usable = {name: [server for server in servers if server.gpu_type in model.gpu_types] for name, model in models}
    for job in checking_deadline(instance.data_parallel_jobs):
        gpus = sum(server.gpus for server in usable[job.model])
        if 0 < gpus < job.workers:
            types = {server.gpu_type for server in usable[job.model]}
            message = too_few(job.name, "worker", job.workers, gpus, types, whole)
            found.append(Conflict("reach", (job.name,), message))
    return tuple(found)


def _too_deep(job: OperationGraph) -> Iterator[Conflict]:
    rule, most = job.rule, job.levels * job.slots * job.iterations
    if rule.progress is not None and rule.progress.slack(job.iterations) < 0:
        told = f"job {job.name} asks for more progress than it makes at full depth; choose a share of at most 1"
        yield Conflict("depth", (job.name,), told)
    elif rule.min_total > most:
        asked = f"asks for {rule.min_total:,} levels in all, and full depth has only {most:,}"
        yield Conflict("depth", (job.name,), f"the mean depth of job {job.name} {asked}; choose one of at most 1")


def _states_exceed_memory(operations: Operations) -> Iterator[Conflict]:
    """Yield the cause that what all jobs on some GPU types keep exceeds the memory there (cyclic horizon)."""
    usable = frozenset(server.gpu_type for server in operations.cluster.servers)
    jobs = checking_deadline((*map(places_of, operations.jobs), *map(places_of, operations.task_graphs)))
    residents = [(job.name, place.gpu_types & usable, place) for job in jobs for place in job.places]
    who = "workers and slots" if operations.is_mixed else "slots" if operations.task_graphs else "workers"
    for types in {*(own for _, own, _ in residents), usable}:
        inside = [(name, place) for name, own, place in residents if own <= types]
        least = min((place.least for _, place in inside), default=0)
        # A GPU that holds any worker keeps the activations of one.
        memory = sum(s.gpus * max(0, s.gpu_memory - least) for s in operations.cluster.servers if s.gpu_type in types)
        states = sum(place.number * place.state for _, place in inside)
        if states > memory:
            count, kinds = sum(place.number for _, place in inside), ", ".join(sorted(types))
            beside = " beside the activations" if least else ""
            message = (
                f"the states of {count:,} {who} take {states:,} bytes, and the GPUs of type {kinds} "
                f"have {memory:,}{beside}; {amount(states - memory)} more in all are wanted"
            )
            yield Conflict("memory", tuple(dict.fromkeys(name for name, _ in inside)), message)
            return
