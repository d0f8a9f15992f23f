"""Encoding and decoding undo each other, and the hash is that of the specification."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from document_strategies import instances, plans
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from jigsaw_opt.documents import (
    canonical_json,
    decode_instance,
    decode_plan,
    encode_instance,
    encode_plan,
    instance_sha256,
    schema,
)
from jigsaw_opt.problem import Block, FreeDepth, Instance, Iteration, JobPlan, Plan
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from tests.work import lines_executed

INSTANCE_SCHEMA = Draft202012Validator(schema("instance"))
PLAN_SCHEMA = Draft202012Validator(schema("plan"))


@settings(max_examples=60)
@given(instances())
def test_an_instance_survives_encoding(instance: Instance) -> None:
    data = encode_instance(instance)
    again = decode_instance(data)
    assert again == instance
    assert encode_instance(again) == data
    assert instance_sha256(again) == instance_sha256(instance)
    assert decode_instance(canonical_json(instance)) == instance
    INSTANCE_SCHEMA.validate(json.loads(data))


@settings(max_examples=60)
@given(plans)
def test_a_plan_survives_encoding(plan: Plan) -> None:
    data = encode_plan(plan)
    again = decode_plan(data)
    assert again == plan
    assert encode_plan(again) == data
    PLAN_SCHEMA.validate(json.loads(data))


def test_hash_of_the_example(pair: Instance, pair_plan: Plan) -> None:
    assert instance_sha256(pair) == "16e274bf27a19941942e1d780805286f0fb8fad60231af9c0d49eb7350757be4"
    assert pair_plan.instance_sha256 == instance_sha256(pair)


def test_defaults_do_not_change_the_hash(pair: Instance) -> None:
    tree = json.loads(encode_instance(pair))
    spare = json.loads(encode_instance(pair))
    del spare["cluster"]["switches"], spare["cluster"]["links"], spare["horizon"], spare["jobs"][1]["depth"]
    del spare["models"]["net"]["levels"], spare["models"]["net"]["state_factor"], spare["jobs"][0]["weight"]
    del spare["jobs"][0]["release_us"], spare["cluster"]["servers"][0]["fabric_latency_us"]
    assert spare != tree
    assert instance_sha256(decode_instance(json.dumps(spare))) == instance_sha256(pair)


def test_guarantees_are_in_the_canonical_form_only_if_given(pair: Instance) -> None:
    assert b"_us" in canonical_json(pair) and not {b"deadline_us", b"pace_us"} & set(canonical_json(pair).split(b'"'))
    first, *rest = pair.jobs
    guaranteed = replace(pair, jobs=(replace(first, deadline_us=9), *rest))
    written = canonical_json(pair).replace(b'{"depth":', b'{"deadline_us":9,"depth":', 1)
    assert canonical_json(guaranteed) == written
    assert decode_instance(encode_instance(guaranteed)) == guaranteed


def test_what_a_move_costs_is_in_the_canonical_form_only_if_given(pair: Instance) -> None:
    assert b"restart_us" not in canonical_json(pair)
    first, *rest = pair.jobs
    moving = replace(pair, jobs=(replace(first, restart_us=0), *rest))
    end = b'"release_us":%d,' % first.release_us
    assert canonical_json(moving) == canonical_json(pair).replace(end, end + b'"restart_us":0,', 1)
    assert decode_instance(encode_instance(moving)) == moving


def test_canonical_form_letter_by_letter(pair: Instance) -> None:
    tree = json.loads(encode_instance(pair))
    tree["name"] = 'é"\\\n\x01\x7f\u2028𝄞'
    tree["jobs"][0]["depth"] = {"rule": "free", "mean_depth": "03/5"}
    tree["jobs"][1]["depth"] = {"rule": "free", "mean_depth": 1, "balance": 0, "min_contributors": 2}
    canonical = canonical_json(decode_instance(json.dumps(tree)))
    depths = [
        '{"min_contributors":1,"mean_depth":"03/5","rule":"free"}',
        '{"balance":0,"mean_depth":1,"min_contributors":2,"rule":"free"}',
    ]
    expected = (
        '{"cluster":{"links":[],"servers":[{"fabric_bandwidth":10000000000,"fabric_latency_us":0,'
        '"gpu_memory":16000000000,"gpu_type":"v100","gpus":2,"name":"s0"}],"switches":[]},'
        '"format":"jigsaw-instance/1","horizon":"finite","jobs":['
        '{"depth":{"mean_depth":"03/5","min_contributors":1,"rule":"free"},"iterations":1,"model":"net","name":"a",'
        f'"release_us":0,"weight":1,"workers":2}},{{"depth":{depths[1]},"iterations":1,"model":"net","name":"b",'
        '"release_us":0,"weight":1,"workers":1}],"models":{"net":{"levels":[1,2],"segments":['
        '{"activation_bytes":40000000,"backward_us":{"v100":600},"forward_us":{"v100":300},"name":"body",'
        '"parameter_bytes":1000000},{"activation_bytes":1000000,"backward_us":{"v100":200},'
        '"forward_us":{"v100":100},"name":"head","parameter_bytes":4000000}],"state_factor":4}},'
        '"name":"é\\"\\\\\\n\\u0001\x7f\u2028𝄞","objective":"makespan"}'
    ).encode()
    assert canonical == expected
    assert instance_sha256(decode_instance(json.dumps(tree))) == hashlib.sha256(expected).hexdigest()


def test_numbers_keep_their_spelling_where_the_hash_needs_it(pair: Instance) -> None:
    tree = json.loads(encode_instance(pair))
    hashes = set()
    for mean in (1, "1/1", "2/2", "02/2"):
        tree["jobs"][0]["depth"] = {"rule": "free", "mean_depth": mean}
        instance = decode_instance(json.dumps(tree))
        depth = instance.jobs[0].depth
        assert isinstance(depth, FreeDepth) and depth.mean(2) == 1
        hashes.add(instance_sha256(instance))
    assert len(hashes) == 4


def test_a_job_and_an_iteration_take_a_line(pair: Instance, pair_plan: Plan) -> None:
    lines = encode_instance(pair).decode().splitlines()
    assert sum('"workers"' in line for line in lines) == len(pair.jobs)
    lines = encode_plan(pair_plan).decode().splitlines()
    assert sum('"blocks"' in line for line in lines) == sum(len(job.iterations) for job in pair_plan.jobs)


def test_work_is_linear_in_the_size_of_documents(pair: Instance) -> None:
    iteration = Iteration(tuple(Block(1, k, k + 1) for k in range(100)), ())

    def there_and_back(count: int) -> None:
        instance = replace(pair, jobs=tuple(replace(pair.jobs[0], name=f"job-{k}") for k in range(10 * count)))
        assert decode_instance(encode_instance(instance)) == instance
        jobs = tuple(JobPlan(str(k), (), (iteration,)) for k in range(count))
        plan = Plan.of_jobs("pair", "", "feasible", 1, 1, None, jobs)
        assert decode_plan(encode_plan(plan)) == plan

    assert lines_executed(lambda: there_and_back(60)) < 2.2 * lines_executed(lambda: there_and_back(30))


def test_route_policies_are_in_the_canonical_form_only_if_given_and_as_given(pair: Instance) -> None:
    assert b"route_polic" not in canonical_json(pair)
    first, *rest = pair.jobs
    switch = pair.cluster.servers[0].name
    policies = {"p": RoutePolicy(avoid=(), via=((switch,),)), "o": RoutePolicy()}
    policed = replace(
        pair,
        cluster=replace(pair.cluster, route_policies=policies),
        jobs=(replace(first, route_policy="p"), *rest),
    )
    stated = f'"route_policies":{{"o":{{}},"p":{{"avoid":[],"via":[["{switch}"]]}}}}'.encode()
    assert stated in canonical_json(policed) and b'"route_policy":"p"' in canonical_json(policed)
    assert decode_instance(encode_instance(policed)) == policed
    assert replace(policed) == policed
