"""Events of a PyTorch profiler trace (Kineto, Chrome trace format) as spans that hold one another.

A span is a complete event (``"ph": "X"``). Spans of one thread are nested by their times. What a GPU does is work of
the span that launched it: the call of the runtime with its ``correlation``, or else the operation with its
``External id``.

PyTorch writes the next number of a thread's sequence on every operation that it runs while gradients are recorded. The
operation that makes a node of the backward pass takes the number, so it is the last that bears it before the node runs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from jigsaw_opt.documents.file_bytes import unpacked
from jigsaw_opt.documents.readers.kineto.foreign_json import parsed_foreign
from jigsaw_opt.documents.readers.tally import MOST_SPARED, is_hopeless
from jigsaw_opt.errors import Problem
from jigsaw_opt.problem.rules.report import Place, Report, describe, quoted
from jigsaw_opt.text import Tell

OP = "cpu_op"
MODULE = "nn.Module: "
"""How the name of a span of a module begins."""
NODE = "autograd::engine::evaluate_function: "
"""How the name of a node of the backward pass begins."""
_ANNOTATION, _PYTHON = "user_annotation", "python_function"
_LAUNCHES = frozenset(
    {"hip_runtime", *(f"{kind}_{call}" for kind in ("cuda", "xpu", "privateuse1") for call in ("runtime", "driver"))}
)
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_UNREAD = frozenset({"mtia_ccp_events", "mtia_runtime", "hpu_op", "glow_runtime", "cuda_profiler_range"})
"""Work of devices, and calls for it, in forms that do not say which operation asked for it."""
_LAUNCH = re.compile("launch", re.IGNORECASE)
"""In the name of a call that gives a device work: of the others, some stand in every trace of a host with a GPU."""
_KNOWN = (OP, _ANNOTATION, _PYTHON, *_LAUNCHES, *_DEVICE)
_COMMUNICATION, _COLLECTIVE = "nccl", "c10d::"
_ONE_PROCESS = "convert the trace of one of them"
_LOST = "times of the CPU would stand for them: profile the kernels, or take the device's activity out of the profile"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST_US = 1e17
_ROUNDING_US = 1.0
"""By how much a span may end after the one that holds it: some versions of PyTorch write whole microseconds."""


@dataclass(slots=True, eq=False)
class TraceSpan:
    """A complete event; times in microseconds.

    `place`: place of the event in the document. `parent`: the least span of the same thread that holds it.
    """

    place: Place
    name: str
    category: str
    start: float
    duration: float
    arguments: Mapping[str, Any]
    thread: tuple[Any, Any]
    parent: TraceSpan | None = field(default=None, repr=False)

    @property
    def end(self) -> float:
        """Its end, in microseconds."""
        return self.start + self.duration

    @property
    def sequence(self) -> int | None:
        """Its sequence number, which an operation and its node of the backward pass share."""
        number = self.arguments.get("Sequence number")
        return number if type(number) is int and number >= 0 else None

    @property
    def is_node(self) -> bool:
        """Whether it is the run of a node of the backward pass."""
        return self.name.startswith(NODE)

    @property
    def is_recorded(self) -> bool:
        """Whether it is an operation that ran while gradients were recorded, and no node or the node's own function."""
        if self.category != OP or self.sequence is None or self.is_node:
            return False
        return self.parent is None or not self.parent.is_node or self.parent.sequence != self.sequence

    @property
    def is_annotation(self) -> bool:
        """Whether it is one of ``record_function``."""
        return self.category == _ANNOTATION

    @property
    def is_module(self) -> bool:
        """Whether it is a call of a module."""
        return self.category == _PYTHON

    def above(self) -> Iterator[TraceSpan]:
        """Yield it and all spans that hold it, from the inside out."""
        span: TraceSpan | None = self
        while span is not None:
            yield span
            span = span.parent


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans and the work of a trace.

    `spans`: spans of the CPU, by their start. `work`: what takes time, each with the span that it belongs to: what the
    GPU does, without communication; or, where there is no GPU, the outermost operations that hold no annotation, no
    module and no communication. `makers`: the operation that made a node, by span of the node; only nodes that have
    run. `unknown_us`: microseconds of what a GPU does and nothing is known to have launched. `crossings`: pairs of
    spans of one thread of which the second begins in the first and ends after it.
    """

    spans: tuple[TraceSpan, ...]
    work: tuple[tuple[TraceSpan, float], ...]
    makers: Mapping[TraceSpan, TraceSpan]
    unknown_us: float = 0.0
    crossings: tuple[tuple[TraceSpan, TraceSpan], ...] = ()


def read_trace_events(data: bytes | str, source: str, tell: Tell) -> Trace:
    """Return the spans of a trace, which may be compressed.

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    found: list[TraceSpan] = []
    root = f"{source}: $.traceEvents"

    def read(tree: Any, report: Report) -> None:
        events = tree.get("traceEvents") if isinstance(tree, Mapping) else None
        if not isinstance(events, list):
            report.add(root, f"the list of events is expected, not {describe(events)}", code="wrong-type")
            return
        spans = list(_spans(events, root, report, lambda told: tell(f"{source}: {told}")))
        _check_device(events, root, report)
        if replaced := sum(map(_replace_controls, spans)):
            tell(f"{source}: replaced: a control character in a name ({replaced} names)")
        found.extend(_once(spans))
        if twice := len(spans) - len(found):
            tell(f"{source}: {twice} of {len(spans)} events stand there already: each counts once")
        processes = dict.fromkeys(one.thread[0] for one in found if one.category == OP)
        if len(processes) > 1:
            names = ", ".join(map(quoted, processes))
            wrong = f"there are operations of {len(processes)} processes, {names}"
            report.add(root, wrong, _ONE_PROCESS, code="ambiguous")

    parsed_foreign(unpacked(data, source) if isinstance(data, bytes) else data, source, read, tell)
    # Of spans that start together the longest comes first, for it holds the others.
    host = sorted((one for one in found if one.category not in _DEVICE), key=lambda one: (one.start, -one.duration))
    crossings = tuple(_nest(host))
    device = [one for one in found if one.category in _DEVICE and not one.name.startswith(_COMMUNICATION)]
    if not any(one.category in _DEVICE for one in found):
        return Trace(tuple(host), tuple(_outermost(host)), _makers(host), crossings=crossings)
    work = tuple(_of_device(device, host))
    unknown = sum(one.duration for one in device) - sum(duration for _, duration in work)
    return Trace(tuple(host), work, _makers(host), unknown, crossings)


