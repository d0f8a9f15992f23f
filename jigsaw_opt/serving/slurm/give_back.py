"""What gives the jobs of a client without a sign of life back to Slurm; it stands alone, so that cron can run it."""

from __future__ import annotations

from pathlib import Path

from jigsaw_opt.serving.slurm import commands
from jigsaw_opt.serving.slurm.client import ClientSetting
from jigsaw_opt.serving.slurm.commands import Runner, SlurmError
from jigsaw_opt.serving.slurm.log import read_begun, read_log, released_jobs
from jigsaw_opt.serving.slurm.plain import AnySlurm
from jigsaw_opt.serving.slurm.reading import read_jobs


def give_back(run: Runner, path: Path, after_us: int, now_us: int) -> tuple[list[str], list[str]] | None:
    """Release the jobs of the client of a log if it has written nothing for so long.

    Returns the jobs, and what went wrong; None where the client lives, or never acted.
    """
    begin = [entry for entry in read_begun(path)[1] if entry["entry"] == "begin"][-1]
    last_us = max(entry["time_us"] for entry in read_log(path))
    setting = ClientSetting(partition=begin["partition"], comment=begin["comment"])
    if not begin["act"] or now_us - last_us < after_us:
        return None
    given, wrong, released = list[str](), list[str](), released_jobs(path)
    unread: dict[str, str] = {}
    for job in read_jobs(AnySlurm(run)(commands.JOBS), now_us, unread):
        own = job.name in released
        if job.state == "waits" and job.gpus and not job.strange and setting.takes(job) and (job.held or own):
            try:
                if own and job.wanted:
                    run(commands.place(job.name, ()))
                if job.held:
                    run(commands.release(job.name))
                given.append(job.name)
            except SlurmError as error:
                wrong.append(f"{job.name}: {error}")
    return given, wrong + [f"{name}: {why}" for name, why in unread.items()]
