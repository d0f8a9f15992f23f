"""What is solved: an instance as a document, a seed, a time limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jigsaw_opt.documents import encode_instance, instance_sha256, write_atomically
from jigsaw_opt.instances import families, names, sets
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.problem import Instance


@dataclass(frozen=True, slots=True)
class Case:
    """An instance of a set or family as a document, with what a solve is given; one of the two limits is None."""

    group: str
    instance: Instance
    sha256: str
    document: Path
    solver: str
    seed: int
    time_limit: float | None
    work_limit: float | None
    workers: int

    @property
    def limit(self) -> str:
        """The limit with its unit."""
        return f"{self.work_limit:g} units" if self.time_limit is None else f"{self.time_limit:g} s"


def named(source: str) -> Iterator[tuple[str, Instance]]:
    """Group and instance of every instance that a source names.

    A source is what `jigsaw solve` takes, a set, or a family with a range of seeds: ``crowded:1000-1023:servers=4``.
    """
    family, _, rest = source.partition(":")
    seeds, colon, changes = rest.partition(":")
    first, dash, last = seeds.partition("-")
    if source in sets():
        yield from ((source, instance_from(name)) for name in names(source))
    elif family in families() and dash and first.isdecimal() and last.isdecimal():
        for seed in range(int(first), int(last) + 1):
            yield family, instance_from(f"{family}:{seed}{colon}{changes}")
    else:
        yield family.partition("/")[0], instance_from(source)


def cases(
    sources: Sequence[str],
    folder: Path,
    *,
    solver: str,
    seeds: Sequence[int],
    time_limits: Sequence[float],
    work_limits: Sequence[float],
    workers: int,
    most_gpus: int,
) -> list[Case]:
    """All cases under each limit, with the instances of at most `most_gpus` GPUs written to `folder` as documents."""
    folder.mkdir(parents=True, exist_ok=True)
    limits = [*((limit, None) for limit in time_limits), *((None, limit) for limit in work_limits)]
    found: list[Case] = []
    for group, instance in (pair for source in sources for pair in named(source)):
        if instance.cluster.gpu_count > most_gpus:
            continue
        sha256 = instance_sha256(instance)
        document = (folder / f"{instance.name}-{sha256[:8]}.json").resolve()
        if not document.exists():
            write_atomically(document, encode_instance(instance))
        found += [
            Case(group, instance, sha256, document, solver, seed, time_limit, work_limit, workers)
            for time_limit, work_limit in limits
            for seed in seeds
        ]
    return found
