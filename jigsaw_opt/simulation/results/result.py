"""The result of a simulation: its measures, and tables of its jobs and rounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from jigsaw_opt.problem.data_table import DataTable
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
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
    resumable
        Whether its folder keeps a snapshot to go on from, as it was cancelled.
    """

    setting: Setting
    summary: SimulationSummary
    outcome: SimulationOutcome
    finished: bool
    resumable: bool = False

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


def result_of(simulation: Simulation, resumable: bool = False) -> SimulationResult:
    """Return what a simulation has come to; it cannot go on afterwards."""
    finished, outcome = simulation.finished, simulation.close()
    return SimulationResult(simulation.setting, summarise(simulation.setting, outcome), outcome, finished, resumable)
