"""Reading and writing `jigsaw-partition/1`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.recognising import expecting
from jigsaw_opt.planning.partition.costs import Level
from jigsaw_opt.planning.partition.result import OuterStage, Partition, Stage
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.rules.structure import structure

__all__ = ["decode_partition", "partition_tree"]

Json = dict[str, Any]


def partition_tree(partition: Partition) -> Json:
    """Return the document of a partition, as what JSON is made of."""
    return {"format": "jigsaw-partition/1", **asdict(partition)}


def decode_partition(data: bytes | str, source: str = "$") -> Partition:
    """Read a partition document."""
    with expecting(data, source, "partition"):
        tree = parsed(data, source, _check)
    return Partition(
        tree["variant"],
        tree["activations"],
        tuple(Level(**level) for level in tree["levels"]),
        tree["time_s"],
        tree["data_parallel_s"],
        tree["single_worker_s"],
        tuple(Stage(**{**stage, "nodes": tuple(stage["nodes"])}) for stage in tree["stages"]),
        tuple(OuterStage(**{**stage, "stages": tuple(stage["stages"])}) for stage in tree["outer"]),
        tree["noam"],
        tree["prefixes"],
        tree.get("latency_us", 0),
        None if (ends := tree.get("time_range_s")) is None else (ends[0], ends[1]),
    )


def _check(tree: Json, report: Report) -> None:
    structure("partition")(tree, "$", report)
