"""Commands given a plan whose job moves (specification: moves)."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_instance, encode_plan, instance_sha256
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Model,
    Phase,
    PhaseGroup,
    Plan,
    Segment,
    Server,
)
from tests.refusals import ends

ONE = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 30),))
INSTANCE = Instance(
    "moved", Cluster((Server("x", "v", 2, 100, 10**6),)), {"one": ONE}, (Job("a", "one", 1, 5, restart_us=7),)
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """An instance, and a plan of its only job: on x/0 up to 30, then on x/1 from 37 on."""
    step = (Iteration((Block(1, 0, 10),), ()),)
    phases = tuple(
        Phase(start, 10, repeats, (JobPlan("a", (gpu,), step),))
        for start, repeats, gpu in ((0, 3, "x/0"), (37, 2, "x/1"))
    )
    plan = Plan("moved", instance_sha256(INSTANCE), "feasible", 57, 50, (PhaseGroup(phases),), {"name": "by hand"})
    paths = tmp_path / "instance.json", tmp_path / "plan.json"
    paths[0].write_bytes(encode_instance(INSTANCE))
    paths[1].write_bytes(encode_plan(plan))
    return [str(path) for path in paths]


@pytest.mark.parametrize("command", ["check", "explain", "plot"])
def test_commands_that_take_plans_whose_jobs_move(
    files: list[str], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, *files]) == 0
    assert capsys.readouterr().out


def test_failures_refuses_plans_whose_jobs_move(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    ends("3: unsupported $.groups", "failures", *files)
    told = capsys.readouterr()
    assert "'a'" in told.err and not told.out
