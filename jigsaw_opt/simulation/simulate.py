"""One call that simulates a workload on a cluster from start to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Unpack

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import argument, out_of_range
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.simulation.engine.recorded import simulation_of
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.request import GivenParts, GivenWorkload, SimulationRequest, read_setting
from jigsaw_opt.simulation.results.folder import ResultFolder
from jigsaw_opt.simulation.results.result import SimulationResult, result_of
from jigsaw_opt.system.interrupts import on_interrupt


@typed
def simulate(
    workload: GivenWorkload,
    cluster: str | Cluster | Instance,
    policy: str | Policy = "fifo",
    *,
    until_us: int | None = None,
    cancel: threading.Event | None = None,
    folder: str | Path | ResultFolder | None = None,
    watch: Callable[[Simulation], None] | None = None,
    **part: Unpack[GivenParts],
) -> SimulationResult:
    """Replay a workload on a cluster under a policy: each is an object, or text as on the command line.

    Parameters
    ----------
    workload, cluster, policy
        As in `SimulationRequest`.
    until_us, cancel
        Time of the workload, in microseconds, and an event set by another thread, that end it before all jobs have.
        So does a first Ctrl-C or SIGTERM in the main thread.
    folder
        Where its tables are written, or a snapshot where it is cancelled; None for nowhere.
    watch
        Receives the simulation before its first event, and before each of the others.
    **part
        Other parts one by one, as in ``round_s=1``: those of `SimulationRequest`.

    Returns
    -------
    SimulationResult
        The measures, and tables of jobs and rounds.

    Raises
    ------
    UsageError, InvalidInputError
        Parts are wrong; the error lists every problem of each.
    JigsawError
        The policy breaks a rule, or leaves jobs waiting for ever.
    """
    if until_us is not None and until_us < 0:
        raise out_of_range("until_us", f"{argument('until_us')} is at least 0, not {until_us}")
    cancel = cancel or threading.Event()
    asked = SimulationRequest(workload, cluster, policy, **part)
    place = folder if isinstance(folder, ResultFolder | None) else ResultFolder(Path(folder))
    if place is not None:
        place.require()
    setting = read_setting(asked)
    simulation = simulation_of(setting) if place is None else place.begin(setting)
    if watch is not None:
        watch(simulation)

    def stop() -> bool:
        if watch is not None:
            watch(simulation)
        return cancel.is_set()

    with nullcontext() if place is None else place.alone(asked.files), on_interrupt(cancel.set):
        simulation.run(stop, until_us)
        if place is None:
            return result_of(simulation)
        return place.put_aside(simulation) if cancel.is_set() else place.write(simulation)
