"""Models from traces of the PyTorch profiler: figures as summed by hand, GPUs, modules, and every problem."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance, read_layers
from jigsaw_opt.documents.file_bytes import unpacked
from jigsaw_opt.documents.readers import read_kineto_layers
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.measured.layers import MeasuredLayer
from tests.refusals import carries, refused, refuses, require_data

FILE = Path(__file__).parents[1] / "data" / "trace.kineto.json"
CASES = FILE.parent / "cases" / "kineto"
NODE = "autograd::engine::evaluate_function: "
GRADIENT = "torch::autograd::AccumulateGrad"
Event = dict[str, Any]


def event(name: str, start: float, length: float, cat: str = "cpu_op", tid: int = 1, **arguments: Any) -> Event:
    shapes = {"Input_Dims": [], "Input_type": []} if "Sequence_number" in arguments else {}
    named = {key.replace("_", " "): value for key, value in (shapes | arguments).items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": length, "args": named}


def gradient(start: float, tid: int, *shape: int, kind: str = "float") -> list[Event]:
    found = event(GRADIENT, start + 0.1, 0.5, tid=tid, Input_Dims=[list(shape)], Input_type=[kind])
    return [event(NODE + GRADIENT, start, 1, tid=tid), found]


def step(number: int, start: float, scale: float = 1) -> list[Event]:
    """Layers a and b, a loss, their backward pass on a thread of its own, and the optimiser."""
    first = 10 * number
    return [
        event(f"ProfilerStep#{number}", start, 100, "user_annotation"),
        event("a", start + 1, 9, "user_annotation"),
        event("aten::linear", start + 2, 4 * scale, Sequence_number=first),
        event("aten::addmm", start + 3, 2, Sequence_number=first + 1),
        event("b", start + 10, 10, "user_annotation"),
        event("aten::to", start + 11, 1, Sequence_number=first + 2),  # without a node: mm has the number too
        event("aten::mm", start + 12, 6, Sequence_number=first + 2),
        event("aten::loss", start + 22, 3, Sequence_number=first + 3),
        event(NODE + "LossBackward", start + 30, 2, tid=2, Sequence_number=first + 3),
        event(NODE + "MmBackward", start + 33, 8, tid=2, Sequence_number=first + 2),
        *gradient(start + 42, 2, 3, 5),
        event(NODE + "AddmmBackward", start + 44, 10, tid=2, Sequence_number=first + 1),
        *gradient(start + 55, 2, 5, kind="c10::Half"),
        event("Optimizer.step#SGD.step", start + 60, 20, "user_annotation"),
        event("aten::add_", start + 61, 7),
    ]


def trace(*events: Event) -> str:
    return json.dumps({"traceEvents": events})


def refusal(text: str, **options: Any) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        read_kineto_layers(text, source="t", **options)
    return caught.value


def refusals(text: str, **options: Any) -> list[str]:
    return refused(refusal(text, **options))


def problems(text: str, **options: Any) -> list[str]:
    return [str(problem) for problem in refusal(text, **options).problems]


def read(*events: Event, **options: Any) -> tuple[tuple[MeasuredLayer, ...], list[str]]:
    """Layers of a trace, and what is told of it."""
    told: list[str] = []
    return read_kineto_layers(trace(*events), source="t", tell=told.append, **options), told


AGAIN = [
    event("a", 80, 5, "user_annotation"),
    event("aten::linear", 81, 3, Sequence_number=14),
    event("b", 85, 5, "user_annotation"),
    event("aten::mm", 86, 3),
]
AROUND = [
    event("train", 0.1, 79, "user_annotation"),
    event("data", 0.2, 0.6, "user_annotation"),
    event("aten::to", 0.3, 0.4, Sequence_number=10),
    event("backward", 26, 32, "user_annotation"),
    event("aten::ones_like", 27, 1),
]
OTHERS: list[Any] = [{"ph": "X", "cat": []}, {"ph": []}, 3, event("x", 1, 1, "Trace"), {"ph": "M", "cat": "cpu_op"}]


@pytest.mark.parametrize(
    ("extra", "layers", "told"),
    [
        (OTHERS, [], []),
        (AGAIN, [], []),
        (AGAIN, ["[ab]"], []),
        (AROUND, [], []),
        ([event("cudaDeviceSynchronize", 85, 3, "cuda_runtime")], [], []),
        ([event("ProfilerStep#2", 200, 50, "user_annotation")], [], ["1", "2 profiled", "backward"]),
    ],
    ids=["other kinds", "again", "again, named", "around both passes", "an idle device", "a step without passes"],
)
def test_what_changes_no_layer(extra: list[Event], layers: list[str], told: list[str]) -> None:
    found, heard = read(*step(1, 0), *extra, layers=layers)
    assert found == read_kineto_layers(trace(*step(1, 0)))
    require_data(heard[0], *told)


def test_forward_is_the_sum_of_the_operations_in_the_annotation() -> None:
    events = json.loads(FILE.read_text())["traceEvents"]
    layers = {layer.name: layer for layer in read_kineto_layers(FILE.read_bytes())}
    assert {name: layer.parameter_bytes for name, layer in layers.items()} == {
        "layer:a": 4 * (64 + 1) * 128,
        "layer:b": 4 * (128 + 1) * 128,
        "layer:head": 4 * (128 + 1) * 10,
    }
    assert layers["layer:a"].activation_bytes == 4 * 32 * (64 + 128)  # what linear and relu read
    for name in ("layer:a", "layer:b"):
        sums = []
        for span in (one for one in events if one["name"] == name):
            inside = [
                one["dur"]
                for one in events
                if one["name"] in ("aten::linear", "aten::relu") and span["ts"] <= one["ts"] < span["ts"] + span["dur"]
            ]
            assert len(inside) == 2
            sums.append(sum(inside))
        assert layers[name].forward_us == round(median(sums))


def test_median_of_the_steps() -> None:
    a, b = read_kineto_layers(trace(*step(1, 0), *step(2, 200, 0.5), *step(3, 400, 1.75)))
    assert (a.name, a.forward_us, a.parameter_bytes) == ("a", 4, 10)
    assert (b.name, b.forward_us, b.parameter_bytes) == ("b", 1 + 6 + 3, 60)
    assert (a.backward_us, b.backward_us) == (10 + 1 + 1, 2 + 8 + 1 + 6)  # the step's 7 us, shared out as 10 to 60


def test_the_scatter_of_a_layer_over_the_steps_is_kept_and_told() -> None:
    (a, b), told = read(*step(1, 0), *step(2, 200, 0.5), *step(3, 400, 1.75))
    for layer in (a, b):
        for time, ends in ((layer.forward_us, layer.forward_range_us), (layer.backward_us, layer.backward_range_us)):
            assert ends is not None and ends[0] <= time <= ends[1]
    assert a.forward_range_us == (2, 7)
    (about,) = [one for one in told if "medians of 3 steps" in one]
    assert '"a" scatters most, 14 to 19 us' in about
    (alone, _), told = read(*step(1, 0))
    assert alone.forward_range_us is None and not [one for one in told if "medians" in one]


def test_kernels_count_where_there_are_some_and_communication_does_not() -> None:
    def launched(name: str, launch: float, tid: int, length: float, number: int) -> list[Event]:
        return [
            event("cudaLaunchKernel", launch, 0.2, "cuda_runtime", tid, correlation=number),
            event(name, 500 + number, length, "kernel", 7, correlation=number),
        ]

    kernels = [
        *launched("gemm", 2.5, 1, 100, 1),
        *launched("gemm", 12.5, 1, 200, 2),
        *launched("gemm", 34.0, 2, 400, 3),
        *launched("nccl:all_reduce", 35.0, 2, 999, 4),
        event("loss", 530, 50, "kernel", 7, External_id=77),
        event("lost", 540, 50, "kernel", 7, correlation=99),
    ]
    events = step(1, 0)
    events[7]["args"]["External id"] = 77
    a, b = read_kineto_layers(trace(*events, *kernels))
    assert (a.forward_us, a.backward_us, b.forward_us, b.backward_us) == (100, 0, 250, 400)


def modules() -> list[Event]:
    """The first step without annotations, a module around both layers, and one in the first."""
    names = {"a": "nn.Module: Linear_0", "b": "nn.Module: Linear_1"}
    events = [one for one in step(1, 0) if one["name"] not in names]
    calls = [
        event(names[one["name"]], one["ts"], one["dur"], "python_function")
        for one in step(1, 0)
        if one["name"] in names
    ]
    net = event("nn.Module: Net_0", 0.5, 20, "python_function")
    return [*events, *calls, net, event("<built-in method linear>", 2, 4, "python_function")]


def test_modules_stand_in_for_annotations() -> None:
    found = read_kineto_layers(trace(*modules()))
    assert [layer.name for layer in found] == ["Linear_0", "Linear_1"]
    named = read_kineto_layers(trace(*modules()), layers=["Net_*"])
    assert [(layer.name, layer.forward_us) for layer in named] == [("Net_0", 4 + 1 + 6 + 3)]


@pytest.mark.slow
def test_a_trace_of_today_has_the_parameters_of_its_network(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(16, 4))
    optimiser = torch.optim.AdamW(network.parameters())
    plan = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    file = tmp_path / "trace.json"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        record_shapes=True,
        with_stack=True,
        schedule=plan,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(3):
            optimiser.zero_grad()
            network(torch.randn(4, 5, 8)).sum().backward()
            optimiser.step()
            profiler.step()
    layers = read_kineto_layers(file.read_bytes())
    assert [one.parameter_bytes // 4 for one in layers] == [
        sum(parameter.numel() for parameter in part.parameters()) for part in network
    ]
    assert all(one.forward_us and one.backward_us for one in layers)
    patterns = ["Linear_0", "TransformerEncoderLayer_*", f"{layers[-1].name}"]
    named = read_kineto_layers(file.read_bytes(), layers=patterns)
    assert len(named) == 4 and named[0] == layers[0]
    assert sum(one.parameter_bytes for one in named) == sum(one.parameter_bytes for one in layers)


def test_every_problem_of_events() -> None:
    events = step(1, 0)
    events[2]["dur"] = -1
    events[3]["ts"] = "now"
    events[4]["args"] = []
    events[5]["name"] = 3
    assert refusals(trace(*events[2:6])) == [
        "out-of-range t: $.traceEvents[0].dur",
        "wrong-type t: $.traceEvents[1].ts",
        "wrong-type t: $.traceEvents[2].args",
        "wrong-type t: $.traceEvents[3].name",
    ]
    assert refusals('{"traceEvents": 3}') == ["wrong-type t: $.traceEvents"]


def test_every_problem_of_what_the_trace_shows() -> None:
    assert [line.split(" (")[0] for line in problems(trace())] == [
        "t: no layer: no annotation or module that holds operations with a gradient",
        "t: no node of a backward pass",
        "t: no operation takes time",
    ]
    second = [one for one in step(2, 200) if one["name"] != "b"]
    assert problems(trace(*step(1, 0), *second)) == ['t: ProfilerStep#2 has no layer "b"']
    shapeless = [{**one, "args": {}} if one["name"] == GRADIENT else one for one in step(1, 0)]
    found = problems(trace(*shapeless), parameter_bytes={"a": 8, "c": 9})
    assert [line.split(" (")[0] for line in found] == [
        "t: $.traceEvents[11]: a gradient without shape and type",
        't: parameters of a layer "c", which there is not',
    ]


def test_a_parameter_without_a_gradient_counts_nothing_and_its_layer_is_named() -> None:
    data = (CASES.parent / "field/kineto_no_gradient.json.gz").read_bytes()
    told: list[str] = []
    found = read_kineto_layers(data, of_a_pass=True, source="t", tell=told.append)
    assert [(one.name, one.parameter_bytes, one.forward_us, one.backward_us) for one in found] == [
        ("table", 0, 38, 37),
        ("head", 144, 43, 96),
    ]
    (about,) = [one for one in told if "no gradient" in one]
    assert '"table"' in about and about.endswith("--parameter-bytes table=BYTES")
    stated: list[str] = []
    again = read_kineto_layers(data, of_a_pass=True, parameter_bytes={"table": 0}, source="t", tell=stated.append)
    assert again == found and stated == [one for one in told if one != about]


def test_layers_with_brackets_are_named_as_they_stand() -> None:
    named = [{**one, "name": one["name"].replace("a", "h[0]", 1)} if one["name"] == "a" else one for one in step(1, 0)]
    text = trace(*named)
    found = read_kineto_layers(text, layers=["h[0]", "b"], parameter_bytes={"h[0]": 12})
    assert (found[0].name, found[0].parameter_bytes) == ("h[0]", 12)
    assert read_kineto_layers(text, layers=["h[[]?]", "b"], parameter_bytes={"h[0]": 12}) == found


def test_a_trace_without_a_layer_names_what_it_has() -> None:
    events = [one for one in step(1, 0) if one["name"] not in "ab"]
    (found,) = problems(trace(*events, event("mine", 80, 5, "user_annotation")))
    assert carries(found, '"Optimizer.step#SGD.step"', "1 times", '"mine"', "1 times", "--layers")
    (found,) = problems(trace(*step(1, 0)), layers=["x*", "y"])
    assert carries(found, '"x*"', '"y"') and '"a" (1 times)' in found


def test_compressed_traces_within_a_limit() -> None:
    packed = (CASES / "t_rf.json.gz").read_bytes()
    assert read_kineto_layers(packed) == read_kineto_layers(gzip.decompress(packed))
    for broken in (packed[: len(packed) // 2], packed[:40] + b"xxxx" + packed[44:]):
        with refuses("unreadable t.json.gz"):
            read_kineto_layers(broken, source="t.json.gz")
    with refuses("too-large t"):
        unpacked(gzip.compress(bytes(10**6)), "t", 1000)
    assert unpacked(gzip.compress(bytes(1000)), "t", 1000) == bytes(1000)


LINEAR = "Linear_0 Linear_1 Linear_2"


@pytest.mark.parametrize(("case", "names"), [("t_rf", "A B C"), ("t_rf+dl", "A B C"), ("t_stack", LINEAR)])
def test_layers_of_recorded_traces(case: str, names: str) -> None:
    """Annotations of the framework are no layers, and work between modules is the layer's before."""
    told: list[str] = []
    layers = read_kineto_layers((CASES / f"{case}.json.gz").read_bytes(), tell=told.append)
    assert [one.name for one in layers] == names.split()
    assert [one.activation_bytes for one in layers] == [131_072, 131_072, 68_096]
    if case == "t_rf+dl":
        assert carries(told, "_SingleProcessDataLoaderIter.__next__", "661")
    if case == "t_stack":
        assert [(one.forward_us, one.backward_us) for one in layers] == [(114, 146), (75, 198), (52, 83)]
        assert [one.parameter_bytes for one in layers] == [263_168, 263_168, 10_280]


