"""Advice: policies side by side over seeds, and changes of one setting at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.simulation.inputs.request import SimulationRequest, read_setting
from jigsaw_opt.sweeps.advice import Advice, Advisor, PolicyFigures
from jigsaw_opt.sweeps.advice_words import (
    advice_document,
    assumed,
    headline,
    settings_that_matter,
    who_loses,
)
from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.sweeps.job_times import Group, Waits, job_changes
from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.simulations import is_row
from jigsaw_opt.sweeps.task import SweepTask, TaskOutcome, never, sweep
from jigsaw_opt.sweeps.variants import variants
from jigsaw_opt.views.sweep_page import advice_html
from tests.refusals import misuse


class Here:
    """Runs tasks in this process, at most so many."""

    def __init__(self, most: int = 1000) -> None:
        self.left, self.done = most, 0

    def run(
        self, tasks: Sequence[SweepTask], stopped: Callable[[], bool] = never
    ) -> Generator[TaskOutcome, None, None]:
        for task in tasks[: self.left]:
            self.left, self.done = self.left - 1, self.done + 1
            yield TaskOutcome(task, task.function(*task.arguments))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """A long job on all GPUs before a short one, so that the shortest first is better by far."""
    path = tmp_path / "trace.csv"
    path.write_text("name,submit_h,gpus,duration_h\nlong,0,4,10\nshort,0.1,4,1\n")
    return str(path)


def asked(workload: str, cluster: str, policy: str, **more: Any) -> SimulationRequest:
    return SimulationRequest(workload, cluster, policy, **more)


def advisor_of(
    base: SimulationRequest, policies: Sequence[str] | None, seeds: Sequence[int] | None, measure: str
) -> Advisor:
    return Advisor(base, str(base.policy), policies, seeds, measure)


def advised(
    advisor: Advisor, path: Path, engine: Here, seen: list[tuple[int, int]] | None = None
) -> tuple[Advice, Here]:
    def report(_row: dict[str, Any], finished: int, count: int) -> None:
        if seen is not None:
            seen.append((finished, count))

    with Record(path) as record:
        run = partial(sweep, engine=engine, record=record, report=report)
        advisor.compare(run)
        advisor.vary(record, run)
        return advisor.advice(record), engine


def test_the_best_policy_and_what_it_saves(trace: str, tmp_path: Path) -> None:
    base = asked(trace, "1x4:v100", "fifo", round_s=0.0, restart_s=0.0)
    advisor = advisor_of(base, ["srtf"], [0, 1], "mean_completion_h")
    seen: list[tuple[int, int]] = []
    advice, _ = advised(advisor, tmp_path / "rows.jsonl", Here(), seen)
    assert (advice.best, advice.today) == ("srtf", "fifo")
    srtf, fifo = advice.policies
    # Under fifo the short job ends at 11 h and the long one at 10 h; under srtf at 1.1 h and 11 h.
    assert fifo.figures["mean_completion_h"].mean == pytest.approx((10 + 10.9) / 2)
    assert srtf.figures["mean_completion_h"].mean == pytest.approx((11 + 1) / 2)
    assert srtf.change["mean_completion_h"].mean == pytest.approx(100 * (6 / 10.45 - 1))
    assert not fifo.change
    assert {"longest_waiting_h"} <= srtf.change.keys() <= srtf.figures.keys()
    with misuse("unknown-value measure"):
        advisor_of(base, None, None, "longest_waiting_gpus")
    assert seen[:4] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert advice.effects[0].setting == "policy"
    assert advice.effects[0].percent.mean == pytest.approx(100 * (10.45 / 6 - 1))
    sizes = [abs(effect.percent.mean) for effect in advice.all_effects]
    assert sizes == sorted(sizes, reverse=True)
    assert len({effect.setting for effect in advice.effects}) == len(advice.effects)
    assert re.findall(r"srtf|fifo|-?[\d.]+ [h%]", headline(advice))[:5] == ["srtf", "fifo", "6 h", "10.45 h", "-42.6 %"]
    assert "change nothing" in assumed(advisor, advice)["seeds"]


def test_an_assumption_that_matters_is_found(trace: str, tmp_path: Path) -> None:
    base = asked(trace, "1x4:v100", "srtf", round_s=0.0, restart_s=3600.0)
    advice, _ = advised(advisor_of(base, [], [0], "mean_completion_h"), tmp_path / "rows.jsonl", Here())
    first = settings_that_matter(advice)[0]
    assert (first.setting, first.before, first.after, first.chosen) == ("restart", "3600 s", "14400 s", False)
    assert first.percent.mean > 50 and first.percent.half == inf
    assert [policy.policy for policy in advice.policies] == ["srtf"] and not re.search(r"\d", headline(advice))


def test_what_is_kept_is_a_comparison_and_is_not_simulated_again(trace: str, tmp_path: Path) -> None:
    base = asked(trace, "1x4:v100", "fifo")

    def run(most: int) -> tuple[Advice, Here]:
        return advised(advisor_of(base, ["srtf", "las"], [0, 1], "makespan_h"), tmp_path / "rows.jsonl", Here(most))

    part, engine = run(3)
    assert engine.done == 3 and [policy.seeds for policy in part.policies] == [(0,)] * 3
    assert part.finished == 3 < part.runs
    whole, more = run(1000)
    assert whole.finished == whole.runs == 3 + more.done
    assert run(1000)[1].done == 0


class Clock:
    """Runs tasks that take some seconds by policy; what is stopped meanwhile is lost."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.now_s, self.lost = seconds, 0.0, list[str]()

    def run(
        self, tasks: Sequence[SweepTask], stopped: Callable[[], bool] = never
    ) -> Generator[TaskOutcome, None, None]:
        for task in tasks:
            if stopped():
                return
            end_s = self.now_s + self.seconds[task.labels["policy"]]
            while self.now_s < end_s:
                self.now_s += 0.5
                if stopped():
                    self.lost.append(task.labels["policy"])
                    return
            yield TaskOutcome(task, task.function(*task.arguments))


