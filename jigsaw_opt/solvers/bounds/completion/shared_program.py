"""What the relaxations of weighted completion build on one another: one linear program and its cutting planes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from jigsaw_opt.solvers.bounds.combinatorial.gpu_work import gpu_resources
from jigsaw_opt.solvers.bounds.combinatorial.link_transfers import link_resources
from jigsaw_opt.solvers.bounds.completion.dual_bound import DualBound
from jigsaw_opt.solvers.bounds.completion.load_cuts import LoadCuts, cut_rounds
from jigsaw_opt.solvers.bounds.completion.program import CompletionProgram
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation


class SharedProgram:
    """The program over completion times of one run. Each relaxation adds what it knows, and leaves it to the next.

    `context`: the instance, and what is known of its jobs.
    """

    def __init__(self, context: BoundContext) -> None:
        self.job_data = context.job_data
        self.resources = [*context.shared(gpu_resources), *context.shared(link_resources)]
        weights, own = [data.job.weight for data in self.job_data], [data.completion for data in self.job_data]
        self.program = CompletionProgram(weights, own)
        self.cuts: list[LoadCuts] = []

    def solved(self, known: int, budget: BoundBudget) -> Iterator[Bound]:
        """Solve the program repeatedly, with the cutting planes that its completion times violate.

        Yields what lies above the `known` value.
        """
        if budget.spent:
            return
        self.program.solve()
        for _ in chain([None], cut_rounds(self.program, self.cuts, budget)):
            dual = self.program.dual()
            if dual.value > known:
                known = dual.value
                yield self.bound(dual, self.program.reason)

    def bound(self, dual: DualBound, sentence: str) -> Bound:
        """Return the bound that multipliers prove, with the names of the resources that it rests on."""
        own = {data.job.name: data.completion for data in self.job_data}
        used = [each for each in self.resources if any(each.reason in reason for reason in dual.constants)]
        servers = dict.fromkeys(name for resource in used for name in resource.servers)
        links = dict.fromkeys(name for resource in used for name in resource.links)
        return Bound(dual.value, dual.proof(sentence, own, tuple(servers), tuple(links)), dual.deadlines)


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    shared = context.shared(SharedProgram)
    shared.cuts += [LoadCuts(resource, context.job_data) for resource in shared.resources]
    yield from shared.solved(known, budget)


MEAN_BUSY_TIMES = Relaxation("mean_busy_times", _bounds, frozenset({"weighted_completion"}), moves=True)
"""The relaxation registered as ``mean_busy_times``."""
