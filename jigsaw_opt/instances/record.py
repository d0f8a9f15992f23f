"""Keep the best known values and their plans: ``python -m jigsaw_opt.instances.record --unproven --time-limit 20``.

Instances are solved, or plan files are taken that somebody sends in (``--plan FILE --by NAME``), or proofs are searched
for of the bounds in the record (``--proofs``). What is better than the record is kept: a checked plan of a smaller
objective, which replaces the stored plan, a larger bound, and a checked proof of a larger bound, or of the same one in
a smaller file, which replaces the stored one. The record names the run of each value. It is replaced as a whole after
each instance. The command works in a clone of the repository, and refuses to change an installed package.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from jigsaw_opt.checking import check
from jigsaw_opt.documents import encode_proof, instance_sha256, load_plan, save_plan, write_atomically
from jigsaw_opt.errors import CheckFailedError, InvalidInputError, JigsawError, Problem, UsageError
from jigsaw_opt.instances.catalogue import (
    BEST_KNOWN,
    DATA,
    BestKnown,
    RecordedRun,
    load,
    names,
    plan_path,
    proof_path,
    read_best_known,
    resolve,
    sets,
)
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.certification import certify
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.system.hardware import hardware
from jigsaw_opt.system.interrupts import INTERRUPTED
from jigsaw_opt.text import counted

_LOGGER = logging.getLogger(__name__)


def merge(old: BestKnown | None, new: BestKnown) -> BestKnown:
    """Return the better objective and the better bound of two, each with its run.

    `old`: the record so far; None for none. One of another instance of that name is dropped.
    """
    if old is None or old.instance_sha256 != new.instance_sha256:
        return new
    best = old
    if new.objective is not None and (old.objective is None or new.objective < old.objective):
        best = replace(best, objective=new.objective, found=new.found)
    if new.bound > old.bound:
        best = replace(best, bound=new.bound, bound_reason=new.bound_reason, proved=new.proved)
    best = replace(best, certified_bound=max(old.certified_bound, new.certified_bound))
    if best.objective is not None and best.bound > best.objective:
        runs = [run for one in (new, old) for run in (one.found, one.proved) if run is not None]
        solvers = " and ".join(dict.fromkeys(run.solver for run in runs))
        raise JigsawError(f"{solvers} disagree, bound {best.bound} > objective {best.objective}")
    return best


def of_result(result: Result, sha256: str) -> BestKnown:
    """Return the values of a run on this machine."""
    from jigsaw_opt import __version__

    run = RecordedRun(
        result.solver, __version__, result.seed, result.threads, round(result.seconds, 2), _today(), hardware()
    )
    found = None if result.objective is None else run
    certified_bound = result.certified_bound or 0
    return BestKnown(sha256, result.objective, result.bound, result.bound_reason, found, run, certified_bound)


def of_plan(plan: Plan, by: str | None, hardware: str | None) -> BestKnown:
    """Return the objective of a plan file; its bound shows no proof, so that it is not taken.

    `by`: who sends it in; None for the project itself. `hardware`: processor and number of cores of the machine that
    made it; None where nobody knows.
    """
    run = RecordedRun(
        solver=_said(plan, "name", str) or "unknown",
        version=_said(plan, "version", str),
        seed=_said(plan, "seed", int),
        threads=_said(plan, "threads", int),
        seconds=_said(plan, "seconds", int, float),
        date=_today(),
        hardware=hardware,
        by=by,
    )
    return BestKnown(plan.instance_sha256, plan.objective, 0, "", run, None)


def store(
    name: str,
    new: BestKnown,
    plan: Plan | None,
    path: Path = BEST_KNOWN,
    plans: Path = DATA,
    proof: BoundProof | None = None,
) -> BestKnown:
    """Keep what is better than the record of an instance, and return the record.

    A plan is stored if it is better than the best known one, or as good and none is stored. Its bound and status are
    those of the record, since what a plan states of itself is no proof.

    A proof is stored if it proves more than the stored one, or as much in a smaller file.

    `plan, proof`: the plan of that objective and the proof of that certified bound, checked; None for none.
    """
    known = read_best_known(path)
    old = known.get(name)
    try:
        best = merge(old, new)
    except JigsawError as error:
        raise JigsawError(f"{name}: {error}") from error
    file = plan_path(name, plans)
    better = old is None or old.objective != best.objective
    if plan is not None and plan.objective == best.objective and (better or not file.exists()):
        best = replace(best, found=new.found)
        file.parent.mkdir(parents=True, exist_ok=True)
        save_plan(best.labelled(plan), file)
    if proof is not None and best.certified_bound == proof.bound:
        file, data = proof_path(name, plans), gzip.compress(encode_proof(proof), mtime=0)
        more = old is None or old.certified_bound < proof.bound or not file.exists()
        if more or len(data) < file.stat().st_size:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, data)
    known[name] = best
    write_atomically(path, _encoded(known))
    return best


def record(chosen: Sequence[str], solver: str, options: Options, path: Path = BEST_KNOWN, plans: Path = DATA) -> None:
    """Solve the instances of these names one after the other, log a line for each, and keep what is better.

    Those that the solver does not take are left out.
    """
    for name in chosen:
        instance = load(name)
        try:
            result = solve(instance, solver, options)
        except UsageError as error:
            _LOGGER.info("%-32s left out: %s", name, error)
            continue
        old = read_best_known(path).get(name)
        result = certify(instance, result, options.time_limit, options.cancel)
        new = of_result(result, instance_sha256(instance))
        _tell(name, result.objective, old, store(name, new, result.plan, path, plans, result.bound_proof))
        _go_on(result)


def prove(chosen: Sequence[str], seconds: float, path: Path = BEST_KNOWN, plans: Path = DATA) -> None:
    """Search for proofs of the recorded bounds; log a line for each."""
    for name in chosen:
        old = read_best_known(path).get(name)
        if old is None:
            continue
        status, began = Status.OPTIMAL if old.optimal else Status.FEASIBLE, monotonic()
        known = Result(status, StoppedBy.COMPLETED, old.objective, old.bound, None, solver="certify")
        found = certify(load(name), known, seconds)
        new = of_result(replace(found, seconds=monotonic() - began), old.instance_sha256)
        best = store(name, new, None, path, plans, found.bound_proof)
        _LOGGER.info("%-32s bound %s, certified %s", name, best.bound, best.certified_bound)
        _go_on(found)


def _go_on(result: Result) -> None:
    """Raise where a signal has ended a search, whose result is kept."""
    if result.stopped_by is StoppedBy.INTERRUPT:
        raise KeyboardInterrupt


def submit(
    files: Sequence[Path], by: str | None, hardware: str | None, path: Path = BEST_KNOWN, plans: Path = DATA
) -> None:
    """Take plan files that are better than the record; log a line for each."""
    found: list[tuple[str, Plan]] = []
    problems: list[Problem] = []
    bundled = {instance_sha256(load(name)): name for name in names()}
    for file in files:
        try:
            plan = load_plan(file)
        except InvalidInputError as error:
            problems += error.problems
            continue
        if plan.instance_sha256 in bundled:
            found.append((bundled[plan.instance_sha256], plan))
        else:
            problems.append(Problem(str(file), "is a plan of no bundled instance", code="mismatch"))
    if problems:
        raise InvalidInputError(problems)
    for name, plan in found:
        violations = check(load(name), plan)
        if violations:
            raise CheckFailedError(
                f"{name}: the plan is wrong in {counted(len(violations), 'place')}, first {violations[0]}"
            )
    for name, plan in found:
        old = read_best_known(path).get(name)
        _tell(name, plan.objective, old, store(name, of_plan(plan, by, hardware), plan, path, plans))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when every instance was solved or kept, the error's exit code otherwise."""
    parser = argparse.ArgumentParser(prog="python -m jigsaw_opt.instances.record", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="INSTANCE", help="only these, as in tiny/042 (default: all)")
    parser.add_argument("--set", choices=sets(), help="only this set")
    parser.add_argument(
        "--unproven",
        action="store_true",
        help="only instances whose value is not proven optimal; with --proofs, those whose bound is not certified",
    )
    parser.add_argument("--solver", default="auto", help="name of the solver (default: auto)")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds an instance (default: 30)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads (default: all cores)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--proofs", action="store_true", help="solve nothing, and search for proofs of recorded bounds")
    parser.add_argument("--plan", type=Path, nargs="+", metavar="FILE", help="solve nothing, and take these plans")
    parser.add_argument("--by", metavar="NAME", help="with --plan: who sends them in")
    parser.add_argument("--hardware", metavar="TEXT", help="with --plan: what they were made on, as in 'EPYC, 2 cores'")
    parsed = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        _require_clone(DATA.parents[2])
        if parsed.plan is not None:
            submit(parsed.plan, parsed.by, parsed.hardware)
            return 0
        options = Options(time_limit=parsed.time_limit, threads=parsed.threads, seed=parsed.seed)
        known = read_best_known(BEST_KNOWN)
        chosen = [resolve(name) for name in parsed.names] or names(parsed.set)
        done = [name for name, best in known.items() if (best.certified if parsed.proofs else best.optimal)]
        left = [name for name in chosen if not (parsed.unproven and name in done)]
        if parsed.proofs:
            prove(left, parsed.time_limit)
        else:
            record(left, parsed.solver, options)
    except JigsawError as error:
        _LOGGER.error("%s", error)
        return error.exit_code
    except KeyboardInterrupt:
        _LOGGER.error("interrupted: what was found before is kept")
        return INTERRUPTED
    return 0


