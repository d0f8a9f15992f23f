"""Priorities of Slurm against the worked examples of its documentation, and who starts first by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents.readers.slurm.priorities import Association, read_shares, read_slurm_conf
from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.policies.slurm.fair_share import ShareTree
from jigsaw_opt.scheduling.policies.slurm.multifactor import MULTIFACTOR, JobPriority, PrioritySettings, decayed
from jigsaw_opt.scheduling.policy import choose
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.refusals import carries, misuse, refuses
from tests.simulation.cases import SECOND, cluster, job, run, setting, starts_s
from tests.simulation.resumable import accounted
from tests.simulation.test_backfill_policy import GPUS, Textbook, drawn

HOUR = 3600 * SECOND
SERVERS = (4, 4)

# "Classic Fairshare Algorithm", slurm.schedmd.com, figure 3: accounts A (40 shares) and D (60); B (30) and C (10) in A,
# E (25) and F (35) in D; user 1 in B, users 2 and 3 with a share each in C, user 4 in E and user 5 in F.
FIGURE_3 = (
    *(Association(name, "", "root", shares) for name, shares in (("A", 40), ("D", 60))),
    *(Association(name, "", "A", shares) for name, shares in (("B", 30), ("C", 10))),
    *(Association(name, "", "D", shares) for name, shares in (("E", 25), ("F", 35))),
    *(
        Association(account, user, "", 1)
        for account, user in (("B", "1"), ("C", "2"), ("C", "3"), ("E", "4"), ("F", "5"))
    ),
)
USED = {("B", "1"): 0.2, ("C", "2"): 0.25, ("E", "4"): 0.25}
"""Usage as parts of the machine. They add up to 0.7, and the rest of it another account has used, as users 0 shows."""


def test_classic_fair_share_is_that_of_the_documentation() -> None:
    rest = (Association("others", "", "root", 0), Association("others", "0", "", 1))
    found = ShareTree((*FIGURE_3, *rest)).classic({**USED, ("others", "0"): 0.3})
    stated = {"1": 0.408479, "2": 0.022097, "3": 0.125, "4": 0.5, "5": 0.749154}
    assert {user: found[account, user] for account, user in found if user != "0"} == pytest.approx(stated, abs=1e-6)


def test_served_as_the_parent_is() -> None:
    """`FairShare=parent`: the normalised shares and the effective usage of the parent are used."""
    accounts = (Association("a", "", "root", 1), Association("b", "", "root", 1))
    tree = ShareTree((*accounts, Association("a", "x", "", None), Association("a", "y", "", None)))
    tree.include(("b", "z"))
    found = tree.classic({("a", "x"): 3.0, ("b", "z"): 1.0})
    assert found == {("a", "x"): 2**-1.5, ("a", "y"): 2**-1.5, ("b", "z"): 2**-0.5}


@pytest.mark.parametrize(
    ("used", "ranks"),
    [
        # LF = S / U: account a has (1/2) / (3/4), account b (1/2) / (1/4); all of b go before all of a.
        ({("a", "x"): 3.0, ("b", "u"): 1.0}, {("b", "v"): 4, ("b", "u"): 3, ("a", "y"): 2, ("a", "x"): 1}),
        # Accounts of equal LF are merged; siblings of equal LF (here endless, without usage) have the same rank.
        ({("a", "x"): 1.0, ("b", "u"): 1.0}, {("a", "y"): 4, ("b", "v"): 4, ("a", "x"): 2, ("b", "u"): 2}),
        ({}, {("a", "x"): 4, ("a", "y"): 4, ("b", "u"): 4, ("b", "v"): 4}),
    ],
)
def test_fair_tree_ranks_users_as_the_documentation_says(
    used: Mapping[tuple[str, str], float], ranks: Mapping[tuple[str, str], int]
) -> None:
    tree = ShareTree()
    for key in (("a", "x"), ("a", "y"), ("b", "u"), ("b", "v")):
        tree.include(key)
    assert tree.fair_tree(used) == {key: rank / 4 for key, rank in ranks.items()}


def test_a_user_beside_an_account_of_equal_level_has_the_rank_of_its_first_user() -> None:
    stated = (Association("a", "", "root", 1), Association("root", "r", "", 1))
    tree = ShareTree((*stated, Association("a", "x", "", 1), Association("a", "y", "", 1)))
    found = tree.fair_tree({("root", "r"): 2.0, ("a", "x"): 2.0})
    assert found == {("root", "r"): 1.0, ("a", "y"): 1.0, ("a", "x"): 1 / 3}


def test_usage_is_half_after_a_half_life() -> None:
    assert decayed(80.0, 0, 7 * 24 * HOUR, 7 * 24 * HOUR) == pytest.approx(40)
    assert decayed(80.0, 2, 100, 0) == 280
    # Held for ever, GPUs come to half-life / ln 2 of usage each; in two steps as in one.
    assert decayed(0.0, 4, 10**15, HOUR) == pytest.approx(4 * HOUR / 0.6931471805599453)
    once, twice = decayed(5.0, 3, 2 * HOUR, HOUR), decayed(decayed(5.0, 3, HOUR, HOUR), 3, HOUR, HOUR)
    assert once == pytest.approx(twice)


def test_factors_are_those_of_the_documentation() -> None:
    # "Job Priority Factors In General": weight 5000 and priorities 20 and 10 of partitions are 5000 and 2500.
    settings = PrioritySettings({"PriorityWeightPartition": "5000"}, {"PartitionA": 20, "PartitionB": 10})
    priority = JobPriority(settings, SERVERS)
    a, b = (replace(job("j", 0, 1, 1), queue=f"Partition{name}") for name in "AB")
    assert (priority.of(a, 0, 1.0, 0), priority.of(b, 0, 1.0, 0)) == (5000, 2500)
    # "At PriorityMaxAge the age factor will max out to 1.0"; it is 7-0.
    assert [priority.age(halves * 12 * HOUR) for halves in (0, 7, 14, 60)] == [0, 0.5, 1, 1]
    # "A job that requests all the nodes on the machine will get a job size factor of 1.0."
    # Otherwise it is the mean of the parts of the nodes and of the CPUs, here GPUs.
    assert [priority.size(gpus, 0) for gpus in (8, 4, 2, 5)] == [1.0, 0.5, 0.375, 0.8125]
    small = JobPriority(PrioritySettings({"PriorityFavorSmall": "YES"}), SERVERS)
    assert (small.size(8, 0), small.size(2, 0)) == (0.0, 0.625)
    # "A full-system job with a time limit of one [minute] will receive a job size factor of 1.0."
    relative = JobPriority(PrioritySettings({"PriorityFlags": "SMALL_RELATIVE_TO_TIME"}), SERVERS)
    assert (relative.size(8, 60 * SECOND), relative.size(4, HOUR)) == (1.0, 0.5 / 60)


def test_the_sum_of_weighted_factors_is_a_whole_number() -> None:
    """Fair-share factors .59534 and .50002 "have the same fair-share priority" with a weight of 10."""
    low = JobPriority(PrioritySettings({"PriorityWeightFairshare": "10"}), SERVERS)
    assert low.of(job("j", 0, 1, 1), 0, 0.59534, 0) == low.of(job("j", 0, 1, 1), 0, 0.50002, 0) == 5
    weights = {"PriorityWeightFairshare": "5000", "PriorityWeightAge": "1000", "PriorityWeightJobSize": "1000"}
    most = JobPriority(PrioritySettings(weights), SERVERS)
    assert most.of(job("j", 0, 8, 1), 7 * 24 * HOUR, 1.0, 0) == 7000  # "the maximum possible priority would be 7000"


def of(user: str, name: str, submit_s: float, gpus: int, seconds: int, **stated: Any) -> TraceJob:
    return job(name, submit_s, gpus, seconds, user=user, time_limit_us=seconds * SECOND, **stated)


def starts(*jobs: TraceJob, **options: str) -> list[float | None]:
    return starts_s(run(setting(*jobs, cluster=cluster(1, 8), round_us=0), MULTIFACTOR, **options))


ONE_WEIGHT = {f"priority_weight_{name}": "0" for name in ("age", "fairshare", "job_size")}


def test_who_has_used_less_comes_first() -> None:
    jobs = (
        of("ann", "past", 0, 8, 100),
        of("ann", "second", 10, 8, 10),
        of("bob", "third", 20, 8, 10),
        of("bob", "fourth", 30, 8, 10),
    )
    assert starts(*jobs, **ONE_WEIGHT) == [0, 100, 110, 120]
    assert starts(*jobs, **{**ONE_WEIGHT, "priority_weight_fairshare": "1000"}) == [0, 120, 100, 110]
    assert choose("multifactor:priority_decay_half_life=1-0")[1]["priority_decay_half_life"] == "1-0"
    with misuse("out-of-range policy.priority_weight_age"):
        choose("multifactor:priority_weight_age=much")


def test_a_job_that_waits_for_others_does_not_age_meanwhile() -> None:
    """ "The age factor for a dependent job will not change while it waits for the job it depends on"."""
    jobs = (
        of("u", "before", 0, 1, 50),
        of("u", "running", 0, 7, 100),
        of("u", "behind", 1, 8, 10, after=("before",)),
        of("u", "later", 30, 8, 10),
    )
    age = {**ONE_WEIGHT, "priority_weight_age": "1000000000"}
    assert starts(*jobs, **age) == [0, 0, 110, 100]
    assert starts(*jobs, **age, priority_flags="ACCRUE_ALWAYS+NO_FAIR_TREE") == [0, 0, 100, 110]
    with misuse("out-of-range policy.priority_flags"):
        choose("multifactor:priority_flags=FAIR")


class LargestFirst(Textbook):
    """Backfill over the queue by size."""

    def waiting(self, now: int) -> list[int]:
        return sorted(Textbook.waiting(self, now), key=lambda k: -self.jobs[k][1])

    def conservative(self, now: int) -> None:
        self.reserved = {}
        Textbook.conservative(self, now)


@pytest.mark.parametrize("kind", ["easy", "conservative"])
def test_starts_are_those_of_the_textbook_over_the_queue_by_priority(kind: str) -> None:
    options = {**ONE_WEIGHT, "priority_weight_job_size": "8000", "kind": kind}
    for seed in range(30):
        jobs = drawn(seed, overrun=False)
        made = [
            replace(TraceJob.lasting(f"j{k}", submit, gpus, length), time_limit_us=estimate)
            for k, (submit, gpus, length, estimate) in enumerate(jobs)
        ]
        outcome = run(setting(*made, cluster=cluster(GPUS, 1), round_us=0), MULTIFACTOR, **options)
        starts = {record.index: record.start_us for record in outcome.jobs}
        assert starts == LargestFirst(jobs).run(kind == "conservative"), seed


CONF = """\
# a cluster
PriorityType=priority/multifactor
PriorityWeightPartition = 1000   # the only one
PriorityWeightQOS=10
priorityMaxAge=14-0
PartitionName=DEFAULT PriorityJobFactor=10 \\
    MaxTime=1-0
