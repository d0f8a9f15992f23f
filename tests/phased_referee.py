"""Whether a small phased plan is correct, found out by expanding it (specification: phased-plans).

Every phase is written out with so many repetitions that all of its periods have met, as a plan of the finite horizon.
What is asked of each job is asked of that plan; GPUs, links and memory are looked at microsecond by microsecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem import FreeDepth, Instance, JobPlan, Phase, Plan, Routes, TaskGraphJob, TaskGraphJobPlan

PER_PERIOD = {"levels", "coverage", "mean-depth", "progress"}
ELSEWHERE = {"objective", "bound", "memory", "mean-depth", "progress", "balance"}
AnyJobPlan = JobPlan | TaskGraphJobPlan


def accepts(instance: Instance, plan: Plan) -> bool:
    """Whether the plan keeps every rule."""
    return not any(_broken(instance, plan))


def _broken(instance: Instance, plan: Plan) -> Iterator[str]:
    phases = [phase for group in plan.groups for phase in group.phases]
    names = [job.name for job in instance.jobs]
    if (plan.instance, plan.instance_sha256) != (instance.name, instance_sha256(instance)):
        yield "document"
    if any(phase.period_us < 1 or phase.repeats < 1 for phase in phases):
        yield "phases"
        return
    if any(job.name not in names or not job.iterations for phase in phases for job in phase.jobs):
        yield "document"
        return
    for phase in phases:
        places = [names.index(job.name) for job in phase.jobs]
        if places != sorted(set(places)) or not places:
            yield "document"
            return
        yield from _phase(instance, phase)
    yield from _groups(instance, plan)
    yield from _times(instance, plan)
    yield from _balance(instance, plan)
    yield from _memory(instance, plan)


def _phase(instance: Instance, phase: Phase) -> Iterator[str]:
    many = 3 + max(job_end(job) for job in phase.jobs) // phase.period_us
    for repetitions, rules in ((1, PER_PERIOD), (many, None)):
        asked = {job.name: job for job in instance.jobs}
        jobs = tuple(
            replace(
                asked[job.name],
                iterations=repetitions * len(job.iterations),
                release_us=0,
                deadline_us=None,
                restart_us=None,
            )
            for job in phase.jobs
        )
        alone = replace(instance, jobs=jobs)
        expanded = tuple(_expanded(job, _moments(phase, 0, repetitions)) for job in phase.jobs)
        claimed = Plan.of_jobs(alone.name, instance_sha256(alone), "feasible", 0, 0, None, expanded)
        found = {violation.rule for violation in violations(alone, claimed)} - (ELSEWHERE if rules is None else set())
        yield from found & rules if rules is not None else found
    busy: Counter[tuple[str, int]] = Counter()
    for job in phase.jobs:
        for place, start, end in _uses(instance, job):
            busy.update((place, moment % phase.period_us) for moment in range(start, end))
    if any(count > 1 for count in busy.values()):
        yield "exclusive"


def _moments(phase: Phase, start_us: int, repetitions: int) -> list[int]:
    return [start_us + r * phase.cycle_us for r in range(repetitions)]


def _expanded(job: AnyJobPlan, moments: list[int]) -> AnyJobPlan:
    def later(operation, by):  # type: ignore[no-untyped-def]
        return replace(operation, start_us=operation.start_us + by, end_us=operation.end_us + by)

    iterations = tuple(
        replace(
            iteration,
            blocks=tuple(later(x, moment) for x in iteration.blocks),
            transfers=tuple(later(x, moment) for x in iteration.transfers),
        )
        for moment in moments
        for iteration in job.iterations
    )
    return replace(job, iterations=iterations)  # type: ignore[arg-type]


def listed(instance: Instance, plan: Plan) -> Plan:
    """The plan with every repetition of every phase written out; no job moves."""
    done: dict[str, AnyJobPlan] = {}
    for _, _, phase in plan.all_phases():
        for job in phase.jobs:
            again = _expanded(job, _moments(phase, phase.start_us, phase.count))
            before = done[job.name].iterations if job.name in done else ()
            done[job.name] = replace(again, iterations=before + again.iterations)  # type: ignore[arg-type, operator]
    jobs = tuple(done[job.name] for job in instance.jobs)
    digest, values = plan.instance_sha256, (plan.objective, plan.bound)
    return Plan.of_jobs(plan.instance, digest, plan.status, *values, None, jobs, plan.solver)


def operations(job: AnyJobPlan) -> Iterator[tuple[int, int]]:
    """Start and end of every operation of one repetition."""
    for iteration in job.iterations:
        yield from ((x.start_us, x.end_us) for x in (*iteration.blocks, *iteration.transfers))


def job_end(job: AnyJobPlan) -> int:
    """The end of one repetition."""
    return max((end for _, end in operations(job)), default=0)


def _uses(instance: Instance, job: AnyJobPlan) -> Iterator[tuple[str, int, int]]:
    """GPU or link, start and end, of every operation of a repetition; those transfers are all over all slots."""
    for iteration in job.iterations:
        for number, block in enumerate(iteration.blocks):
            yield _gpu_of(instance, job, number), block.start_us, block.end_us
        for transfer in iteration.transfers:
            yield from ((f"link {link}", transfer.start_us, transfer.end_us) for link in _links(instance, job))


def _gpu_of(instance: Instance, job: AnyJobPlan, number: int) -> str:
    asked = next(each for each in instance.jobs if each.name == job.name)
    if isinstance(asked, TaskGraphJob):
        slots = [slot.name for slot in asked.shape.slots]
        return job.gpus[slots.index(asked.shape.blocks[number].slots[0])]
    return job.gpus[number] if number < len(job.gpus) else "none"


def _links(instance: Instance, job: AnyJobPlan) -> list[int]:
    servers = [server.name for server in instance.cluster.servers]
    held = Counter(servers.index(gpu.split("/")[0]) for gpu in job.gpus if gpu.split("/")[0] in servers)
    channel = Routes(instance.cluster).channel(held)
    return list(channel.links) if channel is not None and len(job.gpus) > 1 else []


def _groups(instance: Instance, plan: Plan) -> Iterator[str]:
    held: list[set[str]] = []
    named = {job.name: job.licences or () for job in instance.jobs}
    holders, counts = Counter(name for names in named.values() for name in names), instance.cluster.licences or {}
    for group in plan.groups:
        own: set[str] = set()
        for job in (job for phase in group.phases for job in phase.jobs):
            own |= {f"job {job.name}", *job.gpus, *(f"link {link}" for link in _links(instance, job))}
            own |= {f"licence {name}" for name in named.get(job.name, ()) if holders[name] > counts[name]}
        held.append(own)
    if any(one & other for k, one in enumerate(held) for other in held[:k]):
        yield "groups"
    for asked in instance.jobs:
        parts = _parts(plan, asked.name)
        if sum(phase.repeats * len(job.iterations) for phase, job in parts) != asked.iterations:
            yield "phases"
        if len({job.gpus for _, job in parts}) > 1 and asked.restart_us is None:
            yield "placement"


def _parts(plan: Plan, name: str) -> list[tuple[Phase, AnyJobPlan]]:
    return [(phase, job) for group in plan.groups for phase in group.phases for job in phase.jobs if job.name == name]


def _timeline(phase: Phase, job: AnyJobPlan) -> list[tuple[int, int]]:
    """Start and end of every operation of every repetition, in absolute time."""
    moments = _moments(phase, phase.start_us, phase.count)
    return [(m + start, m + end) for m in moments for start, end in operations(job)]


def _times(instance: Instance, plan: Plan) -> Iterator[str]:
    for group in plan.groups:
        earliest = 0
        for phase in group.phases:
            if phase.start_us < earliest:
                yield "phases"
            earliest = max(end for job in phase.jobs for _, end in _timeline(phase, job))
    yield from _moves(instance, plan)
    ends = []
    for asked in instance.jobs:
        parts = _parts(plan, asked.name)
        times = [time for phase, job in parts for time in _timeline(phase, job)]
        if not times:
            return
        if min(start for start, _ in times) < asked.release_us:
            yield "release"
        ends.append(max(end for _, end in _timeline(*parts[-1])))
        if asked.deadline_us is not None and ends[-1] > asked.deadline_us:
            yield "deadline"
    weighted = sum(job.weight * end for job, end in zip(instance.jobs, ends, strict=True))
    if plan.objective != (max(ends) if instance.objective == "makespan" else weighted):
        yield "objective"
    if plan.bound > plan.objective or (plan.status == "optimal" and plan.bound < plan.objective):
        yield "bound"


def _moves(instance: Instance, plan: Plan) -> Iterator[str]:
    """Look from the last operation before each seam of a group to the next one of every job that may move."""
    for group in plan.groups:
        for asked in (job for job in instance.jobs if job.restart_us is not None):
            last: tuple[int, int, tuple[str, ...]] | None = None
            for p, phase in enumerate(group.phases):
                own = [job for job in phase.jobs if job.name == asked.name]
                times = [time for job in own for time in _timeline(phase, job)]
                if not times:
                    continue
                restarts = last is not None and (last[0] != p - 1 or last[2] != own[0].gpus)
                if last is not None and restarts and min(times)[0] - last[1] < (asked.restart_us or 0):
                    yield "moves"
                last = p, max(end for _, end in times), own[0].gpus


def _balance(instance: Instance, plan: Plan) -> Iterator[str]:
    """Add up the levels of every worker, repetition by repetition."""
    for asked in instance.jobs:
        if isinstance(asked, TaskGraphJob) or not isinstance(asked.depth, FreeDepth) or asked.depth.balance is None:
            continue
        done: Counter[int] = Counter()
        for phase, job in _parts(plan, asked.name):
            for iteration in phase.repeats * job.iterations:
                done.update({worker: block.level for worker, block in enumerate(iteration.blocks)})
        if done and max(done.values()) - min(done.values()) > asked.depth.balance:
            yield "balance"


def _memory(instance: Instance, plan: Plan) -> Iterator[str]:
    stay = {job.name for job in instance.jobs if job.restart_us is None}
    for group in plan.groups:
        for p, phase in enumerate(group.phases):
            before = {job.name for other in group.phases[:p] for job in other.jobs}
            after = {job.name for other in group.phases[p + 1 :] for job in other.jobs}
            active = {job.name: job for job in phase.jobs}
            present = [*active, *((before & after & stay) - set(active))]
            held = Counter(name for job in instance.jobs if job.name in present for name in job.licences or ())
            if any(held[name] > count for name, count in (instance.cluster.licences or {}).items()):
                yield "licences"
            for server in instance.cluster.servers:
                for gpu in (f"{server.name}/{k}" for k in range(server.gpus)):
                    if _need(instance, group.phases, phase, active, present, gpu) > server.gpu_memory:
                        yield "memory"


def _need(
    instance: Instance,
    phases: tuple[Phase, ...],
    phase: Phase,
    active: dict[str, AnyJobPlan],
    here: list[str],
    gpu: str,
) -> int:
    steady, activations = 0, [0]
    held: Counter[int] = Counter()
    for asked in (job for job in instance.jobs if job.name in here):
        parts = [job for other in phases for job in other.jobs if job.name == asked.name]
        gpus = active.get(asked.name, parts[-1]).gpus
        if gpu not in gpus:
            continue
        worker = gpus.index(gpu)
        if isinstance(asked, TaskGraphJob):
            steady += asked.shape.slots[worker].memory if worker < len(asked.shape.slots) else 0
            blocks = [block.name for block in asked.shape.blocks]
            for hold in asked.shape.holds if asked.name in active else ():
                first, last = blocks.index(hold.start), blocks.index(hold.end)
                if asked.shape.blocks[first].slots[0] == asked.shape.slots[worker].name:
                    for iteration in active[asked.name].iterations:
                        for moment in range(iteration.blocks[first].start_us, iteration.blocks[last].end_us):
                            held[moment % phase.period_us] += hold.bytes
            continue
        model = instance.models[asked.model]
        steady += model.state_factor * sum(segment.parameter_bytes for segment in model.segments)
        level = max(iteration.blocks[worker].level for job in parts for iteration in job.iterations)  # type: ignore[union-attr]
        sizes = [segment.activation_bytes for segment in model.segments]
        cut = len(sizes) - model.levels[level - 1]
        activations.append(sum(sizes[cut:]) + max(sizes[:cut], default=0))
    return steady + max(activations) + max(held.values(), default=0)
