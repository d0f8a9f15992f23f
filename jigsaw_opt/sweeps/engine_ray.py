"""Tasks on an existing Ray cluster (extra ``ray``); results come back to the driver, which keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from jigsaw_opt.errors import UsageError
from jigsaw_opt.sweeps.task import SweepTask, TaskOutcome, never
from jigsaw_opt.system.ray_cluster import cause, joined, require_cluster

_IN_FLIGHT = 1000
"""Tasks handed to Ray at once: enough to keep a cluster busy, and their arguments still fit in memory."""
_LOOK_SECONDS = 0.1


class RayEngine:
    """A Ray cluster that is running already.

    Every node needs this package and the modules of the tasks. Each task runs in a new process, so its peak of memory
    is its own.

    `address`: address of the cluster, as ``10.0.0.1:6379``, or ``auto`` for the one that this machine belongs to.
    `cores`: CPU cores that a task reserves; as many tasks run at once as the nodes have room for. `attempts`: how often
    a task is started whose node or process dies before it has a result. More than on one machine, as on many a death is
    more often another's fault.
    """

    def __init__(self, address: str, cores: int = 1, attempts: int = 4) -> None:
        require_cluster(address)
        self.address, self.cores, self.attempts = address, cores, attempts

    def run(
        self, tasks: Sequence[SweepTask], stopped: Callable[[], bool] = never
    ) -> Generator[TaskOutcome, None, None]:
        """Yield the outcome of every task, in the order in which they end, until it is stopped."""
        import ray
        from ray.exceptions import RayError

        with joined(self.address):
            self._require_cores()
            waiting = deque((task, 1) for task in tasks)
            running: dict[Any, tuple[SweepTask, int]] = {}
            while (waiting or running) and not stopped():
                while waiting and len(running) < _IN_FLIGHT:
                    task, number = waiting.popleft()
                    running[self._submitted(task)] = task, number
                for reference in ray.wait(list(running), timeout=_LOOK_SECONDS)[0]:
                    task, number = running.pop(reference)
                    try:
                        outcome = TaskOutcome(task, ray.get(reference))
                    except RayError as error:
                        if number < self.attempts:
                            waiting.append((task, number + 1))
                            continue
                        outcome = TaskOutcome(task, error=cause(error))
                    yield outcome

    def _submitted(self, task: SweepTask) -> Any:
        import ray

        remote: Any = ray.remote
        # With retries of its own Ray would start a task that its memory monitor has killed again without end.
        options = {"num_cpus": self.cores, "max_retries": 0, "max_calls": 1, "name": task.key}
        return remote(**options)(task.function).remote(*task.arguments)

    def _require_cores(self) -> None:
        """Refuse a task that fits no node: it would wait for ever."""
        import ray

        nodes: Any = ray.nodes
        most = max((node["Resources"].get("CPU", 0) for node in nodes() if node["Alive"]), default=0)
        if most < self.cores:
            told = f"a task takes {self.cores} cores, but no node of the Ray cluster has more than {most:g}"
            raise UsageError(told, code="does-not-fit", path="cores")
