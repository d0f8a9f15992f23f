"""Random valid documents."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from jigsaw_opt.problem import (
    Block,
    Cluster,
    Edge,
    FreeDepth,
    FullDepth,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Link,
    MemoryInterval,
    Model,
    Plan,
    Segment,
    Server,
    Slot,
    StaircaseDepth,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
    Transfer,
)
from jigsaw_opt.problem.network.route_policy import RoutePolicy

LARGEST = 2**53 - 1
TYPES = ["v100", "a100", ""]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
names = texts.filter(lambda text: text != "" and "/" not in text)
counts = st.integers(0, LARGEST)
positives = st.integers(1, LARGEST)
arguments = st.recursive(
    counts | texts, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2), max_leaves=4
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "zoo": texts,
    "arguments": st.dictionaries(texts, arguments),
    "batch_size": positives,
}
zoo_executors = st.fixed_dictionaries(fields)
depths = st.one_of(
    st.just(FullDepth()),
    st.just(StaircaseDepth()),
    st.builds(
        FreeDepth,
        positives,
        st.none() | counts | st.sampled_from(["3/5", "0/1", "007/08"]),
        st.none() | counts,
    ),
)


def _distinct(size: int) -> st.SearchStrategy[list[str]]:
    return st.lists(names, min_size=size, max_size=size, unique=True)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    servers, switches = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    points = draw(_distinct(servers + switches))
    pairs = [(a, b) for i, a in enumerate(points) for b in points[:i]]
    ends: list[tuple[str, str]] = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    titles = draw(_distinct(len(ends)))
    return Cluster(
        tuple(
            Server(name, draw(st.sampled_from(TYPES)), draw(positives), draw(counts), draw(positives), draw(counts))
            for name in points[:servers]
        ),
        tuple(points[servers:]),
        tuple(Link(name, pair, draw(positives), draw(counts)) for name, pair in zip(titles, ends, strict=True)),
        draw(st.none() | st.dictionaries(names, _policies(points, titles), max_size=2)),
    )


def _policies(points: list[str], titles: list[str]) -> st.SearchStrategy[RoutePolicy]:
    some = st.lists(st.sampled_from(points), max_size=2).map(tuple)
    group = st.lists(st.sampled_from(points), min_size=1, max_size=2).map(tuple)
    return st.builds(
        RoutePolicy,
        st.none() | some,
        st.none() | (st.lists(st.sampled_from(titles), max_size=2).map(tuple) if titles else st.just(())),
        st.none() | st.lists(group, max_size=8).map(tuple),
        st.none() | positives,
    )


@st.composite
def models(draw: st.DrawFn) -> Model:
    titles = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    times = st.dictionaries(st.sampled_from(TYPES), positives)
    segments = tuple(Segment(title, draw(times), draw(times), draw(counts), draw(counts)) for title in titles)
    inner: set[int] = draw(st.sets(st.integers(1, len(titles))))
    levels = tuple(sorted(inner | {len(titles)}))
    cuts = st.lists(texts, min_size=len(levels) - 1, max_size=len(levels) - 1, unique=True)
    own = st.fixed_dictionaries({"train": texts, "arguments": fields["arguments"], "cuts": cuts})
    return Model(segments, levels, draw(positives), draw(st.none() | zoo_executors | own))


@st.composite
def shapes(draw: st.DrawFn) -> TaskGraph:
    slots, operations = draw(_distinct(draw(st.integers(1, 3)))), draw(_distinct(draw(st.integers(5, 8))))
    times = st.dictionaries(st.sampled_from(TYPES), positives)
    several = st.lists(st.sampled_from(slots), min_size=2, unique=True).map(tuple)
    # Every slot has a block, and the last operations are transfers, where there are two slots.
    first, others, last = operations[: len(slots)], operations[len(slots) : -2], operations[-2:]
    uses = {name: (slot,) for name, slot in zip(first, slots, strict=True)}
    uses |= {name: draw(several) if len(slots) > 1 else (slots[0],) for name in others}
    blocks = tuple(TaskGraphBlock(name, at, draw(times)) for name, at in uses.items())
    transfers: tuple[TaskGraphTransfer, ...] = ()
    if len(slots) > 1:
        one, other = draw(st.permutations(slots))[:2]
        transfers = (
            TaskGraphTransfer(last[0], draw(counts), source=one, target=other),
            TaskGraphTransfer(last[1], draw(counts), among=draw(several)),
        )
    known = [*uses, *(transfer.name for transfer in transfers)]
    pairs = st.tuples(st.sampled_from(range(len(known))), st.sampled_from(range(len(known))), st.integers(0, 2))
    found = draw(st.lists(pairs.filter(lambda edge: edge[0] < edge[1] or edge[2] > 0), unique=True, max_size=4))
    holds = [
        MemoryInterval(one, other, draw(counts), draw(st.sampled_from(uses[other])) if len(uses[other]) > 1 else None)
        for one in others
        for other in [one]
    ]
    return TaskGraph(
        tuple(Slot(name, draw(counts)) for name in slots),
        blocks,
        transfers,
        tuple(Edge(known[one], known[other], lag) for one, other, lag in found),
        draw(st.sampled_from(["none", "slot", "job"])),
        tuple(holds),
    )


own_stages = st.fixed_dictionaries(
    {"train": texts, "arguments": fields["arguments"], "cuts": st.lists(texts, unique=True, max_size=2)}
)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    known = draw(st.dictionaries(names, models(), min_size=1, max_size=2))
    cyclic = draw(st.booleans())
    deadlines, limits = (st.none(), st.none() | positives) if cyclic else (st.none() | positives, st.none())
    restarts = st.none() if cyclic else st.none() | counts
    cluster = draw(clusters())
    policies = st.sampled_from([None, *(cluster.route_policies or {})])
    jobs = tuple(
        TaskGraphJob(
            name,
            draw(shapes()),
            draw(positives),
            0 if cyclic else draw(counts),
            draw(positives),
            draw(deadlines),
            draw(limits),
            draw(policies),
            draw(st.none() | own_stages),
            draw(restarts),
        )
        if draw(st.booleans())
        else Job(
            name=name,
            model=draw(st.sampled_from(sorted(known))),
            workers=draw(positives),
            iterations=draw(positives),
            release_us=0 if cyclic else draw(counts),
            weight=draw(positives),
            depth=draw(depths),
            deadline_us=draw(deadlines),
            pace_us=draw(limits),
            route_policy=draw(policies),
            restart_us=draw(restarts),
        )
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
    )
    objective: Any = "period" if cyclic else draw(st.sampled_from(["makespan", "weighted_completion"]))
    return Instance(draw(names), cluster, known, jobs, "cyclic" if cyclic else "finite", objective)


iterations = st.builds(
    Iteration,
    st.lists(st.builds(Block, counts, counts, counts), max_size=2).map(tuple),
    st.lists(st.builds(Transfer, counts, counts, counts), max_size=2).map(tuple),
)
plans = st.builds(
    Plan.of_jobs,
    texts,
    texts,
    st.sampled_from(["optimal", "feasible"]),
    counts,
    counts,
    st.none() | counts,
    st.lists(
        st.builds(
            JobPlan,
            texts,
            st.lists(st.builds("{}/{}".format, names, counts), max_size=2).map(tuple),
            st.lists(iterations, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    st.dictionaries(texts, arguments | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()),
)
