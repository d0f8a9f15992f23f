"""Instance documents to try the program with: small ones, large ones, ones of extreme numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from jigsaw_opt.documents import encode_instance, encode_plan
from tests.extreme_instances import extreme_instance
from tests.random_instances import GOALS, random_instance
from tests.random_shapes import one_after_another, random_shaped_instance

__all__ = [
    "LARGEST",
    "ONE_JOB",
    "PAIR",
    "extreme",
    "huge",
    "instance",
    "job",
    "json_bytes",
    "machines",
    "models",
    "servers",
    "shaped",
    "small",
    "trace",
    "written",
]

Json = dict[str, Any]
LARGEST = 2**53 - 1
"""The largest number of an instance document."""


def models(segments: int = 2, forward: int = 300, backward: int = 600, size: int = 1_000_000) -> Json:
    """One model, ``net``, of equal segments."""
    parts = [
        {
            "name": f"g{k}",
            "forward_us": {"v": forward},
            "backward_us": {"v": backward},
            "parameter_bytes": size,
            "activation_bytes": size,
        }
        for k in range(segments)
    ]
    return {"net": {"segments": parts}}


def servers(gpus: int = 2, count: int = 1, memory: int = LARGEST) -> list[Json]:
    """Servers of one type."""
    one = {"gpu_type": "v", "gpus": gpus, "gpu_memory": memory, "fabric_bandwidth": 10**10}
    return [{"name": f"s{k}", **one} for k in range(count)]


def job(name: str = "a", workers: int = 1, iterations: int = 1, **more: object) -> Json:
    """A job of ``net``."""
    return {"name": name, "model": "net", "workers": workers, "iterations": iterations, **more}


def instance(jobs: Sequence[Json], places: Sequence[Json] | None = None, nets: Json | None = None, **more: Any) -> Json:
    """An instance document; its links join the servers to a switch."""
    found = list(places if places is not None else servers())
    links = [{"name": f"l{k}", "ends": [s["name"], "hub"], "bandwidth": 10**9} for k, s in enumerate(found)]
    joined = {"switches": ["hub"], "links": links} if len(found) > 1 else {}
    return {
        "format": "jigsaw-instance/1",
        "name": "tried",
        "cluster": {"servers": found, **joined},
        "models": nets if nets is not None else models(),
        "jobs": list(jobs),
        "horizon": "finite",
        "objective": "makespan",
        **more,
    }


ONE_JOB = instance([job()])
"""Next to nothing."""
PAIR = instance([job("a", 2, 1, depth={"rule": "staircase"}), job("b")])
"""Two jobs on two GPUs."""


def machines(count: int, gpus: int = 8, **more: Any) -> Json:
    """So many jobs of one worker."""
    return instance([job(f"j{k}") for k in range(count)], servers(gpus), **more)


def small(random: Random, operations: int = 8) -> Json:
    """A random instance of a handful of operations, of every horizon and objective."""
    horizon, objective = random.choice(
        (("finite", "makespan"), ("finite", "weighted_completion"), ("cyclic", "period"))
    )
    made = random_instance(
        random.randrange(2**31), horizon, objective if horizon == "finite" else "makespan", operations
    )  # type: ignore[arg-type]
    found: Json = json.loads(encode_instance(made))
    return found


def extreme(random: Random) -> Json:
    """A random instance of a handful of operations with numbers from 0 to the largest."""
    found: Json = json.loads(encode_instance(extreme_instance(random.randrange(2**31))))
    return found


def huge(random: Random) -> Json:
    """A random instance whose numbers are mostly the largest or next to nothing, with up to some hundred operations."""

    def number(least: int = 0) -> int:
        return max(least, random.choice((LARGEST, LARGEST, LARGEST - random.randrange(10**6), 1, 0)))

    places = [
        {**place, "fabric_bandwidth": number(1), "fabric_latency_us": number()}
        for place in servers(random.choice((1, 2, 3)), random.choice((1, 1, 2, 3)))
    ]
    nets = {}
    for name in ("net", "more"):
        nets[name] = models(random.choice((1, 2, 3)))["net"]
        for segment in nets[name]["segments"]:
            segment.update(forward_us={"v": number(1)}, backward_us={"v": number()}, parameter_bytes=number() // 2**10)
    goal = random.choice(("makespan", "weighted_completion", "period"))
    finite, gpus = goal != "period", sum(place["gpus"] for place in places)
    jobs = [
        {
            **job(f"j{k}", random.randint(1, min(4, gpus)), random.choice((1, 3, 10, 30)), weight=number(1)),
            "model": random.choice(("net", "more")),
            "release_us": number() if finite else 0,
            "depth": {"rule": random.choice(("full", "staircase", "free"))},
        }
        for k in range(random.choice((2, 3, 5)))
    ]
    made = instance(jobs, places, nets, horizon="finite" if finite else "cyclic", objective=goal)
    for link in made["cluster"]["links"] if len(places) > 1 else ():
        link.update(bandwidth=number(1), latency_us=number())
    return made


def json_bytes(document: object) -> bytes:
    """A document as JSON."""
    return json.dumps(document).encode()


def written(document: object, path: Path) -> Path:
    """A document in a file."""
    path.write_bytes(json_bytes(document))
    return path


def trace(path: Path, jobs: int, random: Random) -> Path:
    """A workload for a simulation of that many jobs."""

    def rows() -> Iterator[str]:
        time = 0
        for k in range(jobs):
            time += random.randint(1, 600)
            yield f"j{k},{time},m,{random.choice((1, 1, 2, 4))},{random.randint(100, 5000)}"

    path.write_text("\n".join(("name,submit_s,model,gpus,iterations", *rows())) + "\n")
    return path


def shaped(random: Random) -> tuple[Json, Json] | None:
    """An instance with shaped jobs and a plan of it, which may break memory or placement; None where it has none."""
    instance = random_shaped_instance(random.getrandbits(32), *random.choice(GOALS))
    plan = one_after_another(instance, random)
    if plan is None:
        return None
    stated = replace(plan, solver={"name": "one after another"})
    return json.loads(encode_instance(instance)), json.loads(encode_plan(stated))
