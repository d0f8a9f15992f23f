"""Placements of any kind as a CP-SAT model: which device has which group.

Variables: `x[g, d]`, group `g` is on device `d`; `c[o, d]`, an accelerator has some but not all groups that an output
joins; and the largest load. Accelerators are alike, so their first groups are in order; so are CPUs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.planning.placement.loads import Groups, Placed, placed
from jigsaw_opt.problem import clock
from jigsaw_opt.solvers.engines.stoppable import run_stoppable
from jigsaw_opt.solvers.interruptible import interruptible
from jigsaw_opt.solvers.options import Options

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["exact_placement"]


def exact_placement(groups: Groups, start: Placed | None, options: Options) -> Placed:
    """Return the placement of least maximum load, contiguous or not.

    `options`: time limit, workers and seed; a signal or the cancel flag ends the search with the best placement so far.
    """
    from ortools.sat.python import cp_model

    from jigsaw_opt.solvers.engines.cpsat import new_solver

    limit = clock.Clock(options.time_limit, options.cancel)
    with interruptible(options), clock.limited(limit):
        model = _DeviceModel(groups, None if start is None else start.max_load_ns)
        if start is not None:
            model.hint(start)
        solver = new_solver(options.threads, options.seed)
        try:
            status = run_stoppable(lambda: solver.solve(model.proto), solver.stop_search, "placement")
        except OutOfTimeError:  # the engine does not listen, and is left behind
            if start is None:
                raise
            return start
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return placed(groups, model.sets(solver), int(solver.best_objective_bound))
        if start is None:
            raise OutOfTimeError("no placement was found in time")
        return Placed(start.max_load_ns, max(0, int(solver.best_objective_bound)), start.devices)


class _DeviceModel:
    """The model."""

    def __init__(self, groups: Groups, limit: int | None) -> None:
        from jigsaw_opt.formulations.cpsat_model import new_model

        self.groups, self.proto = groups, new_model()
        graph = groups.graph
        self.kinds = ["accelerator"] * graph.accelerators + ["cpu"] * graph.cpus
        most = sum(groups.cpu_ns) + sum(time or 0 for time in groups.accelerator_ns)
        self.load = self.proto.new_int_var(
            0, most + sum(time for _, time in groups.outputs) if limit is None else limit, ""
        )
        self.on = [[self.proto.new_bool_var("") for _ in self.kinds] for _ in groups.members]
        for own in self.on:
            self.proto.add_exactly_one(own)
        for device, kind in enumerate(self.kinds):
            self._add_device(device, kind)
        self._add_symmetry(range(graph.accelerators))
        self._add_symmetry(range(graph.accelerators, len(self.kinds)))
        self.proto.minimize(self.load)

    def hint(self, start: Placed) -> None:
        """Offer a placement to the engine as its first solution."""
        device_of: dict[int, int] = {}
        free = {kind: [d for d, own in enumerate(self.kinds) if own == kind] for kind in set(self.kinds)}
        first = {self.groups.graph.operators[own[0]].number: at for at, own in enumerate(self.groups.members)}
        there = [(min(first[node] for node in each.nodes if node in first), each) for each in start.devices]
        for _, used in sorted(there, key=lambda pair: pair[0]):
            device = free[used.kind].pop(0)
            device_of |= dict.fromkeys((first[node] for node in used.nodes if node in first), device)
        for at, own in enumerate(self.on):
            for device, literal in enumerate(own):
                self.proto.add_hint(literal, device_of[at] == device)

    def sets(self, solver: cp_model.CpSolver) -> list[tuple[int, str]]:
        """Return sets of groups on devices of a kind."""
        found = []
        for device, kind in enumerate(self.kinds):
            own = sum(1 << at for at, literals in enumerate(self.on) if solver.value(literals[device]))
            if own:
                found.append((own, kind))
        return found

    def _add_device(self, device: int, kind: str) -> None:
        """Load and memory of a device."""
        groups, there = self.groups, [own[device] for own in self.on]
        if kind == "cpu":
            self.proto.add(self.load >= sum(time * x for time, x in zip(groups.cpu_ns, there, strict=True)))
            return
        for time, x in zip(groups.accelerator_ns, there, strict=True):
            if time is None:
                self.proto.add(x == 0)
        work = sum((time or 0) * x for time, x in zip(groups.accelerator_ns, there, strict=True))
        moved = []
        for mask, time in groups.outputs:
            cut = self.proto.new_bool_var("")
            joined = [x for at, x in enumerate(there) if mask >> at & 1]
            # Some are here and some are not: around the circle of them, one is here and the next is not.
            for one, other in zip(joined, [*joined[1:], joined[0]], strict=True):
                self.proto.add_bool_or([~one, other, cut])
            moved.append(time * cut)
        self.proto.add(self.load >= work + sum(moved))
        self.proto.add(sum(size * x for size, x in zip(groups.bytes, there, strict=True)) <= groups.graph.memory)

    def _add_symmetry(self, devices: range) -> None:
        """Use a device only for a group behind one that the device before it has: alike devices are symmetric."""
        for before, device in pairwise(devices):
            earlier: list[cp_model.IntVar] = []
            for own in self.on:
                self.proto.add_bool_or([~own[device], *earlier])
                earlier.append(own[before])
