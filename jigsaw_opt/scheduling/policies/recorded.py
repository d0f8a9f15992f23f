"""What the trace says happened: no policy, but what policies are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.errors import UsageError
from jigsaw_opt.scheduling.policy import ClusterSetting, Scheduler

__all__ = ["RECORDED"]


@dataclass(frozen=True, slots=True)
class _Recorded:
    name: str = "recorded"
    display_name: str = "what the trace says happened: its own starts and ends"

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        return {}

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> Scheduler:
        raise UsageError(
            "policy 'recorded' tells what a trace says happened, so it decides nothing of its own",
            code="unsupported",
            path="policy",
        )


RECORDED = _Recorded()
