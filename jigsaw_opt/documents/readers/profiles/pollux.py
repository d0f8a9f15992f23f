"""Profiles of Pollux (OSDI 2021) and Sia (SOSP 2023): a folder a model, measured step times and statistical efficiency.

``placements-GPU.csv`` and ``scalability-GPU.csv`` have seconds an iteration (``step_time``, of which ``sync_time``
exchanges gradients) by placement and samples a GPU; ``validation-BATCH.csv`` has the progress after each epoch, in
iterations of the smallest batch, and the gradient's squared norm and variance, from which its efficiency follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.table import JobTable, Row
from jigsaw_opt.errors import InvalidInputError, Problem, Problems, wrong_input

_LEAST_S = 1e-9
_LEAST_GRADIENT = 1e-100
_MOST_PROGRESS = 1e15
_BATCH = re.compile("[1-9][0-9]{0,14}")


@dataclass(frozen=True, slots=True)
class PolluxSample:
    """Seconds of an iteration at `local_batch` samples a GPU, and those of them in which gradients are exchanged."""

    local_batch: int
    step_s: float
    sync_s: float


Curve = tuple[PolluxSample, ...]
"""Samples of one placement in ascending order of their batch."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """Progress at the end of an epoch, and the gradient's statistics in it."""

    progress: float
    grad_sqr: float
    grad_var: float


@dataclass(frozen=True, slots=True)
class Application:
    """A model on one type of GPU.

    `name, gpu`: names of the folder and of the type of GPU in the files' names. `placements`: curves by GPUs on each
    server, rotated to the least sequence. `scaling`: curves by number of servers and of GPUs: means over the
    placements, and the measurements at scale. `epochs`: epochs by batch size over all GPUs.
    """

    name: str
    gpu: str
    placements: Mapping[tuple[int, ...], Curve]
    scaling: Mapping[tuple[int, int], Curve]
    epochs: Mapping[int, tuple[Epoch, ...]]

    @property
    def largest_local_batch(self) -> int:
        """Largest number of samples that a GPU was measured with."""
        return max(curve[-1].local_batch for curve in self.placements.values())


def read_applications(folder: Path, gpu: str) -> dict[str, Application]:
    """Read the profiles of all models that were measured on a type of GPU."""
    problems = Problems()
    found: dict[str, Application] = {}
    for path in sorted(folder.glob(f"*/placements-{gpu}.csv")):
        with problems.of(str(path)):
            found[path.parent.name] = _read_application(path.parent, gpu)
    problems.tell()
    if not found:
        raise wrong_input(str(folder), f"has no file */placements-{gpu}.csv", code="empty")
    return found


def _read_application(folder: Path, gpu: str) -> Application:
    problems = Problems()
    placements: dict[tuple[int, ...], list[PolluxSample]] = {}
    with problems.of(str(folder)):
        for row, sample in _samples(folder / f"placements-{gpu}.csv", "placement"):
            placements.setdefault(_placement(row), []).append(sample)
    scaling = _means(placements)
    path = folder / f"scalability-{gpu}.csv"
    if path.exists():
        with problems.of(str(folder)):
            for row, sample in _samples(path, "num_nodes", "num_replicas"):
                scaling.setdefault((row.integer("num_nodes"), row.integer("num_replicas")), []).append(sample)
    epochs: dict[int, tuple[Epoch, ...]] = {}
    with problems.of(str(folder)):
        for size, path in _validations(folder):
            with problems.of(str(path)):
                epochs[size] = _epochs(path)
    problems.tell()
    return Application(
        folder.name,
        gpu,
        {key: _curve(samples) for key, samples in placements.items()},
        {key: _curve(samples) for key, samples in scaling.items()},
        epochs,
    )


def _placement(row: Row) -> tuple[int, ...]:
    """Return the GPUs on each server, a digit each."""
    digits = tuple(map(int, str(row.integer("placement"))))
    if 0 in digits:
        row.add("placement has a server without GPUs", code="empty")
    return digits


def _validations(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of epochs, by batch size."""
    paths = list(folder.glob("validation-*.csv"))
    wrong = [path for path in paths if not _BATCH.fullmatch(path.stem.partition("-")[2])]
    if wrong or not paths:
        raise InvalidInputError(
            [
                Problem(str(path), "is called after no batch size, as in validation-128.csv", code="malformed")
                for path in sorted(wrong)
            ]
            or [Problem(str(folder), "has no file validation-*.csv", code="empty")]
        )
    return sorted((int(path.stem.partition("-")[2]), path) for path in paths)


def _rows(path: Path, what: str, *columns: str) -> Iterator[Row]:
    """Yield the rows of a table, at least one, and raise what is noted of any."""
    table = JobTable(read_text(path), str(path), columns, strict=True)
    row = None
    for row in table:
        yield row
    if row is None:
        table.lines.add(None, f"has no {what}", code="empty")
    table.lines.raise_if_any()


def _samples(path: Path, *keys: str) -> Iterator[tuple[Row, PolluxSample]]:
    for row in _rows(path, "measurement", *keys, "local_bsz", "step_time", "sync_time"):
        yield row, PolluxSample(row.integer("local_bsz"), row.real("step_time", _LEAST_S), row.real("sync_time"))


def _epochs(path: Path) -> tuple[Epoch, ...]:
    epochs: list[Epoch] = []
    for row in _rows(path, "epoch", "progress", "grad_sqr", "grad_var"):
        epoch = Epoch(row.real("progress"), row.real("grad_sqr"), row.real("grad_var"))
        if row.good and not (epochs[-1].progress if epochs else 0.0) < epoch.progress <= _MOST_PROGRESS:
            row.add(f"progress does not grow, or beyond {_MOST_PROGRESS:g}: {epoch.progress:g}", code="out-of-range")
        if row.good and epoch.grad_sqr + epoch.grad_var < _LEAST_GRADIENT:
            row.add("the gradient has neither norm nor variance", code="missing-field")
        epochs.append(epoch)
    return tuple(epochs)


def _means(placements: Mapping[tuple[int, ...], list[PolluxSample]]) -> dict[tuple[int, int], list[PolluxSample]]:
    """Return the mean times of all placements with as many servers and GPUs, by samples a GPU."""
    groups: dict[tuple[int, int], dict[int, list[PolluxSample]]] = {}
    for placement, samples in placements.items():
        group = groups.setdefault((len(placement), sum(placement)), {})
        for sample in samples:
            group.setdefault(sample.local_batch, []).append(sample)
    return {key: [_mean(batch, samples) for batch, samples in group.items()] for key, group in groups.items()}


def _mean(local_batch: int, samples: list[PolluxSample]) -> PolluxSample:
    count = len(samples)
    return PolluxSample(local_batch, sum(s.step_s for s in samples) / count, sum(s.sync_s for s in samples) / count)


def _curve(samples: list[PolluxSample]) -> Curve:
    return tuple(sorted(samples, key=lambda sample: sample.local_batch))
