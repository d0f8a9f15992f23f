"""The second checker of proofs has the rows of a plan that the package exports, no more and no fewer."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from proof_referee.cases import variable_name
from proof_referee.document import canonical
from proof_referee.rows import Rows
from proof_referee.task_graphs import Graph, components_alike

import jigsaw_opt as jo
from jigsaw_opt.documents import encode_instance
from jigsaw_opt.problem import TaskGraphJob
from tests.random_instances import (
    GOALS,
    random_instance,
    tight_instance,
    with_guarantees,
    with_licences,
    with_power_caps,
    with_route_policies,
)
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance, with_copies

Row = tuple[frozenset[tuple[Any, Fraction]], Fraction]
"""Factors of variables with several values, and the most that they add up to."""
NEVER: Row = (frozenset(), Fraction(-1))


def exported(text: str) -> tuple[dict[Any, int], set[Row]]:
    """Return the least values of the variables of an OPB document, and its rows."""
    least: dict[Any, int] = {}
    digits, rows = {}, set()
    for line in text.splitlines():
        if line.startswith("* ["):
            name, value = line[2:].rsplit(" = ", 1)
            variable, parts = variable_name(json.loads(name)), value.split()
            least[variable] = int(parts[0])
            digits.update({x: (variable, int(factor)) for factor, x in zip(parts[1::2], parts[2::2], strict=True)})
        elif found := re.match(r"(.*) (>=|=) (-?\d+) ;", line):
            parts = found[1].split()
            if not set(parts[1::2]) <= digits.keys():
                rows.add(NEVER)
                continue
            factors: dict[Any, Fraction] = {}
            for factor, x in zip(parts[::2], parts[1::2], strict=True):
                variable, digit = digits[x]
                assert factors.setdefault(variable, Fraction(int(factor), digit)) == Fraction(int(factor), digit)
            value = int(found[3]) + sum(factor * least[variable] for variable, factor in factors.items())
            rows.add((frozenset((variable, -factor) for variable, factor in factors.items()), Fraction(-value)))
            if found[2] == "=":
                rows.add((frozenset(factors.items()), Fraction(value)))
    return least, rows


def referees(table: Rows) -> set[Row]:
    """Return the rows of the second checker, those of values between powers of two among them."""
    rows, fixed = set(), {name: low for name, (low, high) in table.values.items() if low == high}
    widths = {name: high - low + 1 for name, (low, high) in table.values.items()}
    limits = [({name: 1}, table.values[name][1]) for name, width in widths.items() if width & (width - 1)]
    for terms, most in [*table.rows, *limits]:
        left = most - sum(factor * fixed[name] for name, factor in terms.items() if name in fixed)
        open_terms = frozenset((name, Fraction(factor)) for name, factor in terms.items() if name not in fixed)
        rows.add((open_terms, Fraction(left)) if open_terms or left >= 0 else NEVER)
    return {row for row in rows if row[0] or row == NEVER}


def with_memory(instance: jo.Instance, random: Random) -> jo.Instance:
    """Return the instance with more memory of slots, and some memory intervals without bytes."""
    jobs = []
    for job in instance.jobs:
        if isinstance(job, TaskGraphJob):
            slots = tuple(replace(slot, memory=random.choice((0, 5, 11, 18, 40, 60))) for slot in job.shape.slots)
            holds = tuple(replace(hold, bytes=random.choice((0, 15, hold.bytes))) for hold in job.shape.holds)
            job = replace(job, shape=replace(job.shape, slots=slots, holds=holds))
        jobs.append(job)
    return replace(instance, jobs=tuple(jobs))


def drawn(seed: int) -> jo.Instance:
    random, (horizon, objective) = Random(seed), GOALS[seed % 3]
    drawn_as = (random_instance, random_task_graph_instance, random_mixed_instance)
    if seed % 5 == 0:
        return tight_instance(seed)
    instance = with_guarantees(with_memory(drawn_as[seed % 5 % 3](seed, horizon, objective), random), random, 8)
    instance = with_licences(with_power_caps(with_route_policies(instance, random), random), random)
    return with_copies(instance) if seed % 2 else instance


def is_apart(instance: jo.Instance, name: Any) -> bool:
    """Return whether a variable is the order of two jobs without memory for both, a task-graph job among them."""
    return name[0] == "order" and len(name) == 3 and any(job.name in name for job in instance.task_graph_jobs)


def components_with_another(document: Any) -> int:
    """Return how many components of task graphs have another one that is alike behind them."""
    jobs = [job for job in document["jobs"] if "shape" in job]
    return sum(len(list(components_alike(Graph(document, job)))) for job in jobs)


@pytest.mark.parametrize("iterations", ["each", "together"])
def test_rows_of_random_instances(iterations: str) -> None:
    compared, alike, kinds = 0, 0, set()
    for seed in range(60):
        instance = drawn(seed)
        limit = Random(seed).choice((1, 5, 12, 50))
        canonical_form = canonical(json.loads(encode_instance(instance)))
        table = Rows(canonical_form, limit, iterations == "each")
        if all(low <= high for low, high in table.values.values()):
            document = jo.export(instance, to="opb", at_most=limit, iterations=iterations).files["plan.opb"]
            least, rows = exported(document.decode())
            assert least == {name: low for name, (low, _) in table.values.items()}, seed
            assert rows == referees(table), seed
            compared += 1
            alike += components_with_another(canonical_form)
            kinds |= {name[0] for name in table.values} | {"apart" for name in table.values if is_apart(instance, name)}
    assert compared >= 40
    assert alike >= 20
    assert "apart" in kinds and ("peak" in kinds) == (iterations == "each")
