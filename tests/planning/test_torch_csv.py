"""Plans of pipelines as the files that PyTorch's own reader takes, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_instance, encode_instance
from jigsaw_opt.instances.catalogue import best_plan, load
from jigsaw_opt.instances.task_graph_sets import PIPELINES
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.named import ORDERS
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import schedule_of
from jigsaw_opt.planning.pipeline.search import add_pipeline
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, pipeline_instance
from jigsaw_opt.planning.pipeline.stated import pipeline_of
from jigsaw_opt.planning.pipeline.torch_csv import KNOWN_TORCH, CsvFormat, TorchSchedule, torch_schedule
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.random_pipelines import planned, random_orders, random_pipeline
from tests.refusals import misuse, refuses


def named(name: str, split: bool = True) -> PipelineProblem:
    """A pipeline of three GPUs and six micro-batches."""
    there = (0, 1, 2)
    gpu_of = {"interleaved": there * 2, "v-half": there + there[::-1]}.get(name, there)
    ten = (10,) * len(gpu_of)
    costs = PipelineCosts(ten, ten, ten if split else (), ten[1:])
    return PipelineProblem(costs, PipelineLayout(gpu_of, 6, split))


def loaded(found: TorchSchedule, form: CsvFormat, folder: Path) -> Any:
    """PyTorch's runtime that has read and validated the file as every rank does; its API is pinned by this."""
    pytest.importorskip("torch")
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    path = folder / "schedule.csv"
    path.write_text(found.csv)
    stage = SimpleNamespace(num_stages=found.layout.stages, group_size=found.layout.gpus, group_rank=0)
    runtime = _PipelineScheduleRuntime([stage], n_microbatches=found.layout.micro_batches)  # type: ignore[list-item]
    runtime._load_csv(str(path), format=form)
    return runtime


def test_the_version_of_torch_is_the_known_one() -> None:
    torch = pytest.importorskip("torch")
    assert torch.__version__.startswith(f"{KNOWN_TORCH}."), "look what has changed in torch.distributed.pipelining"


def _cases() -> list[tuple[str, Any, Any]]:
    cases = []
    for name in ORDERS:
        for split in (True, False) if not name.startswith("zb") else (True,):
            pipeline = named(name, split)
            cases.append((f"{name}-{split}", pipeline, ORDERS[name](pipeline.layout)))
    for seed in range(40):
        pipeline = random_pipeline(seed)
        cases.append((f"random{seed}", pipeline, random_orders(pipeline, seed)))
    return cases


CASES = _cases()