def test_who_stops_a_comparison_has_that_of_the_fast_policies(queue: str, tmp_path: Path) -> None:
    advisor = advisor_of(asked(queue, "1x4:v100", "las"), ["backfill", "fifo", "srtf"], None, "makespan_h")
    assert advisor.seeds == (0,)
    engine = Clock({"las": 5, "backfill": 35, "fifo": 6.5, "srtf": 4.5})
    with Record(tmp_path / "rows.jsonl") as record:
        advisor.compare(partial(sweep, engine=engine, record=record, stopped=lambda: engine.now_s >= 20))
        advice = advisor.advice(record)
    assert engine.lost == ["backfill"]
    told = {policy.policy: (policy.seeds, policy.error) for policy in advice.policies}
    assert told == {"las": ((0,), ""), "fifo": ((0,), ""), "srtf": ((0,), ""), "backfill": ((), "none has ended")}
    assert assumed(advisor, advice)["seeds"].endswith("nothing is drawn, and other seeds change nothing")


def test_nothing_ended_is_said(trace: str, tmp_path: Path) -> None:
    advisor = advisor_of(asked(trace, "1x4:v100", "fifo"), ["srtf"], [0], "makespan_h")
    advice, _ = advised(advisor, tmp_path / "rows.jsonl", Here(0))
    assert advice.best is None and "no answer" in headline(advice)
    assert json.dumps(advice_document(advisor, advice))


def test_variants_differ_in_one_part() -> None:
    base = asked("w", "c", "las:placement=packed", failures="mtbf=5,mttr=1").words
    found = list(variants(base))
    assert all(base[each.part] != each.value for each in found)
    names = ("threshold", "aging", "placement", "round", "restart", "contention", "failures")
    assert {each.setting for each in found} == {*names}
    assert "las:threshold=64:placement=packed" in {each.value for each in found if each.setting == "threshold"}
    assert "las" in {each.value for each in found if each.setting == "placement"}


def test_an_interval_is_students() -> None:
    interval = MeanInterval.of([1.0, 2.0, 3.0])
    assert (interval.mean, interval.half) == (2.0, pytest.approx(4.303 / 3**0.5))
    assert not interval.clear and MeanInterval(3.0, 2.0).clear
    assert MeanInterval.of([4.0]).plain() == {"mean": 4.0, "low": None, "high": None}


