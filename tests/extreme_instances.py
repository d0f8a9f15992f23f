"""Random instances with extreme numbers, for tests of solvers that count in floating point or in 64 bits.

Few operations, but times, sizes, rates and weights from zero to the largest number of a document, side by side.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from jigsaw_opt.problem import (
    Cluster,
    Depth,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    Link,
    Model,
    Segment,
    Server,
    StaircaseDepth,
)
from jigsaw_opt.problem.instance import Horizon, Objective

LARGEST = 2**53 - 1
"""Largest number of an instance document."""
_OBJECTIVES: tuple[Objective, ...] = ("makespan", "weighted_completion", "period")
_TYPES = ("v", "w")
_MEANS = (None, None, 0, 0, 1, "1/3", "3/7", "5/9", "17/23", "100/101", "9007199254740991/9007199254740992")


def extreme_instance(seed: int) -> Instance:
    """A valid instance of at most about sixteen operations; it may be infeasible. Same seed, same instance."""
    random = Random(f"extreme/{seed}")
    longest = random.choice((1, 10, 10**3, 10**6, 10**9, 10**12, 10**15))
    objective = random.choice(_OBJECTIVES)
    names = random.choice(("asg", "\u00e4\u6f22\U0001f9e9", 'x "\\\n'))
    cluster = _cluster(random, longest, names)
    models = {f"{names}{k}": _model(random, longest, names) for k in range(random.choice((1, 2)))}
    jobs = _jobs(random, models, cluster.gpu_count, 0 if objective == "period" else 10 ** random.randint(0, 9))
    horizon: Horizon = "cyclic" if objective == "period" else "finite"
    return Instance(f"extreme {names} {seed}", cluster, models, jobs, horizon, objective)


def enlarged(instance: Instance) -> Instance:
    """The instance with times, sizes and rates so extreme that schedules pass 64 bits."""
    segments = [segment for model in instance.models.values() for segment in model.segments]
    times = LARGEST // max(us for one in segments for us in (*one.forward_us.values(), *one.backward_us.values()))
    sizes = LARGEST // (400 * max(one.parameter_bytes for one in segments))

    def large(one: Segment) -> Segment:
        forward, backward = (
            {t: us * times for t, us in us_by_type.items()} for us_by_type in (one.forward_us, one.backward_us)
        )
        return replace(one, forward_us=forward, backward_us=backward, parameter_bytes=one.parameter_bytes * sizes)

    models = {
        name: replace(model, segments=tuple(map(large, model.segments))) for name, model in instance.models.items()
    }
    servers = tuple(replace(one, gpu_memory=LARGEST, fabric_bandwidth=1) for one in instance.cluster.servers)
    links = tuple(replace(one, bandwidth=1) for one in instance.cluster.links)
    return replace(instance, models=models, cluster=replace(instance.cluster, servers=servers, links=links))


def _magnitude(random: Random, largest: int) -> int:
    """From 0 to `largest`, about as often with few digits as with many; one time in three one of both ends."""
    low, high = 10 ** random.randint(0, len(str(largest)) - 1), largest
    return random.choice((random.choice((0, largest)), random.randint(0, min(low, high)), random.randint(0, high)))


def _rate(random: Random) -> int:
    return max(1, _magnitude(random, 10**9))


def _cluster(random: Random, longest: int, names: str) -> Cluster:
    servers = tuple(
        Server(
            f"{names}{k}",
            random.choice(("v", "v", "w")),
            random.choice((1, 1, 1, 2, 3)),
            random.choice((LARGEST,) * 8 + (10**6, _magnitude(random, LARGEST))),
            _rate(random),
            random.choice((0, 0, _magnitude(random, longest))),
        )
        for k in range(random.choice((1, 1, 2, 2, 3, 4)))
    )
    switches = tuple(f"{names} switch {k}" for k in range(random.choice((0, 1, 1, 2))))
    return Cluster(servers, switches, _links(random, longest, [server.name for server in servers] + list(switches)))


def _links(random: Random, longest: int, ends: list[str]) -> tuple[Link, ...]:
    """A tree over most of the servers and switches, and now and then a link that closes a cycle."""
    random.shuffle(ends)
    pairs = {frozenset((end, random.choice(ends[:k]))) for k, end in enumerate(ends) if k and random.random() < 0.97}
    pairs |= {frozenset(random.sample(ends, 2)) for _ in range(random.choice((0, 0, 1, 2))) if len(ends) > 1}
    same = (_rate(random), random.choice((0, 1, longest)))
    links = []
    for first, second in sorted(map(sorted, pairs)):
        rate, latency = random.choice((same, (_rate(random), _magnitude(random, longest))))
        links.append(Link(f"{first}-{second}", (second, first), rate, latency))
    return tuple(links)


def _model(random: Random, longest: int, names: str) -> Model:
    count, types = random.choice((1, 1, 2, 3, 4)), random.choice((_TYPES,) * 7 + (("v",),))
    bytes_ = random.choice((0, 10, 10**6, 10**10, LARGEST // 10**7))
    segments = tuple(
        Segment(
            f"{names}{k}",
            {t: max(int(k == 0), _magnitude(random, longest)) for t in types},
            {t: _magnitude(random, longest) for t in types},
            _magnitude(random, bytes_),
            _magnitude(random, bytes_),
        )
        for k in range(count)
    )
    levels = (*sorted(random.sample(range(1, count), random.randint(0, count - 1))), count)
    return Model(segments, random.choice(((), levels)), random.choice((1, 4, 10**6)))


def _jobs(random: Random, models: dict[str, Model], gpus: int, latest: int) -> tuple[Job, ...]:
    jobs: list[Job] = []
    left, heaviest = random.choice((4, 8, 12, 16)), random.choice((1, 10, LARGEST))
    for k in range(random.choice((2, 3, 4, 5))):
        name = random.choice(sorted(models))
        workers = random.randint(1, min(4, gpus + (random.random() < 0.02)))
        size = workers + (models[name].depth if workers > 1 else 0)
        if size > left and jobs:
            break
        iterations = random.randint(1, max(1, min(3, left // size)))
        left -= size * iterations
        release, weight = _magnitude(random, latest) if latest else 0, max(1, _magnitude(random, heaviest))
        jobs.append(Job(f"{name} {k}", name, workers, iterations, release, weight, _depth(random)))
    return tuple(jobs)


def _depth(random: Random) -> Depth:
    contributors, balance = random.choice((1, 1, 2, 3, LARGEST)), random.choice((None, None, 0, 1, 2, LARGEST))
    free = FreeDepth(contributors, random.choice(_MEANS), balance)
    return random.choice((FullDepth(), StaircaseDepth(), free, free))
