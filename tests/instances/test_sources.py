"""Where every command takes its instance from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.instances import generate, load
from jigsaw_opt.instances.sources import instance_from
from tests.refusals import carries, misuse, refuses


def test_a_file_comes_before_a_bundled_name_and_a_family(
    pair_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert instance_from("tiny/004") == load("tiny/004")
    assert instance_from("tiny:4") == generate("tiny", 4)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    for name in ("tiny/004", "tiny:4"):
        (tmp_path / name).write_bytes(pair_path.read_bytes())
        assert instance_from(name) == instance_from(str(pair_path))


def test_a_family_takes_changes_of_its_recipe() -> None:
    changed = instance_from("server:3:servers=3:gpus=2:load=150:bandwidth=1000000:objective=weighted_completion")
    wanted = {"servers": 3, "gpus": 2, "load": 150, "bandwidth": 1_000_000, "objective": "weighted_completion"}
    assert changed == generate("server", 3, **wanted)
    assert changed.cluster.gpu_count == 6 and changed.objective == "weighted_completion"


@pytest.mark.parametrize(
    ("source", "expected", "named"),
    [
        ("tiny:", "malformed seed", "''"),
        ("tiny:-1", "malformed seed", "'-1'"),
        ("tiny:1:load", "malformed", "'load'"),
        ("tiny:1:load=x", "malformed", "'load=x'"),
        ("tiny:1:depths=1", "malformed", "'depths=1'"),
        ("tiny:1:servers=0", "out-of-range", "servers"),
        ("tiny:1:objective=speed", "unknown-value objective", "'speed'"),
    ],
)
def test_a_wrong_change_is_named(source: str, expected: str, named: str) -> None:
    with misuse(expected, naming=[named]):
        instance_from(source)


def test_what_is_neither_is_a_missing_file() -> None:
    with refuses("unknown-name rock:4", naming=["'rack:4'"]):
        instance_from("rock:4")


def test_other_commands_take_a_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert main(["solve", "tiny:5", "--solver", "greedy", "--json", "-o", str(plan)]) == 0
    assert json.loads(capsys.readouterr().out)["plan"] == str(plan)
    assert main(["check", "tiny:5", str(plan)]) == 0


def test_generate_refuses_what_a_family_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "tiny", "--load", "0", "-o", str(tmp_path / "i.json")]) == 2
    assert carries(capsys.readouterr().err, "least", "1", "0")
