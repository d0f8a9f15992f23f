"""The size of the mixed-integer program, counted without building it, against programs that are built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.formulations.ilp_timetable import IlpTimetable, build, program_size, serial_limit, windows
from jigsaw_opt.formulations.ilp_timetable.size import ProgramSize
from jigsaw_opt.instances.catalogue import load
from jigsaw_opt.problem import Instance, compile_instance
from tests.extreme_instances import extreme_instance
from tests.random_instances import random_instance, with_guarantees, with_route_policies

pytest.importorskip("pulp")
BUNDLED = ("server/demo", "server/full")


def built(instance: Instance) -> tuple[ProgramSize, IlpTimetable]:
    """Return the size of the program, as it is, and its model."""
    operations = compile_instance(instance)
    limit = serial_limit(operations)
    model = build(operations, windows(operations, limit), 0, limit)
    program = model.program.program()
    never = sum(name.startswith("never_") for name in model.program.columns)
    return ProgramSize(len(program.costs) - never, len(program.row_lower) - never, len(program.values) - never), model


def require_near(instance: Instance, widest: float) -> IlpTimetable:
    """Compare estimate and program; return the model."""
    estimate = program_size(compile_instance(instance))
    size, model = built(instance)
    assert estimate.columns == size.columns, instance.name
    assert size.rows <= estimate.rows <= widest * size.rows, instance.name
    assert size.coefficients <= estimate.coefficients <= widest * size.coefficients, instance.name
    return model


def with_bytes(instance: Instance, parameters: int, memory: int, extra: int) -> Instance:
    """Return the instance with so many times the bytes of parameters and of memory, and some more of activations."""
    models = {
        name: replace(
            model,
            segments=tuple(
                replace(
                    segment,
                    parameter_bytes=segment.parameter_bytes * parameters,
                    activation_bytes=segment.activation_bytes * memory + extra,
                )
                for segment in model.segments
            ),
        )
        for name, model in instance.models.items()
    }
    servers = tuple(replace(server, gpu_memory=server.gpu_memory * memory) for server in instance.cluster.servers)
    return replace(instance, models=models, cluster=replace(instance.cluster, servers=servers))


def without_duration(instance: Instance) -> Instance:
    """Return the instance with transfers that last over the last link only."""
    cluster = instance.cluster
    servers = tuple(replace(server, fabric_latency_us=0) for server in cluster.servers)
    links = tuple(replace(link, latency_us=int(link == cluster.links[-1])) for link in cluster.links)
    return with_bytes(replace(instance, cluster=replace(cluster, servers=servers, links=links)), 0, 1, 0)


def instances(objective: str) -> Iterator[Instance]:
    """Instances of many kinds: with route policies, deadlines, many bytes or none, and several parts, too."""
    for seed in range(24):
        instance = random_instance(seed, "finite", objective, operations=8 + seed % 13)
        yield instance
        yield with_route_policies(instance, Random(seed))
        yield with_guarantees(instance, Random(seed), serial_limit(compile_instance(instance)))
        yield with_bytes(instance, 10**6, 10**6, 1)
        yield without_duration(instance)
        yield replace(instance, cluster=replace(instance.cluster, links=instance.cluster.links[:-2]))
        if extreme_instance(seed).horizon == "finite":
            yield extreme_instance(seed)


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_random_programs_have_the_size_that_was_counted(objective: str) -> None:
    kinds: set[str] = set()
    for instance in instances(objective):
        if "no_gpu" not in built(instance)[1].program.rows:
            kinds |= {name.split("_")[0] for name in require_near(instance, 1.5).program.columns}
    # Every family of columns that the model has was there.
    assert kinds >= {"here", "used", "level", "least", "link", "side", "shared", "slower", "later", "part", "carry"}
    assert kinds >= {"exchange", "duration", "contribute", "meet", "share", "first", "both"}


def test_a_job_without_a_gpu_leaves_one_contradiction() -> None:
    instance = next(
        instance
        for seed in range(100)
        if "no_gpu" in built(instance := random_instance(seed, "finite", "makespan", operations=8))[1].program.rows
    )
    assert program_size(compile_instance(instance)) == ProgramSize(2, 1, 1)


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_files_are_about_as_large_as_was_counted(name: str, kind: str) -> None:
    instance = load(name)
    model = require_near(instance, 1.3)
    size = len(model.program.document("mps" if kind == "mps" else "lp"))
    assert (
        0.7 * size
        <= program_size(compile_instance(instance)).file_bytes("mps" if kind == "mps" else "lp")
        <= 1.5 * size
    )
