"""Holes of one pipeline or burst and pieces of one-GPU jobs: the best rate by an integer program, or a bound of it.

The rate is a quotient, so the program is solved for how much the best known rate is beaten, again with each better one
(Dinkelbach, *On nonlinear fractional programming*, Management Science 13, 1967). No rate is above what its bound adds.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.formulations.cpsat_holes import CpSatHoles, HoleProblem, Parts, Pieces, block_orders
from jigsaw_opt.planning.fill.loads import Loads, Vector, restricted
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations, compile_instance
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Execution, Plan, TaskGraphIteration, TaskGraphJobPlan
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.engines.cpsat import new_solver
from jigsaw_opt.solvers.engines.magnitude import EXACT_FLOATS
from jigsaw_opt.solvers.engines.stoppable import run_stoppable
from jigsaw_opt.solvers.options import Options

_FOREVER = 1e9
"""Seconds, or deterministic ones, where there is no limit: the engine takes no infinite number."""
_ROUNDING = 1e-3
"""Tolerance for the engine's bounds, which are floats of whole numbers."""


class ExactHoles:
    """The integer program of an instance.

    `loads`: the instance, and the period that is allowed. `is_exact`: whether no other orders of blocks are possible,
    so that its bound holds. `bound`: no plan has a better rate. `best`: vector and plan of the best rate found here, or
    None.
    """

    def __init__(self, loads: Loads, problem: HoleProblem, plan: Plan, is_exact: bool) -> None:
        self._loads, self._problem, self._plan, self._is_exact = loads, problem, plan, is_exact
        self._model = CpSatHoles(problem)
        self._is_complete = problem.is_complete and all(map(self._holds_nothing, loads.instance.jobs))
        self.bound = loads.rate_bound()
        self.best: tuple[Vector, Plan] | None = None

    @classmethod
    def of(cls, loads: Loads, kept: Mapping[str, int], plan: Plan) -> ExactHoles | None:
        """Build the program of an instance; return None where its jobs are not of this kind.

        Where edges leave the order of blocks open, they keep that of the plan.

        `kept`: iterations of each job that the plan of the foreground keeps, by name.
        """
        cluster, foreground = loads.instance.cluster, compile_instance(restricted(loads.instance, kept))
        if len(cluster.servers) > 1 or foreground.jobs or len(foreground.task_graphs) > 1 or sum(kept.values()) > 1:
            return None
        graph = foreground.task_graphs[0]
        found = _parts(loads)
        if found is None:
            return None
        pieces, jobs = found
        lengths = _lengths_us(graph, foreground)
        if graph.shape.barrier == "none":
            return None
        known = block_orders(graph, lengths)
        orders = known if known is not None else _planned_orders(graph, plan)
        problem = HoleProblem(
            graph, lengths, orders, cluster.servers[0].gpus, pieces, jobs, loads.least_us, loads.allowed_us
        )
        return cls(loads, problem, plan, known is not None)

    def run(self, value: int, period_us: int, starts: Sequence[int], options: Options) -> float:
        """Look for better rates than one, until none is left or a limit is over.

        Work that was done, in the engine's deterministic seconds.

        `value, period_us, starts`: weighted iterations, period, and starts of the foreground's operations in the best
        plan known.
        """
        from ortools.sat.python import cp_model

        end = math.inf if options.time_limit is None else time.monotonic() + options.time_limit
        most, done = math.inf if options.work_limit is None else options.work_limit, 0.0

        def over() -> bool:
            return options.cancel.is_set() or time.monotonic() >= end

        while done < most and not over():
            self._model.aim(value, period_us)
            self._model.hint(starts, period_us)
            solver, proto = new_solver(options.threads, options.seed), self._model.proto
            solver.parameters.max_time_in_seconds = min(end - time.monotonic(), _FOREVER)
            solver.parameters.max_deterministic_time = min(most - done, _FOREVER)
            try:
                status = run_stoppable(partial(solver.solve, proto), solver.stop_search, "holes", over)
            except OutOfTimeError:  # the engine does not listen, and what it finds comes too late
                break
            done += solver.response_proto.deterministic_time
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                break
            self._limit(value, period_us, solver.best_objective_bound)
            if solver.objective_value <= 0:
                break
            value, period_us = solver.value(self._model.value), solver.value(self._model.period)
            starts = [solver.value(start) for start in self._model.starts]
            if self._is_complete:
                self.best = self._read(solver.value, starts, period_us)
        return done

    def _holds_nothing(self, job: Job | TaskGraphJob) -> bool:
        """Return whether a background job, of one block, takes no memory."""
        plain = (
            isinstance(job, TaskGraphJob) and not job.shape.holds and all(slot.memory == 0 for slot in job.shape.slots)
        )
        return plain or job.name not in self._loads.background

    def _limit(self, value: int, period_us: int, most: float) -> None:
        """Limit the rate: it exceeds the known one by at most the engine's integer bound over both periods."""
        if self._is_exact and abs(most) < EXACT_FLOATS:
            over = Fraction(max(0, int(most + _ROUNDING)), period_us * self._loads.least_us)
            self.bound = min(self.bound, Fraction(value, period_us) + over)

    def _read(self, value: Callable[..., int], starts: Sequence[int], period_us: int) -> tuple[Vector, Plan]:
        """Return the plan of a solution."""
        own = self._plan.jobs[0]
        places = dict(enumerate(own.gpus))
        server = self._loads.instance.cluster.servers[0]
        idle = [name for k in range(server.gpus) if (name := f"{server.name}/{k}") not in own.gpus]
        places |= {-1 - k: name for k, name in enumerate(idle)}
        plans: dict[str, TaskGraphJobPlan] = {own.name: _task_graph_plan(own.name, own.gpus, self._problem, starts)}
        left = [[*own] for own in self._loads.alike]
        counts = dict.fromkeys(self._loads.background, 0)
        for slot, holes in self._model.holes(value).items():
            times, ends = defaultdict[int, list[int]](list), dict[int, int]()
            for begin, kind, count in holes:
                length, at = self._problem.pieces[kind].length_us, ends.get(begin, begin)
                times[kind] += range(at, at + count * length, length)
                ends[begin] = at + count * length
            for kind, moments in times.items():
                name = self._loads.background[left[kind].pop(0)]
                length = self._problem.pieces[kind].length_us
                counts[name] = len(moments)
                rows = (TaskGraphIteration((Execution(at, at + length),), ()) for at in sorted(moments))
                plans[name] = TaskGraphJobPlan(name, (places[slot],), tuple(rows))
        jobs = tuple(plans[job.name] for job in self._loads.instance.jobs if job.name in plans)
        plan = replace(self._plan.with_jobs(jobs).with_period(period_us), status="feasible", objective=period_us)
        return tuple(counts.values()), plan


