"""Wherever a depth rule is chosen there are the same choices, and one line says what is not counted of its cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import COMMANDS, main
from jigsaw_opt.cli.common.options import warn_of_spb
from jigsaw_opt.cli.common.parser import commands_of
from jigsaw_opt.documents import load_instance, save_instance
from jigsaw_opt.instances.measured import DEPTHS, with_depth
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.costs import staircase
from jigsaw_opt.problem.depth import FreeDepth, chosen_depth
from jigsaw_opt.problem.efficiency import Efficiency
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from tests.refusals import require_data
from tests.simulation.resumable import MODELS

SAID = "accuracy may fall"
JOB = ("new", "--cluster", "2x2:v100", "--job", "a:resnet50:4:6")


def test_every_option_depth_offers_every_rule() -> None:
    helps = {
        name: str(action.help)
        for name, parser in commands_of(COMMANDS).items()
        for action in parser._actions
        if "--depth" in action.option_strings
    }
    assert helps.keys() >= {"new", "convert"}
    assert all(text.startswith(f"{', '.join(DEPTHS[:-1])} or {DEPTHS[-1]} (default: full)") for text in helps.values())


@pytest.mark.parametrize("rule", DEPTHS)
def test_new_takes_every_choice_and_says_once_what_it_may_cost_unless_progress_is_kept(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "i.json"
    assert main([*JOB, "--depth", rule, "-o", str(path), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count(SAID) == (rule not in ("full", "goodput"))
    told = "depth rule goodput: 0 jobs may train partially, 1 at full depth, 1 of them without an efficiency"
    assert (told in printed.err) == (rule == "goodput")
    assert "accuracy" not in printed.out and json.loads(printed.out)["assumed"]
    (job,) = load_instance(path).data_parallel
    # Estimated models have no efficiency.
    assert job.depth == chosen_depth("full" if rule == "goodput" else rule, 4, 6, 6)


def test_a_rotating_staircase_keeps_the_rule_rotation_and_nothing_tighter_holds() -> None:
    for workers in range(1, 7):
        for deepest in range(1, 7):
            steps = staircase(deepest, workers)
            for iterations in range(1, 15):
                rule = chosen_depth("rotation", workers, deepest, iterations)
                assert isinstance(rule, FreeDepth)
                rows = [[steps[(k + turn) % workers] for k in range(workers)] for turn in range(iterations)]
                totals = [sum(column) for column in zip(*rows, strict=True)]
                limits = rule.limits(workers, deepest, iterations)
                assert sum(totals) >= limits.min_total
                assert max(totals) - min(totals) == limits.balance
                assert all(row.count(deepest) >= limits.min_contributors for row in rows)


def link(folder: Path, found: Any) -> str:
    path = folder / "link.json"
    path.write_text(json.dumps({"device": "cpu", "all_reduce": found}))
    return str(path)


def test_a_measured_link_is_that_of_the_cluster(tmp_path: Path) -> None:
    file, path = link(tmp_path, {"bandwidth": 7_000_000, "latency_us": 12.6, "alone": []}), tmp_path / "i.json"
    assert main([*JOB, "--link", file, "-o", str(path)]) == 0
    cluster = load_instance(path).cluster
    assert {(link.bandwidth, link.latency_us) for link in cluster.links} == {(7_000_000, 13)}
    assert {server.fabric_bandwidth for server in cluster.servers} != {7_000_000}
    assert main(["new", "--cluster", "1x4:v100", *JOB[3:], "--link", file, "-o", str(path)]) == 0
    (server,) = load_instance(path).cluster.servers
    assert (server.fabric_bandwidth, server.fabric_latency_us) == (7_000_000, 13)


@pytest.mark.parametrize(
    "found", [{"bandwidth": 0}, {"bandwidth": 2.5, "latency_us": -1}, {"bandwidth": 2**53, "latency_us": True}, None]
)
def test_what_is_no_measured_link_is_refused(found: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, both = tmp_path / "i.json", ("2 problems", "$.all_reduce.bandwidth", "$.all_reduce.latency_us")
    assert main([*JOB, "--link", link(tmp_path, found), "-o", str(path)]) == 3
    require_data(capsys.readouterr().err, *(both if found else ("1 problem", "$: holds no measured all-reduces")))
    assert not path.exists()


def test_goodput_tells_how_many_jobs_train_partially(capsys: pytest.CaptureFixture[str]) -> None:
    box, small = Cluster((Server("s", "v", 4, 10**9, 10**10),)), MODELS["small"]
    quiet = replace(small, efficiency=Efficiency((0,) * small.depth, (1,) * small.depth))
    jobs = tuple(Job(f"{name}{k}", name, 2, 10) for name in ("small", "quiet") for k in range(2))
    made = with_depth(Instance("i", box, {"small": small, "quiet": quiet}, jobs), "goodput")
    warn_of_spb("goodput", made)
    told = "depth rule goodput: 2 jobs may train partially, 2 at full depth, 2 of them without an efficiency"
    assert capsys.readouterr().err.strip().endswith(told)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Two jobs that share all GPUs, of a model without an efficiency, or without any noise, to be simulated."""
    box, small = Cluster((Server("s", "v", 4, 10**9, 10**10),)), MODELS["small"]
    quiet = replace(small, efficiency=Efficiency((0,) * small.depth, (1,) * small.depth))
    instance = Instance("i", box, {"small": small, "quiet": quiet}, (Job("j", "small", 4, 1),))
    save_instance(instance, tmp_path / "i.json")
    for model in instance.models:
        jobs = "".join(f"{name},0,{model},4,1000\n" for name in "ab")
        (tmp_path / f"{model}.csv").write_text("name,submit_s,model,gpus,iterations\n" + jobs)
    return ["simulate", "--cluster", str(tmp_path / "i.json"), "-o", str(tmp_path / "out"), "--force", "--json"]


@pytest.mark.parametrize(
    ("model", "policy", "counted", "told"),
    [
        ("small", "fifo", "goodput", False),
        ("small", "jigsaw", "goodput", False),  # without an efficiency all jobs stay at full depth
        ("small", "jigsaw:depth=free", "goodput", True),
        ("quiet", "jigsaw", "goodput", False),  # lower levels, of which it is known what they are worth
        ("quiet", "jigsaw", "raw", False),
        ("quiet", "jigsaw:depth=free", "raw", True),
    ],
)
def test_iterations_below_full_depth_that_count_as_whole_ones_are_told_once_and_nothing_else_is(
    model: str,
    policy: str,
    counted: str,
    told: bool,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words += ["--workload", str(tmp_path / f"{model}.csv"), "--policy", policy, "--efficiency", counted]
    for more in ([], ["--sweep"]):
        assert main([*words, *more]) == 0
        printed = capsys.readouterr()
        assert printed.err.count(SAID) == printed.err.count(f"of model {model} count as whole ones") == told
        assert json.loads(printed.out)["raw_models"] == [model] * told
