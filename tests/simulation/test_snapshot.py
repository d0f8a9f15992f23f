"""A simulation that is put aside at any moment goes on to the same end."""

from __future__ import annotations

import pickle

import pytest

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.policies.las import LAS
from jigsaw_opt.simulation.policies.srtf import SRTF
from jigsaw_opt.simulation.policy import Policy
from jigsaw_opt.simulation.snapshot import restore, snapshot
from tests.simulation.cases import SECOND, random_jobs, run, setting


@pytest.mark.parametrize("policy", [LAS, SRTF], ids=lambda policy: policy.name)
@pytest.mark.parametrize("at_s", [0, 95, 1200, 5000])
def test_the_end_is_the_same(policy: Policy, at_s: int) -> None:
    made = setting(*random_jobs(5, 50), restart_s=10)
    options = {key: values[0] for key, values in policy.options.items()}
    simulation = Simulation(made, policy, options)
    simulation.run(until_us=at_s * SECOND)
    data = snapshot(simulation, "these")
    resumed = restore(data, made, "these", "file")
    assert resumed.setting is made
    resumed.run()
    whole, parts = run(made, policy), resumed.close()
    assert parts.jobs == whole.jobs
    assert parts.stints == whole.stints
    assert [(r.time_us, r.gpus) for r in parts.rounds] == [(r.time_us, r.gpus) for r in whole.rounds]


def test_only_with_the_inputs_that_it_was_started_with() -> None:
    made = setting(*random_jobs(5, 5))
    data = snapshot(Simulation(made, LAS, {"threshold": "16", "placement": "packed"}), "these")
    with pytest.raises(InvalidInputError, match="file: is a snapshot of other inputs"):
        restore(data, made, "others", "file")


@pytest.mark.parametrize("data", [b"", b"{}", b"\x80\x04\n", b'{"format": "other"}\nx', b"[1]\n"])
def test_other_files_are_refused_before_anything_of_them_is_loaded(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="file: is not a snapshot"):
        restore(data, setting(*random_jobs(5, 5)), "these", "file")


class Forged:
    """What a forged snapshot would have called when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("1/0",)


@pytest.mark.parametrize("state", [pickle.dumps(Forged()), pickle.dumps([1, 2]), b"", b"\x80\x04N"])
def test_a_forged_snapshot_runs_no_code(state: bytes) -> None:
    made = setting(*random_jobs(5, 5))
    data = snapshot(Simulation(made, LAS, {"threshold": "16", "placement": "packed"}), "these")
    header, _, _ = data.partition(b"\n")
    with pytest.raises(InvalidInputError, match=r"file: is (damaged|not a snapshot)"):
        restore(header + b"\n" + state, made, "these", "file")
