"""Documents of phased plans and of replays: read, written, and every problem with its path."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import (
    decode_instance,
    decode_plan,
    encode_plan,
    instance_sha256,
    load_document,
    load_plan,
    load_replay,
    save_instance,
    save_plan,
    schema,
)
from jigsaw_opt.documents.replay import decode_replay, encode_replay, plan_sha256
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Instance, Phase, Plan
from jigsaw_opt.problem.measured.replay import Baseline, MeasuredPhase, MeasuredRestart, Replay, ReplaySummary
from jigsaw_opt.problem.measured.times import MeasuredJob, MeasuredOperation, MeasuredStep
from tests.documents.test_wrong_documents import GONE, changed
from tests.refusals import carries, misuse, refuses
from tests.test_worked_example import document
from tests.views.test_replay_view import SUMMARY, carried_out

TREE = json.loads(document("Phased plans"))
PHASE_PATH = "$.groups[0].phases[0]"


@pytest.fixture(scope="module")
def long() -> Instance:
    """Job `a` of the worked example, 100000 iterations of it."""
    worked = decode_instance(document("Instance"))
    return replace(worked, name="long", jobs=(replace(worked.jobs[0], iterations=100000),))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return decode_plan(document("Phased plans"))


def test_the_plan_of_the_page_is_correct(long: Instance, plan: Plan) -> None:
    assert plan.instance_sha256 == instance_sha256(long)
    assert check(long, plan) == ()
    assert Draft202012Validator(schema("phased-plan")).is_valid(TREE)


def test_what_is_saved_is_loaded(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "p.json"
    save_plan(plan, path)
    assert load_plan(path) == load_document(path) == decode_plan(encode_plan(plan)) == plan


@pytest.mark.parametrize(
    ("steps", "value", "place"),
    [
        (("format",), "jigsaw-phased-plan/2", "$.format"),
        (("period_us",), None, "$.period_us"),
        (("groups",), [], "$.groups"),
        (("groups",), GONE, "$"),
        (("groups", 0, "phases"), [], "$.groups[0].phases"),
        (("groups", 0, "name"), "x", "$.groups[0].name"),
        (("groups", 0, "phases", 0, "jobs"), [], f"{PHASE_PATH}.jobs"),
        (("groups", 0, "phases", 0, "start_us"), -1, f"{PHASE_PATH}.start_us"),
        (("groups", 0, "phases", 0, "period_us"), 0, f"{PHASE_PATH}.period_us"),
        (("groups", 0, "phases", 0, "repeats"), 0, f"{PHASE_PATH}.repeats"),
        (("groups", 0, "phases", 0, "repeats"), 1.0, f"{PHASE_PATH}.repeats"),
        (("groups", 0, "phases", 0, "jobs", 0, "gpus", 0), "s0", f"{PHASE_PATH}.jobs[0].gpus[0]"),
        (("solver",), {"x": float("inf")}, "$.solver.x"),
    ],
)
def test_every_problem_has_its_path(steps: tuple[str | int, ...], value: object, place: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        decode_plan(json.dumps(changed(steps, value, TREE)))
    assert [problem.path for problem in caught.value.problems] == [place]


def test_commands_take_both_kinds_or_refuse_one_by_name(
    tmp_path: Path, long: Instance, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, path = tmp_path / "i.json", tmp_path / "p.json"
    save_instance(long, instance)
    save_plan(plan, path)
    assert main(["check", str(instance), str(path)]) == 0
    assert main(["validate", str(instance), str(path)]) == 0
    assert main(["shifts", str(instance), "--plan", str(path)]) == 3
    assert carries(capsys.readouterr().err, "finite", "horizon")
    save_plan(replace(plan, objective=plan.objective + 1), path)
    assert main(["check", str(instance), str(path)]) == 7
    assert carries(capsys.readouterr().out, "objective", "docs/specification.md#objective")
    assert main(["failures", str(instance), str(path)]) == 7


def with_summary(replay: Replay, summary: ReplaySummary) -> Replay:
    return replace(replay, phases=(MeasuredPhase.only(summary, replay.timeline),))


def test_round_trip_with_and_without_a_baseline(pair_plan: Plan) -> None:
    plain = carried_out(pair_plan, 2, (0, 2000))
    short = replace(SUMMARY, measured_us=None, busy_measured=None, transfer_error_us=None)
    for replay in (plain, replace(with_summary(plain, short), baseline=Baseline("fifo", SUMMARY, plain.timeline))):
        data = encode_replay(replay)
        assert decode_replay(data) == replay
        Draft202012Validator(schema("replay")).validate(json.loads(data))


def test_a_file_says_what_it_holds(pair_plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, replay = tmp_path / "replay.json", carried_out(pair_plan, 1, (0,))
    file.write_bytes(encode_replay(replay))
    assert load_document(file) == load_replay(file) == replay
    assert main(["validate", str(file)]) == 0
    assert "valid" in capsys.readouterr().out


def test_the_speed_up_needs_both_to_be_measured(pair_plan: Plan) -> None:
    plain = carried_out(pair_plan, 1, (0,))
    usual = replace(SUMMARY, predicted_us=2700, measured_us=2970)
    assert plain.speed_up() is None
    both = replace(plain, baseline=Baseline("gang", usual, plain.timeline))
    assert both.speed_up() == (1.5, 1.5)
    assert with_summary(both, replace(SUMMARY, measured_us=None)).speed_up() == (1.5, None)


def test_the_hash_is_that_of_what_is_carried_out(pair_plan: Plan) -> None:
    assert plan_sha256(replace(pair_plan, bound=0, status="feasible", solver={"name": "x"})) == plan_sha256(pair_plan)
    assert plan_sha256(pair_plan.with_jobs(pair_plan.jobs[::-1])) != plan_sha256(pair_plan)
    assert plan_sha256(pair_plan.with_period(5000)) != plan_sha256(pair_plan)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("summary", "block_error"), "much", "$.summary.block_error"),
        (("summary", "measured_us"), 1.5, "$.summary.measured_us"),
        (("timeline", "passes"), 0, "$.timeline.passes"),
        (("baseline",), [], "$.baseline"),
        (("gpus", 0, "name"), "s0", "$.gpus[0].name"),
        (
            ("timeline", "jobs", 0, "iterations", 0, "blocks", 0, "loss"),
            None,
            "$.timeline.jobs[0].iterations[0].blocks[0].loss",
        ),
    ],
)
def test_a_problem_is_named_with_its_place(
    pair_plan: Plan, path: tuple[str | int, ...], value: object, place: str
) -> None:
    tree = changed(path, value, json.loads(encode_replay(carried_out(pair_plan, 1, (0,)))))
    with pytest.raises(InvalidInputError) as caught:
        decode_replay(json.dumps(tree))
    assert [problem.path for problem in caught.value.problems] == [place]
    assert not Draft202012Validator(schema("replay")).is_valid(tree)


def test_an_integer_beyond_every_float_is_no_number(pair_plan: Plan) -> None:
    tree = json.loads(encode_replay(carried_out(pair_plan, 1, (0,))))
    tree["summary"]["block_error"] = 10**400
    with refuses("out-of-range $.summary.block_error"):
        decode_replay(json.dumps(tree))


def phased_replay(plan: Plan) -> Replay:
    """A replay of the two phases of a plan, in the second of which a job goes on elsewhere."""
    plain = carried_out(plan, 1, (0,))
    first = MeasuredPhase(0, 0, 3, 3, SUMMARY, 600, 0, 650, None, plain.timeline)
    step = MeasuredStep((MeasuredOperation("F", 5, 9),), (MeasuredOperation("act", 9, 9),), 0.5)
    flow = MeasuredJob("pipe", ("s0/0",), 2, (step,), ("ab",))
    timeline = replace(plain.timeline, origins_us=(), jobs=(flow,))
    second = MeasuredPhase(0, 1, 9, 4, None, 900, 650, None, 12, timeline, (MeasuredRestart("pipe", 40, 44),))
    return replace(plain, phases=(first, second), parameters_sha256={"pipe": ("ab",)})


def test_round_trip_of_phases_with_steps_and_restarts(pair_plan: Plan) -> None:
    replay = phased_replay(pair_plan)
    data = encode_replay(replay)
    assert decode_replay(data) == replay
    assert encode_replay(decode_replay(data)) == data
    Draft202012Validator(schema("phased-replay")).validate(json.loads(data))


def test_what_is_measured_of_several_phases(pair_plan: Plan) -> None:
    replay = phased_replay(pair_plan)
    assert (replay.predicted_us, replay.measured_us, replay.is_cut) == (900, None, True)
    done = replace(replay, phases=(replay.phases[0], replace(replay.phases[1], repeated=9, measured_end_us=1000)))
    assert (done.measured_us, done.is_cut) == (1000, False)
    with misuse("unsupported"):
        _ = replay.summary
    (number, step), *more = replay.phases[1].timeline.jobs[0].steps()
    assert (number, step.blocks[0].name, more) == (2, "F", [])
    assert list(replay.phases[1].timeline.jobs[0].numbered()) == []
    assert [number for number, _ in replay.phases[0].timeline.jobs[0].numbered()] == [0]


def test_the_hash_of_a_phased_plan_is_that_of_its_groups(pair_plan: Plan) -> None:
    phased = replace(
        pair_plan, groups=(replace(pair_plan.groups[0], phases=tuple(map(counted, pair_plan.groups[0].phases))),)
    )
    again = replace(phased, bound=0, solver={"name": "x"})
    assert phased.is_phased and plan_sha256(again) == plan_sha256(phased) != plan_sha256(pair_plan)


def counted(phase: Phase) -> Phase:
    return replace(phase, period_us=phase.period_us or 5000, repeats=2)
