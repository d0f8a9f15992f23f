"""Instances of the families with measured models in place of the estimated ones, to solve with `jigsaw bench`.

``python benchmarks/measured_models.py server:140 rack:132 -o out/measured``, then
``jigsaw bench out/measured/*.json --solvers auto``

Cluster and jobs are those of the family and the seed. Models are drawn from the profiles of PipeDream and DAPPLE, cut
into 3 to 7 segments. Their times count as those of a V100; on other types they are scaled by the data-sheet peaks, and
differ by up to 10 % a segment. GPUs have memory for everything, since jobs were placed for other models.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path

from common import shared

from jigsaw_opt.documents import encode_instance, write_atomically
from jigsaw_opt.documents.readers.pipedream import read_pipedream
from jigsaw_opt.instances import generate
from jigsaw_opt.instances.gpus import GPU_TYPES
from jigsaw_opt.problem import Instance, Model

MEASURED_ON = "v100"
SPREAD = 0.1
MEMORY = 10**12


def measured(path: Path, types: list[str], draw: random.Random) -> Model:
    """A measured model with times for all types."""
    model = read_pipedream(path.read_bytes(), MEASURED_ON, segments=draw.randint(3, 7), source=path.name)

    def times(base: int) -> dict[str, int]:
        peak = GPU_TYPES[MEASURED_ON].peak_flops
        return {
            t: max(1, round(base * peak / GPU_TYPES[t].peak_flops * draw.uniform(1 - SPREAD, 1 + SPREAD)))
            for t in types
        }

    segments = tuple(
        replace(s, forward_us=times(s.forward_us[MEASURED_ON]), backward_us=times(s.backward_us[MEASURED_ON]))
        for s in model.segments
    )
    return replace(model, segments=segments)


def instance_of(family: str, seed: int, profiles: list[Path]) -> Instance:
    """The instance of a family and a seed with other models."""
    instance, draw = generate(family, seed), random.Random(seed)
    types = sorted({server.gpu_type for server in instance.cluster.servers})
    models = {
        name: measured(path, types, draw)
        for name, path in zip(instance.models, draw.sample(profiles, len(instance.models)), strict=True)
    }
    servers = tuple(replace(server, gpu_memory=MEMORY) for server in instance.cluster.servers)
    name = f"{family}-{seed}-measured"
    return replace(instance, name=name, cluster=replace(instance.cluster, servers=servers), models=models)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="+", metavar="FAMILY:SEED")
    parser.add_argument("-o", "--output", type=Path, default=Path("out/measured"), metavar="FOLDER")
    asked = parser.parse_args()
    profiles = sorted(path for name in ("pipedream", "dapple") for path in shared("pipeline", name).glob("*.txt"))
    asked.output.mkdir(parents=True, exist_ok=True)
    for spec in asked.instances:
        family, _, seed = spec.partition(":")
        instance = instance_of(family, int(seed), profiles)
        path = asked.output / f"{instance.name}.json"
        write_atomically(path, encode_instance(instance))
        print(path)


if __name__ == "__main__":
    main()
