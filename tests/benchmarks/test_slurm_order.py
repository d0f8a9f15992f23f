"""Policies start jobs in the order in which a real Slurm started them; its answers were recorded by the benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import slurm_order
from slurm_order import Run, overtaking, recorded, reversed_pairs, simulated_starts

RECORDED = recorded(Path(__file__).parents[1] / "data/slurm_starts.jsonl")
POLICIES = dict.fromkeys(case.policy for case, _ in RECORDED)


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_start_in_the_order_of_slurm(policy: str) -> None:
    runs = [run for run in RECORDED if run[0].policy == policy]
    assert sum(overtaking(case, real) for case, real in runs) >= len(runs)
    for case, real in runs:
        found = simulated_starts(case)
        assert not reversed_pairs(real, found), case
        assert all(abs(real[name] - found[name]) <= 10 for name in real)  # a second or two for each job before it


def test_reservations_by_number_have_another_order() -> None:
    def differs(run: Run) -> bool:
        case, real = run
        by_number = case.policy.replace(":reserve=servers:placement=consolidated", "")
        return bool(reversed_pairs(real, simulated_starts(replace(case, policy=by_number))))

    assert any(map(differs, RECORDED))


def test_jobs_that_start_within_seconds_of_each_other_are_tied() -> None:
    assert reversed_pairs({"a": 0, "b": 9}, {"a": 9, "b": 0}) == [("a", "b")]
    assert reversed_pairs({"a": 0, "b": 3}, {"a": 9, "b": 0}) == []
    assert reversed_pairs({"a": 0, "b": 9}, {"a": 3, "b": 0}) == []


def test_recorded_answers_are_compared_without_a_slurm(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = Path(tmp_path, "one.jsonl")
    assert slurm_order.main(["--replay", str(Path(__file__).parents[1] / "data/slurm_starts.jsonl")]) == 0
    slurm_order.write(path, [(case, dict.fromkeys(real, 0.0)) for case, real in RECORDED[:1]])
    assert recorded(path)[0][0] == RECORDED[0][0]
    assert "same order" in capsys.readouterr().out


def test_without_slurm_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slurm_order, "missing_programs", lambda: ["slurmctld"])
    assert slurm_order.main([]) == 6
    assert "apt-get install slurmctld slurmd slurm-client" in capsys.readouterr().err
