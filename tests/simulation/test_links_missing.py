"""Servers that no link joins, though nothing fails: every command names this, and no policy is blamed for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.solvers.solve import solve
from tests.refusals import carries
from tests.simulation.cases import job, setting
from tests.simulation.test_links_down import cut, racks

CORES = load_instance(Path(__file__).parents[2] / "examples" / "two-cores.json")
APART = replace(CORES, cluster=replace(CORES.cluster, links=()))
TWO_PAIRS = racks(("s0", "s1"), ("s2", "s3"))
POLICIES = ("fifo", "las", "srtf", "backfill:default_limit=4", "priority", "separate", "sjf_bco")


def apart(policy: str, *links_down: tuple[int, str, bool]) -> Setting:
    """A job of 6 GPUs on two pairs of servers with 4 GPUs, after one that fits."""
    given = setting(job("fits", 0, 4, 10), job("wide", 20, 6, 10), cluster=TWO_PAIRS)
    return (cut(given, *links_down) if links_down else given).under(policy)


def test_a_solve_proves_it() -> None:
    result = solve(APART)
    assert result.status == "infeasible"
    assert carries(" ".join(map(str, result.conflicts)), "job wide", "2 workers", "joined by links")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("links_down", [(), ((5, "s0-s1", True), (50, "s0-s1", False))])
def test_a_simulation_ends_with_the_job_unfinished(policy: str, links_down: tuple[tuple[int, str, bool], ...]) -> None:
    simulation = Simulation(apart(policy, *links_down))
    simulation.run()
    outcome = simulation.close()
    assert outcome.hindrance == "job 'wide' asks for 6 GPUs, and at most 4 that it can have are joined by links"
    assert [one.finish_us is not None for one in outcome.jobs] == [True, False]


def test_a_simulation_of_models_needs_links_also_where_a_cluster_has_none() -> None:
    """Jobs with durations alone run on such a cluster, whose network nobody states."""
    jobs = (TraceJob("lone", 0, "dense", 1, 10), TraceJob("wide", 0, "dense", 2, 10))
    plain = setting(job("both", 0, 2, 10), cluster=APART.cluster)
    simulation = Simulation(plain.under("fifo"))
    simulation.run()
    assert simulation.finished
    workload = replace(plain.workload, jobs=jobs)
    known = replace(plain, cluster=APART.cluster, workload=workload, performance=Profiled(APART.cluster, APART.models))
    simulation = Simulation(known.under("fifo"))
    simulation.run()
    assert carries(simulation.outcome.hindrance, "'wide'", "2 GPUs", "at most 1", "joined by links")


def test_the_commands_write_their_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((Path(__file__).parents[2] / "examples" / "two-cores.json").read_text())
    document["cluster"]["links"] = []
    (tmp_path / "apart.json").write_text(json.dumps(document))
    (tmp_path / "jobs.csv").write_text("name,submit_h,gpus,iterations,model\nlone,0,1,9,dense\nwide,0,2,9,dense\n")
    words = [str(tmp_path / "jobs.csv"), "--cluster", str(tmp_path / "apart.json"), "-q", "--policy"]
    assert main(["solve", str(tmp_path / "apart.json"), "-q", "-o", str(tmp_path / "plan.json")]) == 4
    assert main(["simulate", "--workload", *words, "fifo", "-o", str(tmp_path / "out")]) == 0
    assert "1 job not ended: job 'wide' asks for 2 GPUs" in capsys.readouterr().err
    assert "wide" in (tmp_path / "out" / "jobs.csv").read_text()
    assert main(["explain", str(tmp_path / "out"), "wide"]) == 2
    assert carries(capsys.readouterr().err, "'wide' has not ended", "at most 1 that it can have are joined by links")
    assert main(["simulate", "--workload", *words, "jigsaw", "-o", str(tmp_path / "jigsaw")]) == 0
    assert "1 job not ended: job 'wide' asks for 2 GPUs" in capsys.readouterr().err
    assert main(["advise", *words, "fifo", "srtf", "-o", str(tmp_path / "advice")]) == 0
    told = capsys.readouterr().out
    assert carries(told, "No simulation has ended", "at most 1 that it can have are joined by links")
    assert "for ever" not in told
