"""Traces whose spans overlap or stand there twice, devices of several makers, and activations beside autograd's."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents.readers import read_kineto_layers
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.measured.layers import MeasuredLayer
from tests.documents.test_kineto import NODE, Event, event, gradient, read, step, trace
from tests.refusals import carries, refuses

CASE_FILE = Path(__file__).parents[1] / "data/cases/kineto/t_rf.json.gz"


def case_events() -> list[Event]:
    found: list[Event] = json.loads(gzip.decompress(CASE_FILE.read_bytes()))["traceEvents"]
    return found


def renamed(to: Callable[[str], str]) -> list[Event]:
    """The case with other names of its layers A, B and C."""
    found = case_events()
    for one in found:
        if one.get("cat") == "user_annotation" and one["name"] in "ABC":
            one["name"] = to(one["name"])
    return found


def told_of(found: list[Event], **options: Any) -> tuple[tuple[MeasuredLayer, ...], list[str]]:
    told: list[str] = []
    layers = read_kineto_layers(json.dumps({"traceEvents": found}), source="t", tell=told.append, **options)
    return layers, told


def problems(found: list[Event], **options: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        told_of(found, **options)
    return [str(problem) for problem in caught.value.problems]


def figures(layers: tuple[MeasuredLayer, ...]) -> list[tuple[int, ...]]:
    return [(one.forward_us, one.backward_us, one.parameter_bytes, one.activation_bytes) for one in layers]


@pytest.mark.parametrize(
    ("to", "names"),
    [
        (lambda name: "block", ["block.1", "block.2", "block.3"]),
        (lambda name: "A" if name == "C" else name, ["A.1", "B", "A.2"]),
        (lambda name: "A" if name == "B" else name, ["A.1", "A.2", "C"]),
    ],
)
def test_calls_of_one_name_are_layers_in_the_order_of_time(to: Callable[[str], str], names: list[str]) -> None:
    layers, told = told_of(renamed(to))
    assert [one.name for one in layers] == names
    assert figures(layers) == figures(told_of(case_events())[0])
    assert any(carries(line, "times", "pass") for line in told)
    assert not any("share weights" in line for line in told)


def test_a_call_and_a_layer_of_one_name_are_refused() -> None:
    names = {"A": "block", "B": "block", "C": "block.2"}
    (problem,) = problems(renamed(names.__getitem__))
    assert carries(problem, "t: ", '"block.2"', '"block"')


def test_overlapping_layers_are_refused_with_both_names() -> None:
    found = case_events()
    places = []
    for k, one in enumerate(found):
        if one["name"] == "A" and one.get("cat") == "user_annotation":
            one["dur"] += 60
        places += [k] if one["name"] == "B" else []
    (problem,) = problems(found)
    assert problem.startswith(f't: $.traceEvents[{places[0]}]: "B" begins within "A" and ends after it')
    assert problems(found, layers=["B", "C"]) == [problem]
    assert [one.name for one in told_of(found, layers=["C"])[0]] == ["C"]


def test_an_overlap_of_less_than_rounding_is_none() -> None:
    found = case_events()
    first = next(one for one in found if one["name"] == "A")
    after = min(one["ts"] for one in found if one["name"] == "B" and one["ts"] > first["ts"])
    first["dur"] = after + 0.5 - first["ts"]
    assert figures(told_of(found)[0]) == figures(told_of(case_events())[0])


def test_events_that_stand_twice_count_once_and_are_told() -> None:
    layers, told = told_of([*case_events(), *case_events()])
    assert layers == told_of(case_events())[0]
    assert told[0].startswith("t: ") and carries(told[0], "events", "already")


def test_operations_of_two_processes_are_refused() -> None:
    other = [{**one, "pid": 7} for one in case_events()]
    (problem,) = problems([*case_events(), *other])
    assert carries(problem, "2 processes", '"5091"', '"7"')


def test_a_span_without_a_name_is_refused() -> None:
    (problem,) = problems(renamed(lambda name: "" if name == "B" else name))
    assert carries(problem, "empty", "names")


def test_control_characters_in_a_name_are_replaced_and_told() -> None:
    layers, told = told_of(renamed(lambda name: "a\x1b[31m\n" if name == "B" else name))
    assert layers[1].name == "a\ufffd[31m\ufffd"
    assert carries(told, "character", "3 names")


@pytest.mark.parametrize(("value", "shown"), [(-12.5, "-12.5"), (1e30, "1e+30"), (-(10**9), "-1000000000")])
def test_an_event_with_a_time_out_of_range_is_left_out_and_told(value: float, shown: str) -> None:
    found, wrong = (
        case_events(),
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": value},
    )
    expected, _ = told_of(found)
    layers, told = told_of([wrong, *found])
    assert layers == expected
    problem = f"t: $.traceEvents[0].dur: must be a number of microseconds from 0 to 1e+17; is {shown}"
    assert next(line for line in told if "left out" in line).endswith(f"are wrong and left out, first {problem}")
    assert problems([wrong]) == [problem]


@pytest.mark.slow
def test_calls_that_share_their_weights_are_told(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.A, self.B = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

        def forward(self, batch: Any) -> Any:
            for name in "ABA":
                with torch.profiler.record_function(name):
                    batch = getattr(self, name)(batch).relu()
            return batch

    network, told = Network(), []
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(2):
            network(torch.randn(8, 16)).sum().backward()
            optimiser.step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    layers = read_kineto_layers((tmp_path / "trace.json").read_bytes(), tell=told.append)
    assert [(one.name, one.parameter_bytes) for one in layers] == [("A.1", 4 * 17 * 16), ("B", 4 * 17 * 16), ("A.2", 0)]
    assert any(carries(line, '"A.2"', '"A.1"') for line in told)


def with_device(runtime: str, call: str, kind: str | None = "kernel") -> str:
    """Return the trace of a step whose operations each launch ten times their time, joined by correlation alone."""
    events: list[Event] = []
    for number, one in enumerate(step(1, 0)):
        events.append(one)
        if one["name"] in ("aten::addmm", "aten::mm", "aten::loss"):
            events.append(event(call, one["ts"] + 0.1, 0.2, runtime, one["tid"], correlation=number))
            if kind is not None:
                events.append(event("work", one["ts"] + 40, 10 * one["dur"], kind, 7, correlation=number))
    return trace(*events)


@pytest.mark.parametrize(
    ("runtime", "call"),
    [
        ("cuda_driver", "cuLaunchKernelEx"),
        ("hip_runtime", "hipLaunchKernel"),
        ("xpu_runtime", "urEnqueueKernelLaunch"),
        ("xpu_driver", "zeCommandListAppendLaunchKernel"),
        ("privateuse1_runtime", "launch"),
        ("privateuse1_driver", "launch"),
    ],
)
def test_kernels_of_every_maker_belong_to_the_call_that_launched_them(runtime: str, call: str) -> None:
    found = read_kineto_layers(with_device(runtime, call))
    assert [(one.name, one.forward_us) for one in found] == [("a", 20), ("b", 60 + 30)]


@pytest.mark.parametrize(
    ("runtime", "call", "kind", "shown"),
    [
        ("cuda_runtime", "cudaLaunchKernel", None, '3 of "cuda_runtime"'),
        ("cuda_driver", "cuLaunchKernel", None, '3 of "cuda_driver"'),
        ("hip_runtime", "hipExtModuleLaunchKernel", None, '3 of "hip_runtime"'),
        ("mtia_runtime", "runFunction", "mtia_ccp_events", '3 of "mtia_ccp_events"'),
        ("hpu_op", "run", None, '3 of "hpu_op"'),
        ("cuda_runtime", "cudaEventRecord", "cuda_profiler_range", '3 of "cuda_profiler_range"'),
    ],
)
def test_times_of_the_cpu_never_stand_for_those_of_a_device(
    runtime: str, call: str, kind: str | None, shown: str
) -> None:
    with refuses("empty t: $.traceEvents") as caught:
        read_kineto_layers(with_device(runtime, call, kind), source="t")
    assert carries(str(caught.value.problems[0]), "CPU") and shown in str(caught.value.problems[0])


FILE = Path(__file__).parents[1] / "data" / "trace.kineto.json"
LAYERS = ("layer:a", "layer:b", "layer:head")


def network(kind: str) -> tuple[Any, Any]:
    """Return the layers of a network, and a batch of it."""
    import torch
    from torch import nn

    class Block(nn.Module):
        """Attention before a perceptron, each after a normalisation and around it a sum."""

        def __init__(self, weighted: bool) -> None:
            super().__init__()
            self.weighted = weighted
            self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
            self.perceptron = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.1))

        def forward(self, batch: Any) -> Any:
            read = self.first(batch)
            batch = batch + self.attention(read, read, read, need_weights=self.weighted)[0]
            return batch + self.perceptron(self.second(batch))

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(32, 64, 2, batch_first=True)

        def forward(self, batch: Any) -> Any:
            return self.cells(batch)[0]

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, batch: Any) -> Any:
            return self.relu(batch + self.norm(self.convolution(batch)))

    words, images = torch.randn(4, 16, 32), torch.randn(4, 3, 16, 16)
    encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    layers = {
        "convolutions": [
            nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            Residual(),
            nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 8)),
        ],
        "attention": [Block(weighted=False), Block(weighted=True)],
        "encoder": [encoder, nn.TransformerEncoder(encoder, 2)],
        "lstm": [Recurrent(), nn.Linear(64, 8)],
    }[kind]
    return nn.ModuleList(layers), images if kind == "convolutions" else words


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["convolutions", "attention", "encoder", "lstm"])
def test_activations_are_about_what_autograd_keeps(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layers, first = network(kind)
    weights = {one.untyped_storage().data_ptr() for one in (*layers.parameters(), *layers.buffers())}
    kept: list[dict[int, int]] = [{} for _ in layers]
    alive: list[Any] = []

    def train() -> None:
        batch = first
        for k, layer in enumerate(layers):

            def pack(tensor: Any, k: int = k) -> Any:
                alive.append(tensor)
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in weights:
                    kept[k][storage.data_ptr()] = storage.nbytes()
                return tensor

            hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
            with torch.profiler.record_function(f"layer {k}"), hooks:
                batch = layer(batch)
        batch.sum().backward()

    train()
    true = [sum(one.values()) for one in kept]
    alive.clear()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        train()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    found = [one.activation_bytes for one in read_kineto_layers((tmp_path / "trace.json").read_bytes())]
    assert len(found) == len(true)
    for estimated, measured in zip(found, true, strict=True):
        assert 0.8 * measured <= estimated <= 1.25 * measured


def shapeless() -> str:
    """Return the trace as it is without `record_shapes`."""
    tree = json.loads(FILE.read_text())
    for one in tree["traceEvents"]:
        for key in ("Input Dims", "Input type"):
            one["args"].pop(key, None)
    return json.dumps(tree)


def test_activations_without_shapes_are_to_be_stated() -> None:
    parameters, activations = dict.fromkeys(LAYERS, 8), {name: 10 * k for k, name in enumerate(LAYERS)}
    told: list[str] = []
    found = read_kineto_layers(shapeless(), parameter_bytes=parameters, activation_bytes=activations, tell=told.append)
    assert [one.activation_bytes for one in found] == [0, 10, 20]
    assert not any("estimated" in line for line in told)
    with pytest.raises(InvalidInputError) as caught:
        read_kineto_layers(
            shapeless(), parameter_bytes=parameters, activation_bytes={"layer:b": 2**60, "x": 1}, source="t"
        )
    assert [str(one) for one in caught.value.problems] == [
        't: no operation has shapes, so activations are unknown of "layer:a", "layer:head" '
        "(profile with record_shapes=True, or state activations)",
        f't: layer "layer:b" has activations of 0 to {2**40} bytes, not {2**60}',
        't: activations of a layer "x", which there is not',
    ]


def test_one_large_layer_is_told_with_what_it_holds() -> None:
    events = [event("nn.Module: Net_0", 0.5, 96, "python_function")]
    for name, start, length in (
        ("Embedding_0", 1, 4),
        ("Encoder_0", 10, 80),
        ("Linear_0", 92, 4),
        ("Block_0", 11, 38),
        ("Block_1", 50, 38),
    ):
        events.append(event(f"nn.Module: {name}", start, length, "python_function"))
    for k, (start, length) in enumerate(((2, 2), (12, 30), (52, 30), (93, 2))):
        events.append(event("aten::mm", start, length, Sequence_number=k))
        events.append(event(NODE + "MmBackward0", 250 - 40 * k, 3, Sequence_number=k))
        events += gradient(255 - 40 * k, 1, 2)
    _, told = read(*events)
    wanted = 'has 85 % of the time: --layers chooses from what it holds, "Block_0", "Block_1"; name "Embedding_0"'
    assert any(wanted in line for line in told), told
