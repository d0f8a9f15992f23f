"""Execution traces of Chakra: what is read of them, what is refused, and the same bytes as their own package's."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.documents.readers.chakra.reading import read_chakra
from jigsaw_opt.documents.readers.chakra.trace import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    ChakraNode,
    ChakraRank,
    Collective,
    decode_trace,
    encode_trace,
)
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Cluster, Edge, Instance, Server, TaskGraphJob
from jigsaw_opt.problem.costs import transfer_us
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

STORE = 3


def reduced(number: int, size: int, *after: int, group: str = "0", kind: int = Collective.ALL_REDUCE) -> ChakraNode:
    attributes = {"is_cpu_op": False, "comm_type": int(kind), "comm_size": size, "pg_name": group}
    return ChakraNode(number, "all_reduce", COLLECTIVE, after, 0, 0, attributes)


def step(*, size: int = 8) -> list[ChakraNode]:
    """A pass, launched by the CPU, whose gradients are exchanged while another one runs."""
    return [
        ChakraNode(1, "aten::mm", COMPUTE, (), 900, 0, {"is_cpu_op": True}),
        ChakraNode(2, "gemm a/b", COMPUTE, (1,), 30),
        ChakraNode(3, "store", STORE, (2,)),
        ChakraNode(4, "gemm", COMPUTE, (2, 3, 1), 20, control=(1,)),
        reduced(5, size, 3),
        ChakraNode(6, "step", COMPUTE, (2, 4, 5), 5),
    ]


def message(number: int, kind: int, source: int, target: int, *after: int) -> ChakraNode:
    attributes = {"comm_src": source, "comm_dst": target, "comm_size": 100}
    return ChakraNode(number, "p2p", kind, after, 0, 0, attributes)


def test_traces_are_written_as_they_are_read() -> None:
    assert decode_trace(encode_trace(step())) == decode_trace(gzip.compress(encode_trace(step()))) == step()


def test_ranks_with_a_collective_are_a_job_of_blocks_and_transfers() -> None:
    told: list[str] = []
    shape = read_chakra({f"job.{rank}.et": encode_trace(step()) for rank in (1, 0)}, "v100", tell=told.append)
    assert [slot.name for slot in shape.slots] == ["0", "1"]
    assert [(block.name, block.duration_us) for block in shape.blocks[:3]] == [
        ("0.2 gemm a_b", {"v100": 30}),
        ("0.4 gemm", {"v100": 20}),
        ("0.6 step", {"v100": 5}),
    ]
    (transfer,) = shape.transfers
    assert (transfer.bytes, transfer.among) == (8, ("0", "1"))
    # Node 5 waits for what node 3, which is left out, waits for; what follows from other waits is not stated.
    waits = {(edge.before.split()[0], edge.after.split()[0]) for edge in shape.edges}
    own = {("{0}.2", "{0}.4"), ("{0}.2", "0.5"), ("{0}.4", "{0}.6"), ("0.5", "{0}.6")}
    assert waits == {(a.format(rank), b.format(rank)) for a, b in own for rank in (0, 1)}
    assert "left out: 2 operations of the CPU" in told and "left out: 2 nodes of metadata or memory" in told
    assert "left out: 2 control dependencies of the CPU, which say who called whom" in told
    assert not any("all-reduces" in sentence or "at once" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("kind", "moved_over_each_link"),
    [
        (Collective.ALL_REDUCE, 2 * 900 * 2 // 3),
        (Collective.REDUCE_SCATTER, 900 * 2 // 3),
        (Collective.ALL_TO_ALL, 900 * 2 // 3),
        (Collective.ALL_GATHER, 900 * 2),
        (Collective.BROADCAST, 900),
        (Collective.BARRIER, 0),
    ],
)
def test_a_collective_moves_as_many_bytes_as_its_kind_does_on_a_ring(kind: int, moved_over_each_link: int) -> None:
    nodes = [ChakraNode(1, "f", COMPUTE, (), 5), reduced(2, 900, 1, kind=kind)]
    told: list[str] = []
    shape = read_chakra({"job.et": encode_trace(nodes)}, "v100", workers=3, tell=told.append)
    (transfer,) = shape.transfers
    # A byte a microsecond over one link.
    assert transfer_us(transfer.bytes, 3, 3, 10**6, 0) == moved_over_each_link
    names = {
        Collective.REDUCE_SCATTER: "reduce-scatter",
        Collective.ALL_TO_ALL: "all-to-all",
        Collective.ALL_GATHER: "all-gather",
    }
    names |= {Collective.BROADCAST: "broadcast", Collective.BARRIER: "barrier"}
    sentences = [sentence for sentence in told if "all-reduces" in sentence]
    expected = [f"collectives that are timed as ring all-reduces: 1 {names[kind]}"] if kind in names else []
    assert sentences == expected


def test_collectives_without_a_known_kind_are_counted() -> None:
    nodes = [reduced(1, 8, kind=77), ChakraNode(2, "x", COLLECTIVE, (1,), 0, 0, {"comm_size": 8})]
    told: list[str] = []
    shape = read_chakra(
        {"job.et": encode_trace([*nodes, ChakraNode(3, "f", COMPUTE, (2,), 5)])}, "v100", workers=2, tell=told.append
    )
    assert [transfer.bytes for transfer in shape.transfers] == [8, 8]
    kinds = "1 of a kind that is unknown, 1 of no stated kind"
    assert f"collectives that are timed as ring all-reduces: {kinds}" in told
    assert "2 transfers may start at once: the trace names no computation before" in told


def test_operations_of_a_stream_and_control_dependencies_of_a_gpu_are_waits() -> None:
    nodes = [
        ChakraNode(9, "second", COMPUTE, (), 1, 0, {"stream": 7}),
        ChakraNode(3, "first", COMPUTE, (), 1, 0, {"stream": 7}),
        ChakraNode(5, "launch", COMPUTE, (), 1, 0, {"is_cpu_op": True, "stream": 7}),
        ChakraNode(4, "apart", COMPUTE, (), 1, 0, {"stream": 20}, control=(3, 5, 77)),
        ChakraNode(6, "free", COMPUTE, (), 1),
    ]
    told: list[str] = []
    shape = read_chakra({"job.et": encode_trace(nodes)}, "v100", tell=told.append)
    waits = {(edge.before, edge.after) for edge in shape.edges}
    assert waits == {("0.3 first", "0.9 second"), ("0.3 first", "0.4 apart")}
    assert "left out: 1 control dependencies of the CPU, which say who called whom" in told
    assert "left out: 1 control dependencies on nodes that are not there" in told


def test_a_message_without_a_peer_goes_to_the_other_rank_of_its_group() -> None:
    own = {"pg_name": "7", "comm_size": 64}
    first = [ChakraNode(1, "f", COMPUTE, (), 3), ChakraNode(2, "p2p", SEND, (1,), 0, 0, own)]
    second = [ChakraNode(1, "p2p", RECEIVE, (), 0, 0, own), ChakraNode(2, "f", COMPUTE, (1,), 4)]
    third = [ChakraNode(1, "f", COMPUTE, (), 3)]
    traces = {f"j.{rank}.et": encode_trace(nodes) for rank, nodes in enumerate((first, third, second))}
    (transfer,) = read_chakra(traces, "v100").transfers
    assert (transfer.source, transfer.target, transfer.bytes) == ("0", "2", 64)


def test_a_rank_without_a_trace_is_named() -> None:
    traces = {f"job.{rank}.et": encode_trace(step()) for rank in (0, 2)}
    with pytest.raises(InvalidInputError, match="of rank 2, and the trace of rank 1 is missing"):
        read_chakra(traces, "v100")


def test_each_rank_of_a_ring_may_send_before_it_receives() -> None:
    """A send is over for its rank once it is handed over; ASTRA-sim's rings have receives that name it."""
    files = sorted((Path(__file__).parents[1] / "data/cases/field").glob("chakra_ring.*.et"))
    graph = read_chakra({path.name: path.read_bytes() for path in files}, "a100")
    assert [transfer.bytes for transfer in graph.transfers] == [3000] * 6
    assert [block.duration_us["a100"] for block in graph.blocks] == [7] * 6
    cluster = Cluster((Server("s", "a100", 3, 10**9, 12 * 10**9),))
    result = solve(Instance("ring", cluster, {}, (TaskGraphJob("j", graph, 1),)), "cpsat", Options(work_limit=5))
    assert result.objective == result.bound == 2 * (1 + 7)


