"""Every workload by every policy and seed: one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from jigsaw_opt.documents import exists, make_folder
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.simulation.engine.setting import reading_told
from jigsaw_opt.simulation.inputs.request import GivenParts, GivenWorkload, SimulationRequest
from jigsaw_opt.simulation.results.folder import ResultFolder
from jigsaw_opt.sweeps.assumptions import assumed_in_sweep
from jigsaw_opt.sweeps.folder import ROWS, TABLES, SweepTables, sweep_into
from jigsaw_opt.sweeps.simulations import SIMULATIONS, simulations
from jigsaw_opt.sweeps.task import InProcess, SweepEngine
from jigsaw_opt.system.interrupts import on_interrupt

PAGE = "report.html"


def simulate_all(
    workloads: Sequence[GivenWorkload],
    cluster: str | Cluster | Instance,
    policies: Sequence[str | Policy],
    seeds: Sequence[int] | None = None,
    *,
    folder: str | Path,
    force: bool = False,
    engine: SweepEngine | None = None,
    report: Callable[[Mapping[str, Any], int, int], None] = lambda *_: None,
    tell: Callable[[str], None] = lambda _: None,
    cancel: threading.Event | None = None,
    **part: Unpack[GivenParts],
) -> SweepTables:
    """Simulate every workload under every policy with every seed, but for what the folder has a row of.

    Parameters
    ----------
    workloads, cluster, policies
        As in `SimulationRequest`.
    seeds
        Seeds of draws; None for the one of `SimulationRequest`.
    folder, force
        Where rows are kept, from which the same call goes on, and tables of them are written; whether to replace the
        results of another run in it.
    engine
        What runs the simulations; None for this process.
    report
        Receives each new row, how many simulations have one, and how many there are.
    tell
        Receives sentences on what was left out of workloads, before the first simulation.
    cancel
        Set by another thread, it skips the rest; so does a first Ctrl-C or SIGTERM in the main thread.
    **part
        Other parts one by one, as in ``round_s=1``: those of `SimulationRequest`.

    Returns
    -------
    SweepTables
        A row a simulation, the means over the seeds, and what the figures rest on.

    Raises
    ------
    UsageError, InvalidInputError
        Parts are wrong; the error lists every problem of each.
    """
    place, cancel = Path(folder), cancel or threading.Event()
    # A sweep goes on from its own rows.
    ResultFolder(place, force=force or exists(place / ROWS)).require()
    base = SimulationRequest("", cluster, **part)
    tasks = simulations(base, workloads, policies, (base.seed,) if seeds is None else seeds)
    for line in reading_told(task.arguments[0] for task in tasks):
        tell(line)
    make_folder(place, (*TABLES, PAGE), [name for one in workloads for name in replace(base, workload=one).files])
    with on_interrupt(cancel.set):
        found = sweep_into(place, tasks, engine or InProcess(), SIMULATIONS, report, cancel.is_set)
    return found._replace(assumed=tuple(assumed_in_sweep(tasks, found.rows)))
