"""One call that simulates a workload on a cluster from start to end, and its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Integral

from jigsaw_opt.errors import Problem, UsageError, kind_of
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.data_table import DataTable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.network.contention import LinkSharing
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.scheduling.performance import Contention, Performance
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.simulation.engine.outages import Failures
from jigsaw_opt.simulation.engine.recorded import simulation_of
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.reading import read_setting
from jigsaw_opt.simulation.results.metrics import SimulationSummary, summarise
from jigsaw_opt.simulation.results.tables import jobs_of, rounds_of
from jigsaw_opt.text import html_table


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation.

    Parameters
    ----------
    setting
        What was simulated, as it was read.
    summary
        Its measures.
    outcome
        Its records: of jobs, of rounds, and of who held how many GPUs when.
    finished
        Whether every job has ended; if not, it was cancelled, came to its end time, or jobs wait for ever for what
        `SimulationOutcome.hindrance` says.
    """

    setting: Setting
    summary: SimulationSummary
    outcome: SimulationOutcome
    finished: bool

    @property
    def jobs(self) -> DataTable:
        """A row a job that was submitted, with the columns of ``jobs.csv``; None stands for what has not happened."""
        return jobs_of(self.setting, self.outcome)

    @property
    def rounds(self) -> DataTable:
        """A row a round in which the policy was asked, with the columns of ``rounds.csv``."""
        return rounds_of(self.outcome)

    def __repr__(self) -> str:
        jobs, mean = self.summary.jobs, self.summary.mean_completion_h
        shown = "None" if mean is None else f"{mean:.4g}"
        return f"SimulationResult(jobs={jobs}, mean_completion_h={shown}, finished={self.finished})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the measures that are known, by name."""
        measures = {name: value for name, value in asdict(self.summary).items() if value is not None}
        return html_table(
            {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in measures.items()}
        )


def simulate(
    workload: str | Workload,
    cluster: str | Cluster | Instance,
    policy: str | Policy,
    *,
    performance: str | Performance | Callable[[Cluster], Performance] = "",
    contention: str | Contention | LinkSharing = "exclusive",
    failures: str | Failures = "",
    seed: int = 0,
    round_s: float = 60.0,
    restart_s: float = 30.0,
    draw_models: bool = False,
    foreground_gpus: int | None = None,
    columns: str = "",
    too_wide: str = "refuse",
    speeds: str = "",
    until_us: int | None = None,
    cancel: threading.Event | None = None,
) -> SimulationResult:
    """Replay a workload on a cluster under a policy: each is an object, or text as on the command line.

    Parameters
    ----------
    workload
        The jobs, or ``FORMAT:FILE``, or a file in our own format or the name of a bundled one.
    cluster
        The servers, an instance that has them and models of the jobs, or text as in ``16x4:v100``.
    policy
        Who decides, or ``NAME:OPTION=VALUE...``.
    performance
        How fast jobs run, what makes that of a cluster, or ``KIND:SOURCE``. By default as on the command line.
    contention
        How jobs that span servers slow each other down, or how links are divided; ``exclusive`` for not at all.
    failures
        What fails and when, as in ``mtbf=100,mttr=2``; empty for nothing.
    round_s, restart_s
        Seconds between decisions, and of a start on other GPUs.
    draw_models, seed
        Whether every job gets a drawn model of the performance model; the seed of that, of the policy and of failures.
    foreground_gpus
        Jobs that ask for at least so many GPUs are in the foreground, beside those of which the workload says so.
    columns, too_wide, speeds
        As on the command line: what a file in our own format calls its columns; whether to ``refuse`` a workload with a
        job that needs more GPUs than there are, or to ``skip`` the job; and how fast types of GPU are.
    until_us, cancel
        Time of the workload, in microseconds, and an event set by another thread, that end it before all jobs have.

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
    _require_end(until_us, cancel)
    setting = read_setting(
        workload,
        cluster,
        policy,
        performance=performance,
        contention=contention,
        failures=failures,
        seed=seed,
        round_s=round_s,
        restart_s=restart_s,
        draw_models=draw_models,
        foreground_gpus=foreground_gpus,
        columns=columns,
        too_wide=too_wide,
        speeds=speeds,
    )
    simulation = simulation_of(setting)
    simulation.run((lambda: False) if cancel is None else cancel.is_set, until_us)
    return result_of(simulation)


def _require_end(until_us: int | None, cancel: threading.Event | None) -> None:
    """Refuse what cannot end a simulation."""
    wrong = []
    if until_us is not None and not (isinstance(until_us, Integral) and until_us >= 0):
        wrong.append(
            Problem("until_us", f"until_us is a whole number of at least 0, not {until_us!r}", code="out-of-range")
        )
    if cancel is not None and not hasattr(cancel, "is_set"):
        wrong.append(Problem("cancel", f"cancel is a threading.Event, not {kind_of(cancel)}", code="wrong-type"))
    if wrong:
        raise UsageError.of(wrong)


def result_of(simulation: Simulation) -> SimulationResult:
    """Return what a simulation has come to; it cannot go on afterwards."""
    finished, outcome = simulation.finished, simulation.close()
    return SimulationResult(simulation.setting, summarise(simulation.setting, outcome), outcome, finished)