def test_the_command_writes_a_page_and_goes_on(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jigsaw_opt.cli.clusters.advise.engine_of", lambda _arguments: Here())
    out = tmp_path / "out"
    words = ["advise", trace, "--cluster", "1x4:v100", "--policy", "srtf", "--seeds", "0", "-o", str(out)]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((out / "advice.json").read_text())
    assert told["best"] == "srtf" and told["finished"] == told["runs"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("srtf (which knows the lengths of jobs) in place of fifo") and "assumed" in text
    assert main([*words, "--measure", "speed"]) == 2
    assert not list(out.glob("*.tmp"))


def test_names_are_no_markup(trace: str, tmp_path: Path) -> None:
    advisor = advisor_of(asked(trace, "1x4:v100", "fifo"), [], [0], "makespan_h")
    advice, _ = advised(advisor, tmp_path / "rows.jsonl", Here(1))
    document = {**advice_document(advisor, advice), "today": "</script><b>"}
    page = advice_html(document)
    assert "</script><b>" not in page and "\\u003c/script>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.slow
def test_what_an_option_of_today_s_policy_saves_is_not_credited_to_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the emptiest servers a job trains over slow links; a long job before a short one is what srtf mends."""
    cluster, jobs = tmp_path / "cluster.json", tmp_path / "trace.csv"
    made = ["new", "--cluster", "3x2:v100", "--bandwidth", "125000000", "--job", "m:vgg16:2:1", "-o", str(cluster)]
    assert main(made) == 0
    rows = ("one,0,1,9000", "two,0,2,9000", "three,0,1,900", "wide,0.001,2,9000", "long,0.01,6,9000", "short,0.02,6,10")
    listed = (f"{row},vgg16-b32-estimate\n" for row in rows)
    jobs.write_text("name,submit_h,gpus,iterations,model\n" + "".join(listed))
    out = tmp_path / "advice"
    compared = ["--baseline", "fifo:placement=emptiest", "--policy", "srtf"]
    words = ["advise", str(jobs), "--cluster", str(cluster), *compared]
    assert main([*words, "--seeds", "0", "--round", "0", "--restart", "0", "-q", "-o", str(out)]) == 0
    capsys.readouterr()
    told = json.loads((out / "advice.json").read_text())["headline"]
    answer, saved = told.split(" With another option, ")
    assert answer.startswith("srtf ") and re.findall(r"[\d.]+ h", answer)[:2] == ["3.206 h", "11.79 h"]
    assert re.findall(r"fifo|srtf|-?[\d.]+ [h%]", saved) == ["fifo", "6.3 h", "srtf", "-49.1 %"]


def test_a_trace_with_a_record_is_compared_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the record all wait for the long job; backfill starts the short one at once."""
    trace, out = tmp_path / "trace.csv", tmp_path / "advice"
    rows = ("long,0,2,10,10,0,10", "wide,1,4,1,1,13,14", "short,2,2,1,1,14,15")
    header = "name,submit_h,gpus,duration_h,time_limit_h,start_h,end_h\n"
    trace.write_text(header + "".join(f"{row}\n" for row in rows))
    words = ["advise", str(trace), "--cluster", "1x4:v100", "--seeds", "0", "--round", "0", "--restart", "0", "-q"]
    assert main([*words, "--policy", "fifo", "srtf", "-o", str(out)]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    figures = r"fifo|srtf|recorded|-?[\d.]+ (?:h\b|%|GPUs)"
    assert re.findall(figures, first) == ["8 h", "12 h", "fifo", "6 h", "9 h"]
    told = re.findall(figures, second)
    assert told == ["srtf", "recorded", "4.333 h", "12 h", "-63.9 %"]
    document = json.loads((out / "advice.json").read_text())
    assert (document["today"], document["calibration"]) == ("recorded", first)
    assert "estimates" not in document["assumed"]  # which only backfill goes by
    assert main([*words, "--policy", "fifo", "--baseline", "srtf", "-o", str(tmp_path / "other")]) == 0
    told = capsys.readouterr().out
    assert re.findall(r"fifo|srtf|-?[\d.]+ [h%]", told)[:2] == ["fifo", "srtf"] and document["best"] == "srtf"
    assert not any(each["after"] == "recorded" for each in document["changes"])


@pytest.fixture
def queue(tmp_path: Path) -> str:
    """A job runs on half of the GPUs and one waits for all of them; behind it are two short ones of another user."""
    path = tmp_path / "queue.csv"
    rows = ("runs,0,2,10,u,20", "wide,1,4,4,u,8", "short,2,2,6,v,19", "shorter,2,2,1,v,2")
    path.write_text("name,submit_h,gpus,duration_h,user,time_limit_h\n" + "".join(f"{row}\n" for row in rows))
    return str(path)


def test_who_loses_and_who_waits_longest(queue: str, tmp_path: Path) -> None:
    """Jobs end at 10, 14, 20 and 15 h under fifo.

    Under srtf the wide job runs from 1 to 2 h and from 3 to 6 h, the shorter one between with an hour of the short one,
    which goes on from 6 to 11 h, beside the rest of the first one, from 6 to 15 h.
    """
    base = asked(queue, "1x4:v100", "fifo", round_s=0.0, restart_s=0.0)
    advisor = advisor_of(base, ["srtf"], [0, 1], "mean_completion_h")
    advice, _ = advised(advisor, tmp_path / "rows.jsonl", Here())
    found = advice.job_changes
    assert found is not None and advice.best == "srtf"
    assert (found.jobs, found.later, found.hit, found.hit_later_h) == (4, 1, 1, 5.0)
    assert found.sizes == [Group("2", 3, 1, 1, 41 / 3, 25 / 3), Group("3-4", 1, 0, 0, 13.0, 5.0)]
    assert found.users == [Group("u", 2, 1, 1, 11.5, 10.0), Group("v", 2, 0, 0, 15.5, 5.0)]
    assert found.waits_before == Waits(12.0, 12.0, "short", 2, {"2": 2})
    assert found.waits_after == Waits(5.0, 5.0, "runs", 2, {"2": 1})
    assert who_loses(advice) == (
        "Restarts: srtf stops or moves jobs 3 times (0.75 a job), fifo 0 times.",
        "Who loses: 1 of 4 jobs end later than under fifo. Hit worst are 1 job, a tenth of all at most, by 5 h in the "
        "mean: 1 of the 3 with 2 GPUs; by user u (1 of 2).",
        "Without GPUs before and between their runs: one job in a hundred for 5 h or more under srtf (12 h under "
        "fifo): 1 with 2 GPUs. The longest time is 5 h, of job 'runs' with 2 GPUs; "
        "under fifo it is 12 h, of job 'short'.",
    )
    # With the first seed alone rows have the jobs; variants have none, and nobody reads limits.
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["policy"], row["seed"]) for row in rows if "job_times" in row] == [("fifo", 0), ("srtf", 0)]
    assert not any("time_limits" in row for row in rows) and all(map(is_row, rows))
    document = advice_document(advisor, advice)
    assert json.loads(json.dumps(document))["job_changes"]["sizes"][0]["after_h"] == 25 / 3
    assert "Hit worst" in advice_html(document)


def test_who_loses_no_more_than_a_round_and_a_restart_does_not_lose(queue: str) -> None:
    jobs = read_setting(asked(queue, "1x4:v100", "fifo")).workload.jobs
    before = [[job.submit_us + 100, 50] for job in jobs]
    after = [[end_us + more, held] for (end_us, held), more in zip(before, (0, 10, 11, -5), strict=True)]
    found = job_changes(jobs, before, after, 10)
    assert (found.later, found.barely, found.hit) == (1, 1, 1)
    assert sum(size.later for size in found.sizes) == sum(user.later for user in found.users) == 1


def test_who_was_held_back_loses_nothing_and_is_counted(queue: str) -> None:
    jobs = list(read_setting(asked(queue, "1x4:v100", "fifo")).workload.jobs)
    before = [[job.submit_us + 100, 50] for job in jobs]
    after = [[end_us + more, 50] for (end_us, _), more in zip(before, (1000, 500, 0, 0), strict=True)]
    every = job_changes(jobs, before, after)
    jobs[0] = replace(jobs[0], held_by="begin")
    found = job_changes(jobs, before, after)
    assert (every.jobs, every.later, every.held, every.waits_after.job) == (4, 2, 0, jobs[0].name)
    assert (found.jobs, found.later, found.held, found.waits_after.job) == (3, 1, 1, jobs[1].name)
    policies = [PolicyFigures(words, (0,), "", {}, {}) for words in ("fifo", "srtf")]
    advice = Advice("mean_completion_h", "fifo", "srtf", policies, [], [], 2, 2, {}, job_changes=found)
    assert sum("Left out of this and of all waits: 1 job that" in line for line in who_loses(advice)) == 1
    jobs = [replace(job, held_by="begin") for job in jobs]
    assert job_changes(jobs, before, after) is None


@pytest.mark.parametrize(("simulated_h", "is_proof"), [(1.46, False), (2.4, True), (2.48, True)])
def test_a_change_that_is_no_larger_than_twice_the_error_proves_nothing(simulated_h: float, is_proof: bool) -> None:
    def figures(policy: str, completion_h: float, waiting_h: float) -> PolicyFigures:
        found = {"mean_completion_h": completion_h, "mean_waiting_h": waiting_h, "median_waiting_h": waiting_h}
        means = {name: MeanInterval.of([value]) for name, value in found.items()}
        change = {} if policy == "recorded" else {"mean_completion_h": MeanInterval.of([-20.0])}
        return PolicyFigures(policy, (0,), "", means, change)

    policies = [figures("srtf", 4.0, 0.5), figures("recorded", 5.04, 2.48), figures("fifo", 5.5, simulated_h)]
    advice = Advice("mean_completion_h", "recorded", "srtf", policies, [], [], 3, 3, {})
    told = headline(advice)
    assert told.startswith("srtf (which knows the lengths of jobs)" if is_proof else "This proves nothing: ")
    assert is_proof or ("1.02 h" in told and "1.04 h" in told)
    # Nor does it prove that today's policy is the best.
    best = Advice("mean_completion_h", "recorded", "recorded", [policies[1], policies[2]], [], [], 2, 2, {})
    assert headline(best).startswith("fifo has no better" if is_proof else "This proves nothing: ")
