"""Plans as execution traces of Chakra: what a GPU does, in the plan's order, and read again."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_plan
from jigsaw_opt.documents.readers.chakra.reading import read_chakra
from jigsaw_opt.documents.readers.chakra.trace import (
    BARRIER,
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    decode_trace,
    encode_trace,
)
from jigsaw_opt.instances import load
from jigsaw_opt.planning.chakra import ChakraTraces, chakra_traces
from jigsaw_opt.problem import Cluster, Instance, Plan, Server, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.text import counted

NAMES = ["tiny/013", "tiny/016", "pipeline/two-servers", "pipeline/sharded"]


@cache
def planned(name: str) -> Plan:
    plan = solve(load(name), "greedy").plan
    assert plan is not None
    return plan


def earliest_end(traces: ChakraTraces) -> int:
    """When all nodes have ended if each starts once it may; a transfer starts on its ranks at once."""
    joint: dict[object, list[tuple[int, int]]] = {}
    for rank, nodes in enumerate(traces.nodes):
        seen: dict[object, int] = {}
        for k, node in enumerate(nodes):
            key: object = (rank, k)
            if node.kind != COMPUTE:
                given = node.attributes
                key = given.get("pg_name", (given.get("comm_src"), given.get("comm_dst"), given.get("comm_tag")))
                seen[key] = seen.get(key, 0) + 1
                key = key, seen[key]
            joint.setdefault(key, []).append((rank, k))
    end: dict[tuple[int, int], int] = {}
    todo = list(joint.values())
    while todo:
        ready = [own for own in todo if all((r, a) in end for r, k in own for a in traces.nodes[r][k].after)]
        assert ready, "nodes wait for each other"
        for own in ready:
            start = max((end[r, a] for r, k in own for a in traces.nodes[r][k].after), default=0)
            for r, k in own:
                end[r, k] = start + traces.nodes[r][k].duration_us
        todo = [own for own in todo if own not in ready]
    return max(end.values())


@pytest.mark.parametrize("name", NAMES)
def test_traces_have_the_times_and_the_order_of_the_plan(name: str) -> None:
    plan = planned(name)
    traces = chakra_traces(load(name), plan)
    jobs = [(job, row) for job in plan.jobs for row in job.iterations]
    assert set(traces.gpus) == {gpu for job, _ in jobs for gpu in job.gpus}
    spans = [(block.start_us, block.end_us) for _, row in jobs for block in (*row.blocks, *row.transfers)]
    for nodes in traces.nodes:
        for number, node in enumerate(nodes):
            assert node.number == number and all(before < number for before in node.after)
            assert all(nodes[a].start_us + nodes[a].duration_us <= node.start_us for a in node.after)
    last = max(node.start_us + node.duration_us for nodes in traces.nodes for node in nodes)
    assert last == max(end for _, end in spans)
    # Waits alone, without the planned starts, lead to no later end.
    assert 0.5 * last < earliest_end(traces) <= last


def test_a_barrier_between_many_blocks_is_one_node_for_each_gpu() -> None:
    slots = (Slot("a"), Slot("b"))
    blocks = tuple(TaskGraphBlock(f"{slot.name}{n}", (slot.name,), {"v": 1}) for slot in slots for n in range(60))
    job = TaskGraphJob("j", TaskGraph(slots, blocks, (), (), "job"), 2)
    instance = Instance("many", Cluster((Server("s", "v", 2, 1, 10**6),)), {}, (job,))
    plan = solve(instance, "greedy").plan
    assert plan is not None
    traces = chakra_traces(instance, plan)
    assert traces.unsaid == 0
    # The second iteration waits for the barrier, and this for all blocks of the first one.
    for nodes in traces.nodes:
        (barrier,) = (it for it in nodes if it.kind == COLLECTIVE and it.after)
        assert barrier.attributes["comm_type"] == BARRIER and barrier.start_us == 60
        assert all(barrier.number in it.after for it in nodes if it.name.startswith("j 1 ") and it.kind == COMPUTE)
    assert earliest_end(traces) == 120


@pytest.mark.parametrize("name", NAMES)
def test_traces_of_a_plan_are_read_again_as_its_blocks_and_transfers(name: str) -> None:
    plan = planned(name)
    traces = chakra_traces(load(name), plan)
    files = {f"plan.{rank}.et": encode_trace(nodes) for rank, nodes in enumerate(traces.nodes)}
    shape = read_chakra(files, "v100")
    kinds = [node.kind for nodes in traces.nodes for node in nodes]
    assert len(shape.blocks) == sum(
        node.duration_us > 0 for nodes in traces.nodes for node in nodes if node.kind == COMPUTE
    )
    assert len(shape.transfers) == sum(len(row.transfers) for job in plan.jobs for row in job.iterations)
    assert kinds.count(SEND) == kinds.count(RECEIVE) and set(kinds) <= {COMPUTE, COLLECTIVE, SEND, RECEIVE}


def test_export_writes_a_file_for_each_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, folder = planned("tiny/016"), tmp_path / "traces"
    save_plan(plan, tmp_path / "plan.json")
    command = ["export", "tiny/016", str(tmp_path / "plan.json"), "--to", "chakra", "-o"]
    assert main([*command, str(tmp_path / "plan.json")]) == 2
    for _ in range(2):  # also into a folder that is there
        assert main([*command, str(folder)]) == 0
    names = {gpu for job in plan.jobs for gpu in job.gpus}
    assert sorted(path.name for path in folder.iterdir()) == [f"plan.{rank}.et" for rank in range(len(names))]
    assert decode_trace((folder / "plan.0.et").read_bytes())
    told = capsys.readouterr().err
    assert "rank 0 is GPU" in told
    among = sum(len(row.transfers) for job in plan.jobs if len(job.gpus) > 1 for row in job.iterations)
    assert f"written as all-reduces, as a plan times them: {counted(among, 'transfer')} among several GPUs" in told