def test_what_has_no_node_outside_all_layers_is_left_out() -> None:
    before = event("aten::to", 0, 1, Sequence_number=10)
    after = [event("metric", 80, 9, "user_annotation"), event("aten::eq", 81, 7, Sequence_number=14)]
    layers, told = read(*step(1, 0), before, *after)
    assert layers == read_kineto_layers(trace(*step(1, 0)))
    assert told == [
        "t: 8 of 51 us of work in 1 steps (15.7 %) belong to no layer and are left out: metric 7, aten::to 1",
        "t: bytes of activations are estimated from shapes; `jigsaw profile` measures them",
    ]


def test_what_is_named_takes_its_own_work_alone() -> None:
    (only,), told = read(*step(1, 0), layers=["a"])
    # The loss follows b, which has 60 of 70 bytes.
    assert (only.name, only.forward_us, only.backward_us) == ("a", 4, 10 + 1 + 1)
    assert "21 of 43 us" in told[0] and carries(told[0], "8", "7", "aten::loss", "3")


def test_a_frozen_layer_is_one_where_it_is_named_or_in_the_model() -> None:
    frozen = [event("f", 0.2, 0.8, "user_annotation"), event("aten::linear", 0.4, 0.4, Sequence_number=10)]
    assert [one.name for one in read_kineto_layers(trace(*frozen, *step(1, 0)))] == ["a", "b"]
    named = read_kineto_layers(trace(*frozen, *step(1, 0)), layers=["?"])
    assert (named[0].name, named[0].backward_us, named[0].parameter_bytes) == ("f", 0, 0)
    module = [{**one, "name": "nn.Module: " + one["name"], "cat": "python_function"} for one in frozen[:1]]
    net = event("nn.Module: Net_0", 0.1, 20.5, "python_function")
    rest = [one for one in modules() if one["name"] != net["name"]]
    found = read_kineto_layers(trace(*rest, *module, frozen[1], net))
    assert [one.name for one in found] == ["f", "Linear_0", "Linear_1"]


