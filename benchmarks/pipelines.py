"""Pipelines with memory: our periods beside the spans of the zero-bubble heuristic.

Run it as ``python benchmarks/pipelines.py [--solver auto] [--seconds 20] [--sizes 8x24]``. Costs, memory and the
heuristic's spans are read from ``pipeline/reference_results.json`` of the measured data (``JIGSAW_SHARED``). Each entry
becomes one job on the cyclic horizon: a slot a stage, and for each micro-batch a forward pass, the gradient of its
input and that of its weights. The pipeline flushes once a period, so the period is the longest time from the first
block of a stage to its last one, which is how the heuristic's span is defined.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common import print_table, shared

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
    TaskGraphTransfer,
)
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

HEADS = ("stages", "micro-batches", "f, b, w, comm", "memory", "heuristic", "period", "bound", "ratio")


def zero_bubble(entry: Mapping[str, Any]) -> Instance:
    """The instance of an entry: stages, micro-batches, costs and memory."""
    stages, batches = entry["p"], entry["m"]
    slots = tuple(Slot(f"s{stage}") for stage in range(stages))
    times = {"F": entry["f"], "B": entry["b"], "W": entry["w"]}
    at = [(batch, stage) for batch in range(batches) for stage in range(stages)]
    blocks = [TaskGraphBlock(f"{kind}{b}.{s}", (f"s{s}",), {"gpu": times[kind]}) for b, s in at for kind in times]
    edges = [Edge(f"{one}{b}.{s}", f"{other}{b}.{s}") for b, s in at for one, other in ("FB", "BW")]
    transfers = []
    for batch, stage in at:
        neighbours = (("F", stage + 1, stage + 1 < stages), ("B", stage - 1, stage > 0))
        for kind, other, there in neighbours:
            if there:
                name = f"{kind}{batch}.{stage}-{other}"
                transfers.append(TaskGraphTransfer(name, 0, f"s{stage}", f"s{other}"))
                edges += [Edge(f"{kind}{batch}.{stage}", name), Edge(name, f"{kind}{batch}.{other}")]
    # What a forward pass takes is freed in part by each of the gradients.
    freed = {"B": -entry["mem_b"], "W": -entry["mem_w"]}
    if sum(freed.values()) != entry["mem_f"]:
        raise ValueError("the two gradients free what the forward pass takes")
    holds = tuple(MemoryInterval(f"F{b}.{s}", f"{kind}{b}.{s}", freed[kind]) for b, s in at for kind in freed)
    shape = TaskGraph(slots, tuple(blocks), tuple(transfers), tuple(edges), "slot", holds)
    cluster = Cluster((Server("server", "gpu", stages, entry["max_mem"], 10**12, entry["comm"]),))
    name = f"zero bubble {stages} x {batches}"
    return Instance(name, cluster, {}, (TaskGraphJob("pipeline", shape, 1),), "cyclic", "period")


def rows(entries: list[dict[str, Any]], solver: str, seconds: float) -> Iterator[Sequence[object]]:
    """Rows of the table, each once it is there."""
    for entry in entries:
        result = solve(zero_bubble(entry), solver, Options(time_limit=seconds, threads=2))
        span, period = entry["heuristic_span"], result.objective
        costs = ", ".join(str(entry[key]) for key in ("f", "b", "w", "comm"))
        memory = f"{entry['max_mem'] / entry['mem_f']:.1f}"
        ratio = "-" if period is None else f"{period / span:.4f}"
        yield (entry["p"], entry["m"], costs, memory, span, period, result.bound, ratio)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--most", type=int, default=10**9, help="entries of at most so many blocks")
    parser.add_argument("--sizes", nargs="*", default=[], help="only entries of these, such as 8x24; default: all")
    parser.add_argument("--every", type=int, default=1, help="only each so-many-th of these")
    arguments = parser.parse_args()
    entries = json.loads(shared("pipeline/reference_results.json").read_text(encoding="utf-8"))["zero_bubble"]
    chosen = [entry for entry in entries if 3 * entry["p"] * entry["m"] <= arguments.most and entry["heuristic_span"]]
    if arguments.sizes:
        chosen = [each for each in chosen if f"{each['p']}x{each['m']}" in arguments.sizes]
    print_table(HEADS, rows(chosen[:: arguments.every], arguments.solver, arguments.seconds))


if __name__ == "__main__":
    main()
