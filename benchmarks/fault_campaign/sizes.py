"""Valid instances of great size: each solver ends within its limit and its memory, with a documented exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import documents
from .contract import Campaign, Part, Trial, first
from .documents import LARGEST, Json, instance, job, models, servers, written
from .launch import GIBIBYTE, Ended, failure, late, run_jigsaw, start_seconds
from .solvers import SOLVERS

__all__ = ["SIZES", "unlawful"]

_LIMIT, _PATIENCE = 3.0, 25.0
_SOLVERS = 3
"""How many solvers try each instance, at scale 1."""
_MEMORY = 4 * GIBIBYTE
_JOBS, _SEGMENTS, _ITERATIONS = 100_000, 2_000, 1_000_000


def sizes(campaign: Campaign) -> Iterator[Trial]:
    """Huge numbers and huge lists; below scale 1 fewer solvers for each."""
    random = campaign.random("sizes")
    for fault, document, codes, patience in _huge():
        folder = campaign.fresh("sizes")
        file = written(document, folder / "instance.json")
        reading = run_jigsaw("validate", file, folder=folder, timeout=_PATIENCE, memory=_MEMORY).seconds
        for solver in random.sample(SOLVERS, min(len(SOLVERS), campaign.times(_SOLVERS))):
            start = start_seconds(folder)
            ended = run_jigsaw(
                *("solve", file, "--solver", solver, "--time-limit", _LIMIT, "-q", "-o", folder / "plan.json"),
                folder=folder,
                timeout=_PATIENCE + reading,
                memory=_MEMORY,
            )
            wrong = first(unlawful(ended, codes), late(ended, patience, start + reading))
            yield _trial(f"{fault}: {solver}", ended, wrong, file)


def unlawful(ended: Ended, codes: set[int]) -> str:
    """What no solve may show; an error is one line beside the problems that it lists."""
    lines = ended.err.strip().splitlines()
    long = [line for line in lines if len(line) > 1000]
    return first(failure(ended, codes), f"a line of {len(long[0])} characters" if long else "")


def _trial(fault: str, ended: Ended, wrong: str, file: Path) -> Trial:
    small = file.stat().st_size < 2**20
    return Trial(fault, wrong, ended.command, ended.seconds, ended.mebibytes, files=(file,) if small else ())


def _huge() -> Iterator[tuple[str, Json, set[int], float]]:
    """What is huge, its document, the exit codes that make sense, and seconds: 0 where no search is needed."""
    free = {"rule": "free"}
    yield "2^53 - 1 workers on two GPUs", instance([job(workers=LARGEST)]), {4}, 0.0
    yield "a server of 2^53 - 1 GPUs", instance([job(workers=2)], servers(LARGEST)), {0, 3, 5}, _LIMIT
    yield "a server of 10^7 GPUs", instance([job(workers=2)], servers(10**7)), {0, 3, 5}, _LIMIT
    yield f"{_JOBS} small jobs", documents.machines(_JOBS), {0, 5}, _LIMIT
    yield f"{_SEGMENTS} segments", instance([job(workers=2, depth=free)] * 1, nets=models(_SEGMENTS)), {0, 5}, _LIMIT
    yield "10^6 iterations", instance([job(workers=2, iterations=_ITERATIONS), job("b")]), {0, 5}, _LIMIT
    yield "2^53 - 1 iterations", instance([job(iterations=LARGEST)]), {0, 3, 5}, _LIMIT
    heavy = [job(f"j{k}", 1 + k % 2, 2, weight=LARGEST - k) for k in range(20)]
    yield "weights of 2^53 - 1", instance(heavy, objective="weighted_completion"), {0, 5}, _LIMIT


SIZES = Part("sizes", "instances of any size end within 1.05 t + 1 s and 4 GiB, with a documented exit code", sizes)
