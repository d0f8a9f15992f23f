"""Starts one attempt in a process of its own, waits for it, and judges what it brings back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from comparison import Run, Verdict, key_of
from methods import METHODS

from jigsaw_opt.checking import check
from jigsaw_opt.documents import encode_instance, instance_sha256, load_plan
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Instance

GRACE_SECONDS = 20.0
"""For the start of the process, and for engines that do not listen at once."""


@dataclass(frozen=True, slots=True)
class Order:
    """An attempt that is to be made."""

    instance: Instance
    method: str
    seed: int
    time_limit: float
    threads: int

    @property
    def asked(self) -> tuple[str, str, str, int, float, int]:
        """What its run begins with."""
        digest = instance_sha256(self.instance)
        return self.instance.name, digest, self.method, self.seed, self.time_limit, self.threads

    @property
    def key(self) -> str:
        """What identifies its run."""
        return key_of(*self.asked)


def launch(order: Order) -> Run:
    """Make the attempt. Whatever goes wrong in it is told by the run, never raised."""
    make = partial(Run, *order.asked)
    reason = METHODS[order.method].refusal(order.instance)
    if reason is not None:
        return make(Verdict.NOT_TAKEN, note=reason)
    with tempfile.TemporaryDirectory(prefix="jigsaw-peers-") as name:
        folder = Path(name)
        source = folder / "instance.json"
        source.write_bytes(encode_instance(order.instance))
        limits = ("--time-limit", order.time_limit, "--threads", order.threads, "--seed", order.seed)
        script = Path(__file__).with_name("run_one.py")
        command = [sys.executable, *map(str, (script, order.method, source, folder, *limits))]
        patience = order.time_limit + GRACE_SECONDS
        ended = _ended(command, patience)
        if ended is None:
            return make(Verdict.NO_PLAN, seconds=patience, note="did not end, stopped by force")
        code, errors = ended
        found = folder / "found.json"
        if code != 0 or not found.exists():
            last = errors.strip().rpartition("\n")[2] or f"exit code {code}"
            return make(Verdict.CRASHED, note=last)
        return judged(order, folder, json.loads(found.read_text("utf-8")))


def _ended(command: Sequence[str], patience: float) -> tuple[int, str] | None:
    """Exit code and last words of a process; None where it had to be stopped, with all that it started."""
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, start_new_session=True, stdout=null, stderr=pipe, text=True) as process:
        try:
            errors = process.communicate(timeout=patience)[1]
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, errors


def judged(order: Order, folder: Path, found: dict[str, Any]) -> Run:
    """The run with its plan checked from the definitions."""
    make = partial(Run, *order.asked, bound=found["bound"], seconds=found["seconds"])
    document = folder / "plan.json"
    if not document.exists():
        return make(verdict=Verdict.NO_PLAN, note=found["note"])
    try:
        plan = load_plan(document)
    except InvalidInputError as error:
        return make(verdict=Verdict.WRONG, note=str(error).partition("\n")[0])
    violations = check(order.instance, plan)
    if violations:
        return make(verdict=Verdict.WRONG, note=str(violations[0]))
    trajectory = tuple((seconds, value) for seconds, value in found["trajectory"])
    return make(verdict=Verdict.PLAN, objective=plan.objective, trajectory=trajectory, note=found["note"])
