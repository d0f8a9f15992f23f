"""Many simulations in one call: every workload by every policy and seed, and what another policy would save."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents import exists, make_folder, require_writable
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.simulation.engine.setting import reading_told
from jigsaw_opt.simulation.inputs.request import GivenParts, GivenWorkload, SimulationRequest
from jigsaw_opt.simulation.results.folder import ResultFolder
from jigsaw_opt.sweeps.advice import Advice, Advisor
from jigsaw_opt.sweeps.advice_words import advice_document
from jigsaw_opt.sweeps.assumptions import assumed_in_sweep
from jigsaw_opt.sweeps.folder import ROWS, TABLES, SweepTables, sweep_into
from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.simulations import SIMULATIONS, is_row, simulations
from jigsaw_opt.sweeps.task import InProcess, SweepEngine, sweep
from jigsaw_opt.system.interrupts import on_interrupt
from jigsaw_opt.text import Tell, say_nothing

PAGE, DOCUMENT, REPORT = "advice.html", "advice.json", "report.html"
"""Pages and documents in the folders of advice and of sweeps, beside their rows."""


@dataclass(frozen=True, slots=True)
class PolicyAdvice:
    """Advice with all its figures as values of JSON; its text is the answer in sentences."""

    advice: Advice
    document: Mapping[str, Any]

    @property
    def best(self) -> str | None:
        """The policy with the best mean of the measure, in words; None where no simulation has ended."""
        return self.advice.best

    def __str__(self) -> str:
        told = self.document
        return "\n".join(filter(None, (told["calibration"], told["headline"], *told["who_loses"])))


@typed
def advise(
    workload: GivenWorkload,
    cluster: str | Cluster | Instance,
    policies: Sequence[str] | None = None,
    *,
    baseline: str | None = None,
    seeds: Sequence[int] | None = None,
    measure: str = "mean_completion_h",
    folder: str | Path | None = None,
    engine: SweepEngine | None = None,
    report: Callable[[Mapping[str, Any], int, int], None] = lambda *_: None,
    tell: Tell = say_nothing,
    cancel: threading.Event | None = None,
    **part: Unpack[GivenParts],
) -> PolicyAdvice:
    """Return what other policies would save on a workload, and which settings that depends on most.

    Parameters
    ----------
    workload, cluster
        As in `SimulationRequest`.
    policies
        Policies to compare, as ``NAME:OPTION=VALUE...``; None for all that work with the workload.
    baseline
        The policy in use now; None for what the trace says happened, where it tells all starts and ends, else ``fifo``.
    seeds
        Seeds of draws; None for three, or one where nothing is drawn.
    measure
        What ranks the policies.
    folder
        Where rows are kept, for the same call to go on from; None for nowhere.
    engine, report, tell, cancel
        As in `simulate_all`.
    **part
        Other parts one by one, as in ``round_s=1``: those of `SimulationRequest`.

    Returns
    -------
    PolicyAdvice
        The best policy, what each comes to, and what changes of settings do.

    Raises
    ------
    UsageError, InvalidInputError
        Parts are wrong; the error lists every problem of each.
    """
    if folder is not None:
        require_writable(Path(folder) / PAGE)
    base = SimulationRequest(workload, cluster, **part)
    advisor = Advisor(base, baseline, policies, seeds, measure)
    for line in reading_told(advisor.compared()):
        tell(line)
    engine, cancel = engine or InProcess(), cancel or threading.Event()
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()) if folder is None else folder)
        make_folder(place, (PAGE, DOCUMENT), base.files)
        stack.enter_context(on_interrupt(cancel.set))
        record = stack.enter_context(Record(place / ROWS, is_row))
        run = partial(sweep, engine=engine, record=record, report=report, stopped=cancel.is_set)
        advisor.compare(run)
        if not cancel.is_set():
            advisor.vary(record, run)
        advice = advisor.advice(record)
        return PolicyAdvice(advice, advice_document(advisor, advice))


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
    tell: Tell = say_nothing,
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
    make_folder(place, (*TABLES, REPORT), [name for one in workloads for name in replace(base, workload=one).files])
    with on_interrupt(cancel.set):
        found = sweep_into(place, tasks, engine or InProcess(), SIMULATIONS, report, cancel.is_set)
    return found._replace(assumed=tuple(assumed_in_sweep(tasks, found.rows)))
