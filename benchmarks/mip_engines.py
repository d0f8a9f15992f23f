"""Engines for the mixed-integer program: HiGHS as `ilp` runs it, CBC of PuLP, HiGHS and SCIP of OR-Tools' MathOpt.

Run ``PYTHONPATH=. python benchmarks/mip_engines.py [--seconds 8] [--cancel-after 1.5] [--nodes 10] [--engines NAME ...]
[--instances NAME ...]``. Each solve gets the whole program of `jigsaw export`, no plan, and one thread of a process of
its own, since engines may crash. A row for each engine: programs whose optimum is proven; programs without any plan;
by how much the others' plans are worse than the best known ones; seconds for all proofs; the longest time for which an
engine goes on after its limit or after it is cancelled; solves that failed; lines printed unasked. With ``--nodes``
every solve is made twice, and the last column counts pairs with the same objectives and bounds. What an engine says
against best known values is told on standard error, and is exit code 1.

MathOpt has to be imported before PuLP, which loads the symbols of highspy for the whole process: if it is imported
after (``--pulp-first``), OR-Tools calls functions of another HiGHS and crashes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from signal import SIGINT
from statistics import mean
from subprocess import DEVNULL, Popen, run
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter, sleep
from typing import Any, TypeAlias

from common import print_table

from jigsaw_opt.documents.readers.solutions import read_solution
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.formulations.ilp_timetable import objective_step
from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.instances import best_known, load
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.engines.highs_search import HighsSearch
from jigsaw_opt.solvers.engines.mip import Ending, MipTask
from jigsaw_opt.solvers.ilp.solver import exported_model

ENGINES = ("cbc", "highs", "mathopt-highs", "mathopt-scip")
_TINY = (0, 2, 3, 6, 8, 9, 10, 11, 14, 18, 20, 22, 26, 27, 30, 36, 41, 42, 44, 46, 51, 54, 58, 66, 67)
INSTANCES = (
    *(f"tiny/{number:03}" for number in _TINY),
    *(f"server/{name}" for name in ("demo", "full", "pcie", "weighted", "mixed-types")),
)
HEADS = ("engine", "proven", "no plan", "gap of the others", "s to prove", "s too long", "failed", "lines", "same")
_TOLERANCE = 1e-9
_NO_ENUMERATION = 1 << 16
_POLL_SECONDS = 0.02


class CbcSearch:
    """One search by the CBC that PuLP brings, on the exported program."""

    def __init__(self, task: MipTask) -> None:
        self._task = task
        self._process: Popen[bytes] | None = None

    def cancel(self) -> None:
        """Ask it to end; it writes its best solution before."""
        if self._process is not None:
            self._process.send_signal(SIGINT)

    def run(self) -> Ending:
        """Search until the end, a limit or `cancel`."""
        import pulp

        task = self._task
        limits = {"-seconds": task.seconds, "-maxNodes": task.nodes}
        settings = {"-ratioGap": 0, "-allowableGap": task.gap, "-timeMode": "elapsed"}
        settings |= dict.fromkeys(("-integerTolerance", "-primalTolerance", "-dualTolerance"), _TOLERANCE)
        settings |= {name: limit for name, limit in limits.items() if limit is not None}
        with TemporaryDirectory() as folder:
            program, solution = Path(folder, "program.mps"), Path(folder, "x.sol")
            program.write_bytes(task.model.document("mps"))
            words = [str(word) for pair in settings.items() for word in pair]
            command = [pulp.PULP_CBC_CMD.pulp_cbc_path, program, *words, "-solve", "-solution", solution]
            self._process = Popen(command, stdout=DEVNULL)
            self._process.wait()
            text = solution.read_text()
        try:
            values = read_solution(text).values
        except InvalidInputError:
            return Ending.INFEASIBLE if "nfeasible" in text.split("\n", 1)[0] else Ending.STOPPED
        columns = [values.get(name, 0.0) for name in task.model.columns]
        task.offer(ScaledProgram(task.model.program()).unscaled(columns))
        if not text.startswith("Optimal"):
            return Ending.STOPPED
        task.raise_bound(float(text.split("\n", 1)[0].split()[-1]) - task.gap)
        return Ending.SOLVED


class MathOptSearch:
    """One search by an engine of MathOpt."""

    def __init__(self, task: MipTask, engine: str) -> None:
        from ortools.math_opt.python import mathopt
        from ortools.util.python.solve_interrupter import SolveInterrupter

        self._task, self._scip = task, engine == "mathopt-scip"
        self._scaled = ScaledProgram(task.model.program())
        self._type = mathopt.SolverType.GSCIP if self._scip else mathopt.SolverType.HIGHS
        self._model = _model(self._scaled)
        self._interrupter = SolveInterrupter()

    def cancel(self) -> None:
        """Ask it to end."""
        self._interrupter.interrupt()

    def run(self) -> Ending:
        """Search until the end, a limit or `cancel`."""
        from ortools.math_opt.python import mathopt

        # MathOpt's HiGHS takes a callback and an interrupter, and never looks at them.
        registration = mathopt.CallbackRegistration(events={mathopt.Event.MIP_SOLUTION})
        result = mathopt.solve(
            self._model,
            self._type,
            params=self._parameters(),
            callback_reg=registration,
            cb=self._heard,
            interrupter=self._interrupter,
        )
        if result.solutions and result.solutions[0].primal_solution is not None:
            self._offer(result.solutions[0].primal_solution.variable_values)
        ending = {
            mathopt.TerminationReason.OPTIMAL: Ending.SOLVED,
            mathopt.TerminationReason.INFEASIBLE: Ending.INFEASIBLE,
        }.get(result.termination.reason, Ending.STOPPED)
        if ending is not Ending.INFEASIBLE:
            self._task.raise_bound(result.termination.objective_bounds.dual_bound * self._scaled.objective)
        return ending

    def _heard(self, data: Any) -> Any:
        from ortools.math_opt.python import mathopt

        self._offer(data.solution)
        return mathopt.CallbackResult()

    def _offer(self, values: Mapping[Any, float]) -> None:
        columns = (values.get(variable, 0.0) for variable in self._model.variables())
        self._task.offer(self._scaled.unscaled(list(columns)))

    def _parameters(self) -> Any:
        from ortools.math_opt.python import mathopt

        task = self._task
        parameters = mathopt.SolveParameters(
            random_seed=task.seed,
            relative_gap_tolerance=0.0,
            absolute_gap_tolerance=task.gap / self._scaled.objective,
            time_limit=None if task.seconds is None else timedelta(seconds=task.seconds),
            node_limit=task.nodes,
        )
        if self._scip:
            parameters.threads = task.threads
            parameters.gscip.real_params["numerics/feastol"] = _TOLERANCE
        else:
            parameters.highs.int_options["threads"] = task.threads
            parameters.highs.int_options["presolve_rule_off"] = _NO_ENUMERATION
            for name in ("mip_feasibility_tolerance", "primal_feasibility_tolerance", "dual_feasibility_tolerance"):
                parameters.highs.double_options[name] = _TOLERANCE
        return parameters


Search: TypeAlias = CbcSearch | HighsSearch | MathOptSearch


def _model(scaled: ScaledProgram) -> Any:
    import numpy as np
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    program, proto = scaled.program, model_pb2.ModelProto()
    proto.variables.ids.extend(range(len(program.costs)))
    proto.variables.lower_bounds.extend(program.lower)
    proto.variables.upper_bounds.extend(program.upper)
    proto.variables.integers.extend(program.integer)
    proto.objective.linear_coefficients.ids.extend(np.flatnonzero(program.costs))
    proto.objective.linear_coefficients.values.extend(program.costs[program.costs != 0])
    proto.linear_constraints.ids.extend(range(len(program.row_lower)))
    proto.linear_constraints.lower_bounds.extend(program.row_lower)
    proto.linear_constraints.upper_bounds.extend(program.row_upper)
    order = np.lexsort((program.columns, program.rows))
    proto.linear_constraint_matrix.row_ids.extend(program.rows[order])
    proto.linear_constraint_matrix.column_ids.extend(program.columns[order])
    proto.linear_constraint_matrix.coefficients.extend(program.values[order])
    return mathopt.Model.from_model_proto(proto)


def solve_here(engine: str, name: str, limits: argparse.Namespace) -> dict[str, Any]:
    """Let an engine solve the program of an instance; return what came of it."""
    model = exported_model(load(name))
    operations, column = model.eligibility.operations, model.program.column
    objectives: list[int] = []
    bounds: list[float] = []

    def offer(values: Sequence[float]) -> None:
        timetable = model.plan(lambda variable: values[column(variable)])
        objectives.append(objective_of(operations, timetable.jobs))

    step = objective_step(operations)
    task = MipTask(model.program, step, offer, bounds.append, limits.seconds, limits.nodes, 0, 1)
    search: Search
    match engine:
        case "cbc":
            search = CbcSearch(task)
        case "highs":
            search = HighsSearch(task)
        case _:
            search = MathOptSearch(task, engine)
    began = perf_counter()
    if limits.cancel_after is not None:
        Thread(target=cancel_after, args=(search, limits.cancel_after), daemon=True).start()
    ending = search.run()
    limit = min((end for end in (limits.seconds, limits.cancel_after) if end is not None), default=0.0)
    return {
        "ending": ending.value,
        "objective": min(objectives, default=None),
        "bound": max(bounds, default=-float("inf")),
        "step": step,
        "seconds": perf_counter() - began,
        "late": max(0.0, perf_counter() - began - limit) if limit else 0.0,
    }


def cancel_after(search: Search, seconds: float) -> None:
    """Ask a search to end after so many seconds, and again as a solve does, until the process ends."""
    sleep(seconds)
    while True:
        search.cancel()
        sleep(_POLL_SECONDS)


def solve_apart(engine: str, name: str, words: Sequence[str]) -> dict[str, Any]:
    """Solve in a process of its own; without an ending, where it fails."""
    child = run(
        [sys.executable, __file__, "--one", engine, name, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    printed = [line for line in f"{child.stderr}\n{child.stdout}".splitlines() if line.strip()]
    if child.returncode != 0:
        return {"ending": None, "why": f"exit code {child.returncode}: {' '.join(printed[-1:])}"}
    return {**json.loads(printed[-1]), "lines": len(printed) - 1}


def contradiction(name: str, row: Mapping[str, Any]) -> str:
    """Return what in a row cannot be, by the best known values; empty where there is nothing."""
    known = best_known(name)
    if known is None or known.objective is None or row["ending"] is None:
        return ""
    objective, bound = row["objective"], row["bound"]
    if row["ending"] == Ending.INFEASIBLE.value:
        return f"infeasible, and {known.objective} is known"
    if objective is not None and objective < known.bound:
        return f"a plan of {objective} below the bound {known.bound}"
    if bound > known.objective * (1 + 1e-6):
        return f"a bound of {bound} above {known.objective}"
    if row["ending"] == Ending.SOLVED.value and objective is not None and objective >= known.objective + row["step"]:
        return f"{objective} is called optimal, and {known.objective} is known"
    return ""


def rows(arguments: argparse.Namespace, words: Sequence[str], wrong: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield a row of the table for each engine; add what cannot be to `wrong`."""
    for engine in arguments.engines:
        found = {name: solve_apart(engine, name, words) for name in arguments.instances}
        ended = {name: row for name, row in found.items() if row["ending"] is not None}
        for name, row in found.items():
            told = row.get("why") or contradiction(name, row)
            if told:
                print(f"{engine}, {name}: {told}", file=sys.stderr)
            if name in ended and told:
                wrong.append(told)
        proven = [row["seconds"] for row in ended.values() if row["ending"] == Ending.SOLVED.value]
        gaps = [
            row["objective"] / known.objective - 1
            for name, row in ended.items()
            if row["ending"] == Ending.STOPPED.value
            and row["objective"] is not None
            and (known := best_known(name))
            and known.objective
        ]
        same: object = ""
        if arguments.nodes is not None:
            again = {name: solve_apart(engine, name, words) for name in ended}
            same = sum(_outcome(again[name]) == _outcome(row) for name, row in ended.items())
        yield (
            engine,
            f"{len(proven)} of {len(found)}",
            sum(row["objective"] is None for row in ended.values()),
            f"{mean(gaps):.0%}" if gaps else "",
            f"{sum(proven):.1f}",
            f"{max((row['late'] for row in ended.values()), default=0.0):.1f}",
            len(found) - len(ended),
            sum(row["lines"] for row in ended.values()),
            same,
        )


def _outcome(row: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("ending", "objective", "bound"))


def main() -> int:
    """Print a table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--instances", nargs="+", default=INSTANCES)
    parser.add_argument("--seconds", type=float, help="limit on a solve")
    parser.add_argument("--cancel-after", type=float, help="seconds after which a solve is cancelled")
    parser.add_argument("--nodes", type=int, help="limit on the nodes of the tree")
    parser.add_argument("--pulp-first", action="store_true", help="import PuLP before MathOpt")
    parser.add_argument("--one", nargs=2, metavar=("ENGINE", "INSTANCE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        if arguments.pulp_first:
            import pulp  # noqa: F401
        from ortools.math_opt.python import mathopt  # noqa: F401

        engine, name = arguments.one
        print(json.dumps(solve_here(engine, name, arguments)))
        return 0
    words = ["--pulp-first"] if arguments.pulp_first else []
    limits = {"--seconds": arguments.seconds, "--cancel-after": arguments.cancel_after, "--nodes": arguments.nodes}
    words += [str(word) for pair in limits.items() if pair[1] is not None for word in pair]
    wrong: list[str] = []
    print_table(HEADS, rows(arguments, words, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
