"""List schedules on flat numbers: the same, whoever computes them."""

from __future__ import annotations

import random

import pytest

from jigsaw_opt.instances import generate
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.plan import JobPlan
from jigsaw_opt.solvers.engines import compiled, magnitude
from jigsaw_opt.solvers.greedy.evaluation import Evaluator, Outcome
from jigsaw_opt.solvers.greedy.heuristic import placements
from jigsaw_opt.solvers.kernels.list_scheduling import list_schedule, repeat_list_schedule
from jigsaw_opt.solvers.placement.layout import Layout, demands
from tests.extras import needs_fast

CASES = [(family, seed) for family, seeds in (("tiny", 24), ("server", 16), ("rack", 3)) for seed in range(seeds)]


def outcomes(family: str, seed: int) -> list[tuple[Outcome, tuple[JobPlan, ...]]]:
    """List schedules of the first placements under priorities drawn at random, with their timetables."""
    operations = compile_instance(generate(family, seed))
    asked = demands(operations)
    assert asked is not None
    evaluator, draw, count, found = (
        Evaluator(operations, Layout(operations)),
        random.Random(seed),
        len(operations.jobs),
        [],
    )
    for assignments in placements(operations, asked):
        priority = [draw.uniform(0.3, 1.7) for _ in range(count)]
        outcome = evaluator.evaluate(
            assignments, priority, [draw.choice((0, draw.randrange(10**5))) for _ in range(count)]
        )
        found.append((outcome, evaluator.timetable(outcome).jobs))
    return found


@pytest.mark.slow
@needs_fast
def test_compiled_functions_schedule_as_they_do_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.compiled(list_schedule) not in (None, list_schedule)
    assert compiled.compiled(repeat_list_schedule) not in (None, repeat_list_schedule)
    fast = [outcomes(*case) for case in CASES]
    monkeypatch.setattr(compiled, "compiled", lambda function: None)
    slow = [outcomes(*case) for case in CASES]
    for ours, theirs in zip(fast, slow, strict=True):
        assert [timetable for _, timetable in ours] == [timetable for _, timetable in theirs]
        for (one, _), (other, _) in zip(ours, theirs, strict=True):
            assert (one.value, one.period_us, one.begins, one.ends) == (
                other.value,
                other.period_us,
                other.begins,
                other.ends,
            )


def test_begins_and_ends_are_those_of_the_timetable() -> None:
    for case in CASES:
        for outcome, jobs in outcomes(*case):
            assert len(jobs) == len(outcome.ends)
            for job, begin, end in zip(jobs, outcome.begins, outcome.ends, strict=True):
                first, last = job.iterations[0], job.iterations[-1]
                assert begin == min(block.start_us for block in first.blocks)
                assert end == max(operation.end_us for operation in (*last.blocks, *last.transfers))


@needs_fast
def test_times_too_long_for_64_bits_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [timetable for _, timetable in outcomes("server", 3)]

    def fail(*arguments: object) -> int:
        raise AssertionError("not to be called")

    monkeypatch.setattr(magnitude, "_SCHEDULES", 1)
    monkeypatch.setattr(compiled, "compiled", lambda function: fail)
    assert [timetable for _, timetable in outcomes("server", 3)] == expected


def test_a_later_outcome_does_not_change_an_earlier_one() -> None:
    operations = compile_instance(generate("server", 6))
    asked = demands(operations)
    assert asked is not None
    evaluator, count = Evaluator(operations, Layout(operations)), len(operations.jobs)
    assignments = next(placements(operations, asked))
    first = evaluator.evaluate(assignments, [1.0] * count, [0] * count)
    before = evaluator.timetable(first)
    other = evaluator.evaluate(
        assignments, [1.0 + index for index in range(count)], [index * 10**5 for index in range(count)]
    )
    assert evaluator.timetable(other) != before
    assert evaluator.timetable(first) == before
