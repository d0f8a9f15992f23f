"""CBC, the executable that comes with PuLP, run on an MPS file; it reports its best solution at its end."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from jigsaw_opt.errors import EngineDiedError, Problem
from jigsaw_opt.formulations.algebra import cbc_executable
from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.solvers.engines.mip import Ending, MipTask
from jigsaw_opt.solvers.engines.parameters import Parameter, check_names
from jigsaw_opt.system.children import Keeper

__all__ = ["CbcSearch", "parameter_problems"]

_TOLERANCE = "1e-9"
_PATIENCE_SECONDS = 0.4
"""Seconds that CBC has to write its solution after an interrupt."""
_LOWER_BOUND = re.compile(r"^Lower bound:\s+(\S+)$", re.MULTILINE)

_KEPT = ("allowableGap", "cutoff", "dualTolerance", "increment", "integerTolerance", "primalTolerance", "ratioGap")
"""Parameters on which it rests that a solution is right, and that one called optimal is it."""
_REFUSALS = ("is illegal for", "valid range is", "Possible options for")
"""What CBC prints where it does not take the value of a parameter."""


def parameter_problems(parameters: Mapping[str, Parameter]) -> Iterator[Problem]:
    """Yield everything that is wrong with parameters of CBC, by its own full names."""
    wrong = {problem.path: problem for problem in check_names("CBC", parameters, _names(_said("-?")), _KEPT)}
    yield from wrong.values()
    for name, value in parameters.items():
        if name not in wrong and any(refusal in _said(f"-{name}", str(value)) for refusal in _REFUSALS):
            yield Problem(name, f"parameter {name!r} of CBC cannot be {value!r}", code="out-of-range")


def _said(*arguments: str) -> str:
    """Return what CBC prints where it is given nothing to solve."""
    command = [str(cbc_executable()), *arguments, "-quit"]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout


def _names(listing: str) -> list[str]:
    """Return the parameters that CBC lists under headings; it writes what may be left out of a name in brackets."""
    names: list[str] = []
    reading = False
    for line in listing.splitlines():
        if line.endswith(":"):
            reading = line.endswith("parameters:") and "Actions" not in line
        elif reading and line.startswith(" "):
            names += line.replace("(", "").replace(")", "").split()
        else:
            reading = False
    return names


class CbcSearch:
    """One search by CBC.

    Parameters
    ----------
    task
        The program, and who receives solutions and bounds.
    """

    def __init__(self, task: MipTask) -> None:
        self.task = task
        self._scaled = ScaledProgram(task.model.program())
        self._lock = threading.Lock()
        self._cancelled: float | None = None
        self._keeper: Keeper | None = None

    def cancel(self) -> None:
        """Make `run` return soon; from any thread. CBC answers an interrupt with its best solution."""
        with self._lock:
            now = time.monotonic()
            if self._cancelled is None:
                self._cancelled = now
                if self._keeper is not None:
                    self._keeper.send_signal(signal.SIGINT)
            elif self._keeper is not None and now - self._cancelled > _PATIENCE_SECONDS:
                self._keeper.send_signal(signal.SIGKILL)

    def run(self) -> Ending:
        """Search until the end, a limit or `cancel`.

        Raises
        ------
        EngineDiedError
            CBC ended in another way.
        """
        with Keeper() as keeper:
            program, solution = keeper.folder / "program.mps", keeper.folder / "solution.txt"
            program.write_bytes(self.task.model.document("mps", self._scaled))
            self._execute(keeper, [str(program), *self._settings(), "-solve", "-solution", str(solution)])
            report = solution.read_text() if solution.exists() else ""
            log = keeper.log()
            if self.task.log is not None:
                self.task.log(log)
            return self._read(log, report)

    def _settings(self) -> list[str]:
        task = self.task
        settings: dict[str, object] = {
            "-threads": task.threads,
            "-randomSeed": task.seed + 1,  # 0 would seed by the clock
            "-randomCbcSeed": task.seed + 1,
            "-ratioGap": 0,
            "-allowableGap": task.gap,
            "-integerTolerance": _TOLERANCE,
            "-primalTolerance": _TOLERANCE,
            "-dualTolerance": _TOLERANCE,
            "-timeMode": "elapsed",
            "-seconds": task.seconds,
            "-maxNodes": task.nodes,
        }
        settings |= {f"-{name}": value for name, value in task.parameters.items()}
        return [str(word) for pair in settings.items() if pair[1] is not None for word in pair]

    def _execute(self, keeper: Keeper, arguments: Sequence[str]) -> None:
        with self._lock:
            if self._cancelled is not None:
                return
            keeper.start([str(cbc_executable()), *arguments])
            self._keeper = keeper
        code = keeper.wait()
        with self._lock:
            self._keeper = None
        # Once it is cancelled, it may have been killed from here.
        if code != 0 and self._cancelled is None:
            raise EngineDiedError("CBC", code)

    def _read(self, log: str, report: str) -> Ending:
        """Read how CBC ended, and offer its solution.

        The solution file starts with how it ended; then come the columns that are not 0.
        """
        head, *lines = report.splitlines() or [""]
        if head.startswith(("Infeasible", "Integer infeasible")):
            return Ending.INFEASIBLE
        if lines and "no integer solution" not in head:
            self._offer(lines)
        if head.startswith("Optimal"):
            self.task.raise_bound(float(head.split()[-1]) - self.task.gap)
            return Ending.SOLVED
        bound = _LOWER_BOUND.search(log)
        if bound is not None:
            self.task.raise_bound(float(bound.group(1)))
        return Ending.STOPPED

    def _offer(self, lines: Sequence[str]) -> None:
        columns = self.task.model.columns
        values = [0.0] * len(columns)
        for line in lines:
            _, name, value, _ = line.removeprefix("**").split()
            if name in columns:
                values[columns[name]] = float(value)
        self.task.offer(self._scaled.unscaled(values))
