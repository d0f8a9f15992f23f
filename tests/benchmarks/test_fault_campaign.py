"""The campaign of faults: its referee knows the rules, it notices what is planted, and its quick parts hold."""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import faults
import pytest
from fault_campaign import changed, launch, names, signals, solvers
from fault_campaign.contract import Campaign, Count, Part, Trial
from fault_campaign.documents import PAIR, small, tree
from fault_campaign.referee import sha256, verdict

from jigsaw_opt.documents import decode_instance, instance_sha256
from tests.extreme_instances import extreme_instance
from tests.test_worked_example import document as worked

Json = dict[str, Any]


@pytest.fixture
def instance(pair_path: Path) -> Json:
    found: Json = json.loads(pair_path.read_bytes())
    return found


@pytest.fixture
def plan(pair_plan_path: Path) -> Json:
    found: Json = json.loads(pair_plan_path.read_bytes())
    return found


def block(plan: Json, job: int = 0, worker: int = 0) -> Json:
    found: Json = plan["jobs"][job]["iterations"][0]["blocks"][worker]
    return found


def transfer(plan: Json, bucket: int) -> Json:
    found: Json = plan["jobs"][0]["iterations"][0]["transfers"][bucket - 1]
    return found


BROKEN: dict[str, tuple[Callable[[Json], object], str]] = {
    "no such GPU": (lambda p: p["jobs"][1].update(gpus=["s0/2"]), "placement"),
    "a GPU twice": (lambda p: p["jobs"][0].update(gpus=["s0/0", "s0/0"]), "placement"),
    "another multiset": (lambda p: block(p, 0, 1).update(level=2), "levels: multiset"),
    "no such level": (lambda p: block(p).update(level=3), "levels: no such"),
    "a short block": (lambda p: block(p).update(end_us=1199), "duration: a block"),
    "a short transfer": (lambda p: transfer(p, 1).update(end_us=999), "duration: a transfer"),
    "an early transfer": (lambda p: transfer(p, 1).update(start_us=599), "readiness"),
    "transfers out of order": (lambda p: transfer(p, 1).update(start_us=1201, end_us=1601), "order"),
    "two blocks at once": (lambda p: block(p, 1).update(start_us=599, end_us=1799), "exclusive"),
    "another objective": (lambda p: p.update(objective=1801), "objective"),
    "a bound above it": (lambda p: p.update(bound=1801), "bound"),
    "no optimum": (lambda p: p.update(bound=1799), "bound"),
    "another instance": (lambda p: p.update(instance="other"), "document"),
    "another hash": (lambda p: p.update(instance_sha256="0" * 64), "document"),
    "a period": (lambda p: p.update(period_us=1800), "period"),
    "a bucket twice": (lambda p: transfer(p, 2).update(bucket=1), "document"),
    "a key more": (lambda p: p.update(more=1), "keys"),
    "a boolean": (lambda p: block(p).update(start_us=False), "number"),
    "a block missing": (lambda p: p["jobs"][0]["iterations"][0]["blocks"].pop(), "document"),
    "no jobs": (lambda p: p.pop("jobs"), "keys"),
}


@pytest.mark.parametrize(("change", "rule"), BROKEN.values(), ids=BROKEN.keys())
def test_the_referee_knows_every_rule(change: Callable[[Json], object], rule: str, instance: Json, plan: Json) -> None:
    assert verdict(instance, plan) == ""
    change(plan)
    assert rule in verdict(instance, plan)


def test_the_referee_counts_memory(instance: Json, plan: Json) -> None:
    # Two models of 5 MB of parameters, each held four times, and the largest activations of both workers.
    least = 2 * 4 * 5_000_000 + 41_000_000
    for memory, rule in ((least, ""), (least - 1, "memory: s0/1")):
        instance["cluster"]["servers"][0]["gpu_memory"] = memory
        assert verdict(instance, {**plan, "instance_sha256": sha256(instance)}) == rule


