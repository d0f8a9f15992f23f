"""Solvers set against each other, the checker and brute force on random instances.

Run ``python -m benchmarks.fuzz_solvers [--kind extreme|tight] [--seeds 0:100] [--solvers greedy,cpsat,ilp]
[--time-limit 2] [--cold]`` in the root of the repository. Instances have extreme numbers, or memory so tight that jobs
have to follow one another. One line a failure; exit status 1 where there is one. A failure is

* an exception, or no answer long after the time limit (the process may have ended, too);
* a plan that the checker does not accept once it has been written and read;
* a bound above the objective of any solver's plan: one of two different proven optima has such a bound;
* a proof that there is no plan, and a plan;
* a bound above the optimum of brute force, or a plan below it, on instances of a handful of operations.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeVar
from unittest.mock import patch

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, decode_plan, encode_instance, encode_plan
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find, names, refusal
from jigsaw_opt.solvers.result import Result, Status
from jigsaw_opt.solvers.solve import solve
from tests.extreme_instances import extreme_instance
from tests.oracle import optimum
from tests.random_instances import tight_instance
from tests.task_graph_oracle import task_graph_optimum

T = TypeVar("T")
GRACE_SECONDS = 60.0
"""A solver answers so long after its time limit at the latest, on a busy machine too."""
COLD_MODULES = ("jigsaw_opt.solvers.cpsat.search", "jigsaw_opt.solvers.ilp.solver")
"""Where the exact solvers ask the heuristic for a first plan."""
MOST_OPERATIONS, MOST_GPUS = 6, 4
"""Brute force takes longer than a solver beyond these, but for tight instances, which are made to be small."""


def _tight(seed: int) -> Instance:
    return tight_instance(seed, "makespan" if seed % 2 else "weighted_completion")


KINDS: dict[str, Callable[[int], Instance]] = {"extreme": extreme_instance, "tight": _tight}


class Worker:
    """A process of its own for calls that may crash or never return, replaced after one that did."""

    def __init__(self) -> None:
        self._pool = multiprocessing.get_context("fork").Pool(1)

    def call(self, function: Callable[..., T], arguments: tuple[object, ...], seconds: float) -> T | str:
        """What the function returns, or what went wrong."""
        raised: list[BaseException] = []
        pending = self._pool.apply_async(function, arguments, error_callback=raised.append)
        pending.wait(seconds)
        if raised:
            return f"{type(raised[0]).__name__}: {raised[0]}"
        if pending.ready():
            return pending.get()
        self.close()
        self._pool = multiprocessing.get_context("fork").Pool(1)
        return f"no answer within {seconds:g} s"

    def close(self) -> None:
        """End the process."""
        self._pool.terminate()
        self._pool.join()


def solved(instance: Instance, seed: int, solver: str, seconds: float, cold: bool) -> Result:
    with ExitStack() as stack:
        for module in COLD_MODULES if cold else ():
            stack.enter_context(patch(f"{module}.offer_greedy", return_value=False))
        return solve(instance, solver, Options(time_limit=seconds, threads=1, seed=seed))


def brute_force(instance: Instance) -> int | None:
    return task_graph_optimum(instance) if instance.task_graph_jobs else optimum(instance)


def failures(worker: Worker, kind: str, seed: int, solvers: list[str], seconds: float, cold: bool) -> Iterator[str]:
    """Everything that is wrong with what the solvers say of one instance."""
    instance = KINDS[kind](seed)
    if decode_instance(encode_instance(instance)) != instance:
        yield "the instance changes when it is written and read"
    results: dict[str, Result] = {}
    for solver in (name for name in solvers if refusal(find(name), instance) is None):
        answer = worker.call(solved, (instance, seed, solver, seconds, cold), seconds + GRACE_SECONDS)
        if isinstance(answer, str):
            yield f"{solver}: {answer}"
        else:
            results[solver] = answer
            yield from _broken_rules(instance, solver, answer)
    yield from _contradictions(results)
    if kind == "tight" or _small(instance):
        yield from _against_brute_force(results, worker.call(brute_force, (instance,), GRACE_SECONDS))


def _broken_rules(instance: Instance, solver: str, result: Result) -> Iterator[str]:
    if result.plan is not None:
        for violation in check(instance, decode_plan(encode_plan(result.plan))):
            yield f"{solver}: {violation}"


def _contradictions(results: dict[str, Result]) -> Iterator[str]:
    """What one solver has proven and another one's plan disproves."""
    for one, proven in results.items():
        for other, found in results.items():
            if found.objective is not None and proven.status is Status.INFEASIBLE:
                yield f"{one} proves that there is no plan; {other} has one"
            elif found.objective is not None and proven.bound > found.objective:
                yield f"{one} proves a bound of {proven.bound} ({proven.status}); {other} has {found.objective}"


def _small(instance: Instance) -> bool:
    operations = compile_instance(instance)
    few = operations.blocks + operations.transfers <= MOST_OPERATIONS and instance.cluster.gpu_count <= MOST_GPUS
    return few and instance.horizon == "finite"


def _against_brute_force(results: dict[str, Result], best: int | str | None) -> Iterator[str]:
    if isinstance(best, str):
        yield f"brute force: {best}"
        return
    for solver, result in results.items():
        if best is None and result.objective is not None:
            yield f"{solver} has a plan; brute force has none"
        elif best is not None and result.status is Status.INFEASIBLE:
            yield f"{solver} proves that there is no plan; brute force has one of {best}"
        elif best is not None and not result.bound <= best <= (result.objective or best):
            yield f"{solver} says {result.bound} to {result.objective}; the optimum is {best}"


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="extreme", help="of instances; default extreme")
    parser.add_argument("--seeds", type=_range, default=range(100), metavar="FROM:TO", help="default 0:100")
    parser.add_argument("--solvers", type=lambda text: text.split(","), default=list(names()), help="default: all")
    parser.add_argument("--time-limit", type=float, default=2.0, metavar="SECONDS", help="of each solver; default 2")
    parser.add_argument("--cold", action="store_true", help="hide the heuristic's plan from cpsat and ilp")
    arguments = parser.parse_args()
    worker, failed = Worker(), 0
    for seed in arguments.seeds:
        for failure in failures(worker, arguments.kind, seed, arguments.solvers, arguments.time_limit, arguments.cold):
            failed += 1
            print(f"seed {seed}: {failure}", flush=True)
    worker.close()
    print(f"{len(arguments.seeds)} instances, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
