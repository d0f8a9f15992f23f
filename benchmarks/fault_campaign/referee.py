"""The rules of a correct plan, written a second time from the specification: documents in, a verdict out.

Shares nothing with the package: neither its dataclasses nor its checker, costs, routes or hash. Each function
cites the rules that it judges.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

from .referee_network import Json, channel_of, homes_of, wrong_gpus
from .referee_task_graphs import copies_at, held_bytes, lanes_of_task_graph, wrong_task_graph_job

LARGEST = 2**53 - 1


def verdict(instance: Json, plan: Any) -> str:
    """The first broken rule of a plan document for a valid instance document, or an empty text."""
    try:
        return next(_broken(instance, plan), "")
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        return f"structure: {type(error).__name__}: {error}"


def objective(instance: Json, plan: Json) -> int:
    """Its value, worked out from the starts and ends that it states (specification: objective)."""
    if instance.get("horizon", "finite") == "cyclic":
        return int(plan["period_us"])
    ends = [_end(job) for job in plan["jobs"]]
    if instance["objective"] == "makespan":
        return int(max(ends))
    return sum(int(job.get("weight", 1)) * end for job, end in zip(instance["jobs"], ends))


def _end(job: Json) -> int:
    """When a job ends: of a task-graph job any iteration may end last; of any other one it is the last."""
    return max(int(x["end_us"]) for i in job["iterations"] for x in (*i["blocks"], *i["transfers"]))


def canonical(instance: Json) -> bytes:
    """The canonical form of an instance (specification: hash)."""

    def depth(given: Json) -> Json:
        return {"min_contributors": 1, **given} if given["rule"] == "free" else given

    def kind(job: Json) -> Json:
        """What only one kind of job has (specification: canonical-task-graph)."""
        if "shape" not in job:
            return {"depth": depth(job.get("depth", {"rule": "full"}))}
        shape = {"transfers": [], "barrier": "none", "holds": [], **job["shape"]}
        shape["slots"] = [{"memory": 0, **slot} for slot in shape["slots"]]
        shape["edges"] = [[*edge, 0][:3] for edge in shape.get("edges", [])]
        return {"shape": shape}

    full = {
        "horizon": "finite",
        **instance,
        "cluster": {
            "servers": [{"fabric_latency_us": 0, **server} for server in instance["cluster"]["servers"]],
            "switches": instance["cluster"].get("switches", []),
            "links": [{"latency_us": 0, **link} for link in instance["cluster"].get("links", [])],
            **{
                key: value
                for key, value in instance["cluster"].items()
                if key in ("route_policies", "power_caps", "licences")
            },
        },
        "models": {
            name: {"levels": _levels(model), "state_factor": 4, **model} for name, model in instance["models"].items()
        },
        "jobs": [{"release_us": 0, "weight": 1, **job, **kind(job)} for job in instance["jobs"]],
    }
    return json.dumps(full, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def sha256(instance: Json) -> str:
    """The hash that a plan states of its instance."""
    return hashlib.sha256(canonical(instance)).hexdigest()


def _broken(instance: Json, plan: Json) -> Iterator[str]:
    yield from _structure(instance, plan)
    period = plan["period_us"] if instance.get("horizon", "finite") == "cyclic" else None
    if (plan["period_us"] is None) != (instance.get("horizon", "finite") == "finite") or period == 0:
        yield "period"
    yield from _belonging(instance, plan)
    for given, job in zip(instance["jobs"], plan["jobs"]):
        yield from (wrong_task_graph_job if "shape" in given else _job)(instance, given, job, period)
        yield from _guarantees(given, job, period)
    yield from _lanes(instance, plan, period)
    yield from _memory(instance, plan, period)
    yield from _licences(instance, plan, period)
    yield from _power(instance, plan, period)
    value = objective(instance, plan)
    if plan["objective"] != value:
        yield f"objective: it is {value}"
    if plan["bound"] > value or (plan["status"] == "optimal" and plan["bound"] != value):
        yield f"bound: the objective is {value}"


def _guarantees(given: Json, job: Json, period: int | None) -> Iterator[str]:
    """When the job ends, and how often it does an iteration (specification: deadline, pace)."""
    if "deadline_us" in given and _end(job) > given["deadline_us"]:
        yield "deadline"
    if "pace_us" in given and period is not None and period > given["pace_us"] * given["iterations"]:
        yield "pace"


def _structure(instance: Json, plan: Json) -> Iterator[str]:
    """Keys, types and ranges (specification: plan, validity, plan-of-a-task-graph-job)."""
    shapes = {job["name"] for job in instance["jobs"] if "shape" in job}
    top = {"format", "instance", "instance_sha256", "status", "objective", "bound", "period_us", "solver", "jobs"}
    yield from _keys(plan, top)
    if plan["format"] != "jigsaw-plan/1" or plan["status"] not in ("optimal", "feasible"):
        yield "format or status"
    if not isinstance(plan["solver"], dict):
        yield "solver"
    numbers = [plan["objective"], plan["bound"], *([] if plan["period_us"] is None else [plan["period_us"]])]
    for job in plan["jobs"]:
        yield from _keys(job, {"name", "gpus", "iterations"})
        for iteration in job["iterations"]:
            yield from _keys(iteration, {"blocks", "transfers"})
            for kind, key in (("blocks", "level"), ("transfers", "bucket")):
                if not isinstance(iteration[kind], list):
                    yield f"{kind}: no list"
                for interval in iteration[kind]:
                    yield from _keys(interval, {"start_us", "end_us"} | (set() if job["name"] in shapes else {key}))
                    numbers += interval.values()
    if any(type(number) is not int or number < 0 for number in numbers):
        yield "a number that is none"


def _keys(found: Any, wanted: set[str]) -> Iterator[str]:
    if set(found) != wanted:
        yield f"keys {set(found) ^ wanted}"


def _belonging(instance: Json, plan: Json) -> Iterator[str]:
    """Name, hash, jobs and counts (specification: document)."""
    if plan["instance"] != instance["name"] or plan["instance_sha256"] != sha256(instance):
        yield "document: name or hash"
    if [job["name"] for job in plan["jobs"]] != [job["name"] for job in instance["jobs"]]:
        yield "document: jobs"
    for given, job in zip(instance["jobs"], plan["jobs"]):
        if "shape" in given:
            shape = given["shape"]
            counts = len(shape["blocks"]), len(shape.get("transfers", []))
            if (len(job["gpus"]), len(job["iterations"])) != (len(shape["slots"]), given["iterations"]):
                yield "document: counts"
            if any((len(i["blocks"]), len(i["transfers"])) != counts for i in job["iterations"]):
                yield "document: operations"
            continue
        depth = len(_levels(instance["models"][given["model"]]))
        buckets = list(range(1, depth + 1)) if given["workers"] > 1 else []
        if len(job["gpus"]) != given["workers"] or len(job["iterations"]) != given["iterations"]:
            yield "document: counts"
        for iteration in job["iterations"]:
            if len(iteration["blocks"]) != given["workers"]:
                yield "document: blocks"
            if [transfer["bucket"] for transfer in iteration["transfers"]] != buckets:
                yield "document: buckets"


def _levels(model: Json) -> list[int]:
    return list(model.get("levels", range(1, len(model["segments"]) + 1)))


def _job(instance: Json, given: Json, job: Json, period: int | None) -> Iterator[str]:
    model, homes = instance["models"][given["model"]], homes_of(instance, job)
    yield from wrong_gpus(job, homes)
    tables = [segment[way] for segment in model["segments"] for way in ("forward_us", "backward_us")]
    if any(home["gpu_type"] not in table for home in homes for table in tables):
        yield "placement: type"
    yield from _depths(given, model, job["iterations"])
    rate, latency, _ = channel_of(instance, given, homes)
    if rate is None:
        yield "placement: no route"
        return
    yield from _timing(given, model, job, homes, (rate, latency), period)


def _depths(given: Json, model: Json, iterations: Sequence[Json]) -> Iterator[str]:
    """Levels by the depth rule (specification: levels, coverage, mean-depth, progress, balance)."""
    rule, workers, depth = given.get("depth", {"rule": "full"}), given["workers"], len(_levels(model))
    rows = [[block["level"] for block in iteration["blocks"]] for iteration in iterations]
    if any(not 1 <= level <= depth for row in rows for level in row):
        yield "levels: no such level"
    multiset = {"full": [depth] * workers, "staircase": sorted(-(-depth * k // workers) for k in range(1, workers + 1))}
    if "levels" in rule:
        multiset["staircase"] = rule["levels"]
    if rule["rule"] != "free":
        if any(sorted(row) != multiset[rule["rule"]] for row in rows):
            yield "levels: multiset"
        return
    least = min(rule.get("min_contributors", 1), workers)
    if any(sum(level >= b for level in row) < least for row in rows for b in range(1, depth + 1)):
        yield "coverage"
    default = 0 if "min_progress" in rule else Fraction(workers + 1, 2 * workers)
    mean = Fraction(rule.get("mean_depth", default))
    if sum(map(sum, rows)) < mean * depth * workers * len(rows):
        yield "mean-depth"
    if "min_progress" in rule:
        worth = sum(_progress(model["efficiency"], row) for row in rows)
        if worth < Fraction(rule["min_progress"]) * 10**6 * sum(model["efficiency"]["weight"]) * len(rows):
            yield "progress"
    totals = [sum(column) for column in zip(*rows)]
    if "balance" in rule and max(totals) - min(totals) > rule["balance"]:
        yield "balance"


def _progress(efficiency: Json, row: Sequence[int]) -> int:
    """What an iteration is worth, in millionths of the sum of the weights (specification: efficiency)."""
    total, workers = 0, len(row)
    for b, (noise, weight) in enumerate(zip(efficiency["noise_scale"], efficiency["weight"]), 1):
        c = len([level for level in row if level >= b])
        total += weight * (10**6 * c * (1000 * workers + noise) // (workers * (1000 * c + noise)) if c else 0)
    return total


def _timing(
    given: Json, model: Json, job: Json, homes: Sequence[Json], channel: tuple[int, int], period: int | None
) -> Iterator[str]:
    """When all runs (specification: duration, readiness, order, release, barrier, period)."""
    rule, free, spans = "release", given.get("release_us", 0), []
    for iteration in job["iterations"]:
        blocks, before = iteration["blocks"], 0
        for block, home in zip(blocks, homes):
            if block["start_us"] < free:
                yield f"{rule}: a block"
            if block["end_us"] - block["start_us"] < _ready(given, model, home, block["level"]):
                yield "duration: a block"
        for transfer in iteration["transfers"]:
            b, contributing = transfer["bucket"], [k for k, x in enumerate(blocks) if x["level"] >= transfer["bucket"]]
            ready = [blocks[k]["start_us"] + _ready(given, model, homes[k], b) for k in contributing]
            needs = _transfer_us(given, model, b, len(contributing), channel)
            if transfer["start_us"] < max(ready, default=0):
                yield "readiness: a transfer"
            if transfer["start_us"] < before:
                yield "order: a transfer"
            if transfer["end_us"] - transfer["start_us"] < needs:
                yield "duration: a transfer"
            before = transfer["end_us"]
        intervals = [*blocks, *iteration["transfers"]]
        if any(x["end_us"] < x["start_us"] for x in intervals):
            yield "duration: ends before it starts"
        rule, free = "barrier", max(x["end_us"] for x in intervals)
        spans.append((min(x["start_us"] for x in blocks), free))
    if period is not None and spans[0][0] + period < spans[-1][1]:
        yield "period: the barrier wraps"


def _ready(given: Json, model: Json, home: Json, level: int) -> int:
    """Time of a block at a level, which is also when its last bucket is ready."""
    kind, suffix = home["gpu_type"], _levels(model)[level - 1]
    earlier = given.get("exchange", {}).get("every", 1) - 1
    forward = sum(segment["forward_us"][kind] for segment in model["segments"])
    whole = forward + sum(segment["backward_us"][kind] for segment in model["segments"])
    return int(earlier * whole + forward + sum(s["backward_us"][kind] for s in model["segments"][-suffix:]))


def _transfer_us(given: Json, model: Json, bucket: int, c: int, channel: tuple[int, int]) -> int:
    levels, (rate, latency), w = [0, *_levels(model)], channel, given["workers"]
    segments = model["segments"][::-1][levels[bucket - 1] : levels[bucket]]
    share = Fraction(given.get("exchange", {}).get("bytes", 1))
    size = ceil(share * sum(segment["parameter_bytes"] for segment in segments))
    return -(-size * ((c - 1) * w + (w - 1) * c) * 10**6 // (c * w * rate)) + (c + w - 2) * latency


def _lanes(instance: Json, plan: Json, period: int | None) -> Iterator[str]:
    """One at a time (specification: exclusive, cyclic-horizon)."""
    lanes: dict[str, list[tuple[int, int]]] = {}
    for given, job in zip(instance["jobs"], plan["jobs"]):
        for name, operation in (lanes_of_task_graph if "shape" in given else _lanes_of_workers)(instance, given, job):
            lanes.setdefault(name, []).append((operation["start_us"], operation["end_us"]))
    for name, intervals in lanes.items():
        if _overlapping([(start, end) for start, end in intervals if end > start], period):
            yield f"exclusive: {name}"


def _lanes_of_workers(instance: Json, given: Json, job: Json) -> Iterator[tuple[str, Json]]:
    _, _, links = channel_of(instance, given, homes_of(instance, job))
    for iteration in job["iterations"]:
        for gpu, block in zip(job["gpus"], iteration["blocks"]):
            yield f"gpu {gpu}", block
        for transfer in iteration["transfers"]:
            for link in links:
                yield f"link {link}", transfer


def _overlapping(busy: list[tuple[int, int]], period: int | None) -> bool:
    """Whether any two of them overlap; then two neighbours do, around the period too."""
    if period is None:
        return any(end > start for (_, end), (start, _) in pairwise(sorted(busy)))
    turns = sorted((start % period, end - start) for start, end in busy)
    again = [(start + period, length) for start, length in turns[:1]]
    return any(each + length > there for (each, length), (there, _) in pairwise([*turns, *again]))


def _memory(instance: Json, plan: Json, period: int | None) -> Iterator[str]:
    """What the workers and slots of a GPU need whose jobs are present (specification: memory, holds)."""
    stays: dict[str, list[tuple[int, int, int, int]]] = {}
    holds: dict[str, list[tuple[int, int, int]]] = {}
    for given, job in zip(instance["jobs"], plan["jobs"]):
        stay = _stay(job)
        for gpu, (kept, activations) in zip(job["gpus"], _taken(instance, given, job)):
            stays.setdefault(gpu, []).append((*stay, kept, activations))
        for gpu, *hold in held_bytes(given["shape"], job) if "shape" in given else ():
            holds.setdefault(gpu, []).append((hold[0], hold[1], hold[2]))
    memory = {server["name"]: server["gpu_memory"] for server in instance["cluster"]["servers"]}
    for gpu, jobs in stays.items():
        here = holds.get(gpu, [])
        # Only where a job or a hold begins more is needed than before.
        for moment in {x[0] for x in (*jobs, *here)}:
            present = [x[2:] for x in jobs if period is not None or x[0] <= moment < x[1]]
            need = sum(kept for kept, _ in present) + max((most for _, most in present), default=0)
            need += sum(size * copies_at(start, end, moment, period) for start, end, size in here)
            if need > memory[gpu.rpartition("/")[0]]:
                yield f"memory: {gpu}"


def _stay(job: Json) -> tuple[int, int]:
    """From when up to when a job is present on the finite horizon."""
    times = [x for iteration in job["iterations"] for x in (*iteration["blocks"], *iteration["transfers"])]
    return min(x["start_us"] for x in times), max(x["end_us"] for x in times)


def _licences(instance: Json, plan: Json, period: int | None) -> Iterator[str]:
    """How many jobs are present that name a licence (specification: licences)."""
    for name, count in instance["cluster"].get("licences", {}).items():
        pairs = zip(instance["jobs"], plan["jobs"])
        stays = [_stay(job) for given, job in pairs if name in given.get("licences", [])]
        at = [sum(period is not None or start <= moment < end for start, end in stays) for moment, _ in stays]
        if max(at, default=0) > count:
            yield f"licences: {name}"


def _taken(instance: Json, given: Json, job: Json) -> Iterator[tuple[int, int]]:
    """Bytes of state and of activations of each worker, or of each slot, which has no activations."""
    if "shape" in given:
        yield from ((slot.get("memory", 0), 0) for slot in given["shape"]["slots"])
        return
    model = instance["models"][given["model"]]
    sizes = [segment["activation_bytes"] for segment in model["segments"]][::-1]
    for k in range(len(job["gpus"])):
        suffix = _levels(model)[max(iteration["blocks"][k]["level"] for iteration in job["iterations"]) - 1]
        state = model.get("state_factor", 4) * sum(segment["parameter_bytes"] for segment in model["segments"])
        yield state, sum(sizes[:suffix]) + max(sizes[suffix:], default=0)


def _power(instance: Json, plan: Json, period: int | None) -> Iterator[str]:
    """What all blocks draw that run at a moment (specification: power)."""
    for cap in instance["cluster"].get("power_caps", []):
        drawn: list[tuple[int, int, int]] = []
        for given, job in zip(instance["jobs"], plan["jobs"]):
            homes = homes_of(instance, job)
            for iteration in job["iterations"]:
                for watts, places, block in _drawing(instance, given, homes, iteration["blocks"]):
                    here = [home["gpu_type"] for home in places if home["name"] in cap["servers"]]
                    drawn += [(block["start_us"], block["end_us"], watts.get(kind, 0)) for kind in here]
        # What is drawn rises only where a block begins.
        for moment, _, _ in drawn:
            if sum(watts * copies_at(start, end, moment, period) for start, end, watts in drawn) > cap["watts"]:
                yield f"power: {cap['name']}"
                break


def _drawing(
    instance: Json, given: Json, homes: Sequence[Json], blocks: Sequence[Json]
) -> Iterator[tuple[Json, list[Json], Json]]:
    """Watts by GPU type, the servers of its GPUs, and the times of each block of an iteration."""
    if "shape" not in given:
        watts = instance["models"][given["model"]].get("power_w", {})
        yield from ((watts, [home], block) for home, block in zip(homes, blocks))
        return
    at = dict(zip((slot["name"] for slot in given["shape"]["slots"]), homes))
    for stated, block in zip(given["shape"]["blocks"], blocks):
        yield stated.get("power_w", {}), [at[name] for name in stated.get("slots", [stated.get("slot")])], block
