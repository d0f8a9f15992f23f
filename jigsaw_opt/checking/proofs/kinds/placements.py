"""Arguments about task-graph jobs: loads and chains of operations, cases by the servers of slots (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import gcd

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.task_graphs import PlacedOperation, TaskGraphFacts, alike_servers
from jigsaw_opt.checking.proofs.step import ProofStep, integer, shown, text

_MOST_SLOTS = 400


class Placement:
    """The task-graph jobs that an argument speaks of, and the servers of slots that the cases so far assume."""

    def __init__(self, facts: Facts) -> None:
        self.facts, self.finite = facts, facts.finite
        self.operations: list[tuple[TaskGraphFacts, PlacedOperation]] = []
        self.slots: list[tuple[TaskGraphFacts, str]] = []

    def job(self, step: ProofStep, field: str, name: str) -> TaskGraphFacts:
        """Return a task-graph job."""
        return step.required(self.facts.task_graphs.get(name), f"{name!r} is no task-graph job", field)

    def slot(self, step: ProofStep, field: str, value: object) -> tuple[TaskGraphFacts, str]:
        """Return a job and the name of one of its slots."""
        pair = [text(name, f"{step.path}.{field}") for name in value] if isinstance(value, list | tuple) else []
        step.require(len(pair) == 2, "is not a job and a slot", field)
        job = self.job(step, field, pair[0])
        step.require(pair[1] in job.memory, f"{pair[1]!r} is no slot of job {pair[0]!r}", field)
        return job, pair[1]

    def places(self, job: TaskGraphFacts, slot: str, alike: Mapping[int, int]) -> list[int]:
        """Return the servers that a slot may be on; of servers alike on which nothing is, the first stands for all."""
        used = {other.servers[name] for other, name in self.slots}
        servers = [s for s in range(len(job.cluster.servers)) if job.may_hold(slot, s)]
        first = {alike[s]: s for s in reversed(servers) if s not in used}
        return [s for s in servers if s in used or first[alike[s]] == s]

    def put(self, job: TaskGraphFacts, slot: str, server: int) -> int:
        """Place one more slot, and return the number of operations that were placed before."""
        before = len(self.operations)
        job.servers[slot] = server
        self.slots.append((job, slot))
        for number, slots in enumerate(job.slots):
            found = job.placed(number) if slot in slots else None
            if found is not None:
                self.operations.append((job, found))
        return before

    def take_back(self, before: int) -> None:
        """Undo the last placing of a slot."""
        job, slot = self.slots.pop()
        del job.servers[slot]
        del self.operations[before:]

    def on_links(self, links: Sequence[int]) -> Iterator[tuple[TaskGraphFacts, PlacedOperation]]:
        """Yield the transfers that use more than half of one link, or of three."""
        most = len(links) // 2
        return ((job, own) for job, own in self.operations if sum(link in own.links for link in links) > most)

    def on_server(self, server: int) -> Iterator[tuple[TaskGraphFacts, PlacedOperation]]:
        """Yield the blocks of slots that are on a server."""
        for job, slot in self.slots:
            if job.servers[slot] == server:
                yield from self.of_slot(job, slot)

    def of_slot(self, job: TaskGraphFacts, slot: str) -> Iterator[tuple[TaskGraphFacts, PlacedOperation]]:
        """Yield the blocks of a slot, wherever it is."""
        for block in job.blocks_of(slot):
            yield job, PlacedOperation(block, job.duration_us(block), ())


Case = Callable[[ProofStep, Placement], int]
"""Return the least end of the last job, or the least period, that an argument leaves a placement."""


def placed_kinds() -> dict[str, Case]:
    """Return the kinds of argument that `placements` may have for a case."""
    return {
        "exclusive operations": _exclusive_operations,
        "longest chain": _longest_chain,
        "span between barriers": _span_between_barriers,
    }


def of_the_end(case: Case) -> Callable[[ProofStep, Facts], int]:
    """Return the argument that bounds the objective by what holds of the end of the last job, or of the period."""

    def check(step: ProofStep, facts: Facts) -> int:
        weight = 1
        if facts.objective == "weighted_completion":
            jobs = facts.instance.jobs
            step.require(len(jobs) == 1, "bounds the end of the last job, so it has to be of one job alone")
            weight = jobs[0].weight
        return weight * case(step, Placement(facts))

    return check


def _exclusive_operations(step: ProofStep, placement: Placement) -> int:
    head, tail, works = step.integer("head"), step.integer("tail"), list[int]()
    for job, own in _of_resource(step.step("resource"), placement):
        before, after = _head_and_tail(job, own.operation, placement.finite)
        if before >= head and after >= tail:
            works.append(job.iterations * own.duration_us)
    step.require(bool(works), "no operation has this head and this tail")
    return head + sum(works) + tail


def _of_resource(step: ProofStep, placement: Placement) -> Iterator[tuple[TaskGraphFacts, PlacedOperation]]:
    """Return the operations of a GPU, of a link, or of two of three links."""
    cluster = placement.facts.cluster
    if step.has("slot"):
        found = placement.of_slot(*placement.slot(step, "slot", step.value("slot")))
    elif step.has("server"):
        server = step.named("server", cluster.server_numbers, "server of the cluster")
        step.require(cluster.cluster.servers[server].gpus == 1, "has several GPUs", "server")
        found = placement.on_server(server)
    else:
        links = step.all_named("links", cluster.link_numbers, "link of the cluster")
        step.require(len(links) in (1, 3), "is not one link or three", "links")
        found = placement.on_links(links)
    step.done()
    return found


def _head_and_tail(job: TaskGraphFacts, operation: int, finite: bool) -> tuple[int, int]:
    """Return head and tail of an operation; 0 on the cyclic horizon, where neighbouring periods overlap."""
    if not finite:
        return 0, 0
    heads, tails = job.heads_and_tails()
    return job.release_us + heads[operation], tails[operation]


def _longest_chain(step: ProofStep, placement: Placement) -> int:
    job = placement.job(step, "job", step.text("job"))
    step.require(placement.finite, "is an argument of the finite horizon")
    total, iteration, last = 0, 0, -1
    for part in step.steps("parts"):
        times = part.integer("times", 1)
        links = [_link(part, item, path, job) for item, path in part.items("operations")]
        part.require(bool(links), "is empty", "operations")
        # The first operation follows the last one of the part before, and where the part is repeated its own last one.
        before = [last, links[-1][0]] if times > 1 else [last]
        ways = [(one, *links[0]) for one in before]
        ways += [(one[0], *other) for one, other in pairwise(links)]
        for one, other, lag in ways:
            if one >= 0:
                told = f"{job.names[other]!r} does not wait for {job.names[one]!r} so many iterations later"
                part.require(job.waits(one, other, lag), told, "operations")
        total += times * sum(job.durations_us()[operation] for operation, _ in links)
        iteration += times * sum(lag for _, lag in links)
        last = links[-1][0]
        part.done()
    step.require(last >= 0 and iteration < job.iterations, "has no iterations, or more than the job")
    return job.release_us + total


def _link(part: ProofStep, item: object, path: str, job: TaskGraphFacts) -> tuple[int, int]:
    """Return an operation of a chain, and how many iterations after that before it."""
    name, lag = (item, 0) if isinstance(item, str) else (None, 0)
    if isinstance(item, list) and len(item) == 2:
        name, lag = item[0], integer(item[1], path, 1)
    part.require(isinstance(name, str) and name in job.number, "is no operation of the job", "operations")
    return job.number[str(name)], lag


def _span_between_barriers(step: ProofStep, placement: Placement) -> int:
    job, slot = placement.slot(step, "slot", step.value("slot"))
    step.require(not placement.finite, "is an argument of the cyclic horizon")
    barrier, blocks = job.job.shape.barrier, job.blocks_of(slot)
    step.require(barrier != "none", "the job has no barrier", "slot")
    heads, tails = job.within(range(len(job.names)) if barrier == "job" else blocks)
    head, tail, lengths = step.integer("head"), step.integer("tail"), job.durations_us()
    own = [lengths[block] for block in blocks if heads[block] >= head and tails[block] >= tail]
    step.require(bool(own), "no block has this head and this tail")
    return job.iterations * (head + sum(own) + tail)


def held_memory(step: ProofStep, placement: Placement) -> int:
    """Return the bound of what the memory intervals of a slot take for how long, in the memory that its GPU has."""
    job, slot = placement.slot(step, "slot", step.value("slot"))
    chains: dict[str, dict[int, int]] = {}
    held = list[tuple[int, int]]()
    for _, interval in job.intervals_of(slot):
        if interval.start not in chains:
            chains[interval.start] = job.longest_from(job.number[interval.start])
        held.append((interval.bytes, chains[interval.start].get(job.number[interval.end], 0)))
    held = [(size, length) for size, length in held if length]
    step.require(bool(held), "has no memory interval with a chain from its start to its end", "slot")
    unit = step.equal("unit", gcd(*(size for size, _ in held)), "the common divisor of their bytes")
    work = job.iterations * sum(size // unit * length for size, length in held)
    most = max((server.gpu_memory for server in job.cluster.servers if job.knows(slot, server)), default=0)
    capacity = step.equal(
        "capacity", max(1, (most - job.memory[slot]) // unit), "the memory beside that of the slot, in units,"
    )
    return -(-step.equal("work", work, "the sum of units times time") // capacity)


def _operations_of(argument: ProofStep) -> int:
    """Return how many operations an argument lists."""
    return sum(len([*part.items("operations")]) for part in argument.steps("parts")) if argument.has("parts") else 0


def placements(step: ProofStep, placement: Placement) -> int:
    """Return the bound of cases by the servers of slots, where each case has an argument for it."""
    order = [placement.slot(step, "order", names) for names, _ in step.items("order")]
    step.require(len({(job.job.name, slot) for job, slot in order}) == len(order), "names something twice", "order")
    step.require(len(order) <= _MOST_SLOTS, f"has more than {_MOST_SLOTS} entries", "order")
    moving = sorted({job.job.name for job, _ in order if job.job.restart_us is not None})
    step.require(not moving, f"places slots of job {moving[:1]}, which may move", "order")
    bound, arguments = step.integer("bound"), step.steps("arguments")
    alike = alike_servers(placement.facts.instance, any(job.job.route_policy is not None for job, _ in order))
    checks = [argument.named("kind", placed_kinds(), "kind for a case") for argument in arguments]
    lengths = [_operations_of(argument) for argument in arguments]
    used_arguments = set[int]()

    def walk(value: object, path: str, depth: int) -> None:
        if not isinstance(value, dict):
            chosen = integer(value, path)
            step.require(chosen < len(arguments), f"has no entry {chosen}", "arguments")
            argument = arguments[chosen]
            used_arguments.add(chosen)
            placement.facts.spend(step, "operations of cases", lengths[chosen])
            proven = checks[chosen](argument, placement)
            argument.done()
            if proven < bound:
                raise ProofStep({}, path).fail(f"argument {chosen} proves only {shown(proven)}")
            return
        node = ProofStep(value, path)
        node.require(depth < len(order), "has more cases than slots")
        job, slot = order[depth]
        for server in placement.places(job, slot, alike):
            name, before = job.cluster.servers[server].name, placement.put(job, slot, server)
            walk(node.value(name), f"{path}.{name}", depth + 1)
            placement.take_back(before)
        node.done()

    walk(step.value("tree"), f"{step.path}.tree", 0)
    step.require(len(used_arguments) == len(arguments), "has entries that no case uses", "arguments")
    return bound
