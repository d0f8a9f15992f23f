"""A simulation that is put aside at any moment goes on to the same end."""

from __future__ import annotations

import hashlib
import json
import pickle

import pytest

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.policies.fifo import FIFO
from jigsaw_opt.simulation.policies.las import LAS
from jigsaw_opt.simulation.policies.sjf_bco import SJF_BCO
from jigsaw_opt.simulation.policies.srtf import SRTF
from jigsaw_opt.simulation.policy import Policy
from jigsaw_opt.simulation.snapshot import restore, snapshot
from tests.simulation.cases import SECOND, random_jobs, run, setting


@pytest.mark.parametrize("policy", [FIFO, LAS, SJF_BCO, SRTF], ids=lambda policy: policy.name)
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


def called(module: str, name: str) -> bytes:
    """A pickle that calls a name of a module with one text."""
    return pickle.PROTO + b"\x04c" + f"{module}\n{name}\n".encode() + b"(X\x03\0\0\0ls/tR."


def forged(state: bytes) -> bytes:
    """A snapshot with another state, and a header that fits it."""
    header, _, _ = snapshot(Simulation(setting(*random_jobs(5, 5)), FIFO, {"placement": "packed"}), "these").partition(
        b"\n"
    )
    fields = json.loads(header) | {"state": hashlib.sha256(state).hexdigest()}
    return json.dumps(fields).encode() + b"\n" + state


@pytest.mark.parametrize(
    "state",
    [
        pickle.dumps(Forged()),
        pickle.dumps([1, 2]),
        b"",
        b"\x80\x04N",
        called("subprocess", "Popen"),
        called("jigsaw_opt.cli.simulate", "Path"),
        called("jigsaw_opt.solvers.engines.cbc", "subprocess.Popen"),
        called("jigsaw_opt.simulation.nothing", "Nothing"),
        called("jigsaw_opt.simulation.engine", "Nothing"),
        called("jigsaw_opt.simulation.engine", "Simulation"),
    ],
)
def test_a_forged_snapshot_runs_no_code(state: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"file: is (damaged|not a snapshot)"):
        restore(forged(state), setting(*random_jobs(5, 5)), "these", "file")


def test_a_changed_byte_is_noticed() -> None:
    made = setting(*random_jobs(5, 5))
    data = bytearray(snapshot(Simulation(made, FIFO, {"placement": "packed"}), "these"))
    for place in (data.index(b"\n") + 1, len(data) // 2, len(data) - 1):
        data[place] ^= 1
        with pytest.raises(InvalidInputError, match="file: is damaged: what it holds is not what was written"):
            restore(bytes(data), made, "these", "file")
        data[place] ^= 1
    assert restore(bytes(data), made, "these", "file").now_us == 0
