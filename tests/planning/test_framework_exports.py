"""Plans as other frameworks take them: TorchTitan, Megatron and Chakra, read back by their own rules."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_layers, save_plan
from jigsaw_opt.documents.readers.chakra.reading import read_chakra
from jigsaw_opt.documents.readers.chakra.trace import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    Collective,
    decode_trace,
    encode_trace,
)
from jigsaw_opt.instances import load
from jigsaw_opt.planning.chakra import ChakraTraces, chakra_traces
from jigsaw_opt.planning.pipeline.model_parts import megatron_layout, torchtitan_configuration, torchtitan_names
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.problem import (
    Cluster,
    Instance,
    MemoryInterval,
    Plan,
    PowerCap,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
)
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.text import counted
from jigsaw_opt.views.export import export
from tests.refusals import carries, misuse

CHAIN = ("embeddings", *(f"layer{at}" for at in range(6)), "output")


def unrolled(text: str) -> list[str]:
    """Megatron's grammar: commas say nothing, ``(x)*n`` and then ``x*n`` repeat, ``|`` parts stages."""
    text = text.replace(",", "")
    text = re.sub(r"\(([^)]+)\)\*(\d+)", lambda each: each[1] * int(each[2]), text)
    text = re.sub(r"(.)\*(\d+)", lambda each: each[1] * int(each[2]), text)
    return text.split("|")


def drawn(seed: int) -> tuple[tuple[tuple[str, ...], ...], PipelineLayout]:
    """Stages of a transformer, and where they are."""
    random = Random(seed)
    blocks, gpus, virtual = random.randint(8, 40), random.randint(1, 3), random.randint(1, 2)
    names = ["tok_embeddings", *(f"layers.{at}" for at in range(blocks)), "norm", "output"]
    return parts_of(random, names, gpus * virtual), PipelineLayout(tuple(range(gpus)) * virtual, 4, False)


def parts_of(random: Random, names: list[str], stages: int) -> tuple[tuple[str, ...], ...]:
    cuts = [0, *sorted(random.sample(range(1, len(names)), stages - 1)), len(names)]
    return tuple(tuple(names[low:high]) for low, high in pairwise(cuts))


def kinds_of(parts: tuple[tuple[str, ...], ...]) -> list[str]:
    kinds = {"tok_embeddings": "E", "norm": "", "output": "L"}
    return ["".join(kinds.get(name, "t") for name in part) for part in parts]


@pytest.mark.parametrize("seed", range(12))
def test_a_layout_is_read_back(seed: int) -> None:
    parts, layout = drawn(seed)
    assert unrolled(megatron_layout(parts, layout)) == kinds_of(parts)


def test_kinds_of_modules_are_given_by_patterns() -> None:
    parts = (("stem", "blocks.0"), ("blocks.1", "norm"), ("mtp.0", "head"))
    layout, kinds = PipelineLayout((0, 1, 2), 4, False), [("stem", "E"), ("blocks.*", "t"), ("mtp.*", "m")]
    assert megatron_layout(parts, layout, kinds) == "Et|t|mL"
    with misuse("unsupported", naming=["stem, mtp.0", "--layout-of"]):
        megatron_layout(parts, layout)
    with misuse("unsupported", naming=['"x"']):
        megatron_layout(parts, layout, [*kinds, ("head", "x")])


@pytest.mark.parametrize(
    ("parts", "gpu_of", "named"),
    [
        ((("layers.0",), ("layers.1", "output")), (0, 1), '"ttL"'),
        ((("embed_tokens", "output"), ("layers.1",)), (0, 1), '"ELt"'),
        ((("embeddings", "layer0"), ("layer1",), ("layer2",), ("output",)), (0, 1, 1, 0), "--placement loop"),
    ],
)
def test_what_megatron_refuses_is_refused(
    parts: tuple[tuple[str, ...], ...], gpu_of: tuple[int, ...], named: str
) -> None:
    with misuse("unsupported", naming=[named]):
        megatron_layout(parts, PipelineLayout(gpu_of, 4, False))


def test_heads_of_several_tokens_are_in_the_last_stage_of_a_rank() -> None:
    kinds = [("m*", "m")]
    loop = PipelineLayout((0, 1, 0, 1), 4, False)
    assert megatron_layout((("wte",), ("h.0",), ("m0", "m1"), ("loss",)), loop, kinds) == "E|t|mm|L"
    with misuse("unsupported", naming=["(m)", "last stage"]):
        megatron_layout((("wte", "h.0"), ("m0",), ("loss",), ()), loop, kinds)
    with misuse("unsupported", naming=["(m)", "one stage"]):
        megatron_layout((("wte",), ("h.0",), ("m0",), ("m1", "loss")), loop, kinds)


