"""Jobs that exchange less than all gradients: documents, solvers, checker and referee (specification: exchange)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fault_campaign.referee import canonical, verdict

import jigsaw_opt as jo
from jigsaw_opt.documents import decode_instance, decode_plan, encode_instance, encode_plan, instance_sha256
from jigsaw_opt.problem import Instance, JobExchange, compile_instance
from tests.refusals import misuse, refuses

EXAMPLE = {"every": 4, "bytes": "1/4"}


def wired(
    exchange: JobExchange | Mapping[str, Any] | None,
    depth: jo.FreeDepth | None = None,
    cyclic: bool = False,
    iterations: int = 2,
) -> Instance:
    """Two servers and a wire, as in the specification, with one job of three buckets and one of one."""
    builder = jo.InstanceBuilder("wired", **({"horizon": "cyclic", "objective": "period"} if cyclic else {}))
    for name in ("s0", "s1"):
        builder.add_server(name, gpu_type="v", gpus=1, gpu_memory=10**9, fabric_bandwidth=10**10)
    builder.add_link("wire", ("s0", "s1"), bandwidth=10**10, latency_us=10)
    layers = [jo.Segment(f"l{k}", {"v": 10 + k}, {"v": 20 + k}, 700_003 * k, 1000) for k in range(3)]
    builder.add_model("net", layers)
    builder.add_model("small", [jo.Segment("all", {"v": 200}, {"v": 400}, 2_800_000, 1000)])
    builder.add_job("a", model="net", workers=2, iterations=iterations, depth=depth, exchange=exchange)
    builder.add_job("b", model="small", workers=2, iterations=1, exchange=exchange)
    return builder.build()


def test_it_is_written_only_if_given_and_changes_the_hash() -> None:
    plain, given = wired(None), wired(EXAMPLE)
    assert b"exchange" not in encode_instance(plain)
    assert decode_instance(encode_instance(given)) == given == wired(JobExchange(4, "1/4"))
    assert json.loads(encode_instance(given))["jobs"][0]["exchange"] == EXAMPLE
    hashes = [instance_sha256(wired(e)) for e in (None, {}, {"every": 1}, {"bytes": "2/8"}, {"bytes": "1/4"})]
    assert len({*hashes}) == len(hashes)


def test_the_example_of_the_specification() -> None:
    operations = compile_instance(wired(EXAMPLE))
    job = operations.jobs[1]
    channel = operations.crossing(job, {0: 1, 1: 1})
    assert job.blocks[0].duration_us["v"] == (2400,)
    assert job.transfer_us(1, 2, channel) == 90


@pytest.mark.parametrize(
    ("exchange", "progress", "sent"),
    [(JobExchange(), 10**6, 7), (JobExchange(3, "1/2", 700_000), 2_100_000, 4), (JobExchange(bytes=0), 10**6, 0)],
)
def test_progress_and_bytes(exchange: JobExchange, progress: int, sent: int) -> None:
    assert (exchange.progress, exchange.sent_bytes(7)) == (progress, sent)


@pytest.mark.parametrize(
    ("exchange", "depth"),
    [(EXAMPLE, None), ({"bytes": "1/3"}, jo.FreeDepth(1)), ({"bytes": 0}, None), ({"bytes": "3/2"}, None)],
)
@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_plans_keep_it_by_checker_and_referee(horizon: str, exchange: Any, depth: Any) -> None:
    instance = wired(exchange, depth, horizon == "cyclic")
    proved = set()
    for solver in ("greedy", "cpsat", *(["ilp"] if horizon == "finite" else [])):
        found = jo.solve(instance, solver, threads=1)
        assert found.plan is not None and not jo.check(instance, found.plan)
        assert not verdict(json.loads(encode_instance(instance)), json.loads(encode_plan(found.plan)))
        if solver != "greedy":
            proved.add((found.status, found.plan.objective))
    assert len(proved) == 1


def test_phased_plans_keep_it() -> None:
    instance = wired(EXAMPLE, iterations=500)
    found = jo.solve(instance, "phased", threads=1, work_limit=0.02)
    assert found.plan is not None and found.plan.groups and not jo.check(instance, found.plan)


@pytest.mark.parametrize("exchange", [EXAMPLE, {"bytes": "1/3"}, {"every": 2}])
def test_both_judges_see_what_is_a_microsecond_too_short(exchange: Any) -> None:
    instance = wired(exchange)
    plan = jo.solve(instance, "greedy").plan
    assert plan is not None
    given, tree = json.loads(encode_instance(instance)), json.loads(encode_plan(plan))
    assert canonical(given).decode() and not verdict(given, tree)
    for job, iteration in ((0, 1), (1, 0)):
        for kind, rule in (("blocks", "duration"), ("transfers", "duration")):
            wrong = json.loads(encode_plan(plan))
            wrong["jobs"][job]["iterations"][iteration][kind][0]["end_us"] -= 1
            assert verdict(given, wrong).startswith(rule)
            assert rule in {violation.rule for violation in jo.check(instance, decode_plan(json.dumps(wrong)))}


@pytest.mark.parametrize(
    ("exchange", "told"),
    [
        ({"every": 0}, "out-of-range $.jobs[0].exchange.every"),
        ({"every": 10**6 + 1}, "out-of-range $.jobs[0].exchange.every; contradiction $.jobs[0].exchange.every"),
        ({"every": 2}, "contradiction $.jobs[0].exchange.every"),
        ({"bytes": "1/0"}, "malformed $.jobs[0].exchange.bytes"),
        ({"bytes": 2**53}, "out-of-range $.jobs[0].exchange.bytes"),
        ({"bytes": f"{2**53}/1"}, "out-of-range $.jobs[0].exchange.bytes"),
        ({"bytes": "9" * 400 + "/1"}, "out-of-range $.jobs[0].exchange.bytes"),
        ({"bytes": 0.5}, "wrong-type $.jobs[0].exchange.bytes"),
        ({"progress_ppm": 0}, "out-of-range $.jobs[0].exchange.progress_ppm"),
        ({"progress_ppm": 10**6 + 1}, "out-of-range $.jobs[0].exchange.progress_ppm"),
        ({"often": 1}, "unknown-field $.jobs[0].exchange.often"),
        ([], "wrong-type $.jobs[0].exchange"),
    ],
)
def test_what_is_wrong_is_told(pair_path: Path, exchange: Any, told: str) -> None:
    """The job has the rule `staircase`."""
    tree = json.loads(pair_path.read_bytes())
    tree["jobs"][0]["exchange"] = exchange
    with refuses(told):
        decode_instance(json.dumps(tree))


def test_runs_and_followers_refuse_what_they_do_not_do(pair: Instance) -> None:
    a, b = pair.data_parallel_jobs
    instance = replace(pair, jobs=(replace(a, exchange=JobExchange(bytes="1/2")), b))
    plan = jo.solve(instance, "greedy").plan
    assert plan is not None
    with misuse("unsupported $.jobs[0].exchange"):
        jo.ReplayRequest(instance, plan)
    assert jo.ReplayRequest(instance, plan, dry=True).instance == instance
