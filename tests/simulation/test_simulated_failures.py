"""Servers that fail while a simulation runs: what jobs lose, who sees it, and what adds up."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from jigsaw_opt.documents.readers.outages import OutageEvent
from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.network.contention import FairSharing
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance import UNITS
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.simulation.engine.outages import Failures, ListedEvents, RandomEvents, down_gpu_us, failures_of
from jigsaw_opt.simulation.engine.records import Loss, SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.inputs.contention import LinkContention
from jigsaw_opt.simulation.results.folder import restore, snapshot
from jigsaw_opt.simulation.results.metrics import summarise
from jigsaw_opt.sweeps.simulations import measure
from tests.refusals import refuses, require_data
from tests.simulation.cases import SECOND, Scripted, Shared, cluster, finish_s, job, random_jobs, run, setting
from tests.simulation.resumable import CASES, begun

HOUR_US = 3600 * SECOND
SLOW = ("jigsaw:packing=columns", "interleave:service=attained", "jigsaw", "gavel")
"""Options of policies that are there with others."""


def failing(made: Setting, *events: tuple[int, str, int, bool], checkpoint_s: int = 100) -> Setting:
    """Parts by number that go down or come back at a second."""
    listed = tuple(OutageEvent(time_s * SECOND, kind, number, down) for time_s, kind, number, down in events)
    return replace(made, failures=Failures(ListedEvents(listed), checkpoint_s * SECOND))


def drawn(made: Setting, mtbf_s: int = 4000, mttr_s: int = 500, links_s: int | None = None) -> Setting:
    links_us = None if links_s is None else links_s * SECOND
    events = RandomEvents(mtbf_s * SECOND, mttr_s * SECOND, links_us, 1)
    return replace(made, failures=Failures(events, 60 * SECOND))


def linked(made: Setting) -> Setting:
    """With links to one switch where there are none."""
    links = made.cluster.links
    return made if links else replace(made, cluster=TOPOLOGIES["star"](made.cluster.servers, 10**8, 0))


def without_cpu(outcome: SimulationOutcome) -> object:
    rounds = [replace(record, policy_us=0) for record in outcome.rounds]
    return outcome.jobs, outcome.stints, rounds, outcome.losses, outcome.end_us


def test_a_job_goes_on_from_its_last_checkpoint() -> None:
    made = setting(job("a", 0, 4, 1000), restart_s=10, cluster=cluster(1, 4), round_us=0)
    outcome = run(failing(made, (350, "server", 0, True), (400, "server", 0, False)), FIFO)
    # Ready at 10, checkpoints at 110, 210, 310: 300 of 1000 s are kept. From 400 on 10 s of start and 700 s.
    assert finish_s(outcome) == [400 + 10 + 700]
    assert outcome.losses == {0: Loss(1, 4 * 40 * SECOND)}
    assert outcome.jobs[0].restarts == 1
    assert [(stint.start_us, stint.end_us) for stint in outcome.stints] == [
        (0, 350 * SECOND),
        (400 * SECOND, 1110 * SECOND),
    ]


def test_before_its_first_checkpoint_a_job_loses_its_start_too() -> None:
    made = setting(job("a", 0, 1, 200), restart_s=10, cluster=cluster(2, 1), round_us=0)
    outcome = run(failing(made, (109, "server", 0, True)), FIFO)
    assert finish_s(outcome) == [109 + 10 + 200]
    assert outcome.losses == {0: Loss(1, 109 * SECOND)}


def test_a_job_that_ends_when_its_server_fails_has_ended() -> None:
    made = setting(job("a", 0, 4, 120))
    outcome = run(failing(made, (120, "server", 0, True)), FIFO)
    assert (finish_s(outcome), outcome.losses) == ([120], {})


def test_jobs_that_share_a_server_all_stop_at_once() -> None:
    jobs = (job("wide", 0, 4, 100), job("narrow", 0, 1, 100))
    made = setting(*jobs, performance=Shared(), cluster=cluster(2, 4), round_us=0)
    pool = Scripted(
        lambda moment: Decision((Share(tuple(moment.jobs), (4, 5, 6, 7) if moment.down else (0, 1, 2, 3)),))
    )
    outcome = run(failing(made, (150, "server", 0, True)), pool)  # type: ignore[arg-type]
    # At half speed: 50 done at the checkpoint, 150 s more at half speed, and the rest of both together.
    assert finish_s(outcome) == [250, 250]
    assert outcome.losses == {0: Loss(1, 100 * SECOND), 1: Loss(1, 100 * SECOND)}


def test_events_are_the_same_whatever_else_is_there() -> None:
    source = RandomEvents(100 * HOUR_US, HOUR_US, 50 * HOUR_US, 7)
    few = list(islice(source.of(cluster(2)), 40))
    assert few == list(islice(source.of(cluster(2)), 40))
    assert few == sorted(few)
    assert {event.number for event in few} == {0, 1}
    more = (event for event in source.of(cluster(5)) if event.number < 2)
    assert few == list(islice(more, 40))
    other = replace(source, seed=8)
    assert few != list(islice(other.of(cluster(2)), 40))


def held_by_stints(outcome: SimulationOutcome) -> int:
    """GPU time held, from the stints of jobs that share nothing."""
    return sum(stint.gpus * (stint.end_us - stint.start_us) for stint in outcome.stints)


@pytest.mark.parametrize("text", ["fifo", "srtf:placement=consolidated"])
def test_gpu_hours_add_up(text: str) -> None:
    made = drawn(setting(*random_jobs(5, 30), restart_s=10))
    simulation = begun(text, made)
    simulation.run()
    outcome = simulation.close()
    summary = summarise(made, outcome)
    assert summary.failure_stops > 3
    assert summary.failure_stops == sum(loss.stops for loss in outcome.losses.values())
    held_h = held_by_stints(outcome) / HOUR_US
    assert summary.useful_gpu_hours + summary.lost_gpu_hours == pytest.approx(held_h)
    parts = (summary.useful_gpu_hours, summary.lost_gpu_hours, summary.idle_gpu_hours, summary.down_gpu_hours)
    assert sum(parts) == pytest.approx(summary.makespan_h * made.gpu_count)
    assert min(parts) > 0
    assert summary.availability == pytest.approx(1 - summary.down_gpu_hours / (summary.makespan_h * made.gpu_count))


def test_time_down_is_counted_between_two_times_only() -> None:
    made = failing(
        setting(job("a", 0, 4, 60)), (10, "server", 0, True), (30, "server", 0, False), (40, "server", 1, True)
    )
    assert down_gpu_us(made.failures, made.cluster, 20 * SECOND, 50 * SECOND) == 4 * (10 + 10) * SECOND
    assert down_gpu_us(made.failures, made.cluster, 31 * SECOND, 35 * SECOND) == 0
    assert down_gpu_us(None, made.cluster, 0, 50 * SECOND) == 0


@pytest.mark.parametrize("text", [text for text in CASES if text not in SLOW])
def test_every_policy_works_while_parts_fail_and_goes_on_in_an_outage(text: str) -> None:
    made = drawn(linked(CASES[text]()), 400, 100, 800)
    whole = begun(text, made)
    whole.run()
    expected = without_cpu(whole.close())
    assert all(record.finish_us is not None for record in whole.outcome.jobs)
    half = begun(text, made)
    half.run(lambda: bool(half._trigger.stopped))  # before the policy has heard of it
    assert half._trigger.stopped
    data = snapshot(half, "these")
    resumed = restore(data, begun(text, made), "these", "file")
    assert snapshot(resumed, "these") == data
    resumed.run()
    assert without_cpu(resumed.close()) == expected


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("events", 9, "contradiction $.failures.events"),
        ("saved", [], "contradiction $.failures.saved"),
        ("saved", [[10**30, 0]], "contradiction $.failures.saved[0]"),
        ("losses", [{"job": 0, "stops": 1, "gpu_us": 0}] * 2, "duplicate-name $.failures.losses"),
    ],
)
def test_failures_that_cannot_be_are_refused(key: str, value: object, told: str) -> None:
    jobs = job("a", 0, 8, 500), job("b", 0, 4, 600)
    made = failing(setting(*jobs), (130, "server", 0, True), (250, "server", 0, False))
    simulation = begun("srtf", made)
    simulation.run(until_us=190 * SECOND)
    state = json.loads(json.dumps(simulation.state()))
    assert state["failures"]["events"] == 1
    state["failures"][key] = value
    with refuses(told):
        begun("srtf", made).restore(state)


def test_what_never_comes_back_is_told_and_ends_the_simulation() -> None:
    made = setting(job("a", 0, 4, 600), job("b", 1, 1, 5), cluster=cluster(1, 4))
    outcome = run(failing(made, (130, "server", 0, True)), FIFO)
    require_data(outcome.hindrance, "'a'", "4 GPUs", "0 are up", "server", "s0", "does not come back")
    assert [record.finish_us for record in outcome.jobs] == [None, None]
    assert outcome.jobs[0].start_us == 0 and outcome.end_us == 130 * SECOND


def test_a_sweep_takes_no_measures_of_jobs_that_cannot_end() -> None:
    made = setting(job("a", 0, 4, 600), cluster=cluster(1, 4))
    row = measure(failing(made, (130, "server", 0, True)).under(FIFO))
    require_data(row["error"], "'a'", "s0")


def test_words_of_failures() -> None:
    made = failures_of("mtbf=100,mttr=0.5,links=30,checkpoint=600", cluster(), 3)
    assert made == Failures(RandomEvents(100 * HOUR_US, HOUR_US // 2, 30 * HOUR_US, 3), 600 * SECOND)
    assert failures_of("", cluster(), 3) is None
    with pytest.raises(UsageError) as refused:
        failures_of("mtbf=-1,mtbf=2,often=3,checkpoint=nan", cluster(), 3)
    assert [text.split(";")[0] for text in refused.value.args] == [
        "'mtbf' of the failures is a time above 0 and at most 285 years, not '-1'",
        "'mtbf' is there twice in the failures",
        "no word 'often' in the failures",
        "'checkpoint' of the failures is a time above 0 and at most 285 years, not 'nan'",
        "the failures need mttr=HOURS",
    ]


def test_all_that_is_wrong_with_a_file_of_events(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    told = {
        "-1,server,s1,down": "time_s is negative: -1",
        "5,rack,s1,down": "kind is server or link, not 'rack'",
        "5,server,s9,down": "the cluster has no server 's9'",
        "5,server,s0,gone": "state is down or up, not 'gone'",
        "7,server,s0,up": "server 's0' is up already",
        "8,server,s0,down": "",
        "8,server,s0,up": "server 's0' has two events at the same time",
    }
    path.write_text("\n".join(("time_s,kind,name,state", *told)))
    with pytest.raises(InvalidInputError) as refused:
        failures_of(str(path), cluster(), 0)
    found = [(problem.path[-1], problem.message) for problem in refused.value.problems]
    assert found == [(str(line), message) for line, message in enumerate(told.values(), 2) if message]


def ring(**changes: object) -> Setting:
    """Four servers of one GPU in a ring, job a on the first two, which half of the time exchanges."""
    servers = tuple(Server(f"s{k}", "gpu", 1, 10**9, 10**9) for k in range(4))
    made = TOPOLOGIES["ring"](servers, 10**8, 0)
    return setting(job("a", 0, 2, 100), cluster=made, performance=Shared(), round_us=0, **changes)


def star() -> Cluster:
    return TOPOLOGIES["star"](tuple(Server(f"s{k}", "gpu", 2, 10**9, 10**9) for k in range(2)), 10**8, 0)


def test_a_slower_route_slows_the_exchange_down() -> None:
    made = ring()
    links = tuple(replace(k, bandwidth=10**8 if set(k.ends) == {"s0", "s1"} else 5 * 10**7) for k in made.cluster.links)
    slower = replace(made, cluster=replace(made.cluster, links=links))
    (direct,) = (k for k, link in enumerate(links) if set(link.ends) == {"s0", "s1"})
    events = ((40, "link", direct, True), (70, "link", direct, False))
    # Between 40 and 70 an iteration takes half a second and twice half a second: 20 of them.
    for contention in (None, LinkContention(slower.cluster, FairSharing())):
        outcome = run(failing(replace(slower, contention=contention), *events), FIFO)
        assert finish_s(outcome) == [pytest.approx(110, abs=1e-5)]
        assert outcome.losses == {}


@pytest.mark.parametrize("division", [None, FairSharing()])
def test_a_job_without_a_route_stops_and_loses_no_work(division: FairSharing | None) -> None:
    made = setting(job("a", 0, 4, 100), cluster=star(), performance=Shared(), round_us=0)
    contention = None if division is None else LinkContention(made.cluster, division)
    flaps = ((30, "link", 1, True), (70, "link", 1, False), (90, "link", 0, True), (95, "link", 0, False))
    outage = ((110, "server", 1, True), (110, "link", 1, True), (500, "server", 1, False), (510, "link", 1, False))
    whole = failing(replace(made, contention=contention), *flaps, *outage)
    simulation = begun("fifo", whole)
    simulation.run(until_us=60 * SECOND)
    resumed = restore(snapshot(simulation, "these"), begun("fifo", whole), "these", "file")
    resumed.run(until_us=95 * SECOND)
    assert next(iter(resumed._active.values())).done == 50 * UNITS
    resumed.run(until_us=110 * SECOND)
    # It began anew at 95 s, with the 50 s of work that it had done; of the 15 s from then on nothing was saved.
    assert resumed.outcome.losses == {0: Loss(3, 4 * 15 * SECOND)}
    assert next(iter(resumed._active.values())).done == 50 * UNITS
    resumed.run()
    outcome = resumed.close()
    assert finish_s(outcome) == [510 + 50]
    summary = summarise(whole, outcome)
    assert summary.lost_gpu_hours == pytest.approx(4 * 15 / 3600)
    assert summary.useful_gpu_hours == pytest.approx(4 * 100 / 3600)
    assert summary.down_gpu_hours == pytest.approx(2 * 390 / 3600)
