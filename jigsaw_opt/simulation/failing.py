"""What is down while a simulation runs, and what jobs have lost by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from jigsaw_opt.simulation.invariants import check_gpu_time
from jigsaw_opt.simulation.outages import OutageEvent, down_gpu_us
from jigsaw_opt.simulation.plain import NumberLimits, Plain, Shape, fields, listed, rows, whole
from jigsaw_opt.simulation.policy import Setting
from jigsaw_opt.simulation.records import Loss
from jigsaw_opt.simulation.running import Running

__all__ = ["Failing"]


class Failing:
    """The failures of a simulation up to now; without any in the setting nothing ever happens here.

    Parameters
    ----------
    setting
        What is simulated.

    Attributes
    ----------
    down
        GPUs of servers that are down.
    stopped
        Jobs that failures have stopped since the policy was last asked.
    losses
        What jobs have lost, by number.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._events = _events(setting)
        self._next = next(self._events, None)
        self._count = 0
        self._servers: set[int] = set()
        self.down: frozenset[int] = frozenset()
        self.stopped: list[int] = []
        self.losses: dict[int, Loss] = {}

    @property
    def next_us(self) -> int | None:
        """When something fails or comes back next."""
        return None if self._next is None else self._next.time_us

    @property
    def all_down(self) -> bool:
        """Whether there is no GPU that is up."""
        return len(self.down) == self._setting.gpu_count

    def advance(self, now_us: int) -> bool:
        """Let everything fail and come back that does so by now; says whether anything did."""
        before = self._count
        while self._next is not None and self._next.time_us <= now_us:
            self._count += 1
            (self._servers.add if self._next.down else self._servers.discard)(self._next.number)
            self._next = next(self._events, None)
        if self._count == before:
            return False
        self.down = frozenset(chain.from_iterable(self._setting.gpus_of[k] for k in self._servers))
        return True

    def stop(self, running: Running) -> None:
        """Note that a settled job lost its GPUs, and take from it what it has done since its last checkpoint."""
        active = running.active
        loss = self.losses.get(active.index, Loss())
        self.losses[active.index] = Loss(loss.stops + 1, loss.gpu_us + active.gpu_us - running.saved_gpu_us)
        active.done = running.done = running.saved
        self.stopped.append(active.index)

    def check(self, held_us: int, now_us: int) -> None:
        """Check, of a simulation that is closed, that GPU time held, lost and down adds up; see `check_gpu_time`."""
        cluster, first_us = self._setting.cluster, self._setting.workload.jobs[0].submit_us
        span_us = max(0, now_us - first_us)
        down_us = down_gpu_us(self._setting.failures, cluster, first_us, now_us)
        lost_us = sum(loss.gpu_us for loss in self.losses.values())
        check_gpu_time(held_us, lost_us, down_us, span_us * self._setting.gpu_count)

    # Putting aside ------------------------------------------------------------------------------------------

    def plain(self, running: Mapping[int, Running]) -> Plain:
        """How many events there were, and what follows from no event: losses and checkpoints."""
        return {
            "events": self._count,
            "stopped": list(self.stopped),
            "losses": [{"job": index, **loss._asdict()} for index, loss in self.losses.items()],
            "saved": [[one.saved, one.saved_gpu_us] for one in running.values()],
        }

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """What `plain` gives."""
        loss = fields(job=limits.job, stops=whole(), gpu_us=limits.service)
        return fields(events=whole(), stopped=listed(limits.job), losses=listed(loss), saved=rows(2, whole()))

    def restore(self, tree: Plain, now_us: int, running: Mapping[int, Running], active: Iterable[int]) -> None:
        """Go on from what `plain` gave.

        Raises
        ------
        ValueError
            No simulation of this setting has it.
        """
        while self._count < tree["events"] and self._next is not None and self._next.time_us <= now_us:
            self.advance(self._next.time_us)
        if self._count != tree["events"]:
            raise ValueError(f"{tree['events']} events up to now cannot be")
        if len(tree["saved"]) != len(running):
            raise ValueError("saved: is not one row a running job")
        for (saved, gpu_us), one in zip(tree["saved"], running.values(), strict=True):
            if saved > one.done or gpu_us > one.active.gpu_us:
                raise ValueError(f"saved: job {one.active.job.name!r} has saved more than it has done")
            one.saved, one.saved_gpu_us = saved, gpu_us
        waiting = set(active) - running.keys()
        if len(set(tree["stopped"])) < len(tree["stopped"]) or not waiting.issuperset(tree["stopped"]):
            raise ValueError("stopped: not every job waits, or one is there twice")
        self.stopped = list(tree["stopped"])
        self.losses = {one["job"]: Loss(one["stops"], one["gpu_us"]) for one in tree["losses"]}
        if len(self.losses) < len(tree["losses"]):
            raise ValueError("losses: a job is there twice")


def _events(setting: Setting) -> Iterator[OutageEvent]:
    return iter(()) if setting.failures is None else setting.failures.events.of(setting.cluster)