def _spans(events: Sequence[Any], root: str, report: Report, tell: Tell) -> Iterator[TraceSpan]:
    """Yield the complete events of known kinds, without those that are wrong, unless hardly any is right."""
    wrong: list[Problem] = []
    count = right = 0
    for k, event in enumerate(events):
        found = Report()
        span = _span((root, k), event, found)
        if found.problems:
            count += 1
            wrong += found.problems[: MOST_SPARED - len(wrong)]
        elif span is not None:
            right += 1
            yield span
    if is_hopeless(count, right):
        report.problems.extend(wrong)
    elif count:
        tell(f"{count} of {count + right} events are wrong and left out, first {wrong[0]}")


def _check_device(events: Sequence[Any], root: str, report: Report) -> None:
    """Note that a device worked, where the trace does not hold what it did."""
    lost: Counter[str] = Counter()
    for event in events:
        kind = event.get("cat") if isinstance(event, Mapping) and event.get("ph") == "X" else None
        if not isinstance(kind, str):
            continue
        if kind in _DEVICE:
            return
        if kind in _UNREAD or (kind in _LAUNCHES and _LAUNCH.search(str(event.get("name")))):
            lost[kind] += 1
    if lost:
        told = ", ".join(f"{number} of {quoted(kind)}" for kind, number in lost.items())
        wrong = f"no event says what the device did, beside events that it worked: {told}"
        report.add(root, wrong, _LOST, code="empty")


def _replace_controls(span: TraceSpan) -> bool:
    """Replace the control characters in a name by U+FFFD; return whether it had any."""
    before = span.name
    if not before.isprintable():
        span.name = _CONTROL.sub("\ufffd", before)
    return span.name != before


def _once(spans: Iterable[TraceSpan]) -> Iterator[TraceSpan]:
    """Yield the spans without those that repeat an earlier one in everything, as where a trace was joined to itself."""
    known: dict[tuple[Any, ...], list[TraceSpan]] = defaultdict(list)
    for span in spans:
        alike = known[span.name, span.category, span.thread, span.start, span.duration]
        if not span.duration or all(one.arguments != span.arguments for one in alike):
            alike.append(span)
            yield span


