"""Links that are missing or fail while a simulation runs: jobs are placed on servers that the others join."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.documents.readers.outages import OutageEvent
from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.seconds import Seconds, SecondsByType, TypeSpeeds
from jigsaw_opt.scheduling.placement.configurations import Configured, place
from jigsaw_opt.scheduling.placement.placing import FreeGpus, by_priority
from jigsaw_opt.scheduling.policy import JobState, Observation
from jigsaw_opt.scheduling.policy_at_work import InvariantError
from jigsaw_opt.simulation.engine.outages import Failures, ListedEvents
from jigsaw_opt.simulation.engine.records import Loss
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.solvers.solve import solve
from tests.refusals import carries, fails
from tests.simulation.cases import SECOND, Scripted, finish_s, job, run, setting
from tests.simulation.resumable import KUEUE_QUEUES, begun

LIMITS = ":default_limit=4"
SPEEDS = TypeSpeeds({"gpu": Fraction(1)})
POLICIES = (
    "fifo",
    "fifo:placement=emptiest",
    "fifo:placement=consolidated",
    "las",
    "las:placement=consolidated",
    "srtf",
    "priority",
    "sjf_bco",
    "separate",
    f"kueue:config={KUEUE_QUEUES}",
    f"backfill{LIMITS}",
    f"backfill:kind=conservative{LIMITS}",
    f"multifactor{LIMITS}",
    "gavel",
)


def racks(*uplinks: tuple[str, str], gpus: int = 2, servers: int = 4) -> Cluster:
    """Servers of a few GPUs, and cables between them and switches."""
    names = [f"s{k}" for k in range(servers)]
    switches = tuple(sorted({end for pair in uplinks for end in pair} - set(names)))
    links = tuple(Link("-".join(pair), pair, 10**8) for pair in uplinks)
    return Cluster(tuple(Server(name, "gpu", gpus, 10**9, 10**9) for name in names), switches, links)


TWO_RACKS = racks(("s0", "a"), ("s1", "a"), ("s2", "b"), ("s3", "b"), ("a", "b"))


def cut(made: Setting, *events: tuple[int, str, bool]) -> Setting:
    """Links by name that go down or come back at a second."""
    number = {link.name: k for k, link in enumerate(made.cluster.links)}
    listed = tuple(OutageEvent(time_s * SECOND, "link", number[name], down) for time_s, name, down in events)
    return replace(made, failures=Failures(ListedEvents(listed), 100 * SECOND))


def placed(text: str, made: Setting) -> list[tuple[int, int, tuple[int, ...]]]:
    """Seconds of start and end, and the GPUs, of each time that a job held GPUs."""
    simulation = begun(text, made)
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    while not simulation.finished:
        rounds = len(simulation.outcome.rounds)
        simulation.run(lambda: len(simulation.outcome.rounds) > rounds)  # noqa: B023 - called at once
        found |= {
            (index, one.start_us): share.gpus
            for index, one in simulation._under_way.running.items()
            if (share := one.active.share) is not None
        }
    return [
        (stint.start_us // SECOND, stint.end_us // SECOND, found[stint.job, stint.start_us])
        for stint in simulation.close().stints
    ]


@pytest.mark.parametrize("text", POLICIES)
def test_a_gang_does_not_wait_for_a_dead_nic(text: str) -> None:
    star = racks(("s0", "a"), ("s1", "a"), ("s2", "a"), servers=3)
    gang, one = (replace(each, queue="research") for each in (job("gang", 10, 4, 100), job("one", 20, 2, 50)))
    timed = SecondsByType(star, SPEEDS) if text == "gavel" else Seconds()
    made = setting(gang, one, cluster=star, performance=timed, round_us=10 * SECOND)
    events = (5, "s0-a", True), (1000, "s0-a", False)
    assert placed(text, cut(made, *events)) == [(20, 70, (0, 1)), (10, 110, (2, 3, 4, 5))]


@pytest.mark.parametrize("text", [text for text in POLICIES if not text.startswith("kueue")])
def test_a_gang_that_a_link_cuts_starts_anew_where_it_can(text: str) -> None:
    jobs = job("gang", 0, 6, 100), job("one", 0, 2, 300)
    timed = SecondsByType(TWO_RACKS, SPEEDS) if text == "gavel" else Seconds()
    made = setting(*jobs, cluster=TWO_RACKS, performance=timed, round_us=10 * SECOND, restart_s=5)
    simulation = begun(text, cut(made, (45, "a-b", True), (95, "a-b", False)))
    simulation.run()
    outcome = simulation.close()
    # It has done 40 s of work by then, and waits for a rack more until 95 s, that is to the round at 100 s.
    assert finish_s(outcome) == [100 + 5 + 60, 305]
    assert outcome.losses == {0: Loss(1, 0)}
    assert [record.restarts for record in outcome.jobs] == [1, 0]


def test_a_gang_that_fits_into_one_rack_goes_there() -> None:
    made = setting(job("first", 0, 2, 20), job("gang", 0, 4, 100), cluster=TWO_RACKS, round_us=0, restart_s=5)
    made = cut(made, (35, "a-b", True))
    # On the next two servers, in different racks; from 35 s on within a rack, with 30 s of work done.
    assert placed("fifo", made) == [(0, 25, (0, 1)), (0, 35, (2, 3, 4, 5)), (35, 35 + 5 + 70, (0, 1, 2, 3))]


def test_a_dead_link_with_a_way_around_it_stops_nobody() -> None:
    ring = TOPOLOGIES["ring"](TWO_RACKS.servers, 10**8, 0)
    made = setting(job("gang", 0, 8, 100), cluster=ring, round_us=0)
    assert placed("fifo", cut(made, (35, ring.links[0].name, True))) == [(0, 100, tuple(range(8)))]


def test_a_policy_that_spans_what_no_link_joins_is_told_which() -> None:
    blind = Scripted(lambda moment: Decision((Share((0,), (0, 1, 2, 3)),)))
    star = racks(("s0", "a"), ("s1", "a"), servers=2)
    made = cut(setting(job("gang", 0, 4, 100), cluster=star), (35, "s0-a", True), (500, "s0-a", False))
    with fails(InvariantError, "'gang'", "links", "s0, s1"):
        run(made, blind)


def drawn_cases() -> Iterator[tuple[Setting, frozenset[int], frozenset[int], set[int]]]:
    """Small clusters of any shape, with GPUs and links that are down, and GPUs that are held."""
    draw = random.Random(8)
    for _ in range(150):
        count = draw.randint(1, 5)
        pairs = [pair for pair in combinations(range(count), 2) if draw.random() < 0.5]
        servers = tuple(Server(f"s{k}", "gpu", draw.randint(1, 3), 10**9, 10**9) for k in range(count))
        links = tuple(Link(f"l{k}", (f"s{one}", f"s{two}"), 10**8) for k, (one, two) in enumerate(pairs))
        made = setting(job("a", 0, 1, 1), cluster=Cluster(servers, (), links))
        dead = frozenset(k for k in range(len(links)) if draw.random() < 0.4)
        down = frozenset(gpu for gpu in range(made.gpu_count) if draw.random() < 0.2)
        yield made, down, dead, {gpu for gpu in range(made.gpu_count) if draw.random() < 0.3}


def joined(made: Setting, dead: frozenset[int], servers: tuple[int, ...]) -> bool:
    """Whether links that are up join servers, maybe over others, by following them; without links all are joined."""
    links, seen = made.cluster.links, {f"s{servers[0]}"}
    for _ in made.cluster.servers:
        seen |= {end for k, link in enumerate(links) if k not in dead and seen & {*link.ends} for end in link.ends}
    return not links or seen >= {f"s{k}" for k in servers}


def most_that_fit(made: Setting, dead: frozenset[int], free: set[int]) -> int:
    """The most free GPUs of any set of servers that links that are up join."""
    counts = Counter(made.server_of[gpu] for gpu in free)
    sets = (own for size in range(1, len(counts) + 1) for own in combinations(counts, size))
    return max((sum(counts[k] for k in own) for own in sets if joined(made, dead, own)), default=0)


@pytest.mark.parametrize("placement", ["packed", "emptiest"])
def test_a_gang_starts_where_some_joined_servers_have_the_gpus_and_only_there(placement: str) -> None:
    starts = 0
    for made, down, dead, held in drawn_cases():
        free = set(range(made.gpu_count)) - down - held
        most = min(most_that_fit(made, dead, free), most_that_fit(made, frozenset(), set(range(made.gpu_count))))
        for count in range(1, made.gpu_count + 1):
            shares = [Share((9,), tuple(sorted(held)))] if held else []
            gpus = FreeGpus(made, shares, down, dead).place(job("a", 0, count, 1), placement)
            assert (gpus is not None) == (count <= most)
            active = [JobState(0, job("a", 0, count, 1), 1)]
            running = by_priority(made, active, list, placement, {*down, *held}, dead)
            assert (len(running) == 1) == (count <= most)
            if gpus is not None:
                starts += 1
                assert len(gpus) == count and free >= {*gpus}
                assert joined(made, dead, tuple({made.server_of[gpu] for gpu in gpus}))
    assert starts > 200


def test_sia_takes_whole_servers_of_one_part() -> None:
    made = setting(*(job(f"j{k}", 0, 1, 1) for k in range(3)), cluster=TWO_RACKS)
    dead = frozenset({[link.name for link in TWO_RACKS.links].index("a-b")})
    jobs = {k: JobState(k, one, 1) for k, one in enumerate(made.workload.jobs)}
    jobs[2].share = Share((2,), (0,))
    wanted = {0: Configured("gpu", 2, 4), 1: Configured("gpu", 1, 2), 2: Configured("gpu", 1, 1)}
    shares = place(made, wanted, Observation(0, jobs, (Share((2,), (0,)),), dead=dead))
    assert {share.jobs: share.gpus for share in shares} == {(0,): (4, 5, 6, 7), (1,): (2, 3), (2,): (0,)}
    wide = place(made, {0: Configured("gpu", 3, 6)}, Observation(0, jobs, (), dead=dead))
    assert wide == ()


CORES = load_instance(Path(__file__).parents[2] / "examples" / "two-cores.json")
APART = replace(CORES, cluster=replace(CORES.cluster, links=()))
TWO_PAIRS = racks(("s0", "s1"), ("s2", "s3"))
BOTH_WAYS = ("fifo", "las", "srtf", "backfill:default_limit=4", "priority", "separate", "sjf_bco")


def apart(policy: str, *links_down: tuple[int, str, bool]) -> Setting:
    """A job of 6 GPUs on two pairs of servers with 4 GPUs, after one that fits."""
    given = setting(job("fits", 0, 4, 10), job("wide", 20, 6, 10), cluster=TWO_PAIRS)
    return (cut(given, *links_down) if links_down else given).under(policy)


def test_a_solve_proves_it() -> None:
    result = solve(APART)
    assert result.status == "infeasible"
    assert carries(" ".join(map(str, result.conflicts)), "job wide", "2 workers", "joined by links")


@pytest.mark.parametrize("policy", BOTH_WAYS)
@pytest.mark.parametrize("links_down", [(), ((5, "s0-s1", True), (50, "s0-s1", False))])
def test_a_simulation_ends_with_the_job_unfinished(policy: str, links_down: tuple[tuple[int, str, bool], ...]) -> None:
    simulation = Simulation(apart(policy, *links_down))
    simulation.run()
    outcome = simulation.close()
    assert outcome.hindrance == "job 'wide' asks for 6 GPUs, and at most 4 that it can have are joined by links"
    assert [one.finish_us is not None for one in outcome.jobs] == [True, False]


def test_a_simulation_of_models_needs_links_also_where_a_cluster_has_none() -> None:
    """Jobs with durations alone run on such a cluster, whose network nobody states."""
    jobs = (TraceJob("lone", 0, "dense", 1, 10), TraceJob("wide", 0, "dense", 2, 10))
    plain = setting(job("both", 0, 2, 10), cluster=APART.cluster)
    simulation = Simulation(plain.under("fifo"))
    simulation.run()
    assert simulation.finished
    workload = replace(plain.workload, jobs=jobs)
    known = replace(plain, cluster=APART.cluster, workload=workload, performance=Profiled(APART.cluster, APART.models))
    simulation = Simulation(known.under("fifo"))
    simulation.run()
    assert carries(simulation.outcome.hindrance, "'wide'", "2 GPUs", "at most 1", "joined by links")


def test_the_commands_write_their_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((Path(__file__).parents[2] / "examples" / "two-cores.json").read_text())
    document["cluster"]["links"] = []
    (tmp_path / "apart.json").write_text(json.dumps(document))
    (tmp_path / "jobs.csv").write_text("name,submit_h,gpus,iterations,model\nlone,0,1,9,dense\nwide,0,2,9,dense\n")
    words = [str(tmp_path / "jobs.csv"), "--cluster", str(tmp_path / "apart.json"), "-q", "--policy"]
    for policy in ("fifo", "jigsaw"):
        assert main(["simulate", "--workload", *words, policy, "-o", str(tmp_path / policy)]) == 0
        assert "1 job not ended: job 'wide' asks for 2 GPUs" in capsys.readouterr().err
    assert main(["explain", str(tmp_path / "fifo"), "wide"]) == 2
    assert carries(capsys.readouterr().err, "'wide' has not ended", "at most 1 that it can have are joined by links")
    assert main(["advise", *words, "fifo", "srtf", "-o", str(tmp_path / "advice")]) == 0
    assert carries(capsys.readouterr().out, "No simulation has ended", "at most 1 that it can have are joined by links")
