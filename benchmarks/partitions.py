"""Partitions into stages beside the answers of PipeDream's released optimiser: ``python benchmarks/partitions.py``.

The answers, and the CPU time that they took, are read from ``pipeline/reference_results.json`` of the measured data
(``JIGSAW_SHARED``). ``--headline`` prints the speed-ups over data parallelism that PipeDream's paper is known for
(Narayanan et al., SOSP'19, table 1), by the released costs and by those of the paper.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

from common import shared, timed

from jigsaw_opt.documents.readers import read_layer_graph
from jigsaw_opt.planning.partition import Level, Partition, Variant, partition
from jigsaw_opt.problem.layers import LayerGraph

GBIT = 125_000_000
CLUSTERS = {
    "4x4 (A)": [Level(4, 12_000_000_000), Level(4, 10 * GBIT)],
    "2x8 (B)": [Level(8, 30_000_000_000), Level(2, 25 * GBIT)],
}
"""PCIe and NVLink within servers are nominal rates; Ethernet between them is the paper's."""
HEADLINE = {
    ("vgg16", "4x4 (A)"): 5.28,
    ("vgg16", "2x8 (B)"): 2.98,
    ("resnet50", "4x4 (A)"): 1.0,
    ("resnet50", "2x8 (B)"): 1.0,
    ("alexnet", "4x4 (A)"): 4.92,
    ("alexnet", "2x8 (B)"): 2.04,
    ("gnmt", "4x4 (A)"): 2.34,
    ("gnmt", "2x8 (B)"): 3.14,
}
"""Epoch time of data parallelism over that of PipeDream, as its table 1 states it (GNMT-16 for gnmt)."""


def graph_of(name: str) -> LayerGraph:
    """The layers of a profile of the measured data."""
    return read_layer_graph(shared("pipeline", name).read_bytes(), source=name)


def answer(entry: dict[str, Any]) -> Partition:
    """Ours to what an answer was asked."""
    return partition(
        graph_of(entry["input"]),
        [Level(*each) for each in zip(entry["machines_per_level"], entry["bandwidth_bytes_per_s"], strict=True)],
        activations=entry["activation_comm_modelled"],
        replicate=not entry["no_replication"],
        memory=entry["memory_bytes"],
    )


def compare(entries: list[dict[str, Any]]) -> None:
    """All answers: the largest deviation, and CPU times where the released optimiser takes more than 10 s."""
    worst, wrong, total = 0.0, 0, 0.0
    for entry in entries:
        found, spent = timed(partial(answer, entry))
        total += spent
        deviation = abs(found.time_s / entry["pipeline_s_per_minibatch"] - 1)
        worst, wrong = max(worst, deviation), wrong + (deviation > 1e-6)
        if (entry.get("planner_cpu_s") or 0) > 10:
            machines = "x".join(map(str, entry["machines_per_level"]))
            share = spent / entry["planner_cpu_s"]
            print(f"{entry['input']:32} {machines:>5} {entry['planner_cpu_s']:8.1f} s {spent:6.2f} s {share:7.3f}")
    print(f"{len(entries)} answers, {wrong} differ by more than 1e-6, at most {worst:.1e}; {total:.1f} s of CPU in all")


def headline() -> None:
    """Speed-ups over data parallelism on PipeDream's clusters."""
    print(f"{'model':10} {'cluster':8} {'paper says':>10} {'released costs':>15} {'costs of the paper':>19}")
    for (model, cluster), stated in HEADLINE.items():
        row = [f"{model:10} {cluster:8} {stated:10.2f}"]
        variants: tuple[tuple[Variant, int], ...] = (("released", 15), ("paper", 19))
        for variant, width in variants:
            found = partition(graph_of(f"pipedream/{model}.graph.txt"), CLUSTERS[cluster], variant=variant)
            row.append(f"{found.data_parallel_s / found.time_s:{width}.2f}")
        print(" ".join(row))


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--headline", action="store_true", help="only the speed-ups of the paper's table")
    arguments = parser.parse_args()
    shared("pipeline")
    if not arguments.headline:
        compare(json.loads(shared("pipeline/reference_results.json").read_text(encoding="utf-8"))["pipedream"])
    headline()


if __name__ == "__main__":
    main()