def _said(plan: Plan, key: str, *kinds: type) -> Any:
    """Return what a plan says of what made it; None where it says nothing of these kinds."""
    value = plan.solver.get(key)
    return value if isinstance(value, kinds) and not isinstance(value, bool) else None


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _tell(name: str, objective: int | None, old: BestKnown | None, best: BestKnown) -> None:
    """Say what of a run is kept, and what the record is now."""
    found = "no plan" if objective is None else f"objective {objective}"
    kept = [
        what
        for what, before, now in (
            ("plan", old and (old.objective, old.found), (best.objective, best.found)),
            ("bound", old and (old.bound, old.proved), (best.bound, best.proved)),
        )
        if now[1] is not None and before != now
    ]
    told = f"{' and '.join(kept)} kept" if kept else "not better than the record, nothing is kept"
    _LOGGER.info("%-32s %s: %s; best %s, bound %s", name, found, told, best.objective, best.bound)


def _require_clone(root: Path) -> None:
    """Refuse to change the data of an installed package."""
    if not (root / "pyproject.toml").exists():
        told = f"{root} is no clone of the repository: values are kept in a clone alone; run this in one"
        raise UsageError(told, code="not-allowed")


def _encoded(known: Mapping[str, BestKnown]) -> bytes:
    """Write one line an instance, in the order of the catalogue."""
    lines = (f"  {json.dumps(name)}: {json.dumps(asdict(known[name]))}" for name in names() if name in known)
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


if __name__ == "__main__":
    raise SystemExit(main())
