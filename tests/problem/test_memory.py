"""What a GPU's memory holds, on small cases by hand."""

from __future__ import annotations

import pytest

from jigsaw_opt.instances import load
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.problem.costs import deepest_level, levels_within, most_bytes, needed_bytes


def test_states_add_up_and_activations_take_turns() -> None:
    assert needed_bytes([(10, 5), (20, 7), (30, 6)]) == 67
    assert needed_bytes([]) == 0


@pytest.mark.parametrize(("room", "level"), [(-1, 0), (3, 0), (4, 1), (8, 2), (9, 3), (100, 3)])
def test_levels_within_a_room(room: int, level: int) -> None:
    assert levels_within((4, 8, 9), room) == level


def test_a_job_alone_needs_its_state_and_the_activations_of_its_level() -> None:
    jobs = compile_instance(load("server/demo")).jobs
    for job in jobs:
        assert most_bytes([job]) == job.state_bytes + job.activation_bytes[-1]
        assert deepest_level(job, most_bytes([job])) == job.levels
        assert deepest_level(job, job.state_bytes + job.activation_bytes[0] - 1) == 0
    assert most_bytes(jobs) == sum(j.state_bytes for j in jobs) + max(j.activation_bytes[-1] for j in jobs)
