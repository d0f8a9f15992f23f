"""Keep the best known values: ``python -m jigsaw_opt.instances.record --set tiny --solver cpsat --time-limit 30``.

Every instance is solved, and what is better than the record is kept: the objective of a checked
plan if it is smaller, the bound if it is larger. The file is replaced as a whole after each instance.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from jigsaw_opt.documents import instance_sha256, save_plan, write_atomically
from jigsaw_opt.errors import JigsawError, UsageError
from jigsaw_opt.instances.catalogue import BEST_KNOWN, BestKnown, load, names, read_best_known, sets
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.listed import solve_listed
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.system.hardware import hardware

__all__ = ["main", "merge", "record"]

_LOGGER = logging.getLogger(__name__)


def merge(old: BestKnown | None, instance: Instance, result: Result) -> BestKnown:
    """Return the record after one more run; a record of another instance of that name is dropped.

    Parameters
    ----------
    old
        The record so far; None for none.
    instance
        The instance that was solved.
    result
        What the run has found.

    Raises
    ------
    JigsawError
        If the bound of one run exceeds the objective of another, so that one of them is wrong.
    """
    new = _entry(instance, result)
    if old is None or old.instance_sha256 != new.instance_sha256:
        return new
    objective = min((value for value in (old.objective, new.objective) if value is not None), default=None)
    bound = max(old.bound, new.bound)
    if objective is not None and bound > objective:
        raise JigsawError(f"{instance.name}: {result.solver} and {old.solver} disagree, {bound} > {objective}")
    if (objective, bound) == (old.objective, old.bound):
        return old
    return replace(new, objective=objective, bound=bound)


def record(
    chosen: Sequence[str], solver: str, options: Options, path: Path = BEST_KNOWN, plans: Path | None = None
) -> None:
    """Solve the instances of these names one after the other, log a line for each, and keep what is better.

    Those that the solver does not take are left out.

    Parameters
    ----------
    chosen
        Names of bundled instances.
    solver
        Name of the solver.
    options
        Its options, such as the limit of time.
    path
        File of the record, which is replaced after each instance.
    plans
        Folder for plans that are as good as the best known, such as ``server-plain.json``; None to keep none.
    """
    for name in chosen:
        instance = load(name)
        try:
            result = solve_listed(instance, solver, options)
        except UsageError as error:
            _LOGGER.info("%-32s left out: %s", name, error)
            continue
        known = read_best_known(path)
        known[name] = merge(known.get(name), instance, result)
        write_atomically(path, _encoded(known))
        best = known[name]
        if plans is not None and result.plan is not None and result.objective == best.objective:
            plans.mkdir(parents=True, exist_ok=True)
            save_plan(result.plan, plans / f"{name.replace('/', '-')}.json")
        values = result.objective, best.objective, best.bound
        _LOGGER.info("%-32s %12s best %12s bound %12s", name, *values)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when every instance was solved or kept, the error's exit code otherwise."""
    parser = argparse.ArgumentParser(prog="python -m jigsaw_opt.instances.record", description=__doc__)
    parser.add_argument("--set", choices=sets(), help="only this set")
    parser.add_argument(
        "--unproven", action="store_true", help="only instances without a proof that the value is optimal"
    )
    parser.add_argument("--plans", type=Path, metavar="DIR", help="folder for plans as good as the best known")
    parser.add_argument("--solver", default="auto", help="name of the solver (default: auto)")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds an instance (default: 30)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="threads (default: all cores)")
    parser.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_args(arguments)
    options = Options(time_limit=parsed.time_limit, threads=parsed.workers, seed=parsed.seed)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        known = read_best_known(BEST_KNOWN)
        chosen = [name for name in names(parsed.set) if not (parsed.unproven and name in known and known[name].optimal)]
        record(chosen, parsed.solver, options, plans=parsed.plans)
    except JigsawError as error:
        _LOGGER.error("%s", error)
        return error.exit_code
    return 0


def _entry(instance: Instance, result: Result) -> BestKnown:
    return BestKnown(
        instance_sha256=instance_sha256(instance),
        objective=result.objective,
        bound=result.bound,
        solver=result.solver,
        date=datetime.now(UTC).date().isoformat(),
        seconds=round(result.seconds, 2),
        hardware=hardware(),
    )


def _encoded(known: Mapping[str, BestKnown]) -> bytes:
    """Write one line an instance, in the order of the catalogue."""
    lines = (f"  {json.dumps(name)}: {json.dumps(asdict(known[name]))}" for name in names() if name in known)
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


if __name__ == "__main__":
    raise SystemExit(main())