@pytest.mark.parametrize(("pipeline", "orders"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_pytorch_reads_the_files_back_and_validates_them(
    pipeline: PipelineProblem, orders: Any, tmp_path: Path
) -> None:
    instance, plan = planned(pipeline, orders)
    assert not check(instance, plan)
    layout = pipeline.layout
    forms: tuple[CsvFormat, ...] = "compute_only", "compute_comms"
    for form in forms:
        found = torch_schedule(instance, plan, form)
        runtime = loaded(found, form, tmp_path)
        assert runtime.stage_index_to_group_rank == dict(enumerate(layout.gpu_of))
        own = [[each for each in rank if each in found.planned] for rank in found.ranks]
        blocks = [[f"{each.kind}{each.micro_batch}.{each.stage}" for each in order] for order in orders]
        assert [[found.planned[each] for each in rank] for rank in own] == blocks
        read = [[str(action) for action in runtime.pipeline_order_with_comms[rank]] for rank in range(layout.gpus)]
        is_sent = form == "compute_comms"
        assert [[each for each in rank if is_sent or each in found.planned] for rank in read] == list(
            map(list, found.ranks)
        )
        losses = [each for rank in found.ranks for each in rank if each.startswith(f"{layout.stages - 1}F")]
        assert losses == [f"{layout.stages - 1}F{number}" for number in range(layout.micro_batches)]
    for rank, actions in runtime.pipeline_order_with_comms.items():
        runtime.pipeline_order_with_comms[rank] = [
            action for action in actions if "REDUCE" not in str(action)
        ]  # it knows none
    assert len(runtime._simulate()) == layout.gpus, "PyTorch's own simulation sees no deadlock"
    _assert_pairs_agree(found)
    _assert_gradients_are_reduced_once(found)


def _assert_pairs_agree(found: TorchSchedule) -> None:
    """Each two ranks take what they exchange in the same order, and all that is sent is received."""
    gpu_of = found.layout.gpu_of
    seen: dict[tuple[int, int], list[list[tuple[str, int, str]]]] = {}
    for rank, actions in enumerate(found.ranks):
        for action in actions:
            if "_F" not in action and "_B" not in action:
                continue
            stage, kind = int(action[0]), action[1:5]
            way = action[6]
            from_stage = stage if kind == "SEND" else stage - 1 if way == "F" else stage + 1
            to_stage = from_stage + 1 if way == "F" else from_stage - 1
            ends = gpu_of[from_stage], gpu_of[to_stage]
            assert ends[0] != ends[1] and rank == ends[kind == "RECV"]
            own = seen.setdefault((min(ends), max(ends)), [[], []])
            own[rank == max(ends)].append((way, from_stage, action[7:]))
    for one, other in seen.values():
        assert one == other


def _assert_gradients_are_reduced_once(found: TorchSchedule) -> None:
    for actions in found.ranks:
        for stage in {action[0] for action in actions}:
            own = [action for action in actions if action[0] == stage and action[1] in "BWIR" and "RECV" not in action]
            assert own[-1] == f"{stage}REDUCE_GRAD" and own.count(own[-1]) == 1


def small() -> PipelineProblem:
    return PipelineProblem(PipelineCosts((5, 5), (5, 5), (), (), (4,)), PipelineLayout((0, 1), 2, False))


def together() -> Instance:
    """Two iterations of a pipeline beside other jobs."""
    return add_pipeline(load("server/plain"), small(), "mine", iterations=2)


def test_a_pipeline_among_other_jobs_is_found() -> None:
    instance = together()
    plan = solve(instance, "greedy", Options(threads=1)).plan
    number, layout = pipeline_of(instance, plan)
    assert (instance.jobs[number].name, layout) == ("mine", PipelineLayout((0, 1), 2, False))
    assert set(torch_schedule(instance, plan).planned.values()) == {
        f"{k}{b}.{s}" for k in "FB" for b in "01" for s in "01"
    }
    done = plan.jobs[number]
    first, second = done.iterations
    swapped = replace(first, blocks=tuple(replace(block, start_us=-block.start_us) for block in first.blocks))
    jobs = tuple(replace(done, iterations=(swapped, second)) if job is done else job for job in plan.jobs)
    with misuse("unsupported plan"):
        torch_schedule(instance, plan.with_jobs(jobs))
    with refuses("ambiguous $.jobs"):
        pipeline_of(add_pipeline(instance, small(), "other"), plan)


def test_a_task_graph_without_a_family_is_no_pipeline() -> None:
    instance, plan = planned(small(), ORDERS["gpipe"](small().layout))
    tree = json.loads(encode_instance(instance))
    del tree["jobs"][0]["shape"]["family"]
    with refuses("unsupported $.jobs[0]", naming=["no family"]):
        torch_schedule(decode_instance(json.dumps(tree)), plan)


@pytest.mark.parametrize("name", PIPELINES)
def test_bundled_pipelines_state_their_family(name: str) -> None:
    instance, plan = load(f"pipeline/{name}"), best_plan(f"pipeline/{name}")
    code = "unsupported $.jobs[0]" if PIPELINES[name].family is None else "ambiguous $.jobs"
    if code.startswith("unsupported") or len(instance.jobs) > 1:
        with refuses(code):
            torch_schedule(instance, plan)
    else:
        assert len(torch_schedule(instance, plan).planned) == len(instance.jobs[0].shape.blocks)


def test_the_command_writes_the_file_and_tells_version_and_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, plan, output = tmp_path / "i.json", tmp_path / "p.json", tmp_path / "s.csv"
    assert main(["pipeline", "--forward-us", "10,10", "--backward-us", "10", "--weight-us", "10", "--micro-batches",
                 "2", "--schedule", "zb-h1", "-q", "-o", str(instance), "--plan", str(plan)]) == 0  # fmt: skip
    capsys.readouterr()
    command = ["export", str(instance), str(plan), "--to", "torch-csv"]
    assert main([*command, "-o", str(output)]) == 0
    told = capsys.readouterr()
    assert told.out == "" and f"PyTorch {KNOWN_TORCH}" in told.err and "compute_only" in told.err
    assert output.read_text() == "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"
    assert main([*command, "-o", "-", "--format", "compute_comms"]) == 0
    told = capsys.readouterr()
    assert told.out == (
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0I0,0W0,0RECV_B1,0I1,0W1,0REDUCE_GRAD\n"
        "1RECV_F0,1F0,1RECV_F1,1I0,1SEND_B0,1F1,1I1,1SEND_B1,1W0,1W1,1REDUCE_GRAD\n"
    )
    assert "compute_comms" in told.err


def test_an_asynchronous_pipeline_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = str(tmp_path / "i.json"), str(tmp_path / "p.json")
    assert main(["pipeline", "--forward-us", "10,10", "--backward-us", "10", "--schedule", "async", "-q",
                 "-o", instance, "--plan", plan]) == 0  # fmt: skip
    capsys.readouterr()
    assert main(["export", instance, plan, "--to", "torch-csv", "-o", str(tmp_path / "x")]) == 3
    told = capsys.readouterr().err
    assert "1 problem" in told and "iterations overlap" in told and not (tmp_path / "x").exists()


def test_cyclic_plans_have_the_order_of_an_iteration() -> None:
    pipeline = named("1f1b")
    found = schedule_of(pipeline, ORDERS["1f1b"](pipeline.layout), "pipeline", "1f1b")
    cyclic, finite = (torch_schedule(each.instance, each.plan) for each in (found.cyclic, found.finite))
    assert cyclic.ranks == finite.ranks
    assert pipeline_instance(pipeline, "pipeline", "cyclic") == found.cyclic.instance