def _span(place: Place, event: Any, report: Report) -> TraceSpan | None:
    """Return a complete event of a known kind; None of any other."""
    if not isinstance(event, Mapping) or event.get("ph") != "X" or event.get("cat") not in _KNOWN:
        return None
    name, arguments = event.get("name"), event.get("args", {})
    if not isinstance(name, str):
        report.add((place, "name"), f"a text is expected, not {describe(name)}", code="wrong-type")
        return None
    if event["cat"] == _PYTHON and not name.startswith(MODULE):
        return None
    if not isinstance(arguments, Mapping):
        report.add((place, "args"), f"an object is expected, not {describe(arguments)}", code="wrong-type")
        arguments = {}
    thread = (str(event.get("pid")), str(event.get("tid")))
    start, duration = (_time(event.get(key), (place, key), report) for key in ("ts", "dur"))
    return TraceSpan(place, name, event["cat"], start, duration, arguments, thread)


def _time(value: Any, place: Place, report: Report) -> float:
    if type(value) not in (int, float) or (isinstance(value, float) and not isfinite(value)):
        report.add(place, f"a number of microseconds is expected, not {describe(value)}", code="wrong-type")
    elif not 0 <= value <= _MOST_US:
        shown = describe(value) if isinstance(value, int) else repr(value)
        report.add(place, f"must be a number of microseconds from 0 to {_MOST_US:.0e}; is {shown}", code="out-of-range")
    else:
        return float(value)
    return 0.0


def _nest(spans: Iterable[TraceSpan]) -> Iterator[tuple[TraceSpan, TraceSpan]]:
    """Set the parents of spans that are sorted by start; yield those that end after their parent, behind it."""
    open_spans: dict[tuple[Any, Any], list[TraceSpan]] = defaultdict(list)
    for span in spans:
        stack = open_spans[span.thread]
        while stack and _is_over(stack[-1], span):
            stack.pop()
        span.parent = stack[-1] if stack else None
        if span.parent is not None and span.end > span.parent.end + _ROUNDING_US:
            yield span.parent, span
        stack.append(span)


def _is_over(earlier: TraceSpan, later: TraceSpan) -> bool:
    """Return whether a span ends before another one begins, but for rounding."""
    shared, beyond = earlier.end - later.start, later.end - earlier.end
    return shared <= 0 or (shared <= _ROUNDING_US and shared < beyond)


def _outermost(spans: Sequence[TraceSpan]) -> Iterator[tuple[TraceSpan, float]]:
    """Yield the outermost operations; what one that communicates or holds annotations or modules holds counts."""
    held = (one for one in spans if one.is_annotation or one.is_module or one.name.startswith(_COLLECTIVE))
    python = {above for span in held for above in span.above()}
    for span in spans:
        if span.category == OP and span not in python:
            above = (one for one in span.above() if one is not span and one not in python)
            if not any(one.category == OP for one in above):
                yield span, span.duration


def _makers(spans: Iterable[TraceSpan]) -> dict[TraceSpan, TraceSpan]:
    """Return by node the last operation with its sequence number before it.

    Every thread counts for itself. Which thread a node means by its `Fwd thread id` is learnt from nodes whose number
    one thread alone has used.
    """
    latest: dict[int, dict[tuple[Any, Any], TraceSpan]] = defaultdict(dict)
    threads: dict[Any, tuple[Any, Any]] = {}
    found: dict[TraceSpan, TraceSpan] = {}
    for span in spans:
        number = span.sequence
        if number is None:
            continue
        if span.is_recorded:
            latest[number][span.thread] = span
        elif span.is_node and (known := latest.get(number)):
            forward = str(span.arguments.get("Fwd thread id"))
            if len(known) == 1:
                # One thread alone has used the number, so that is the node's forward thread, here and later.
                threads[forward] = next(iter(known))
            found[span] = known.get(threads.get(forward, ("", ""))) or max(known.values(), key=lambda one: one.start)
    return found


def _of_device(device: Iterable[TraceSpan], host: Iterable[TraceSpan]) -> Iterator[tuple[TraceSpan, float]]:
    """Yield work of a GPU with the span that launched it; what nothing is known to have launched is left out."""
    launches: dict[str, TraceSpan] = {}
    operations: dict[str, TraceSpan] = {}
    for span in host:
        if span.category in _LAUNCHES:
            launches[_key(span, "correlation")] = span
        elif span.category == OP:
            operations[_key(span, "External id")] = span
    for known in (launches, operations):
        # An empty key stands for spans without such a number, which must not be joined.
        known.pop("", None)
    for work in device:
        launch = launches.get(_key(work, "correlation")) or operations.get(_key(work, "External id"))
        if launch is not None:
            yield launch, work.duration


def _key(span: TraceSpan, name: str) -> str:
    """Return a number that joins spans, as text; empty where there is none."""
    return str(span.arguments.get(name, ""))
