"""The policies of the field, one module each, all of the shape of `fifo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from jigsaw_opt.errors import unsupported
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.placement.placing import too_wide
from jigsaw_opt.scheduling.policy import JOB_FIELDS, ClusterSetting, Policy, Scheduler, Stateless, find

__all__ = ["RECORDED", "NamedPolicy", "RigidScheduler"]

_Fields = frozenset[str] | Callable[[Mapping[str, str]], frozenset[str]]


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy whose options and fields are data; `start` is that of `Policy`.

    `shares_gpus`: whether it has several jobs share GPUs.
    """

    name: str
    display_name: str
    start: Callable[[ClusterSetting, Mapping[str, str]], Scheduler] = field(compare=False)
    options: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    reads: _Fields = frozenset()
    needs: _Fields = frozenset()
    shares_gpus: bool = False

    def __reduce__(self) -> tuple[Callable[[str], Policy], tuple[str]]:
        """Return how another process finds it: by its name."""
        return find, (self.name,)


@dataclass(slots=True)
class RigidScheduler(Stateless):
    """A policy at work that gives each job as many GPUs as it asks for.

    `policy`: its name in messages. `options`: a value for each of its options.
    """

    policy: ClassVar[str]
    setting: ClusterSetting
    options: Mapping[str, str]

    def refuses(self, job: TraceJob) -> str | None:
        """Return why a job can never run: it asks for more GPUs than there are of a type that it may have."""
        return too_wide(self.setting, self.policy, job)


def _start_recorded(setting: ClusterSetting, options: Mapping[str, str]) -> Scheduler:
    raise unsupported("policy", "policy 'recorded' tells what a trace says happened, so it decides nothing of its own")


_WORDS = "what the trace says happened: its own starts and ends"
RECORDED = NamedPolicy("recorded", _WORDS, _start_recorded, reads=frozenset(JOB_FIELDS))
"""The record of a trace as a policy: only what reads such a record can carry it out."""
