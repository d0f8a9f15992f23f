"""The commands of Slurm that are called: a fixed list, with arguments that are checked, and never through a shell."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable
from typing import TypeAlias

from jigsaw_opt.errors import JigsawError

Command: TypeAlias = tuple[str, ...]
Runner: TypeAlias = Callable[[Command], str]
"""Runs a command and returns what it prints; raises `SlurmError` where it fails."""

_JOB = re.compile(r"[0-9]{1,10}(?:_[0-9]{1,10})?")
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_LONGEST_TOLD = 300
_MOST_BYTES = 1 << 28
JOBS: Command = ("squeue", "--all", "--states=all", "--json")
NODES: Command = ("sinfo", "--all", "--json")


class SlurmError(JigsawError):
    """A command of Slurm failed, was not there, took too long, or printed what cannot be read."""


def run_command(command: Command, seconds: float = 30.0) -> str:
    """Return what a command prints, with all tasks of arrays and times in seconds since 1970.

    `seconds`: how long it may take.
    """
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} did not answer within {seconds:g} s") from None
    except OSError as error:
        raise SlurmError(f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        told = " ".join(done.stderr.decode(errors="replace").split())[:_LONGEST_TOLD]
        raise SlurmError(f"{command[0]} failed: {told or f'exit code {done.returncode}'}")
    if len(done.stdout) > _MOST_BYTES:
        raise SlurmError(f"{command[0]} printed {len(done.stdout)} bytes, more than are read")
    return done.stdout.decode(errors="replace")


def place(job: str, nodes: Iterable[str]) -> Command:
    """Return the command that has a job run on these nodes, or where it will without any."""
    named = ",".join(map(require_node, nodes))
    return ("scontrol", "update", f"jobid={_job(job)}", f"reqnodelist={named}")


def release(job: str) -> Command:
    """Return the command that lets Slurm start a held job."""
    return ("scontrol", "release", _job(job))


def hold(job: str) -> Command:
    """Return the command that holds a waiting job, as its user could."""
    return ("scontrol", "uhold", _job(job))


def requeue(job: str) -> Command:
    """Return the command that stops a job, which then waits and is held."""
    return ("scontrol", "requeuehold", _job(job))


def state_of(job: str) -> Command:
    """Return the command that prints the state of a job now."""
    return ("squeue", "--noheader", f"--jobs={_job(job)}", "--states=all", "-o", "%T")


def accounting(jobs: Iterable[str]) -> Command:
    """Return the command that prints how jobs ended, from the accounting."""
    columns = "--format=JobID,State,Start,End"
    return ("sacct", "--allocations", "--parsable2", "--noheader", columns, f"--jobs={','.join(map(_job, jobs))}")


def require_node(text: str) -> str:
    """Return the name of a node, and refuse everything that may not be sent as one."""
    return _checked(text, _NODE, "name of a node")


def _job(text: str) -> str:
    """Return the number of a job or of a task of an array, and refuse everything else."""
    return _checked(text, _JOB, "number of a job")


def _checked(text: str, pattern: re.Pattern[str], what: str) -> str:
    if pattern.fullmatch(text) is None:
        raise SlurmError(f"{text[:40]!r} is no {what}")
    return text