def test_a_loss_beside_the_model_leaves_its_layers() -> None:
    loss = event("nn.Module: Loss_0", 21.5, 4, "python_function")
    outer = event("nn.Module: Wrapped_0", 0.4, 20.5, "python_function")
    found = read_kineto_layers(trace(*modules(), loss, outer))
    assert [(one.name, one.forward_us) for one in found] == [("Linear_0", 4), ("Linear_1", 7), ("Loss_0", 3)]


def test_weights_are_no_activations_also_where_they_are_frozen() -> None:
    events = step(1, 0)
    events[2]["args"] |= {"Input Dims": [[7, 5], [9, 5], [9]], "Input type": ["float", "float", "float"]}
    events[7]["args"] |= {"Input Dims": [[7, 9], [7], []], "Input type": ["float", "long int", "Scalar"]}
    a, b = read_kineto_layers(trace(*events))
    assert (a.activation_bytes, b.activation_bytes) == (4 * 7 * 5, 4 * 7 * 9)


def test_numbers_count_for_each_thread() -> None:
    """On a GPU, the thread of the backward pass computes again with numbers of its own."""
    events = [
        event("ProfilerStep#1", 0, 200, "user_annotation"),
        event("CheckpointFunction", 1, 30, Sequence_number=3),
        event("a", 2, 10, "user_annotation"),
        event("aten::mm", 3, 5),
        event("b", 14, 10, "user_annotation"),
        event("aten::mm", 15, 6),
        event("aten::loss", 40, 2, Sequence_number=4),
        event(NODE + "LossBackward", 50, 3, tid=2, Sequence_number=4, Fwd_thread_id=1),
        event(NODE + "CheckpointFunctionBackward", 55, 100, tid=2, Sequence_number=3, Fwd_thread_id=1),
        event("a", 56, 10, "user_annotation", tid=2),
        event("aten::mm", 57, 7, tid=2, Sequence_number=3),
        event("b", 68, 10, "user_annotation", tid=2),
        event("aten::mm", 69, 8, tid=2, Sequence_number=4),
        event(NODE + "MmBackward", 80, 20, tid=2, Sequence_number=4, Fwd_thread_id=2),
        *gradient(101, 2, 2, 2),
        event(NODE + "MmBackward", 110, 30, tid=2, Sequence_number=3, Fwd_thread_id=2),
        *gradient(141, 2, 3, 3),
    ]
    events[1]["args"] |= {"Input Dims": [[], [6, 3]], "Input type": ["", "float"]}
    events += gradient(150, 2, 6, 3)  # of the copy of what the checkpoint reads
    a, b = read_kineto_layers(trace(*events))
    assert (a.forward_us, b.forward_us) == (5, 6 + 2)
    assert (a.backward_us, b.backward_us) == (7 + 30 + 1 + 1, 3 + 8 + 20 + 1)
    assert (a.parameter_bytes, b.parameter_bytes) == (36, 16)
    assert (a.activation_bytes, b.activation_bytes) == (4 * 6 * 3, 0)


