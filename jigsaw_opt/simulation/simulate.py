"""One call that simulates a request from start to end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.simulation.metrics import SimulationSummary, summarise
from jigsaw_opt.simulation.records import SimulationOutcome
from jigsaw_opt.simulation.request import SimulationRequest, prepare
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.text import html_table

__all__ = ["SimulationResult", "simulate"]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a simulation came to.

    Parameters
    ----------
    setting
        What was simulated, as it was read.
    summary
        Its measures.
    outcome
        Its records: of jobs, of rounds, and of who held how many GPUs when.
    finished
        Whether every job has ended; if not, it was cancelled or came to its end time.
    """

    setting: Setting
    summary: SimulationSummary
    outcome: SimulationOutcome
    finished: bool

    def _repr_html_(self) -> str:
        """What a notebook shows: the measures that are known, by name."""
        measures = {name: value for name, value in asdict(self.summary).items() if value is not None}
        return html_table(
            {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in measures.items()}
        )


def simulate(
    request: SimulationRequest,
    *,
    instances: Mapping[str, Instance] | None = None,
    until_us: int | None = None,
    cancel: threading.Event | None = None,
) -> SimulationResult:
    """Replay a workload on a cluster under a policy.

    Parameters
    ----------
    request
        What is simulated.
    instances
        Instances by the names under which the request may name them as its cluster, before files and bundled ones.
    until_us
        Ends at this time of the workload, in microseconds; None for its end.
    cancel
        Set by another thread, it ends the simulation after the event at hand. What is known by then is the result.

    Raises
    ------
    UsageError, InvalidInputError
        With every problem of what the request names.
    JigsawError
        The policy breaks a rule, or leaves jobs waiting for ever.
    """
    known = instances or {}
    prepared = prepare(request, lambda name: known[name] if name in known else instance_from(name))
    simulation = prepared.start()
    simulation.run((lambda: False) if cancel is None else cancel.is_set, until_us)
    finished, outcome = simulation.finished, simulation.close()
    return SimulationResult(prepared.setting, summarise(prepared.setting, outcome), outcome, finished)
