"""The tasks of a measurement, and what one of them tells."""

from __future__ import annotations

from dataclasses import replace

from jigsaw_opt.documents import encode_instance, instance_sha256
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.sweeps.bench.summary import COLUMNS
from jigsaw_opt.sweeps.bench.trials import Design, Entry, measure, trials

DESIGN = Design(("greedy", "cpsat"), (0, 1), (10.0, 60.0), threads=2)


def test_the_list_is_every_combination_in_a_fixed_order(pair: Instance) -> None:
    tasks = trials([Entry("files", "pair.json", pair)], DESIGN)
    assert tasks == trials([Entry("files", "pair.json", pair)], DESIGN)
    told = [(task.labels["time_limit"], task.labels["solver"], task.labels["seed"]) for task in tasks]
    assert told == [(t, s, n) for t in (10.0, 60.0) for s in ("greedy", "cpsat") for n in (0, 1)]
    assert tasks[0].key == f"{instance_sha256(pair)} greedy time_limit=10.0 seed=0 workers=2"


def test_keys_follow_the_content_and_the_limits_never_the_name(pair: Instance) -> None:
    keys = {task.key for task in trials([Entry("files", "pair.json", pair)], DESIGN)}
    assert len(keys) == 8
    again = [Entry("files", "pair.json", pair), Entry("copies", "copy.json", pair)]
    assert [task.key for task in trials(again, DESIGN)] == [task.key for task in trials(again[:1], DESIGN)]
    for other in (replace(DESIGN, gap=0.1), replace(DESIGN, threads=1), replace(DESIGN, work_limit=1.0)):
        assert not keys & {task.key for task in trials(again, other)}
    heavier = replace(pair, jobs=(replace(pair.jobs[0], weight=7), *pair.jobs[1:]))
    assert not keys & {task.key for task in trials([Entry("files", "pair.json", heavier)], DESIGN)}


def test_a_measured_solve_fills_its_columns(pair: Instance) -> None:
    (task,) = trials([Entry("files", "pair.json", pair)], Design(("cpsat",), (0,), (None,), work_limit=5.0))
    row = {**task.labels, "error": None, **task.function(*task.arguments)}
    assert set(COLUMNS) <= row.keys()
    assert (row["status"], row["objective"], row["bound"], row["gap"]) == ("optimal", 1800, 1800, 0.0)
    assert row["trajectory"][-1][1:] == [1800, 1800]
    assert 0 <= row["seconds_to_objective"] <= row["seconds"]
    assert 0 < row["primal_dual_integral"] <= row["seconds"]
    assert row["cpu_seconds"] > 0 and row["peak_rss_mib"] > 1
    assert row["versions"]["ortools"]


def test_a_solver_that_refuses_the_instance_tells_so_in_its_row(pair: Instance) -> None:
    cyclic = replace(pair, horizon="cyclic", objective="period")
    row = measure(encode_instance(cyclic), "ilp", Options(work_limit=1.0, threads=1))
    assert "'ilp'" in row["error"] and "cyclic" in row["error"]
    assert row["seconds"] >= 0 and "objective" not in row


def test_phased_plans_are_measured_too(pair: Instance) -> None:
    row = measure(encode_instance(pair), "phased", Options(time_limit=5, threads=1))
    assert row["objective"] >= 1800 and row["trajectory"] == []
