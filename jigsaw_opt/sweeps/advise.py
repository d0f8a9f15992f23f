"""What another policy would save on a workload: one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents import make_folder, require_writable
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.simulation.engine.setting import reading_told
from jigsaw_opt.simulation.inputs.request import GivenParts, GivenWorkload, SimulationRequest
from jigsaw_opt.sweeps.advice import Advice, Advisor
from jigsaw_opt.sweeps.advice_words import advice_document
from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.simulations import is_row
from jigsaw_opt.sweeps.task import InProcess, SweepEngine
from jigsaw_opt.system.interrupts import on_interrupt

ROWS, PAGE, DOCUMENT = "rows.jsonl", "advice.html", "advice.json"


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
    tell: Callable[[str], None] = lambda _: None,
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
        advisor.compare(record, engine, report, cancel.is_set)
        if not cancel.is_set():
            advisor.vary(record, engine, report, cancel.is_set)
        advice = advisor.advice(record)
        return PolicyAdvice(advice, advice_document(advisor, advice))
