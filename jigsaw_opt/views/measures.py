"""What the measures of a simulation are called, their units, and what each means."""

from __future__ import annotations

from typing import NamedTuple


class MeasureName(NamedTuple):
    """A measure as people read it; its unit is ``h``, ``ms``, ``share`` or nothing."""

    name: str
    unit: str
    meaning: str


MEASURES = {
    "jobs": MeasureName("jobs", "", "submitted in all"),
    "unfinished": MeasureName("jobs unfinished", "", "submitted and not ended"),
    "mean_completion_h": MeasureName("completion, mean", "h", "from submission to end, over jobs that ended"),
    "median_completion_h": MeasureName("completion, median", "h", "half of the jobs that ended took at most this"),
    "p95_completion_h": MeasureName("completion, 95 %", "h", "95 % of the jobs that ended took at most this"),
    "p99_completion_h": MeasureName("completion, 99 %", "h", "99 % of the jobs that ended took at most this"),
    "weighted_completion_h": MeasureName("completion, weighted", "h", "the mean with the jobs' weights"),
    "mean_waiting_h": MeasureName("waiting, mean", "h", "from submission to the first start, over jobs that started"),
    "median_waiting_h": MeasureName("waiting, median", "h", "of jobs that started"),
    "p99_waiting_h": MeasureName("waiting, 99 %", "h", "99 % of the jobs that started waited at most this"),
    "longest_waiting_h": MeasureName(
        "waiting, longest", "h", "without GPUs, up to the end of the job or the simulation"
    ),
    "longest_waiting_gpus": MeasureName("GPUs of who waits longest", "", "asked for by that job"),
    "makespan_h": MeasureName("makespan", "h", "from the first submission to the end"),
    "gpu_hours": MeasureName("GPU time held", "h", "over all GPUs and jobs"),
    "mean_gpu_hours": MeasureName("GPU time a job", "h", "held, over all submitted jobs"),
    "utilisation": MeasureName("utilisation", "share", "GPU time held of all that the cluster has until the end"),
    "cluster_efficiency": MeasureName(
        "cluster efficiency", "share", "work done, in GPU time that it takes alone with whole backward passes, of all"
    ),
    "worst_fairness": MeasureName(
        "worst fairness", "", "greatest time of a job by that on a fair share of the cluster; above 1 is unfair"
    ),
    "unfair_share": MeasureName("unfair jobs", "share", "that took longer than on a fair share of the cluster"),
    "restarts": MeasureName(
        "restarts", "", "starts of jobs on other GPUs or after a wait; the first start of a job is none"
    ),
    "mean_restarts": MeasureName("restarts a job", "", "restarts over all submitted jobs"),
    "rounds": MeasureName("rounds", "", "how often the policy was asked"),
    "median_policy_ms": MeasureName("policy, median", "ms", "CPU time of the policy in a round"),
    "p95_policy_ms": MeasureName("policy, 95 %", "ms", "95 % of the rounds took at most this CPU time"),
    "foreground_jobs": MeasureName("foreground jobs", "", "submitted in the foreground"),
    "mean_foreground_slowdown": MeasureName("foreground slow-down, mean", "", "of foreground jobs that ended"),
    "worst_foreground_slowdown": MeasureName("foreground slow-down, worst", "", "of foreground jobs that ended"),
    "mean_foreground_completion_h": MeasureName("foreground completion", "h", "mean from submission to end"),
    "mean_background_completion_h": MeasureName("background completion", "h", "mean from submission to end"),
    "background_gpu_hours": MeasureName(
        "background work", "h", "in GPU time that it takes alone with whole backward passes"
    ),
    "failure_stops": MeasureName("stops by failures", "", "how often failures stopped a job"),
    "lost_gpu_hours": MeasureName("GPU time lost", "h", "held since the last checkpoint before a failure, or idle"),
    "down_gpu_hours": MeasureName("GPU time down", "h", "of GPUs that had failed"),
    "idle_gpu_hours": MeasureName("GPU time idle", "h", "up, and held by nobody"),
    "useful_gpu_hours": MeasureName("GPU time useful", "h", "held and not lost"),
    "availability": MeasureName("availability", "share", "GPU time up of all that the cluster has"),
}
"""By the name of the field in `SimulationSummary`; each is defined in docs/simulation.md."""
