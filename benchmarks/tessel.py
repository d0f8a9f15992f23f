"""Repetends of Tessel's placements: our least periods, with their proofs, by memory.

Run it as ``python benchmarks/tessel.py [--shapes V X M NN K] [--devices 4 8] [--memory 1 8] [--seconds 20]``. Tessel
(Lin et al., *Tessel: Boosting distributed execution of large DNN models via flexible schedule search*, HPCA 2024)
places the operators of one micro-batch on devices and searches for the part of a schedule that repeats. A forward block
takes 1, a backward one 3, and one that is sharded over all devices takes 1 each way. A device holds 1 from a forward
block up to the end of its backward one.

Each placement becomes one task-graph job on the cyclic horizon, with one iteration a period, barrier ``none``, and a
slot a device. Memory is that of each device.

With ``--tessel PATH`` to a checkout of Tessel, and ``--python`` that has its packages (z3-solver, numpy,
more-itertools, matplotlib), its own search runs beside, with as many micro-batches as memory, six at most. It states
bubbles of a repetend; with the load of a device they make its period. The steps that it states are longer where
repetends overlap.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from time import perf_counter

from common import print_table

from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    MemoryInterval,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
)
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

SHAPES = ("V", "X", "M", "NN", "K")
HEADS = ("shape", "devices", "memory", "load", "period", "bound", "status", "s", "Tessel", "s")
_FORWARD, _BACKWARD, _SHARDED = 1, 3, 1
_CASES = Path("examples", "simulator", "cases_tessel.py")
_MOST_MICRO_BATCHES = 6

Step = tuple[str, Sequence[int], int]
"""Name, devices and duration of a block."""


def repetend(shape: str, devices: int, memory: int) -> Instance:
    """The instance of a placement: one micro-batch a period on so many devices of so much memory.

    Raises
    ------
    ValueError
        The shape is none of Tessel's.
    """
    chains = _chains(shape, devices)
    blocks = {name: (own, takes) for chain in chains for name, own, takes in chain}
    edges = dict.fromkeys((a[0], b[0]) for chain in chains for a, b in pairwise(chain))
    # All forward blocks hold memory but the sharded ones of M and NN, whose weights alone are large.
    holding = [name for name in blocks if name[0] == "f" and (shape == "K" or len(blocks[name][0]) == 1)]
    job = TaskGraph(
        tuple(Slot(f"d{device}") for device in range(devices)),
        tuple(TaskGraphBlock(name, _slots(own), {"gpu": takes}) for name, (own, takes) in blocks.items()),
        (),
        tuple(Edge(*edge) for edge in edges),
        "none",
        tuple(MemoryInterval(f, f"b{f[1:]}", 1, slot) for f in holding for slot in _holders(blocks[f][0])),
    )
    cluster = Cluster((Server("server", "gpu", devices, memory, 10**12, 0),))
    return Instance(f"{shape} on {devices}", cluster, {}, (TaskGraphJob("repetend", job, 1),), "cyclic", "period")


def _slots(devices: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"d{device}" for device in devices)


def _holders(devices: Sequence[int]) -> tuple[str | None, ...]:
    """Slots of holds, stated where a block has several."""
    return _slots(devices) if len(devices) > 1 else (None,)


def _chains(shape: str, devices: int) -> list[list[Step]]:
    """Blocks that follow one another; a block may be in several chains."""
    whole, half, every = list(range(devices)), devices // 2, range(devices)
    if shape == "V":
        return [_there_and_back("a", whole)]
    if shape == "X":
        return [_there_and_back("a", whole), _there_and_back("b", whole[::-1])]
    if shape == "K":
        return [_there_and_back("a", own, {len(own): "s"}, every) for own in (whole[:half], whole[half:])]
    if shape in ("M", "NN"):
        return [_there_and_back("a", whole, {0: "s", half: "t"} if shape == "NN" else {0: "s"}, every)]
    raise ValueError(f"shape {shape!r} is none of {', '.join(SHAPES)}")


def _there_and_back(
    chain: str, path: Sequence[int], sharded: dict[int, str] | None = None, every: Sequence[int] = ()
) -> list[Step]:
    """Forward blocks along a path and backward ones back, sharded ones before some devices of the path."""
    names = [f"{chain}{device}" for device in path]
    forward: list[Step] = [(f"f{name}", (device,), _FORWARD) for name, device in zip(names, path, strict=True)]
    for place, name in sorted((sharded or {}).items(), reverse=True):
        forward.insert(place, (f"f{name}", tuple(every), _SHARDED))
    back = [(f"b{name[1:]}", own, _BACKWARD if len(own) == 1 else _SHARDED) for name, own, _ in forward[::-1]]
    return [*forward, *back]


def load(instance: Instance) -> int:
    """Work of the busiest device in a period."""
    job = instance.jobs[0]
    assert isinstance(job, TaskGraphJob)
    return max(
        sum(block.duration_us["gpu"] for block in job.shape.blocks if slot.name in block.slots)
        for slot in job.shape.slots
    )


def tessel_period(arguments: argparse.Namespace, shape: str, devices: int, memory: int, work: int) -> tuple[str, str]:
    """Period of the best repetend that Tessel finds in its time, and the seconds; ``-`` where it finds none."""
    sizes = {"ndevs": devices, "nmicros": min(memory, _MOST_MICRO_BATCHES), "memory": memory}
    command = [arguments.python, "-u", str(arguments.tessel / _CASES), "--placement", f"{shape.lower()}shape"]
    command += [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    began = perf_counter()
    try:
        done = subprocess.run(
            command,
            env={"PYTHONPATH": str(arguments.tessel)},
            stdout=subprocess.PIPE,
            timeout=arguments.tessel_seconds,
            check=False,
        )
        said = done.stdout
    except subprocess.TimeoutExpired as over:
        said = over.stdout or b""
    bubbles = re.findall(rb"bubbles per repetend: (\d+)", said)
    return str(work + int(bubbles[-1]) if bubbles else "-"), f"{perf_counter() - began:.1f}"


def rows(arguments: argparse.Namespace, shape: str, devices: int) -> Iterator[Sequence[object]]:
    """Rows of the table of one placement, each once it is there, and the least memory without a bubble."""
    enough = None
    for memory in range(arguments.memory[0], arguments.memory[1] + 1):
        instance, began = repetend(shape, devices, memory), perf_counter()
        result = solve(instance, arguments.solver, Options(time_limit=arguments.seconds, threads=2))
        seconds, work = perf_counter() - began, load(instance)
        period = "-" if result.objective is None else result.objective
        if enough is None and period == work:
            enough = memory
        theirs = tessel_period(arguments, shape, devices, memory, work) if arguments.tessel else ("-", "-")
        yield (shape, devices, memory, work, period, result.bound, result.status, f"{seconds:.1f}", *theirs)
    least = "none of these" if enough is None else enough
    print(f"{shape} on {devices} devices: no bubble from memory {least} on", file=sys.stderr)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--devices", nargs="+", type=int, default=[4, 8])
    parser.add_argument("--memory", nargs=2, type=int, default=[1, 8], metavar=("LEAST", "MOST"))
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--tessel", type=Path, help="a checkout of Tessel")
    parser.add_argument("--python", default=sys.executable, help="a Python that has Tessel's packages")
    parser.add_argument("--tessel-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    if arguments.tessel is None:
        print("without --tessel PATH its own search is left out", file=sys.stderr)
    elif not (arguments.tessel / _CASES).is_file():
        print(f"no {_CASES} in {arguments.tessel}; its own search is left out", file=sys.stderr)
        arguments.tessel = None
    asked = product(arguments.devices, arguments.shapes)
    print_table(HEADS, (row for devices, shape in asked for row in rows(arguments, shape, devices)))


if __name__ == "__main__":
    main()
