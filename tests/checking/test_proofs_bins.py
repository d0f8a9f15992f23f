"""Proofs by bins: those of `link_bins` are right, and no change of a field makes one prove more than is true."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from jigsaw_opt.checking.proofs.arguments import proven
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.kinds import bins as checked
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server, compile_instance
from jigsaw_opt.solvers.bounds import Bound, lower_bound
from jigsaw_opt.solvers.bounds.packing.column_generation import Item, best_pattern
from jigsaw_opt.solvers.bounds.packing.link_bins import LINK_BINS
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget, BoundContext
from tests.checking.proof_mutants import mutants


def star(payloads: list[int]) -> Instance:
    """Jobs of two workers on three servers of one GPU; a transfer takes the payload in microseconds."""
    hosts = tuple(Server(f"s{k}", "v", 1, 10**9, 10**9) for k in range(3))
    links = tuple(Link(f"l{k}", (f"s{k}", "hub"), 10**6) for k in range(3))
    models = {f"m{p}": Model((Segment("a", {"v": 1}, {"v": 0}, p, 0),)) for p in payloads}
    jobs = tuple(Job(f"j{k}", f"m{p}", 2, 1) for k, p in enumerate(payloads))
    return Instance("star", Cluster(hosts, ("hub",), links), models, jobs, "cyclic", "period")


def bounds(instance: Instance) -> list[Bound]:
    operations = compile_instance(instance)
    known = lower_bound(operations).value
    return list(LINK_BINS.bounds(BoundContext(operations), known, BoundBudget(4.0)))


def value(instance: Instance, argument: object) -> int | None:
    """What an argument proves, None where it is refused."""
    try:
        return proven(ProofStep(argument, "$"), Facts(instance))
    except ProofStepError:
        return None


@pytest.mark.parametrize("source", ["tiny/022", "server/mixed-types", "rack/link-bound"])
def test_every_bound_of_link_bins_is_proven_exactly(source: str) -> None:
    instance = instance_from(source)
    found = bounds(instance)
    assert found
    assert [value(instance, bound.proof.argument) for bound in found] == [bound.value for bound in found]


def test_a_changed_proof_is_refused_or_proves_no_more_than_the_optimum() -> None:
    instance = star([100, 100, 100, 100])
    best = bounds(instance)[-1]
    assert best.value == 300
    refused = 0
    for where, changed in mutants(best.proof.argument):
        found = value(instance, changed)
        assert found is None or found <= 300, where
        refused += found is None
    # Prices of one more or less refute the same limit; without a job, a link or an exact limit there is no proof.
    assert refused >= 15


def test_a_limit_within_which_too_few_gpus_are_fast_enough_is_refuted() -> None:
    instance = instance_from("server/mixed-types")
    best = bounds(instance)[-1]
    limit = best.proof.argument and best.proof.argument["limit"]
    assert isinstance(limit, int)
    assert value(instance, {**(best.proof.argument or {}), "limit": limit - 1}) == limit
    assert value(instance, {**(best.proof.argument or {}), "limit": 10 * limit}) is None


def test_jobs_that_may_move_or_fit_into_one_group_have_no_price() -> None:
    instance = star([100, 100, 100, 100])
    argument = {"kind": "bins", "limit": 120, "links": ["l0", "l1", "l2"], "prices": {f"j{k}": 1 for k in range(4)}}
    assert value(instance, argument) == 121
    assert value(instance, {**argument, "links": []}) is None
    assert value(instance, {**argument, "links": ["l0"]}) is None
    assert value(instance, {**argument, "prices": {"other": 1}}) is None
    moving = replace(
        instance,
        horizon="finite",
        objective="makespan",
        jobs=tuple(replace(job, restart_us=5) for job in instance.jobs),
    )
    assert value(moving, argument) is None


def test_both_knapsacks_find_the_same_best_value() -> None:
    for seed, capacity in product(range(30), (0, 7, 50, 2**15, 2**40 + 3)):
        sizes = [(seed * 31 + k * 17) % 13 * max(1, capacity // 20) for k in range(5)]
        items = [Item(size, 1 + (seed + k) % 4, k % 3 * capacity // 4) for k, size in enumerate(sizes)]
        values = [1 + (seed * 7 + k * 5) % 11 for k in range(5)]
        other = Counter[checked._JobInBin]()
        for item, price in zip(items, values, strict=True):
            other[checked._JobInBin(item.head, item.size, price)] += item.copies
        assert checked._most_valuable(other, capacity) == best_pattern(items, values, capacity).value
