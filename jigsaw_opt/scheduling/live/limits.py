"""Which jobs that run a policy may not stop or move: frozen ones, and those beyond the moves of an hour."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from jigsaw_opt.problem.workload import LARGEST
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.live.cluster_state import ClusterState

_HOUR_US = 3_600_000_000


def moved(state: ClusterState, shares: Iterable[Share], stopped: Collection[int]) -> list[int]:
    """Return the numbers of the running jobs that a decision stops or moves, in order of submission.

    `shares`: what would run. `stopped`: jobs that start anew even on the GPUs that they have.
    """
    gpus = {index: share.gpus for share in shares for index in share.jobs}
    ours = {index: job.active for index, job in state.jobs.items() if job.active.share is not None and not job.held}
    others = state.news.adopted(state.jobs)
    return [k for k, job in ours.items() if k not in others and (k in stopped or gpus.get(k) != job.gpus)]


def staying(state: ClusterState, moves: Iterable[int], moves_per_hour: int | None) -> Mapping[int, int]:
    """Return until when each of the jobs has to stay that a decision must not stop or move.

    `moves`: jobs that it stops or moves. `moves_per_hour`: how many it may in any hour; None for as many as it likes.
    """
    found = {index: LARGEST for index in moves if state.jobs[index].stays}
    if moves_per_hour is not None:
        state.moves_us = [time_us for time_us in state.moves_us if time_us > state.now_us - _HOUR_US]
        until_us = (state.moves_us[0] if state.moves_us else state.now_us) + _HOUR_US
        left = max(0, moves_per_hour - len(state.moves_us))
        found |= dict.fromkeys([index for index in moves if index not in found][left:], until_us)
    return found
