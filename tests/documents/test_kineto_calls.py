"""Traces whose spans overlap, repeat a name, or stand there twice: nothing of them is swallowed."""

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
from tests.refusals import carries

CASE = Path(__file__).parents[1] / "data/cases/kineto/t_rf.json.gz"
Event = dict[str, Any]


def events() -> list[Event]:
    found: list[Event] = json.loads(gzip.decompress(CASE.read_bytes()))["traceEvents"]
    return found


def renamed(to: Callable[[str], str]) -> list[Event]:
    """The case with other names of its layers A, B and C."""
    found = events()
    for one in found:
        if one.get("cat") == "user_annotation" and one["name"] in "ABC":
            one["name"] = to(one["name"])
    return found


def read(found: list[Event], **options: Any) -> tuple[tuple[MeasuredLayer, ...], list[str]]:
    told: list[str] = []
    layers = read_kineto_layers(json.dumps({"traceEvents": found}), source="t", tell=told.append, **options)
    return layers, told


def problems(found: list[Event], **options: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(found, **options)
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
    layers, told = read(renamed(to))
    assert [one.name for one in layers] == names
    assert figures(layers) == figures(read(events())[0])
    assert any(carries(line, "times", "pass") for line in told)
    assert not any("share weights" in line for line in told)


def test_calls_that_are_named_alone_are_numbered_too() -> None:
    layers, _ = read(renamed(lambda name: "A" if name == "C" else name), layers=["A"])
    assert [one.name for one in layers] == ["A.1", "A.2"]


def test_a_call_and_a_layer_of_one_name_are_refused() -> None:
    names = {"A": "block", "B": "block", "C": "block.2"}
    (problem,) = problems(renamed(names.__getitem__))
    assert carries(problem, "t: ", '"block.2"', '"block"')


def test_overlapping_layers_are_refused_with_both_names() -> None:
    found = events()
    places = []
    for k, one in enumerate(found):
        if one["name"] == "A" and one.get("cat") == "user_annotation":
            one["dur"] += 60
        places += [k] if one["name"] == "B" else []
    (problem,) = problems(found)
    assert problem.startswith(f't: $.traceEvents[{places[0]}]: "B" begins within "A" and ends after it')
    assert problems(found, layers=["B", "C"]) == [problem]
    assert [one.name for one in read(found, layers=["C"])[0]] == ["C"]


def test_an_overlap_of_less_than_rounding_is_none() -> None:
    found = events()
    first = next(one for one in found if one["name"] == "A")
    after = min(one["ts"] for one in found if one["name"] == "B" and one["ts"] > first["ts"])
    first["dur"] = after + 0.5 - first["ts"]
    assert figures(read(found)[0]) == figures(read(events())[0])


def test_events_that_stand_twice_count_once_and_are_told() -> None:
    layers, told = read([*events(), *events()])
    assert layers == read(events())[0]
    assert told[0].startswith("t: ") and carries(told[0], "events", "already")


def test_operations_of_two_processes_are_refused() -> None:
    other = [{**one, "pid": 7} for one in events()]
    (problem,) = problems([*events(), *other])
    assert carries(problem, "2 processes", '"5091"', '"7"')


def test_a_span_without_a_name_is_refused() -> None:
    (problem,) = problems(renamed(lambda name: "" if name == "B" else name))
    assert carries(problem, "empty", "names")


def test_control_characters_in_a_name_are_replaced_and_told() -> None:
    layers, told = read(renamed(lambda name: "a\x1b[31m\n" if name == "B" else name))
    assert layers[1].name == "a\ufffd[31m\ufffd"
    assert carries(told, "character", "3 names")


@pytest.mark.parametrize(("value", "shown"), [(-12.5, "-12.5"), (1e30, "1e+30"), (-(10**9), "-1000000000")])
def test_an_event_with_a_time_out_of_range_is_left_out_and_told(value: float, shown: str) -> None:
    found, wrong = events(), {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": value}
    expected, _ = read(found)
    layers, told = read([wrong, *found])
    assert layers == expected
    problem = f"t: $.traceEvents[0].dur: must be a number of microseconds from 0 to 1e+17; is {shown}"
    assert next(line for line in told if "left out" in line).endswith(f"are wrong and left out, first {problem}")
    assert problems([wrong]) == [problem]


def profile(network: Any, batch: Any, file: Path) -> tuple[tuple[MeasuredLayer, ...], list[str]]:
    """The layers of two steps of a network."""
    torch = pytest.importorskip("torch")
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(2):
            network(batch).sum().backward()
            optimiser.step()
    profiler.export_chrome_trace(str(file))
    told: list[str] = []
    return read_kineto_layers(file.read_bytes(), tell=told.append), told


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

    layers, told = profile(Network(), torch.randn(8, 16), tmp_path / "trace.json")
    assert [(one.name, one.parameter_bytes) for one in layers] == [("A.1", 4 * 17 * 16), ("B", 4 * 17 * 16), ("A.2", 0)]
    assert any(carries(line, '"A.2"', '"A.1"') for line in told)


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [False, True])
def test_calls_that_are_computed_again_are_the_same_layers(tmp_path: Path, reentrant: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(torch.nn.Linear(size, size + 8) for size in (8, 16, 24, 32))

        def two(self, first: int, batch: Any) -> Any:
            for part in self.parts[first : first + 2]:
                with torch.profiler.record_function("block"):
                    batch = part(batch).relu()
            return batch

        def forward(self, batch: Any) -> Any:
            for first in (0, 2):
                batch = checkpoint(self.two, first, batch, use_reentrant=reentrant)
            return batch

    layers, _ = profile(Network(), torch.randn(4, 8, requires_grad=reentrant), tmp_path / "trace.json")
    assert [one.name for one in layers] == [f"block.{k}" for k in (1, 2, 3, 4)]
    assert [one.parameter_bytes for one in layers] == [4 * (size + 1) * (size + 8) for size in (8, 16, 24, 32)]
    assert [one.activation_bytes for one in layers] == [4 * 4 * 8, 0, 4 * 4 * 24, 0]
    assert all(one.forward_us > 0 and one.backward_us > 0 for one in layers)
