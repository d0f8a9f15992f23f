"""PyJobShop with its CP-SAT back end, which chooses the GPUs itself or is given them by our greedy heuristic."""

from __future__ import annotations

from functools import partial

import cpsat_run
from attempt import Attempt
from pyjobshop_model import ShopModel

from jigsaw_opt.problem import FullDepth, Instance, Operations, StaircaseDepth
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.solvers.greedy import greedy_timetable

_MOST_SERVERS = 4
"""Each transfer has a mode for each of the 2^servers - 1 sets of servers."""


def unsupported(instance: Instance) -> str | None:
    """A cyclic horizon, and more servers than its transfers can have modes for."""
    if len(instance.cluster.servers) > _MOST_SERVERS:
        return f"more than {_MOST_SERVERS} servers"
    return unsupported_placed(instance)


def unsupported_placed(instance: Instance) -> str | None:
    """A cyclic horizon."""
    return "cyclic horizon" if instance.horizon == "cyclic" else None


def solve(attempt: Attempt) -> None:
    """Placement, roles and times by PyJobShop."""
    _search(attempt, ShopModel(attempt.operations, None))
    if not _exact(attempt.operations.instance):
        attempt.bound = None


def solve_placed(attempt: Attempt) -> None:
    """Roles and times by PyJobShop on the GPUs of our greedy plan, which is found within the same time."""
    greedy = greedy_timetable(attempt.operations, attempt.seed)
    if greedy is None:
        attempt.note = "greedy found no placement"
        return
    number = {attempt.operations.cluster.gpu_name(*gpu): gpu for gpu in _gpus(attempt.operations)}
    _search(attempt, ShopModel(attempt.operations, [[number[name] for name in job.gpus] for job in greedy.jobs]))
    attempt.bound = None


def _search(attempt: Attempt, shop: ShopModel) -> None:
    # PyJobShop's `solve` does no more, but does not tell when it found its plans, nor a bound without one.
    from pyjobshop.solvers.ortools import CPModel

    built = CPModel(shop.model.data())
    cpsat_run.run(built.model, attempt, partial(shop.plan, built))
    if attempt.bound is not None:
        attempt.bound += shop.constant


def _exact(instance: Instance) -> bool:
    """Whether the model excludes no plan: one server, and levels of which only the order is free."""
    fixed = all(isinstance(job.depth, FullDepth | StaircaseDepth) for job in instance.jobs)
    return len(instance.cluster.servers) == 1 and fixed


def _gpus(operations: Operations) -> list[Gpu]:
    return [(s, k) for s, server in enumerate(operations.cluster.servers) for k in range(server.gpus)]
