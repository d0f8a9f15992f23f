"""A simulation that is put aside at any moment goes on to the same end, and a snapshot is nothing but data."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from jigsaw_opt.errors import InvalidInputError, JigsawError
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation, names
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.reading import read_setting
from jigsaw_opt.simulation.results.folder import restore, snapshot
from tests.refusals import fails, refuses
from tests.simulation.cases import SECOND, Scripted, Shared, cluster, job, random_jobs, setting
from tests.simulation.resumable import CASES, begun, halted


def measured(outcome: SimulationOutcome) -> object:
    """All records without the time that the policy took."""
    return outcome.jobs, outcome.stints, outcome.uses, [replace(record, policy_us=0) for record in outcome.rounds]


def ended(simulation: Simulation) -> SimulationOutcome:
    simulation.run()
    return simulation.close()


def test_every_policy_has_a_case() -> None:
    assert {text.partition(":")[0] for text in CASES} == set(names())


@pytest.mark.slow
@pytest.mark.parametrize("text", CASES)
def test_the_end_is_the_same(text: str) -> None:
    where = CASES[text]()
    whole = ended(begun(text, where))
    by_time = begun(text, where)
    by_time.run(until_us=whole.end_us // 3)
    for simulation in (by_time, *(halted(text, where, part) for part in (0.0, 0.1, 0.5, 0.8))):
        data = snapshot(simulation, "these")
        resumed = restore(data, begun(text, CASES[text]()), "these", "file")  # of equal inputs, not the same ones
        assert snapshot(resumed, "these") == data
        assert measured(ended(resumed)) == measured(whole)


def test_snapshots_of_the_release_before_go_on() -> None:
    """The digest of the inputs is that which version 0.2.0 wrote before clusters had power caps."""
    words = {"draw_models": True, "failures": "mtbf=50,mttr=2", "contention": "fair"}
    inputs = read_setting("day", "rack/plain", "fifo", **words).inputs()
    digest = "c24f51932c621a96622138b5b2356dd2fa6ab13f531bca60458a1316edf46561"
    assert hashlib.sha256(inputs.encode()).hexdigest() == digest


def test_a_snapshot_of_many_jobs_is_small() -> None:
    draw = random.Random(1)
    jobs = (
        job(f"j{k}", draw.randrange(40_000), draw.choice((1, 2, 4)), draw.randrange(1, 9000)) for k in range(10_000)
    )
    where = setting(*jobs, cluster=cluster(16, 8))
    simulation = begun("fifo", where)
    simulation.run(until_us=30_000 * SECOND)
    data = snapshot(simulation, "these")
    assert len(data) < 2_000_000
    assert snapshot(restore(data, begun("fifo", where), "these", "file"), "these") == data


def test_only_with_the_inputs_that_it_was_started_with() -> None:
    made = setting(*random_jobs(5, 5))
    data = snapshot(begun("las", made), "these")
    with refuses("mismatch file"):
        restore(data, begun("las", made), "others", "file")


@pytest.mark.parametrize("data", [b"", b"{}", b"\x80\x04\n", b'{"format": "other"}\nx', b"[1]\n", b'{"a":' * 10**5])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="file: "):
        restore(data, begun("fifo", setting(*random_jobs(5, 5))), "these", "file")


def test_a_changed_byte_is_noticed() -> None:
    made = setting(*random_jobs(5, 5))
    data = bytearray(snapshot(begun("fifo", made), "these"))
    for place in (data.index(b"now_us") + 8, len(data) // 2, len(data) - 4):
        data[place] ^= 1
        with pytest.raises(InvalidInputError, match="file: "):
            restore(bytes(data), begun("fifo", made), "these", "file")
        data[place] ^= 1
    assert restore(bytes(data), begun("fifo", made), "these", "file").now_us == 0


def test_a_policy_that_cannot_be_put_aside_still_runs() -> None:
    made, scripted = setting(job("a", 0, 1, 30)), Scripted(lambda moment: Decision((Share((0,), (0,)),)))
    simulation = Simulation(made.under(scripted))
    simulation.run(until_us=0)
    assert not simulation.resumable
    with fails(JigsawError, "'scripted'", "`state`", "`restore`"):
        snapshot(simulation, "these")
    with fails(JigsawError, "'scripted'", "`state`", "`restore`"):
        restore(snapshot(begun("fifo", made), "these"), Simulation(made.under(scripted)), "these", "file")
    assert ended(simulation).jobs[0].finish_us == 30 * SECOND


@dataclass(frozen=True)
class Keeping(Scripted):
    """A policy with a state of its own, as it comes."""

    kept: object = None

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> Keeping:
        return self

    def state(self) -> object:
        return self.kept

    def restore(self, state: Any, observation: Observation) -> None:
        if self.kept != state["kept"][0]:
            raise ValueError("it is another one")


@dataclass(frozen=True)
class Pool(Keeping):
    """All jobs share the same GPUs."""

    kept: object = "pool"

    def restore(self, state: Any, observation: Observation) -> None:
        assert (state, sorted(observation.known)) == ("pool", [0, 1])


def test_what_is_left_of_a_pool_goes_on() -> None:
    made = setting(job("wide", 0, 4, 40), job("narrow", 0, 1, 90), performance=Shared())
    policy = Pool(lambda moment: Decision(moment.shares or (Share((0, 1), (0, 1, 2, 3)),)))
    simulation = Simulation(made.under(policy))
    simulation.run(until_us=90 * SECOND)  # the wide job has ended, and the policy has not been asked since
    assert list(simulation._under_way.shares) == [Share((1,), (0, 1, 2, 3))]
    resumed = restore(snapshot(simulation, "these"), Simulation(made.under(policy)), "these", "file")
    assert measured(ended(resumed)) == measured(ended(simulation))
    assert [record.finish_us for record in resumed.outcome.jobs] == [80 * SECOND, 130 * SECOND]


@pytest.mark.parametrize("kept", [{1, 2}, float("nan"), object(), "\ud800"])
def test_a_state_of_other_values_is_not_written(kept: object) -> None:
    simulation = Simulation(setting(job("a", 0, 1, 30)).under(Keeping(FIFO.start, kept=kept)))  # type: ignore[arg-type]
    with fails(JigsawError, "state", "plain values"):
        snapshot(simulation, "these")


@pytest.mark.parametrize("kept", [None, 3, [], {}, {"kept": []}, {"kept": [1]}])
def test_what_a_policy_trips_over_is_refused(kept: object) -> None:
    made = setting(job("a", 0, 1, 30))
    simulations = [Simulation(made.under(Keeping(FIFO.start, kept=kept))) for _ in range(2)]  # type: ignore[arg-type]
    with refuses("failed file $.state.scheduler", naming=["'scripted'"]):
        restore(snapshot(simulations[0], "these"), simulations[1], "these", "file")
