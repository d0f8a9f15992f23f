"""A simulation put aside goes on to the same end; a forged snapshot is refused in one error, and never runs code."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.errors import InvalidInputError, JigsawError
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation, names
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.folder import restore, snapshot
from jigsaw_opt.simulation.results.metrics import summarise
from jigsaw_opt.simulation.results.result import jobs_csv, rounds_csv
from tests.refusals import fails, refuses
from tests.simulation.cases import SECOND, Scripted, Shared, cluster, job, random_jobs, setting
from tests.simulation.resumable import CASES, KUEUE_QUEUES, begun, halted


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
    for simulation in (by_time, *(halted(text, where, part) for part in (0.1, 0.6))):
        data = snapshot(simulation, "these")
        resumed = restore(data, begun(text, CASES[text]()), "these", "file")  # of equal inputs, not the same ones
        assert snapshot(resumed, "these") == data
        assert measured(ended(resumed)) == measured(whole)


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


Tree = dict[str, Any]


class Touches:
    """Makes a file when its pickle is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.path), "w")


def test_a_pickle_of_an_earlier_version_runs_no_code(tmp_path: Path) -> None:
    header = {"format": "jigsaw-snapshot/1", "inputs": "", "state": "", "time_us": 0, "ended": 0}
    behind, fresh = pickle.dumps(Touches(tmp_path / "marker")), begun("fifo", setting(*random_jobs(5, 5)))
    for data in (json.dumps(header).encode() + b"\n" + behind, behind):
        with pytest.raises(InvalidInputError) as caught:
            restore(data, fresh, "these", "file")
        assert len(caught.value.problems) == 1
    with refuses("not-text file"):
        restore(json.dumps(header | {"format": "jigsaw-snapshot/5"}).encode() + b"\n" + behind, fresh, "", "file")
    with refuses("outdated file"):
        restore(b'{"format": "jigsaw-snapshot/4", "inputs": "0"}', fresh, "these", "file")
    assert not (tmp_path / "marker").exists()


def signed(data: bytes, state: Any) -> bytes:
    """A snapshot with another state, and digests that fit it."""
    text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(json.loads(data) | {"state": state, "state_sha256": digest}).encode()


def running() -> tuple[Setting, bytes]:
    """Six jobs of which two have ended, three run and one waits."""
    jobs = (job("a", 0, 2, 30), job("b", 0, 2, 60), job("c", 0, 4, 900), job("d", 0, 2, 800))
    made = setting(*jobs, job("e", 0, 8, 90), job("f", 0, 1, 70), restart_s=10)
    simulation = begun("las", made)
    simulation.run(until_us=130 * SECOND)
    assert (simulation.ended, len(simulation._under_way.running), len(simulation._active)) == (2, 3, 4)
    return made, snapshot(simulation, "these")


def refusals(change: Callable[[Tree], object]) -> list[str]:
    """What is said of a snapshot whose state was changed."""
    made, data = running()
    state = json.loads(data)["state"]
    change(state)
    with pytest.raises(InvalidInputError) as caught:
        restore(signed(data, state), begun("las", made), "these", "file")
    return [str(problem) for problem in caught.value.problems]


def put(*path: str | int, value: object) -> Callable[[Tree], object]:
    def change(tree: Any) -> None:
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = value

    return change


