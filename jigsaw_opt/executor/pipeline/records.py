"""What the processes of a pipeline hand over. Needs no torch.

Moments are microseconds after the begin of the run, on the clock of the first process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Action", "StageReport", "StepRecord"]

Action = tuple[str, int, int]
"""What PyTorch calls it, and the moments of its begin and its end."""


@dataclass(frozen=True)
class StepRecord:
    """What one process did in a step.

    Parameters
    ----------
    iteration
        Number of the step.
    actions, receipts
        Passes in the order in which they ran, and waits for what others have sent.
    loss
        Mean over all micro-batches; None where the last stage is elsewhere.
    """

    iteration: int
    actions: list[Action]
    receipts: list[Action]
    loss: float | None


@dataclass(frozen=True)
class StageReport:
    """What one process found.

    Parameters
    ----------
    steps
        One behind the other.
    origins_us
        When each pass of a finite plan began.
    passes
        How many there were, earlier runs included; None where the run was interrupted.
    digests
        By stage, that of its parameters at the end; empty after an interrupt.
    memory_bytes
        The most that it held.
    saves
        Start and end of the writing of each checkpoint.
    """

    steps: list[StepRecord] = field(default_factory=list)
    origins_us: list[int] = field(default_factory=list)
    passes: int | None = None
    digests: dict[int, str] = field(default_factory=dict)
    memory_bytes: int = 0
    saves: list[tuple[int, int]] = field(default_factory=list)
