"""The relaxations in order: the instant ones before a search, the others beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.bounds.arguments import NO_ARGUMENT, some_jobs, sum_argument
from jigsaw_opt.solvers.bounds.proof import Proof, added
from jigsaw_opt.solvers.bounds.registry import relaxations
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.system.plugins import blamed


def lower_bound(operations: Operations, without: Collection[str] = ()) -> Bound:
    """Return the best bound of the instant relaxations, from which every solver starts.

    Parameters
    ----------
    operations
        The compiled instance. Where it has no plan, the bound is still a valid number and means nothing.
    without
        Names of relaxations that are left out.

    Raises
    ------
    UsageError
        There is no relaxation of such a name.
    """
    *_, best = instant_bounds(operations, without)
    return best


def instant_bounds(operations: Operations, without: Collection[str] = ()) -> Iterator[Bound]:
    """Yield rising bounds of the instant relaxations, from 0 on."""
    yield Bound(0, Proof("no time is less than 0", argument=NO_ARGUMENT))
    yield from _rising(operations, -1, BoundBudget(), without, instant=True)


def stronger_bounds(
    operations: Operations,
    known: int,
    work: float = math.inf,
    stop: Callable[[], bool] = lambda: False,
    without: Collection[str] = (),
) -> Iterator[Bound]:
    """Yield rising bounds of the relaxations that take their time, each better than all before.

    Parameters
    ----------
    operations
        The compiled instance. Where it has no plan, the bounds are still valid numbers and mean nothing.
    known
        A proven lower bound, such as that of `lower_bound`; only better ones are yielded.
    work
        Limit in seconds of a usual core, counted from the size of what is computed; the same limit gives the
        same bounds on every machine.
    stop
        Asked between steps of at most about a second; once it holds, no more bounds come.
    without
        Names of relaxations that are left out.

    Raises
    ------
    UsageError
        There is no relaxation of such a name.
    """
    yield from _rising(operations, known, BoundBudget(work, stop), without, instant=False)


def _rising(
    operations: Operations, known: int, budget: BoundBudget, without: Collection[str], instant: bool
) -> Iterator[Bound]:
    """Yield what relaxations prove in their order, either the instant ones or the others.

    Each proof receives the name of its relaxation.

    What holds for the jobs of one kind holds for all. Where every end counts, the bounds of both kinds add up.
    """
    if operations.is_mixed and operations.objective == "weighted_completion":
        yield from _added(operations, known, budget, without, instant)
        return
    for part in operations.kinds if operations.is_mixed else ():
        for bound in _of_kind(part, known, budget, without, instant):
            known = bound.value
            # Deadlines name jobs by their index among those of one kind, which is not the index in the instance.
            argument = some_jobs(part.names, bound.proof.argument)
            yield bound._replace(deadlines=None, proof=replace(bound.proof, argument=argument))
    yield from _of_kind(operations, known, budget, without, instant)


def _added(
    operations: Operations, known: int, budget: BoundBudget, without: Collection[str], instant: bool
) -> Iterator[Bound]:
    """Yield sums of a bound of the data-parallel jobs and one of the jobs with a task graph."""
    parts, none = operations.kinds, Bound(0, Proof(argument=NO_ARGUMENT))
    # While one part is searched, the other one counts with the best that is known of it. The instant relaxations of
    # both parts are still to run.
    best = [none if instant else lower_bound(part, without) for part in parts]
    for number, part in enumerate(parts):
        for bound in _of_kind(part, best[number].value, budget, without, instant):
            best[number] = bound
            values = [each.value for each in best]
            if sum(values) > known:
                known = sum(values)
                sentences = " and ".join(each.proof.sentence for each in best if each.proof.sentence)
                names = " + ".join(each.proof.relaxation for each in best if each.proof.relaxation)
                terms = tuple(term for each in best for term in each.proof.terms)
                arithmetic = f"{added(values)} = {known}"
                engine = " and ".join(dict.fromkeys(each.proof.engine for each in best if each.proof.engine))
                argument = sum_argument([(p.names, b.proof.argument) for p, b in zip(parts, best, strict=True)])
                proof = Proof(sentences, arithmetic, terms, relaxation=names, engine=engine, argument=argument)
                yield Bound(known, proof)


def _of(relaxation: Relaxation, context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    with blamed("bound", relaxation.name, relaxation.bounds):
        yield from relaxation.bounds(context, known, budget)


def _of_kind(
    operations: Operations, known: int, budget: BoundBudget, without: Collection[str], instant: bool
) -> Iterator[Bound]:
    """Yield what relaxations prove of an instance as it is."""
    context = BoundContext(operations)
    # `known` rises from one relaxation to the next, so that each can pass over what is proven already.
    for relaxation in relaxations(without):
        if relaxation.instant == instant and relaxation.applies(operations):
            for bound in _of(relaxation, context, known, budget):
                if bound.value > known:
                    known = bound.value
                    named = replace(bound.proof, relaxation=relaxation.name, engine=relaxation.engine)
                    yield bound._replace(proof=named)