@pytest.mark.parametrize(
    ("gpu_of", "style"),
    [((0, 1), "PipelineScheduleMulti"), ((0, 1, 0, 1), "PipelineScheduleMulti"), ((0, 1, 1, 0), "ZBVZeroBubble")],
)
def test_a_configuration_is_toml(gpu_of: tuple[int, ...], style: str) -> None:
    parts = parts_of(Random(0), ["tok_embeddings", "layers.0", "layers.1", 'a"b\\', "é\n"], len(gpu_of))
    read = tomllib.loads(torchtitan_configuration(parts, PipelineLayout(gpu_of, 8, True), "run/x.csv", 16))
    assert read == {
        "training": {"local_batch_size": 16},
        "parallelism": {
            "pipeline_parallel_degree": 2,
            "pipeline_parallel_schedule": style,
            "pipeline_parallel_schedule_csv": "run/x.csv",
            "pipeline_parallel_microbatch_size": 2,
            "module_fqns_per_model_part": [list(part) for part in parts],
        },
        "activation_checkpoint": {"mode": "none"},
    }


def test_a_configuration_has_the_names_of_later_versions() -> None:
    """They count the micro-batches, and the tokens of each, where earlier ones have the samples of both."""
    text = torchtitan_configuration((("a",), ("b",)), PipelineLayout((0, 1), 8, True), "x.csv", 16)
    comments = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    found = dict(re.findall(r"(\w+)\((\w+=[0-9]+)", comments))
    assert found == {
        "ParallelismConfig": "num_pp_microbatches=8",
        "TrainingConfig": "num_tokens_per_microbatch_per_dp_rank=2",
    }


def test_stages_are_where_torchtitan_places_them() -> None:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    for gpu_of in ((0, 1, 2, 0, 1, 2), (0, 1, 2, 2, 1, 0)):
        layout = PipelineLayout(gpu_of, 8, True)
        text = torchtitan_configuration((("a",),) * 6, layout, "x.csv", None)
        name = tomllib.loads(text)["parallelism"]["pipeline_parallel_schedule"]
        made = schedules.get_schedule_class(name)
        turning = issubclass(made, schedules.ScheduleZBVZeroBubble)
        places = zip(range(3), range(5, 2, -1), strict=True) if turning else ((rank, rank + 3) for rank in range(3))
        assert [gpu_of[stage] for pair in places for stage in pair] == [0, 0, 1, 1, 2, 2]
        assert turning or issubclass(made, schedules.PipelineScheduleMulti)


def test_stages_elsewhere_and_odd_batches_are_refused() -> None:
    with misuse("unsupported", naming=["TorchTitan", "stages"]):
        torchtitan_configuration((("a",),) * 4, PipelineLayout((0, 0, 1, 1), 8, True), "x.csv", 8)
    for batch in (12, 0):
        with misuse("mismatch batch", naming=[f"{batch} samples", "8"]):
            torchtitan_configuration((("a",),) * 2, PipelineLayout((0, 1), 8, True), "x.csv", batch)


