"""A replay document is read back as it was written, and every problem of a broken one is listed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_document, load_replay, schema
from jigsaw_opt.documents.replay import decode_replay, encode_replay, plan_sha256
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Plan
from jigsaw_opt.problem.replay import Baseline, MeasuredPhase, Replay, ReplaySummary
from tests.views.test_replay_view import SUMMARY, carried_out


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
    tree = json.loads(encode_replay(carried_out(pair_plan, 1, (0,))))
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(InvalidInputError) as caught:
        decode_replay(json.dumps(tree))
    assert [problem.path for problem in caught.value.problems] == [place]
    assert not Draft202012Validator(schema("replay")).is_valid(tree)


def test_an_integer_beyond_every_float_is_no_number(pair_plan: Plan) -> None:
    tree = json.loads(encode_replay(carried_out(pair_plan, 1, (0,))))
    tree["summary"]["block_error"] = 10**400
    with pytest.raises(InvalidInputError, match=r"^\$.summary.block_error: must be a finite number; is an integer of"):
        decode_replay(json.dumps(tree))
