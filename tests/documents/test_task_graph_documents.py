"""Task-graph jobs in instance documents: every mistake at its place, defaults, the hash, and jobs made in Python."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jigsaw_opt import Instance, InstanceBuilder, InvalidInputError, TaskGraph, TaskGraphJob
from jigsaw_opt.documents import canonical_json, decode_instance, encode_instance, instance_sha256, schema
from jigsaw_opt.problem import Edge, MemoryInterval, Slot, TaskGraphBlock, TaskGraphTransfer
from tests.documents.test_wrong_documents import GONE, changed
from tests.refusals import refuses
from tests.work import lines_executed

PIPE: dict[str, Any] = {
    "format": "jigsaw-instance/1",
    "name": "pipes",
    "cluster": {
        "servers": [{"name": "m", "gpu_type": "v", "gpus": 2, "gpu_memory": 9000, "fabric_bandwidth": 1000000}]
    },
    "models": {},
    "jobs": [
        {
            "name": "pipe",
            "iterations": 1,
            "shape": {
                "slots": [{"name": "s0", "memory": 4000}, {"name": "s1"}],
                "blocks": [
                    {"name": "F0", "slot": "s0", "duration_us": {"v": 10}},
                    {"name": "F1", "slot": "s1", "duration_us": {"v": 10}},
                    {"name": "all", "slots": ["s0", "s1"], "duration_us": {"v": 20}},
                ],
                "transfers": [
                    {"name": "act", "bytes": 1000, "from": "s0", "to": "s1"},
                    {"name": "sync", "bytes": 1000, "among": ["s0", "s1"]},
                ],
                "edges": [["F0", "act"], ["act", "F1", 0], ["F1", "F0", 1]],
                "holds": [
                    {"from": "F0", "to": "F0", "bytes": 5},
                    {"from": "F0", "to": "all", "bytes": 5, "slot": "s0"},
                ],
            },
        }
    ],
    "objective": "makespan",
}
JOB, SHAPE = ("jobs", 0), ("jobs", 0, "shape")
BLOCK, MOVE, SYNC = (*SHAPE, "blocks", 0), (*SHAPE, "transfers", 0), (*SHAPE, "transfers", 1)
HOLD, JOINT = (*SHAPE, "holds", 0), (*SHAPE, "holds", 1)
AT = "$.jobs[0].shape"

STRUCTURAL = [
    ((*JOB, "model"), "net", "$.jobs[0].model", "contradiction"),
    ((*JOB, "workers"), 1, "$.jobs[0].workers", "contradiction"),
    ((*JOB, "depth"), {"rule": "full"}, "$.jobs[0].depth", "contradiction"),
    ((*JOB, "iterations"), 0, "$.jobs[0].iterations", "out-of-range"),
    ((*JOB, "wieght"), 1, "$.jobs[0].wieght", "unknown-field"),
    (SHAPE, 1, AT, "wrong-type"),
    ((*SHAPE, "barier"), "job", f"{AT}.barier", "unknown-field"),
    ((*SHAPE, "barrier"), "jobs", f"{AT}.barrier", "unknown-value"),
    ((*SHAPE, "slots"), [], f"{AT}.slots", "wrong-count"),
    ((*SHAPE, "slots", 0, "memory"), -1, f"{AT}.slots[0].memory", "out-of-range"),
    ((*SHAPE, "blocks"), [], f"{AT}.blocks", "wrong-count"),
    ((*BLOCK, "slot"), GONE, f"{AT}.blocks[0]", "missing-field"),
    ((*BLOCK, "slots"), ["s0", "s1"], f"{AT}.blocks[0].slot", "contradiction"),
    ((*BLOCK, "duration_us", "v"), 0, f"{AT}.blocks[0].duration_us.v", "out-of-range"),
    ((*BLOCK, "duration_us"), GONE, f"{AT}.blocks[0]", "missing-field"),
    ((*SHAPE, "blocks", 2, "slots"), ["s0"], f"{AT}.blocks[2].slots", "wrong-count"),
    ((*MOVE, "to"), GONE, f"{AT}.transfers[0]", "missing-field"),
    ((*MOVE, "bytes"), None, f"{AT}.transfers[0].bytes", "wrong-type"),
    ((*SYNC, "from"), "s0", f"{AT}.transfers[1].from", "contradiction"),
    ((*SYNC, "among"), ["s0"], f"{AT}.transfers[1].among", "wrong-count"),
    ((*SHAPE, "edges", 0), ["F0"], f"{AT}.edges[0]", "wrong-count"),
    ((*SHAPE, "edges", 0), ["F0", "act", 0, 0], f"{AT}.edges[0]", "wrong-count"),
    ((*SHAPE, "edges", 0), {}, f"{AT}.edges[0]", "wrong-type"),
    ((*SHAPE, "edges", 1, 2), -1, f"{AT}.edges[1][2]", "out-of-range"),
    ((*SHAPE, "edges", 1, 2), True, f"{AT}.edges[1][2]", "wrong-type"),
    ((*SHAPE, "edges", 0, 0), 3, f"{AT}.edges[0][0]", "wrong-type"),
    ((*HOLD, "bytes"), GONE, f"{AT}.holds[0]", "missing-field"),
]
MEANT = [
    ((*SHAPE, "slots"), [{"name": n} for n in ("s0", "s1", "s0")], f"{AT}.slots[2].name", "duplicate-name"),
    ((*SYNC, "name"), "act", f"{AT}.transfers[1].name", "duplicate-name"),
    ((*SYNC, "name"), "all", f"{AT}.transfers[1].name", "duplicate-name"),
    ((*BLOCK, "slot"), "s", f"{AT}.blocks[0].slot", "unknown-name"),
    ((*SHAPE, "blocks", 2, "slots"), ["s0", "s0"], f"{AT}.blocks[2].slots[1]", "duplicate-name"),
    ((*SHAPE, "slots"), [{"name": n} for n in ("s0", "s1", "s2")], f"{AT}.slots[2]", "empty"),
    ((*MOVE, "to"), "s0", f"{AT}.transfers[0].to", "duplicate-name"),
    ((*MOVE, "from"), "t0", f"{AT}.transfers[0].from", "unknown-name"),
    ((*SYNC, "among"), ["s1", "s0", "s1"], f"{AT}.transfers[1].among[2]", "duplicate-name"),
    ((*SHAPE, "edges", 0, 1), "atc", f"{AT}.edges[0][1]", "unknown-name"),
    ((*SHAPE, "edges", 2), ["F0", "act", 0], f"{AT}.edges[2]", "duplicate-name"),
    ((*SHAPE, "edges", 2), ["F1", "F0"], f"{AT}.edges", "cycle"),
    ((*SHAPE, "edges", 2), ["all", "all"], f"{AT}.edges", "cycle"),
    ((*HOLD, "to"), "act", f"{AT}.holds[0].to", "wrong-type"),
    ((*HOLD, "to"), "F9", f"{AT}.holds[0].to", "unknown-name"),
    ((*HOLD, "to"), "F1", f"{AT}.holds[0]", "contradiction"),
    ((*HOLD, "slot"), "s0", f"{AT}.holds[0].slot", "contradiction"),
    ((*JOINT, "slot"), GONE, f"{AT}.holds[1]", "missing-field"),
    ((*JOINT, "slot"), "s1", f"{AT}.holds[1].slot", "mismatch"),
]


def problems(tree: object) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        decode_instance(json.dumps(tree))
    return [str(problem) for problem in caught.value.problems]


def the_shape(instance: Instance) -> TaskGraph:
    (job,) = instance.task_graph_jobs
    return job.shape


@pytest.mark.parametrize(("path", "value", "place", "code"), STRUCTURAL + MEANT)
def test_one_mistake_gives_one_problem(path: tuple[str | int, ...], value: object, place: str, code: str) -> None:
    tree = changed(path, value, PIPE)
    with refuses(f"{code} {place}", naming=[f'"{path[-1]}"'] if value is GONE else []):
        decode_instance(json.dumps(tree))
    if (path, value, place, code) in STRUCTURAL:
        assert not Draft202012Validator(schema("instance")).is_valid(tree)


def test_all_mistakes_are_reported_at_once_and_those_of_every_cycle() -> None:
    tree = changed((*BLOCK, "slot"), "s9", PIPE)
    shape = tree["jobs"][0]["shape"]
    shape["edges"] = [["F0", "F1"], ["F1", "F0"], ["act", "act"], ["no", "all"], ["all", "F0"]]
    shape["holds"].append({"from": "F1", "to": "F1"})
    places = [problem.partition(": ")[0] for problem in problems(tree)]
    assert sorted(places) == [
        *[f"{AT}.blocks[0].slot", f"{AT}.edges", f"{AT}.edges", f"{AT}.edges[3][0]"],
        f"{AT}.holds[2]",
    ]


def test_a_cycle_over_lags_is_none_and_an_operation_may_wait_for_itself_in_the_iteration_before() -> None:
    tree = changed((*SHAPE, "edges", 2), ["F0", "F0", 1], PIPE)
    assert Edge("F0", "F0", 1) in the_shape(decode_instance(json.dumps(tree))).edges
    assert instance_sha256(decode_instance(json.dumps(tree))) != instance_sha256(decode_instance(json.dumps(PIPE)))


def test_canonical_form_letter_by_letter() -> None:
    bare = changed((*SHAPE, "transfers"), GONE, PIPE)
    shape = bare["jobs"][0]["shape"]
    del shape["edges"], shape["holds"], shape["blocks"][2]
    instance = decode_instance(json.dumps(bare))
    expected = (
        b'"jobs":[{"iterations":1,"name":"pipe","release_us":0,"shape":{"barrier":"none","blocks":['
        b'{"duration_us":{"v":10},"name":"F0","slot":"s0"},{"duration_us":{"v":10},"name":"F1","slot":"s1"}],'
        b'"edges":[],"holds":[],"slots":[{"memory":4000,"name":"s0"},{"memory":0,"name":"s1"}],"transfers":[]},'
        b'"weight":1}],"models":{}'
    )
    assert expected in canonical_json(instance)
    full = canonical_json(decode_instance(json.dumps(PIPE)))
    assert b'"edges":[["F0","act",0],["act","F1",0],["F1","F0",1]]' in full
    assert b'"holds":[{"bytes":5,"from":"F0","to":"F0"},{"bytes":5,"from":"F0","slot":"s0","to":"all"}]' in full
    assert b'{"bytes":1000,"from":"s0","name":"act","to":"s1"},{"among":["s0","s1"],"bytes":1000' in full
    assert instance_sha256(decode_instance(full)) == hashlib.sha256(full).hexdigest()


def built(shape: TaskGraph, **whole: Any) -> Instance:
    builder = InstanceBuilder("pipes")
    builder.add_server("m", gpu_type="v", gpus=2, gpu_memory=9000, fabric_bandwidth=1000000)
    builder.add_task_graph_job("pipe", shape, **{"iterations": 1, **whole})
    return builder.build()


def test_a_shape_is_built_in_python_as_it_is_read() -> None:
    shape = TaskGraph(
        slots=(Slot("s0", memory=4000), Slot("s1")),
        blocks=(
            TaskGraphBlock("F0", ("s0",), {"v": 10}),
            TaskGraphBlock("F1", ("s1",), {"v": 10}),
            TaskGraphBlock("all", ("s0", "s1"), {"v": 20}),
        ),
        transfers=(
            TaskGraphTransfer("act", 1000, source="s0", target="s1"),
            TaskGraphTransfer("sync", 1000, among=("s0", "s1")),
        ),
        edges=(Edge("F0", "act"), Edge("act", "F1"), Edge("F1", "F0", lag=1)),
        holds=(MemoryInterval("F0", "F0", bytes=5), MemoryInterval("F0", "all", bytes=5, slot="s0")),
    )
    instance = built(shape)
    Draft202012Validator(schema("instance")).validate(PIPE)
    assert instance == decode_instance(json.dumps(PIPE)) == decode_instance(encode_instance(instance))
    assert instance.task_graph_jobs == (TaskGraphJob("pipe", shape, iterations=1),)
    assert replace(instance) == instance


def test_what_is_wrong_with_a_built_shape_has_its_path() -> None:
    wrong: Any = ("s0", {"v": 0, "w": 1})
    with pytest.raises(InvalidInputError) as caught:
        TaskGraphBlock("a", *wrong)
    assert [problem.path for problem in caught.value.problems] == [
        'TaskGraphBlock("a").slots',
        'TaskGraphBlock("a").duration_us.v',
    ]
    block, hold = TaskGraphBlock("b", ("s0",), {"v": 1}), MemoryInterval("b", "d", 1)
    with pytest.raises(InvalidInputError) as caught:
        TaskGraph((Slot("s0"), Slot("s1")), (block, block), edges=(Edge("b", "c"),), holds=(hold,))
    assert [problem.path for problem in caught.value.problems] == [
        "TaskGraph.blocks[1].name",
        "TaskGraph.slots[1]",
        "TaskGraph.edges[0][1]",
        "TaskGraph.holds[0].to",
    ]


def long_chain(count: int) -> TaskGraph:
    return TaskGraph(
        tuple(Slot(f"s{k}") for k in range(100)),
        tuple(TaskGraphBlock(f"b{k}", (f"s{k % 100}",), {"v": 1}) for k in range(count)),
        edges=tuple(Edge(f"b{k}", f"b{k + 1}") for k in range(count - 1)),
        holds=tuple(MemoryInterval(f"b{k}", f"b{k}", 1) for k in range(count)),
    )


def test_work_is_linear_in_the_size_of_a_shape() -> None:
    def there_and_back(count: int) -> None:
        instance = built(long_chain(count))
        assert decode_instance(encode_instance(instance)) == instance

    assert lines_executed(lambda: there_and_back(600)) < 2.2 * lines_executed(lambda: there_and_back(300))


def test_a_cycle_of_many_operations_is_found() -> None:
    shape = long_chain(2_000)
    with pytest.raises(InvalidInputError, match=r"\(2000 operations\)"):
        replace(shape, edges=(*shape.edges, Edge("b1999", "b0")))
