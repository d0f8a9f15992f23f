"""What the processes of a job in stages note of its steps. Needs no torch.

Moments are microseconds after the begin of the run, on the clock of the first process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Action", "StepRecord"]

Action = tuple[str, int, int]
"""What PyTorch calls it, and the moments of its begin and its end."""


@dataclass(frozen=True)
class StepRecord:
    """The record of one process in a step.

    `actions, receipts`: passes in the order in which they ran, and waits for what others have sent. `loss`: mean over
    all micro-batches; None where the last stage is elsewhere.
    """

    iteration: int
    actions: list[Action]
    receipts: list[Action]
    loss: float | None

    def since(self, begin_us: int) -> StepRecord:
        """Return the same with moments that count from another one."""
        actions, receipts = (
            [(name, start - begin_us, end - begin_us) for name, start, end in kept]
            for kept in (self.actions, self.receipts)
        )
        return replace(self, actions=actions, receipts=receipts)