def _task_graph_plan(name: str, gpus: tuple[str, ...], problem: HoleProblem, starts: Sequence[int]) -> TaskGraphJobPlan:
    done = [Execution(at, at + us) for at, us in zip(starts, problem.lengths_us, strict=True)]
    blocks = problem.graph.blocks
    return TaskGraphJobPlan(name, gpus, (TaskGraphIteration(tuple(done[:blocks]), tuple(done[blocks:])),))


def _lengths_us(graph: CompiledTaskGraph, operations: Operations) -> list[int]:
    """Return durations of all operations on the only server."""
    kind = operations.cluster.servers[0].gpu_type
    lengths = [graph.block_us(block, [kind]) for block in range(graph.blocks)]
    for operation in range(graph.blocks, graph.size):
        channel = graph.channel(operation, [0] * len(graph.takes_part[operation]), operations.routes)
        assert channel is not None, "one server needs no route"
        lengths.append(graph.transfer_us(operation, channel))
    return lengths


def _planned_orders(graph: CompiledTaskGraph, plan: Plan) -> list[tuple[int, ...]]:
    """Return for each slot its blocks in the order of a plan."""
    blocks = plan.jobs[0].iterations[0].blocks
    return [tuple(sorted(own, key=lambda block: blocks[block].start_us)) for own in graph.blocks_of]


def _parts(loads: Loads) -> tuple[list[Pieces], list[Parts]] | None:
    """Return the parts of background iterations; None where a block takes several GPUs or levels are open."""
    once = compile_instance(restricted(loads.instance, dict.fromkeys(loads.background, 1)))
    jobs = {job.name: job for job in once.jobs}
    shapes = {graph.job.name: graph for graph in once.task_graphs}
    kind, pieces, found = once.cluster.servers[0].gpu_type, list[Pieces](), list[Parts]()
    for own in loads.alike:
        name = loads.background[own[0]]
        if name in jobs:
            lengths, slots = _levels_us(jobs[name], kind), jobs[name].slots
        else:
            lengths, slots = _blocks_us(shapes[name], kind), len(shapes[name].shape.slots)
        if lengths is None:
            return None
        counts = [(len(pieces) + k, each) for k, each in enumerate(lengths.values())]
        pieces += [Pieces(length, len(own) * slots) for length in lengths]
        found.append(Parts(loads.weights[own[0]], tuple(counts), sum(loads.caps[index] for index in own)))
    return pieces, found


def _levels_us(job: OperationGraph, kind: str) -> Counter[int] | None:
    """Return lengths of the blocks of an iteration, and how many have each."""
    if job.rule.multiset is None or kind not in job.gpu_types:
        return None
    table = job.blocks[0].duration_us[kind]
    return Counter(table[level - 1] for level in job.rule.multiset)


def _blocks_us(graph: CompiledTaskGraph, kind: str) -> Counter[int] | None:
    """Return lengths of the blocks of an iteration, and how many have each."""
    if any(kind not in types for types in graph.gpu_types) or any(
        len(slots) > 1 for slots in graph.takes_part[: graph.blocks]
    ):
        return None
    return Counter(graph.block_us(block, [kind]) for block in range(graph.blocks))