def test_backward_passes_of_a_step_are_added_up() -> None:
    second = [
        {**one, "args": {**one["args"], "Sequence number": one["args"]["Sequence number"] + 5}}
        if "Sequence number" in one["args"]
        else one
        for one in step(1, 100)[1:]
    ]
    first = [one for one in step(1, 0)[1:] if not one["name"].startswith("Optimizer") and one["name"] != "aten::add_"]
    once = read_kineto_layers(trace(*step(1, 0)))
    twice, told = read(event("ProfilerStep#1", 0, 200, "user_annotation"), *first, *second)
    assert carries(told[0], "2 backward", "passes")
    for one, both in zip(once, twice, strict=True):
        assert both.forward_us == 2 * one.forward_us
        assert (both.parameter_bytes, both.activation_bytes) == (one.parameter_bytes, one.activation_bytes)
    unmarked = trace(*first, *[one for one in second if not one["name"].startswith("Optimizer")])
    assert carries(problems(unmarked)[0], "2 backward", "passes")


def test_without_marks_a_step_ends_with_the_optimiser_s() -> None:
    events = [one for k in (1, 2, 3) for one in step(k, 200 * k) if not one["name"].startswith("ProfilerStep")]
    marked = [one for k in (1, 2, 3) for one in step(k, 200 * k)]
    assert read_kineto_layers(trace(*events)) == read_kineto_layers(trace(*marked))


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_are_computed_again(tmp_path: Path, reentrant: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    parts = {name: torch.nn.Linear(32, size) for name, size in (("A", 32), ("B", 32), ("C", 8))}

    def layer(name: str, batch: Any) -> Any:
        with torch.profiler.record_function(name):
            return parts[name](batch).relu()

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleDict(parts)

        def forward(self, batch: Any) -> Any:
            def body(batch: Any) -> Any:
                return layer("B", layer("A", batch))

            return layer("C", checkpoint(body, batch, use_reentrant=reentrant))

    network, file = Network(), tmp_path / "trace.json.gz"
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(2):
            network(torch.randn(16, 32, requires_grad=reentrant)).sum().backward()
            optimiser.step()
    profiler.export_chrome_trace(str(file))
    a, b, c = read_kineto_layers(file.read_bytes())
    assert [one.parameter_bytes for one in (a, b, c)] == [4 * 33 * 32, 4 * 33 * 32, 4 * 33 * 8]
    assert (a.activation_bytes, b.activation_bytes) == (4 * 16 * 32, 0)
    assert all(one.forward_us > 0 and one.backward_us > 0 for one in (a, b, c))


def test_what_wraps_operations_without_a_number_reads_nothing_itself() -> None:
    events = step(1, 0)
    events[2]["args"] |= {"Input Dims": [[7, 5]], "Input type": ["float"]}
    region = event("Torch-Compiled Region: 0/0", 1.5, 5)
    (a, _), (line,) = read(*events, region)
    assert a.activation_bytes == 4 * 7 * 5 and carries(line, "activations", "estimated")
    events[2]["name"] = "CompiledFunction"
    (a, _), (line, _) = read(*events, region)
    assert a.activation_bytes == 4 * 7 * 5
    assert line.startswith('t: "a" run compiled: activations count what the compiled function reads alone')


def test_an_optimiser_that_steps_now_and_then_counts_with_its_mean() -> None:
    every = [one for k in (1, 2, 3) for one in step(k, 200 * k)]
    without = [one for one in every if not one["name"].startswith(("Optimizer", "aten::add_"))]
    once = read_kineto_layers(trace(*step(4, 800)))
    seldom, told = read(*without, *step(4, 800))
    assert sum(one.backward_us for one in once) - sum(one.backward_us for one in seldom) in (5, 6)
    assert any(carries(line, "3", "4 steps", "Optimizer.step") for line in told)


def test_a_model_beside_a_loss_counts_for_what_it_holds() -> None:
    around = [event("forward", 0.5, 20, "user_annotation"), event("loss", 21, 5, "user_annotation")]
    found = read_kineto_layers(trace(*around, *step(1, 0)))
    assert [one.name for one in found] == ["a", "b", "loss"]
    found, told = read(*around, *modules())
    assert [one.name for one in found] == ["forward", "loss"]
    assert carries(told[1], '"forward"', "--layers", '"Net_0"', '"Linear_0"')


def test_stated_parameters_need_no_shapes() -> None:
    events = [{**one, "args": {}} if one["name"] == GRADIENT else one for one in step(1, 0)]
    found = read_kineto_layers(trace(*events), parameter_bytes={"a": 8, "b": 16})
    assert [layer.parameter_bytes for layer in found] == [8, 16]
    huge = problems(trace(*events), parameter_bytes={"a": 2**60, "b": 16})
    assert huge == [f't: layer "a" has parameters of 0 to {2**40} bytes, not {2**60}']


def test_what_a_layer_sends_is_what_the_next_one_reads() -> None:
    found = read_kineto_layers(FILE.read_bytes())
    assert [one.output_bytes for one in found] == [4 * 32 * 128, 4 * 32 * 128, None]
    events = json.loads(FILE.read_text())["traceEvents"]
    for one in events:  # as though the next layer read something else
        if [32, 128] in one.get("args", {}).get("Input Dims", ()) and one["name"] in ("aten::linear", "aten::addmm"):
            one["args"]["Input Dims"] = [[32, 127] if dims == [32, 128] else dims for dims in one["args"]["Input Dims"]]
    assert [one.output_bytes for one in read_kineto_layers(trace(*events))] == [None, None, None]


def test_times_of_a_pass_are_without_the_optimiser() -> None:
    once, told = read(*step(1, 0), *step(2, 100), of_a_pass=True)
    assert [(one.forward_us, one.backward_us) for one in once] == [(4, 10 + 1), (10, 2 + 8 + 1)]
    assert any(carries(one, "7 us", "Optimizer.step") for one in told)


def test_an_instance_a_model_and_a_layer_profile_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convert = ["convert", "kineto", str(FILE), "--gpu-type", "v100"]
    instance, model, layers = tmp_path / "i.json", tmp_path / "m.json", tmp_path / "l.json"
    assert main([*convert, "--segments", "2", "-o", str(instance)]) == 0
    whole = load_instance(instance).models["trace"]
    assert (len(whole.segments), whole.gpu_types) == (2, ("v100",))
    assert main([*convert, "--to", "model", "-o", str(model)]) == 0
    assert [one["name"] for one in json.loads(model.read_bytes())["segments"]] == ["layer:a", "layer:b", "layer:head"]
    profile = [*convert, "--to", "layers"]
    assert main([*profile, "--batch", "32", "--state-factor", "3", "-o", str(layers)]) == 0
    assert carries(capsys.readouterr().err, "backward", "gradients")
    found = read_layers(layers.read_bytes())
    assert (found.gpu_type, found.batch, found.state_factor, found.is_chain) == ("v100", 32, 3, True)
    assert found.layers == read_kineto_layers(FILE.read_bytes(), of_a_pass=True)
    pipedream = ["convert", "pipedream", *convert[2:]]
    for words, code, told in (
        ([*profile, "--segments", "2"], 2, ["--segments", "--to layers"]),
        ([*convert, "--state-factor", "3"], 2, ["--state-factor", "--to"]),
        ([*convert, "--parameter-bytes", "x=1"], 3, ["parameters", '"x"']),
        ([*convert, "--activation-bytes", "x"], 2, ["--activation-bytes", "LAYER=BYTES"]),
        ([*pipedream, "--layers", "a", "--parameter-bytes", "a=1"], 2, ["--layers", "kineto"]),
    ):
        assert main(words) == code
        require_data(capsys.readouterr().err, *told)
