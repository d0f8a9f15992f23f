"""Instance documents to try the program with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from jigsaw_opt.documents import encode_instance
from jigsaw_opt.problem import Instance
from tests.random_instances import GOALS, random_instance, tight_instance

Json = dict[str, Any]
LARGEST = 2**53 - 1
"""The largest number of an instance document."""


def models(segments: int = 2) -> Json:
    """One model, ``net``, of equal segments."""
    times, sizes = {"forward_us": {"v": 300}, "backward_us": {"v": 600}}, ("parameter_bytes", "activation_bytes")
    return {"net": {"segments": [{"name": f"g{k}", **times, **dict.fromkeys(sizes, 10**6)} for k in range(segments)]}}


def servers(gpus: int = 2, count: int = 1) -> list[Json]:
    """Servers of one type."""
    one = {"gpu_type": "v", "gpus": gpus, "gpu_memory": LARGEST, "fabric_bandwidth": 10**10}
    return [{"name": f"s{k}", **one} for k in range(count)]


def job(name: str = "a", workers: int = 1, iterations: int = 1, **more: object) -> Json:
    """A job of ``net``."""
    return {"name": name, "model": "net", "workers": workers, "iterations": iterations, **more}


def instance(jobs: Sequence[Json], places: Sequence[Json] = (), nets: Json | None = None, **more: Any) -> Json:
    """An instance document; its links join the servers to a switch."""
    found = list(places or servers())
    links = [{"name": f"l{k}", "ends": [s["name"], "hub"], "bandwidth": 10**9} for k, s in enumerate(found)]
    joined = {"switches": ["hub"], "links": links} if len(found) > 1 else {}
    goal = {"horizon": "finite", "objective": "makespan", **more}
    head = {"format": "jigsaw-instance/1", "name": "tried", "cluster": {"servers": found, **joined}}
    return {**head, "models": nets or models(), "jobs": list(jobs), **goal}


ONE_JOB = instance([job()])
"""Next to nothing."""
PAIR = instance([job("a", 2, 1, depth={"rule": "staircase"}), job("b")])
"""Two jobs on two GPUs."""


def tree(made: Instance) -> Json:
    """The document of an instance."""
    found: Json = json.loads(encode_instance(made))
    return found


def small(random: Random, operations: int = 8) -> Json:
    """A random instance of a handful of operations, of every horizon and objective."""
    return tree(random_instance(random.randrange(2**31), *random.choice(GOALS), operations))


def scarce(random: Random) -> Json:
    """A random finite instance of a handful of operations, whose jobs may have to follow one another for memory."""
    return tree(tight_instance(random.randrange(2**31), random.choice(("makespan", "weighted_completion"))))


def written(document: object, path: Path) -> Path:
    """A document in a file."""
    path.write_text(json.dumps(document))
    return path


def trace(path: Path, jobs: int, random: Random) -> Path:
    """A workload for a simulation of that many jobs."""
    rows = ["name,submit_s,model,gpus,iterations"]
    rows += [f"j{k},{300 * k},m,{random.choice((1, 1, 2, 4))},{random.randint(100, 5000)}" for k in range(jobs)]
    path.write_text("\n".join(rows) + "\n")
    return path