def test_layers_of_a_counted_transformer_have_torchtitan_s_names() -> None:
    assert torchtitan_names((CHAIN[:2], CHAIN[2:3], CHAIN[6:])) == (
        ("tok_embeddings", "layers.0"),
        ("layers.1",),
        ("layers.5", "norm", "output"),
    )
    own = (("output", "layer0"), ("mine",))
    assert torchtitan_names(own) == own


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An instance, a plan and a partition of four layers, one of which is made of two modules."""
    monkeypatch.chdir(tmp_path)
    names = ("tok_embeddings", "layers.0", "middle", "output")
    layers = tuple(
        MeasuredLayer(name, 10 + at, 20, 1, 1, modules=("layers.1", "layers.2") if name == "middle" else ())
        for at, name in enumerate(names)
    )
    Path("layers.json").write_bytes(encode_layers(LayerGraph(layers, chain_edges(4))))
    machines = ["--machines", "2", "--bandwidth", "1000000", "--no-replication"]
    assert main(["partition", "layers.json", *machines, "-o", "cut.json"]) == 0
    assert main(["pipeline", "cut.json", "--micro-batches", "4", "-o", "i.json", "--plan", "p.json"]) == 0
    return tmp_path


EXPORT = ["export", "i.json", "p.json", "--partition", "cut.json", "--to"]


def test_files_of_the_command_line(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main([*EXPORT, "torchtitan", "--layers", "layers.json", "--batch", "8", "-o", "run.toml"]) == 0
    told = capsys.readouterr().err
    assert carries(told, "wrote", "run.csv") and "TorchTitan 0.2" in told
    read = tomllib.loads(Path("run.toml").read_text())["parallelism"]
    modules = [["tok_embeddings", "layers.0"], ["layers.1", "layers.2", "output"]]
    assert read["module_fqns_per_model_part"] == modules
    assert read["pipeline_parallel_schedule_csv"] == "run.csv"
    assert main(["export", "i.json", "p.json", "--to", "torch-csv", "-o", "same.csv"]) == 0
    assert Path("run.csv").read_text() == Path("same.csv").read_text()
    capsys.readouterr()
    assert main([*EXPORT, "megatron-layout", "--layers", "layers.json", "-o", "-"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|ttL'\n"
    assert carries(printed.err, "1 virtual", "Megatron")


def test_stages_that_recompute_are_told(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = json.loads(Path("cut.json").read_text())
    tree["stages"][0]["recompute"] = True
    Path("cut.json").write_text(json.dumps(tree))
    assert main(["pipeline", "cut.json", "--micro-batches", "4", "-o", "i.json", "--plan", "p.json"]) == 0
    capsys.readouterr()
    assert main([*EXPORT, "torchtitan", "--batch", "8", "-o", "run.toml"]) == 0
    assert carries(capsys.readouterr().err, "0 recomputes", "activations")
    text = Path("run.toml").read_text()
    assert tomllib.loads(text)["activation_checkpoint"] == {"mode": "full"} and "in parts 0" in text
    assert main([*EXPORT, "megatron-layout", "--layout-of", "middle=t", "-o", "-"]) == 0
    assert carries(capsys.readouterr().out, "--recompute-granularity", "full")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["megatron-layout", "-o", "-"], "middle"),
        (["megatron-layout", "--layout-of", "middle", "-o", "-"], "PATTERN=KIND"),
        (["torchtitan", "-o", "run.csv"], "give -o FILE.toml"),
        (["torchtitan", "--layout-of", "a=t", "-o", "run.toml"], "--to megatron-layout"),
        (["torch-csv", "-o", "run.csv"], "--partition"),
        (["torchtitan", "--batch", "7", "-o", "run.toml"], "7 samples"),
    ],
)
def test_wrong_options(options: list[str], message: str, pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EXPORT, *options]) == 2
    assert message in capsys.readouterr().err
    assert not Path("run.toml").exists() and not Path("run.csv").exists()


def test_another_partition_is_refused(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "i.json", "p.json", "--to", "torchtitan", "-o", "run.toml"]) == 2
    assert carries(capsys.readouterr().err, "torchtitan", "--partition")
    tree = json.loads(Path("cut.json").read_text())
    Path("cut.json").write_text(json.dumps(tree | {"stages": tree["stages"][:1]}))
    assert main([*EXPORT, "torchtitan", "-o", "run.toml"]) == 3
    assert carries(capsys.readouterr().err, "1", "pipeline", "2 stages")
    tree["stages"][1]["forward_us"] += 1
    tree["stages"][0]["nodes"][0] = "strange"
    Path("cut.json").write_text(json.dumps(tree))
    assert main([*EXPORT, "torchtitan", "--layers", "layers.json", "-o", "run.toml"]) == 3
    told = capsys.readouterr().err
    assert carries(told, "cut.json", "$.stages[1].forward_us", "26", "25 us")
    assert carries(told, "cut.json", "$.stages[0].nodes[0]", '"strange"') and not Path("run.csv").exists()


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
        assert barrier.attributes["comm_type"] == Collective.BARRIER and barrier.start_us == 60
        assert all(barrier.number in it.after for it in nodes if it.name.startswith("j 1 ") and it.kind == COMPUTE)
    assert earliest_end(traces) == 120 and not traces.turns
    alone = TaskGraph((Slot("a", 1),), blocks[:1], (), (), "job")
    jobs = tuple(TaskGraphJob(name, alone, 1) for name in "ij")
    instance = Instance("turns", Cluster((Server("s", "v", 1, 1, 10**6),)), {}, jobs)
    plan = solve(instance, "greedy").plan
    assert plan is not None and chakra_traces(instance, plan).turns == ("GPU s/0",)


def test_what_traces_do_not_state_is_counted() -> None:
    shape = TaskGraph(
        (Slot("a"),), (TaskGraphBlock("b", ("a",), {"v": 1}),), (), (), "job", holds=(MemoryInterval("b", "b", 1),)
    )
    cluster = Cluster((Server("s", "v", 1, 1, 10**6),), power_caps=(PowerCap("rack", ("s",), 9),))
    instance = Instance("few", cluster, {}, (TaskGraphJob("j", shape, 1),))
    plan = solve(instance, "greedy").plan
    assert plan is not None
    told = ["not in the traces: 1 memory interval", "not in the traces: 1 power cap"]
    assert [note for note in export(instance, plan, "chakra").notes if note.startswith("not")] == told


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
