"""What the engine checks in every round beside the rules of shares, whatever policy and performance model do."""

from __future__ import annotations

from jigsaw_opt.scheduling.performance import Speed
from jigsaw_opt.scheduling.policy import JobState
from jigsaw_opt.scheduling.share_rules import require

__all__ = ["check_gpu_time", "check_progress", "check_speed"]


def check_gpu_time(held_us: int, lost_us: int, down_us: int, capacity_us: int) -> None:
    """Check that GPU time held and down is within the cluster's, and what failures took within that held."""
    require(held_us + down_us <= capacity_us, "at the end", "GPUs were held while they were down")
    require(lost_us <= held_us, "at the end", "jobs lost more GPU time than they held")


def check_progress(active: JobState, before: int, productive_us: int, speed: Speed, now_us: int) -> None:
    """Check that the work done is what was done before, and that the job did not go on beyond its end."""
    when, name = f"at {now_us} us", active.job.name
    require(active.done >= before, when, f"job {name!r} lost progress")
    require(active.done <= before, when, f"job {name!r} has progress that it has not made")
    beyond = active.done + speed.rate * productive_us - active.work
    require(beyond < speed.rate, when, f"job {name!r} did more work than it has")


def check_speed(active: JobState, speed: Speed, when: str) -> None:
    """Check that a speed makes progress and holds for some of it."""
    require(speed.rate > 0, when, f"job {active.job.name!r} has no speed")
    require(speed.until is None or speed.until > active.done, when, f"the speed of job {active.job.name!r} is over")
