"""Wherever a depth rule is chosen there are the same choices, and one line says what SPB may cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import COMMANDS, main
from jigsaw_opt.cli.common.parser import commands_of
from jigsaw_opt.documents import load_instance
from jigsaw_opt.instances.measured import DEPTHS
from jigsaw_opt.problem.costs import staircase
from jigsaw_opt.problem.depth import FreeDepth, chosen_depth
from tests.refusals import require_data

SAID = "accuracy may fall; see docs/training-loop.md"
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
def test_new_takes_every_choice_and_says_once_what_it_may_cost(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "i.json"
    assert main([*JOB, "--depth", rule, "-o", str(path), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count(SAID) == (rule != "full")
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


def test_a_policy_that_chooses_spb_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--workload", "day", "--cluster", "server/plain", "--draw-models", "--until", "2"]
    for number, (policy, times) in enumerate((("jigsaw", 1), ("jigsaw:depth=full", 0), ("fifo", 0))):
        assert main([*words, "--policy", policy, "-o", str(tmp_path / str(number)), "--json"]) == 0
        printed = capsys.readouterr()
        assert printed.err.count(SAID) == times and SAID not in printed.out
        # Without an efficiency all jobs stay at full depth.
        assert printed.err.count("workers may stop") == times
