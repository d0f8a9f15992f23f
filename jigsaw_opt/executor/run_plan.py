"""One call that carries a plan out and measures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jigsaw_opt.checking import check
from jigsaw_opt.errors import CheckFailedError, UsageError, argument, require_a
from jigsaw_opt.executor import require_torch
from jigsaw_opt.executor.catalogue import require_entries, stages_entry
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.system.former_names import former_names

if TYPE_CHECKING:
    from jigsaw_opt.problem.replay import Replay

__all__ = ["run_plan"]

if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, {"run_phased_plan": "run_plan", "PhasedReplayRequest": "ReplayRequest"})


def run_plan(request: ReplayRequest) -> Replay | None:
    """Carry a plan out with PyTorch, one process a GPU: groups side by side, each phase after the one before it.

    Ctrl-C ends it with `KeyboardInterrupt`; no process is left.

    Parameters
    ----------
    request
        The plan, and how.

    Returns
    -------
    Replay or None
        What was measured; None in all processes but the first one, where torchrun has started them.

    Raises
    ------
    UsageError
        With everything in the request that is out of range or does not fit together.
    CheckFailedError
        The plan breaks a rule.
    InvalidInputError
        A shaped job is no pipeline, or not alone; models do not say how they are built, or a checkpoint is not there;
        with every problem.
    MissingEngineError
        PyTorch is not installed.
    RunFailedError
        A process was killed, a model raised, or a loss is no number. No process is left.
    """
    require_a(ReplayRequest, request)
    problems = tuple(request.problems())
    if problems:
        raise UsageError(*problems)
    violations = check(request.instance, request.plan)
    if violations:
        raise CheckFailedError(f"the plan is wrong in {len(violations)} place(s), first {violations[0]}")
    entry = stages_entry(request.instance, request.trusted, request.cuts)
    if entry is None:
        require_entries(request.instance, request.trusted)
    else:
        _require_whole(request)
    require_torch()
    from jigsaw_opt.executor.devices import device_of
    from jigsaw_opt.executor.pipeline.launch import replay_stages
    from jigsaw_opt.executor.replay.launch import replay

    device_of(request.device)  # refuses one that is not there
    return replay(request) if entry is None else replay_stages(request, entry)


def _require_whole(request: ReplayRequest) -> None:
    """Refuse what only data-parallel jobs have."""
    wrong = []
    if request.baseline is not None:
        wrong.append("a baseline is for data-parallel jobs")
    if request.device == "cuda" and request.backend != "nccl":
        backend = argument("backend", "nccl")
        wrong.append(f"stages on CUDA send what they have by NCCL, with a device for each process: {backend}")
    if wrong:
        raise UsageError(*wrong)