TRIGGER: Tree = {"asked": False, "wake_us": None, "arrived": [], "ended": [], "stopped": []}
OUTCOME = ("books", "outcome")
CHANGES: Mapping[str, tuple[Callable[[Tree], object], str]] = {
    "a job that there is not": (put("active", 0, "job", value=6), "[0].job: must be an integer from 0 to 5; is 6"),
    "a GPU that there is not": (put("shares", 0, "gpus", value=[8]), "gpus[0]: must be an integer from 0 to 7"),
    "a GPU twice": (put("shares", 1, "gpus", value=[2, 3]), "GPU 2 is given to job 'c' and to another share"),
    "too few GPUs": (put("shares", 0, "gpus", value=[0]), "job 'c' cannot run on 1 GPUs"),
    "another job in the share": (put("shares", 0, "jobs", value=[4]), "shares: the jobs that run are not in one share"),
    "a job twice": (put("running", 1, "job", value=2), "running: not every job is active, or one is there twice"),
    "an ended job is active": (put("active", 0, "job", value=0), "active: with the jobs that ended these are not"),
    "more done than there is": (
        put("active", 0, "done", value=10**18),
        "active[0].done: job 'c' has 900000000000000000",
    ),
    "less than nothing done": (put("active", 0, "done", value=-1), "active[0].done: must be an integer from 0"),
    "an end that was passed": (put("active", 0, "done", value=9 * 10**17 - 1), "should have happened before this time"),
    "a start to come": (put("running", 0, "start_us", value=130_000_001), "must be an integer from 0 to 130000000"),
    "settled before the start": (put("running", 1, "settled_us", value=0), "running[1]: it is submitted, starts and"),
    "a negative time": (put("now_us", value=-1), "now_us: must be an integer from 0"),
    "a time beyond all": (put("now_us", value=10**41), "now_us: must be an integer from 0"),
    "more service than time": (put("active", 0, "run_us", value=10**9), "active[0].run_us: must be an integer from 0"),
    "a start that was none": (put("active", 2, "starts", value=1), "active[2].starts: job 'e' has started, or it has"),
    "a wake-up gone by": (put("trigger", value=TRIGGER | {"wake_us": 1}), "should have happened before this time"),
    "a truth value": (put("trigger", "asked", value=1), "trigger.asked: must be true or false; is 1"),
    "an ended job unknown": (put("trigger", "ended", value=[3]), "trigger.ended: not every job has ended"),
    "an end before a start": (put(*OUTCOME, "jobs", 0, "start_us", value=130_000_000), "jobs[0]: it is submitted"),
    "rounds out of order": (put(*OUTCOME, "rounds", 0, 0, value=129_000_000), "rounds[1]: times or jobs"),
    "a stint of nobody": (put(*OUTCOME, "stints", 0, 0, value=9), "stints[0]: no job can have held GPUs so"),
    "more of a server than there is": (
        put(*OUTCOME, "uses", 0, 2, value=5),
        "uses[0]: no server can have been used so",
    ),
    "more held than there is": (put("books", "held_before", value=8 * 130_000_000), "held_before: is more than GPUs"),
    "a key too many": (put("code", value="os.system"), 'state.code: unknown key "code"'),
    "a depth that there is not": (put("shares", 0, "depths", value=[{"rule": "deep"}]), "shares[0].depths[0].rule"),
    "a queue without a job": (put("scheduler", "upper", value=[3]), "state.scheduler: policy 'las' does not take it"),
    "no queue": (put("scheduler", value={"upper": []}), 'state.scheduler: missing key "lower"'),
    "no object": (put("scheduler", value=7), "state.scheduler: must be an object; is 7"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_cannot_be_is_refused(what: str) -> None:
    change, message = CHANGES[what]
    said = refusals(change)
    assert any(message in one and one.startswith("file $.state") for one in said), said


def test_all_problems_are_told_at_once() -> None:
    def change(state: Tree) -> None:
        state["active"][0]["done"] = state["running"][0]["start_us"] = "x"
        del state["trigger"]["asked"]

    assert len(refusals(change)) == 3


VALUES = (None, True, False, -1, 0, 1, 3, 7, 2**63, 10**39, 10**41, 10**400, 0.5, 1e308, float("nan"), "x", "3", "")
TREES: Sequence[Any] = (
    [],
    {},
    [[1]],
    [None],
    {"rule": "full"},
    {"rule": "free", "min_contributors": 5, "mean_depth": 7},
)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every value below, as what holds it and its key there."""
    found, left = [], [tree]
    while left:
        box = left.pop()
        own = list(box.items() if isinstance(box, dict) else enumerate(box)) if isinstance(box, (dict, list)) else []
        found += [(box, key) for key, _ in own]
        left += [value for _, value in own]
    return found


def change_somewhere(tree: Tree, draw: random.Random) -> None:
    """Delete, repeat, exchange or replace something."""
    every = places(tree)
    box, key = draw.choice([place for place in every if isinstance(place[0], dict)] if draw.random() < 0.5 else every)
    other_box, other_key = draw.choice(every)
    match draw.randrange(5):
        case 0:
            box[key], other_box[other_key] = copy.deepcopy((other_box[other_key], box[key]))
        case 1 if type(box[key]) is int:
            box[key] += draw.choice((-1, 1, 10, -(10**6), 10**6, 10**9))
        case 2 if isinstance(box, list):
            box.insert(key, copy.deepcopy(box[key]))
        case 3:
            del box[key]
        case _:
            box[key] = copy.deepcopy(draw.choice((*VALUES, *TREES)))


@pytest.mark.slow
@pytest.mark.parametrize("text", CASES)
def test_whatever_is_changed_it_is_refused_or_goes_on(text: str) -> None:
    # Where the repository lies does not change what is drawn.
    where, draw, seen = CASES[text](), random.Random(text.replace(str(KUEUE_QUEUES.parent), "")), Counter[str]()
    data = [snapshot(halted(text, where, part), "these") for part in (0.2, 0.5, 0.8)]
    for number in range(32):
        whole = draw.choice(data)
        state = json.loads(whole)["state"]
        for _ in range(min(number, 1 + number % 2)):
            change_somewhere(state, draw)
        events = iter(range(5000))
        try:
            simulation = restore(signed(whole, state), begun(text, where), "these", "file")
            simulation.run(lambda left=events: next(left, None) is None)
            outcome = simulation.close()
            summarise(where, outcome)
            assert jobs_csv(where, outcome) and rounds_csv(outcome)
            seen["goes on"] += 1
        except InvalidInputError as error:
            assert error.problems
            seen["refused"] += 1
        except JigsawError:
            seen["leaves jobs waiting"] += 1
    assert seen["refused"] > 10 and seen["goes on"] > 0
