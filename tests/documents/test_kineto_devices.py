"""Work of devices of several makers in a PyTorch profiler trace, and traces that have lost it."""

from __future__ import annotations

from typing import Any

import pytest

from jigsaw_opt.documents.readers import read_kineto_layers
from tests.documents.test_kineto import Event, event, step, trace
from tests.refusals import carries, refuses


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


def test_a_host_with_an_idle_device_counts_its_own_times() -> None:
    idle: list[Any] = [event("cudaDeviceSynchronize", 85, 3, "cuda_runtime")]
    assert read_kineto_layers(trace(*step(1, 0), *idle)) == read_kineto_layers(trace(*step(1, 0)))


def test_a_number_as_c_prints_it_is_mended_and_told() -> None:
    text = with_device("cuda_runtime", "cudaLaunchKernel")
    for odd in ("inf", "-nan", "7,757576", "1,5e-05"):
        told: list[str] = []
        mended = text.replace('"correlation": 3', f'"blocks per SM": {odd}, "correlation": 3')
        assert read_kineto_layers(mended, source="t", tell=told.append) == read_kineto_layers(text)
        assert "t: replaced: a number that is none of JSON (2 times)" in told