def test_the_referee_hashes_as_the_package_does() -> None:
    for number in range(8):
        for document in (small(Random(number)), tree(extreme_instance(number))):
            assert sha256(document) == instance_sha256(decode_instance(json.dumps(document)))


class Credulous:
    """A checker that takes every plan for correct."""

    def ask(self, function: object, document: Json, plans: list[Json], timeout: float) -> list[str]:
        return [""] * len(plans)


def test_a_credulous_checker_is_noticed(instance: Json, plan: Json) -> None:
    plans = [plan, *(changed.changed(plan, Random(number)) for number in range(20))]
    trials = list(changed.compared(Credulous(), "a changed plan", instance, plans, ""))  # type: ignore[arg-type]
    wrong = [trial for trial in trials if trial.failure]
    assert 10 < len(wrong) < len(trials)
    assert all(trial.counts[Count.ACCEPTED] == 1 for trial in wrong)


def test_a_credulous_checker_of_phased_plans_is_noticed() -> None:
    long = {**json.loads(worked("Instance")), "name": "long"}
    long["jobs"] = [{**long["jobs"][0], "iterations": 4}]
    plan = json.loads(worked("Phased plans"))
    plan["groups"][0]["phases"][0]["repeats"] = 2
    plan |= {"instance_sha256": sha256(long), "objective": 5040, "bound": 5040}
    assert verdict(long, changed.written_out(long, plan)) == ""
    plans = [plan, *(changed.altered(plan, Random(number)) for number in range(20))]
    trials = list(changed.compared(Credulous(), "a changed plan", long, plans, ""))  # type: ignore[arg-type]
    wrong = [trial for trial in trials if trial.failure]
    assert 5 < len(wrong) < len(trials)
    assert not trials[0].failure and all(trial.counts[Count.ACCEPTED] == 1 for trial in wrong)


def test_a_wrong_plan_of_a_solver_is_noticed(instance: Json, plan: Json) -> None:
    answer = {"status": "optimal", "objective": 1800, "bound": 1800, "plan": plan}
    assert solvers.unsound(instance, answer) == ""
    assert "bound 1801" in solvers.unsound(instance, {**answer, "bound": 1801})
    worse = deepcopy(plan)
    block(worse).update(end_us=1000)
    assert "a wrong plan: duration" in solvers.unsound(instance, {**answer, "plan": worse})
    assert "no answer" in solvers.unsound(instance, {"raised": "no answer in 1 s"})


def test_a_contradicted_bound_is_noticed() -> None:
    proven = {"status": "optimal", "objective": 10, "bound": 10}
    assert solvers.contradictions({"one": proven, "other": {**proven, "status": "feasible", "bound": 9}}) == []
    better = {"status": "feasible", "objective": 9, "bound": 0}
    assert solvers.contradictions({"one": proven, "other": better}) == ["one proves 10; other has 9"]
    none = {"status": "infeasible", "objective": None, "bound": 0}
    assert solvers.contradictions({"one": none, "other": better}) == ["one proves that there is no plan; other has one"]
    assert solvers.worse_than_greedy({"greedy": {"objective": 9}, "auto": {"objective": 9}}) == ""
    assert solvers.worse_than_greedy({"greedy": {"objective": 9}, "auto": {"objective": 10}}) == "auto has 10, greedy 9"
    assert solvers.worse_than_greedy({"greedy": {"objective": 9}}) == "auto has None, greedy 9"


def python(program: str, timeout: float = 60.0, folder: Path | None = None) -> launch.Ended:
    return launch.Running([sys.executable, "-c", program], folder=folder).end(timeout, grace=0.3)


@pytest.mark.parametrize(
    ("program", "seen"),
    [
        ("print('fine')", ""),
        ("1/0", "a traceback: ZeroDivisionError"),
        ("import sys; sys.exit('internal error: a bug')", "internal error"),
        ("import sys; sys.exit(9)", "exit code 9"),
        ("import os; os.kill(os.getpid(), 15)", "signal 15"),
        ("import subprocess as s; s.Popen(['sleep', '60'], start_new_session=True)", "left behind: sleep 60"),
    ],
)
def test_an_unclean_end_is_noticed(program: str, seen: str) -> None:
    found = launch.failure(python(program))
    assert seen in found if seen else found == ""