def test_what_waits_for_a_send_waits_for_what_it_waits_for() -> None:
    first = [ChakraNode(1, "f", COMPUTE, (), 3), message(2, SEND, 0, 1, 1), ChakraNode(3, "g", COMPUTE, (2,), 4)]
    second = [message(1, RECEIVE, 0, 1), ChakraNode(2, "h", COMPUTE, (1,), 4)]
    graph = read_chakra({"job.0.et": encode_trace(first), "job.1.et": encode_trace(second)}, "a")
    assert set(graph.edges) == {Edge("0.1 f", name) for name in ("0.2 p2p", "0.3 g")} | {Edge("0.2 p2p", "1.2 h")}


@pytest.mark.parametrize(
    ("nodes", "path", "code"),
    [
        ([[*step(), ChakraNode(6, "again", COMPUTE)], step()], "job.0.et: node 6", "duplicate-name"),
        ([step(), [ChakraNode(1, "f", COMPUTE, (9,), 1)]], "job.1.et: node 1", "unknown-name"),
        ([[ChakraNode(1, "f", COMPUTE, (2,), 1), ChakraNode(2, "f", COMPUTE, (1,), 1)]], "job.0.et", "cycle"),
        ([step(), step()[:4]], "job.0.et", "mismatch"),
        ([step(), step(size=9)], "job.0.et: node 5", "mismatch"),
        ([[*step(), message(7, SEND, 0, 1)], step()], "job.0.et: node 7", "mismatch"),
        ([[*step(), ChakraNode(7, "s", SEND)], step()], "job.0.et: node 7", "missing-field"),
        ([[reduced(1, -1)], [reduced(1, 3)]], "job.0.et: node 1", "out-of-range"),
        ([[reduced(1, 3)], [reduced(1, 3)]], "job.0.et", "empty"),
        # Ranks within a group: the receive is of rank 2, not of rank 1.
        (
            [step(), [*step(), message(7, SEND, 0, 1)], [*step(), message(7, RECEIVE, 0, 1)]],
            "job.1.et: node 7",
            "mismatch",
        ),
        (
            [step(), [*step(), message(7, SEND, 0, 1)], [*step(), message(7, RECEIVE, 0, 1)]],
            "job.2.et: node 7",
            "mismatch",
        ),
    ],
)
def test_what_is_wrong_is_told_by_node(nodes: list[list[ChakraNode]], path: str, code: str) -> None:
    traces = {f"job.{rank}.et": encode_trace(own) for rank, own in enumerate(nodes)}
    with pytest.raises(InvalidInputError) as raised:
        read_chakra(traces, "v100")
    assert (path, code) in [(problem.path, problem.code) for problem in raised.value.problems]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (SEND, "comm_tag", "a"),
        (SEND, "comm_dst", "1"),
        (RECEIVE, "comm_src", 1.0),
        (COLLECTIVE, "comm_type", "ALL_GATHER"),
        (COLLECTIVE, "comm_type", 2.0),
        (COLLECTIVE, "pg_name", 0.5),
        (COMPUTE, "is_cpu_op", "False"),
        (COMPUTE, "stream", "7"),
        (COMPUTE, "tid", True),
    ],
)
def test_attributes_that_say_what_belongs_together_have_their_kind(kind: int, name: str, value: object) -> None:
    node = ChakraNode(9, "x", kind, (), 1, 0, {"comm_size": 8, "comm_src": 0, "comm_dst": 0, name: value})
    with pytest.raises(InvalidInputError) as raised:
        ChakraRank.of(0, "job.0.et", [*step(), node])
    (problem,) = raised.value.problems
    assert (problem.path, problem.code) == ("job.0.et: node 9", "wrong-type")
    assert problem.message.startswith(f"{name} must be ") and problem.message.endswith(repr(value))