PartitionName=long Nodes=a[1-4]
PartitionName=short,debug PriorityJobFactor=40
"""


def test_files_of_a_cluster_are_read(tmp_path: Path) -> None:
    factors = {name: own["priorityjobfactor"] for name, own in read_slurm_conf(CONF).partitions.items()}
    assert factors == {"long": "10", "short": "40", "debug": "40"}
    shares = "Cluster|Account|User|Par Name|Share\nc|root|||1\nc|bio||root|30\nc|bio|ann||parent\n"
    assert read_shares(shares)[1:] == (Association("bio", "", "root", 30), Association("bio", "ann", "root", None))
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "qos.txt").write_text("Name|Priority\nnormal|0\nhigh|100\n")
    files = {"conf": str(tmp_path / "slurm.conf"), "qos": str(tmp_path / "qos.txt")}
    jobs = (
        of("u", "first", 0, 8, 100),
        of("u", "long", 1, 8, 10, queue="long", qos="normal"),
        of("u", "urgent", 2, 8, 10, queue="long", qos="high"),
        of("u", "short", 3, 8, 10, queue="short"),
    )
    assert starts(*jobs, **files) == [0, 120, 110, 100]
    assert starts(*jobs, **files, priority_weight_qos="100000") == [0, 120, 100, 110]  # goes before the file


def test_jobs_without_a_limit_have_that_of_their_partition(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(
        "PartitionName=a DefaultTime=0:40 MaxTime=1-0\nPartitionName=b MaxTime=5\nPartitionName=c MaxTime=INFINITE\n"
    )
    jobs = [of("u", "long", 0, 7, 100), of("u", "wide", 1, 8, 10)]
    later = [replace(job(name, 2, 1, 30), queue=name) for name in "ab"]
    assert starts(*jobs, *later, conf=str(path)) == [0, 100, 2, 110]
    with pytest.raises(UsageError, match="'c' states none"):
        starts(*jobs, replace(job("c", 2, 1, 30), queue="c"), conf=str(path))


def test_partitions_of_a_higher_tier_come_first_whatever_the_priority(tmp_path: Path) -> None:
    """ "The scheduler will evaluate jobs in the partition(s) with the highest PriorityTier before others"."""
    path = tmp_path / "slurm.conf"
    path.write_text("PriorityWeightJobSize=1000\nPartitionName=low\nPartitionName=high PriorityTier=5\n")
    jobs = (
        of("u", "first", 0, 8, 100, queue="low"),
        of("u", "large", 1, 8, 10, queue="low"),
        of("u", "small", 2, 2, 10, queue="high"),
    )
    assert starts(*jobs, conf=str(path)) == [0, 110, 100]
    path.write_text("PartitionName=low PriorityTier=x\nPartitionName=high PriorityTier=70000\n")
    with refuses(*[f"out-of-range {path}"] * 2, naming=["PriorityTier", "'low'"]):
        starts(*jobs, conf=str(path))


def test_what_is_wrong_with_files_is_told_with_all_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with refuses("cycle assoc.txt", "cycle assoc.txt"):
        read_shares("Account|User|ParentName|Share\na||b|1\nb||a|1\n")
    with refuses("empty slurm.conf"):
        read_slurm_conf("NodeName=a\n")
    path, made = tmp_path / "slurm.conf", setting(of("u", "a", 0, 1, 5))
    path.write_text("PriorityWeightAge=many\nPriorityMaxAge=soon\n")
    with pytest.raises(InvalidInputError, match="PriorityWeightAge") as problems:
        Simulation(made.under(f"multifactor:conf={path}"))
    assert len(problems.value.problems) == 2
    path.write_text(
        "PriorityWeightAge=1\nPriorityWeightTRES=gres/gpu=5\nPriorityFlags=DEPTH_OBLIVIOUS,MAX_TRES\n"
        "PartitionName=a Nodes=n[1-2] MaxTime=30\nPartitionName=b Nodes=ALL MaxTime=INFINITE State=UP\n"
    )
    Simulation(made.under(f"multifactor:conf={path}"))
    assert carries(caplog.text, "priorityweighttres", "priorityflags=DEPTH_OBLIVIOUS")
    assert "nodes of partition a, maxtime of partition a" in caplog.text
    with misuse("missing-option policy", naming=["priority_weight_qos"]):
        Simulation(setting(of("u", "a", 0, 1, 5, qos="high")).under("multifactor:priority_weight_qos=5"))


def test_usage_is_charged_to_users_until_their_jobs_end() -> None:
    made = accounted().under("multifactor:estimates=recent:priority_decay_half_life=0")
    simulation = Simulation(made)
    simulation.run()
    state = simulation.state()["scheduler"]
    outcome = simulation.close()
    charged: dict[tuple[str, str], float] = {(one["account"], one["user"]): one["used"] for one in state["usage"]}
    exact = dict.fromkeys(charged, 0)
    for record in outcome.jobs:
        one = made.workload.jobs[record.index]
        exact[one.account or "", one.user or ""] += record.gpu_us
    for key, used in charged.items():  # the last ends are not told; every other is known within a round
        assert used == pytest.approx(exact[key], rel=0.1)


def test_what_scontrol_prints_is_read_as_slurm_conf() -> None:
    conf = read_slurm_conf(
        "PriorityMaxAge          = 2-12:00:00\nPrioritySiteFactorPlugin = (null)\nPriorityWeightAge       = 100\n"
        "PartitionName=batch\n   AllowGroups=ALL AllowQos=ALL\n   PriorityJobFactor=3 PriorityTier=2 RootOnly=NO\n\n"
        "PartitionName=debug\n   PriorityJobFactor=6 PriorityTier=1\n"
    )
    found = {name: (own["priorityjobfactor"], own["prioritytier"]) for name, own in conf.partitions.items()}
    assert found == {"batch": ("3", "2"), "debug": ("6", "1")} and conf.parameters["priorityweightage"] == "100"