def test_what_a_process_takes_is_measured_and_one_that_hangs_is_ended() -> None:
    ended = python("import time; x = bytearray(200 * 2**20); time.sleep(0.3)")
    # Until it runs its program it is a copy of this process, whose memory Linux counts as its own.
    copied = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert 200 < ended.mebibytes < max(400, 1.1 * copied)
    hanging = python("import time; time.sleep(600)", timeout=0.3)
    assert hanging.hung and hanging.code == -signal.SIGKILL and "no end: killed" in launch.failure(hanging)
    late = launch.Ended("jigsaw", 0, "", "", 14.0, 100.0, False, ())
    assert launch.late(late, 10, 2.6) == "" and "14.0 s where 13.0 s" in launch.late(late, 10, 1.5)


FORGETFUL = "import sys, time; print('objective 5', file=sys.stderr, flush=True); time.sleep(60)"


def test_a_plan_that_a_signal_loses_is_noticed(tmp_path: Path, pair_path: Path) -> None:
    running = launch.Running([sys.executable, "-c", FORGETFUL], folder=tmp_path)
    trial = signals.aftermath(Random(0), "forgetful", 1, running, True, (pair_path, tmp_path / "plan.json"))
    assert trial.failure == "a known plan is lost"
    assert trial.counts[Count.LOST] == 1 and trial.counts[Count.SIGNALS] == 1


def test_what_a_terminal_obeys_or_a_spreadsheet_runs_is_noticed() -> None:
    for text in ("\x1b[2J", "a\rb", "\x9b31m", "\u202eabc", "\x00"):
        assert "a raw" in launch.raw(f"error: {text}")
    assert launch.raw("error: \\x1b[2J\n\ta caf\u00e9, \u6f22") == ""
    assert names.active_cells('name,gap\n=1+1,-0.5\n"@sum(a1)",1e-5\n\'=1,x-1\n') == ["=1+1", "@sum(a1)"]


def planted(campaign: Campaign) -> Iterator[Trial]:
    file = campaign.fresh("planted") / "document.json"
    file.write_text(json.dumps(PAIR))
    yield Trial("works", seconds=1.0, counts={Count.FAULTS: 1})
    yield Trial("fails", "it does not work", "a command", 2.0, 30.0, {Count.FAULTS: 1}, (file,))


def test_the_command_fails_with_what_it_has_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faults, "PARTS", {"planted": Part("planted", "nothing", planted)})
    assert faults.main(["--only", "planted", "-o", str(tmp_path), "--json"]) == 1
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["counts"]["faults injected"] == 2
    found = [(row["fault"], row["tried"], row["failed"], row["worst_seconds"]) for row in document["rows"]]
    assert found == [("", 2, 1, 2.0), ("works", 1, 0, 1.0), ("fails", 1, 1, 2.0)]
    assert document["failures"][0]["failure"] == "it does not work"
    assert "planted: fails: it does not work [a command]" in printed.err
    assert sorted(path.name for path in (tmp_path / "planted-1").iterdir()) == ["document.json", "failure.txt"]
    assert faults.main(["--only", "planted"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert {"| planted |  | 2 | 1 | 2.0 | 30 |", "| planted | fails | 1 | 1 | 2.0 | 30 |"} <= set(lines)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "scale"), [("changed", 0.005), ("phased", 0.02), ("solvers", 0.05)])
def test_quick_parts_hold(part: str, scale: float, tmp_path: Path) -> None:
    tally = faults.run(Campaign(tmp_path, seed=1, scale=scale), [part])
    assert tally.holds, [trial.failure for _, trial in tally.failures]
    assert tally.rows[part, ""].tried > 5