@pytest.mark.parametrize("cut", [1, 7, -1])
def test_a_file_that_ends_too_early_is_refused(cut: int) -> None:
    data = encode_trace(step())
    with pytest.raises(InvalidInputError, match="damaged") as raised:
        decode_trace(data[:cut] if cut != 7 else b"\xff" * 20, "t.et")
    assert raised.value.problems[0].path == "t.et"


def test_convert_makes_an_instance_of_one_trace_for_all_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, written = tmp_path / "step.et", tmp_path / "step.json"
    trace.write_bytes(encode_trace(step()))
    command = ["convert", "chakra", str(trace), "--gpu-type", "v100", "-o", str(written)]
    assert main([*command, "--to", "layers"]) == 2 and not written.exists()
    for options, iterations in ((["--iterations", "2"], 2), ([], 1)):
        assert main([*command, "--workers", "3", *options]) == 0
        (job,) = load_instance(written).jobs
        assert isinstance(job, TaskGraphJob)
        assert (len(job.shape.slots), len(job.shape.blocks), job.iterations) == (3, 9, iterations)
    assert job.shape.transfers[0].among == ("0", "1", "2")
    assert "stands for each of 3 ranks" in capsys.readouterr().err


def test_chakras_own_package_reads_and_writes_the_same(tmp_path: Path) -> None:
    schema = pytest.importorskip("chakra.schema.protobuf.et_def_pb2", reason="mlc-chakra is not installed")
    from chakra.src.third_party.utils.protolib import decodeMessage, encodeMessage, openFileRd

    ours, theirs = tmp_path / "ours.et", tmp_path / "theirs.et"
    ours.write_bytes(encode_trace(step()))
    with openFileRd(str(ours)) as file, theirs.open("wb") as copy:
        metadata = schema.GlobalMetadata()
        assert decodeMessage(file, metadata)
        encodeMessage(copy, metadata)
        found = []
        node = schema.Node()
        while decodeMessage(file, node):
            found.append((node.id, node.name, schema.NodeType.Name(node.type), tuple(node.data_deps)))
            encodeMessage(copy, node)
    assert found[0] == (1, "aten::mm", "COMP_NODE", ())
    assert found[4] == (5, "all_reduce", "COMM_COLL_NODE", (3,))
    assert decode_trace(theirs.read_bytes()) == step()
