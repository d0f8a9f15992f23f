"""Checkpoints: each worker's state after so many iterations of its job, in a file of its own.

A job's checkpoint is whole when the files of all its workers are there. Each worker keeps its last two: no worker
can be a whole interval ahead of another of its job, so whatever happens there is one that is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from jigsaw_opt.documents import instance_sha256, make_folder, write_atomically
from jigsaw_opt.documents.file_bytes import read_file, remove_abandoned
from jigsaw_opt.documents.replay import plan_sha256
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, argument, wrong_input
from jigsaw_opt.executor.hosts.host import HostWorker
from jigsaw_opt.executor.schedules.request import ReplayRequest
from jigsaw_opt.executor.user_code.likeness import ANYTHING, UNREADABLE, compare
from jigsaw_opt.problem.rules.report import Report, describe

_FILE = re.compile(r"job(\d{1,9})-worker(\d{1,9})-iteration([1-9]\d{0,15})\.pt")
_KEPT = 2
_CALLED = {"lr": "learning rate"}
_LARGEST_STATEMENT = 2**20


class Checkpoint:
    """The checkpoint folder of a run.

    `folder`: shared by all processes, or one on each host. `request`: what the states belong to: instance, plan, and
    how jobs train.
    """

    def __init__(self, folder: Path, request: ReplayRequest) -> None:
        self._folder, self._statement = folder, folder / "checkpoint.json"
        self._made: list[Path] | None = None
        self._belongs = {
            "format": "jigsaw-checkpoint/1",
            "instance_sha256": instance_sha256(request.instance),
            "plan_sha256": plan_sha256(request.plan),
            "optimiser": request.optimiser,
            "options": dict(request.options),
            "averaging": request.averaging,
            "seed": request.seed,
        }

    def open(self, resume: bool) -> None:
        """Make the folder, or see that it is the one to go on from."""
        if resume:
            self._compare()
            remove_abandoned(self._folder)
            return
        if self._statement.exists():
            resumed = argument("resume", True)
            message = f"{self._folder} holds a checkpoint: go on from it with {resumed}, or name another folder"
            raise UsageError(message, code="unwritable", path="checkpoint")
        self._made = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
        make_folder(self._folder, [self._statement.name])
        write_atomically(self._statement, json.dumps(self._belongs, indent=2).encode())

    def withdraw(self) -> None:
        """Remove what `open` has made, as long as no worker is saved there."""
        if self._made is None or any(_FILE.fullmatch(path.name) for path in self._folder.iterdir()):
            return
        self._statement.unlink(missing_ok=True)
        for folder in self._made:
            with suppress(OSError):  # someone else has put something there
                folder.rmdir()

    def _compare(self) -> None:
        try:
            found = json.loads(read_file(self._statement, _LARGEST_STATEMENT))
        except (InvalidInputError, RecursionError, ValueError) as error:
            hint = f"the first run of all goes without {argument('resume', True)}"
            problem = Problem(str(self._statement), f"no checkpoint to go on from: {error}", hint, code="unreadable")
            raise InvalidInputError([problem]) from error
        before = dict(_entries(found)) if isinstance(found, dict) else {}
        differing = [
            Problem(
                f"{self._statement} {key}",
                f"is of another run: it was {_shown(before.get(key))}, not {_shown(value)}",
                code="mismatch",
            )
            for key, value in _entries(self._belongs)
            if key not in before or before[key] != value
        ]
        if differing:
            raise InvalidInputError(differing)

    def save(self, job: int, worker: HostWorker) -> None:
        """Write the state of a worker, and remove all but its last two."""
        data = BytesIO()
        torch.save(worker.state(), data)
        write_atomically(self._path(job, worker.number, worker.iteration), data.getvalue())
        for old in self._iterations(job, worker.number)[:-_KEPT]:
            self._path(job, worker.number, old).unlink(missing_ok=True)

    def last_whole(self, ranks: Sequence[Sequence[int]], control: dist.ProcessGroup) -> list[int]:
        """Return for each job the last iteration after which all its workers were saved; 0 if there is none."""
        rank = dist.get_rank()
        own = {
            (job, slot): self._iterations(job, slot)
            for job, processes in enumerate(ranks)
            for slot, process in enumerate(processes)
            if process == rank
        }
        found: list[Mapping[tuple[int, int], list[int]]] = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(found, own, control)
        saved = {key: iterations for part in found for key, iterations in part.items()}
        return [_last_common([saved[job, slot] for slot in range(len(own))]) for job, own in enumerate(ranks)]

    def saved(self, workers: Sequence[int]) -> list[int]:
        """Return, for each job of so many workers, after how many iterations all of them were last saved here."""
        return [_last_common([self._iterations(job, k) for k in range(count)]) for job, count in enumerate(workers)]

    def load(self, job: int, worker: HostWorker, iteration: int) -> None:
        """Set a worker back to its state after an iteration."""
        path = self._path(job, worker.number, iteration)
        try:
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
        except UNREADABLE as error:
            first = str(error).partition("\n")[0]
            hint = "it may be damaged: without this file --resume goes on from the last iteration that is whole"
            raise wrong_input(str(path), f"cannot be loaded: {first}", hint, code="unreadable") from error
        report = Report()
        own = worker.trained_state(iteration)
        compare(state, own, f"{path} $", report)
        report.raise_if_any()
        if state["iteration"] != iteration:
            report.add(f"{path} $.iteration", "is not that of the name of the file", code="mismatch")
        if own["optimiser"]["param_groups"] not in (ANYTHING, state["optimiser"]["param_groups"]):
            report.add(f"{path} $.optimiser", "has other options", code="mismatch")
        report.raise_if_any()
        try:
            worker.load(state)
        except (*UNREADABLE, UsageError) as error:
            first = str(error).partition("\n")[0]
            raise wrong_input(str(path), f"does not fit the training: {first}", code="mismatch") from error

    def _path(self, job: int, slot: int, iteration: int) -> Path:
        return self._folder / f"job{job}-worker{slot}-iteration{iteration}.pt"

    def _iterations(self, job: int, slot: int) -> list[int]:
        """Return after which iterations a worker was saved, ascending."""
        matches = (_FILE.fullmatch(path.name) for path in self._folder.iterdir())
        numbers = (tuple(map(int, match.groups())) for match in matches if match)
        return sorted(number[2] for number in numbers if number[:2] == (job, slot))


def _last_common(saved: Sequence[Sequence[int]]) -> int:
    """Return the last iteration after which all workers were saved; 0 for none."""
    return max(set.intersection(*map(set, saved)), default=0)


def _entries(statement: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a run belongs to by name; each option of the optimiser by its own, as the command line calls it."""
    for key, value in statement.items():
        if isinstance(value, dict):
            yield from ((_CALLED.get(str(name), str(name)), one) for name, one in value.items())
        else:
            yield str(key), value


def _shown(value: Any) -> str:
    """Return a value in a few characters."""
    return f"{value:g}" if isinstance(value, float) else describe(value)
