"""The rules of task-graph jobs for the referee, from the specification alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .referee_network import Json, channel_of, homes_of, policy_of, route_between, wrong_gpus


def _uses(operation: Json) -> list[str]:
    """The slots that an operation of a task graph names."""
    if "from" in operation:
        return [operation["from"], operation["to"]]
    return list(operation.get("slots", operation.get("among", [operation.get("slot")])))


def wrong_task_graph_job(instance: Json, given: Json, job: Json, period: int | None) -> Iterator[str]:
    """A job with a task graph (specification: task-graph-jobs)."""
    shape, homes = given["shape"], homes_of(instance, job)
    yield from wrong_gpus(job, homes)
    at = dict(zip((slot["name"] for slot in shape["slots"]), homes))
    if any(at[name]["gpu_type"] not in block["duration_us"] for block in shape["blocks"] for name in _uses(block)):
        yield "placement: type"
    if channel_of(instance, given, homes)[0] is None:
        yield "placement: no route"
        return
    needs = [max(block["duration_us"][at[name]["gpu_type"]] for name in _uses(block)) for block in shape["blocks"]]
    needs += [
        _moved(instance, given, transfer, [at[name] for name in _uses(transfer)])[0] for transfer in _transfers(shape)
    ]
    names = [operation["name"] for operation in (*shape["blocks"], *_transfers(shape))]
    table = [dict(zip(names, (*i["blocks"], *i["transfers"]))) for i in job["iterations"]]
    for row in table:
        for name, need in zip(names, needs):
            length = row[name]["end_us"] - row[name]["start_us"]
            if length < need:
                yield f"duration: {name}"
            if period is not None and length > period:
                yield f"period: {name}"
            if row[name]["start_us"] < given.get("release_us", 0):
                yield f"release: {name}"
    yield from _waiting(shape, table, period)


def _transfers(shape: Json) -> list[Json]:
    return list(shape.get("transfers", []))


def _moved(instance: Json, given: Json, transfer: Json, homes: Sequence[Json]) -> tuple[int, frozenset[str]]:
    """Time and links of a transfer of a task graph (specification: durations-of-task-graph-operations)."""
    one, other = homes[0], homes[-1]
    if "among" in transfer or one["name"] == other["name"]:
        rate, latency, links = channel_of(instance, given, homes)
    else:
        order = [server["name"] for server in instance["cluster"]["servers"]]
        ends = sorted((one["name"], other["name"]), key=order.index)
        route = route_between(instance["cluster"].get("links", []), policy_of(instance, given), *ends) or []
        rate, latency = min(x["bandwidth"] for x in route), max(x.get("latency_us", 0) for x in route)
        links = frozenset(x["name"] for x in route)
    assert rate is not None
    steps, share = (2 * (len(homes) - 1), len(homes)) if "among" in transfer else (1, 1)
    return -(-steps * transfer["bytes"] * 10**6 // (share * rate)) + steps * latency, links


def _waiting(shape: Json, table: Sequence[Json], period: int | None) -> Iterator[str]:
    """What waits for what (specification: edges, barrier, cyclic-horizon)."""

    def start(name: str, iteration: int) -> int | None:
        """Start of an operation in any iteration, also of a later period; None where there is none."""
        turns, place = divmod(iteration, len(table))
        if turns and period is None:
            return None
        return int(table[place][name]["start_us"]) + turns * (period or 0)

    names = list(table[0])
    edges = [(*edge, 0)[:3] for edge in shape.get("edges", [])] + [(name, name, 1) for name in names]
    for before, after, lag in edges:
        for i, row in enumerate(table):
            begins = start(after, i + lag)
            if begins is not None and begins < row[before]["end_us"]:
                yield f"edges: {before} {after} {lag}"
    barrier = shape.get("barrier", "none")
    together = {
        "none": [],
        "slot": [[b["name"] for b in shape["blocks"] if slot["name"] in _uses(b)] for slot in shape["slots"]],
        "job": [names],
    }[barrier]
    for group in together:
        for i, row in enumerate(table):
            begins = [moment for moment in (start(name, i + 1) for name in group) if moment is not None]
            if begins and min(begins) < max(row[name]["end_us"] for name in group):
                yield f"barrier: {barrier}"


def lanes_of_task_graph(instance: Json, given: Json, job: Json) -> Iterator[tuple[str, Json]]:
    shape = given["shape"]
    names = [slot["name"] for slot in shape["slots"]]
    gpu, home = dict(zip(names, job["gpus"])), dict(zip(names, homes_of(instance, job)))
    links = [_moved(instance, given, transfer, [home[n] for n in _uses(transfer)])[1] for transfer in _transfers(shape)]
    for iteration in job["iterations"]:
        for block, run in zip(shape["blocks"], iteration["blocks"]):
            for name in _uses(block):
                yield f"gpu {gpu[name]}", run
        for used, run in zip(links, iteration["transfers"]):
            for link in used:
                yield f"link {link}", run


def held_bytes(shape: Json, job: Json) -> Iterator[tuple[str, int, int, int]]:
    """GPU, start, end and bytes of what is held, iteration by iteration."""
    gpu = dict(zip((slot["name"] for slot in shape["slots"]), job["gpus"]))
    blocks = {block["name"]: block for block in shape["blocks"]}
    for iteration in job["iterations"]:
        runs = dict(zip(blocks, iteration["blocks"]))
        for hold in shape.get("holds", []):
            start, end = runs[hold["from"]]["start_us"], runs[hold["to"]]["end_us"]
            if end > start:
                yield gpu[hold.get("slot") or blocks[hold["from"]]["slot"]], start, end, hold["bytes"]


def copies_at(start: int, end: int, moment: int, period: int | None) -> int:
    """How many repetitions of an interval contain a moment."""
    if period is None:
        return int(start <= moment < end)
    return (moment - start) // period - (moment - end) // period
