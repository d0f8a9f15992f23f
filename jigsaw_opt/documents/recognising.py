"""Recognise the form of a text, for whoever gave it to a reader of something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from jigsaw_opt.documents.file_bytes import unpacked_head
from jigsaw_opt.documents.readers.traces import READERS
from jigsaw_opt.errors import InvalidInputError, wrong_input

_HEAD = 65_536
_TOPOLOGY = re.compile(r"(?:\s|\x1b\[[0-9;]*m)*GPU0\s")
_MODEL = re.compile(r'\s*\{.*"segments"\s*:', re.DOTALL)
_OF_MORE = re.compile(r'"(format|cluster|jobs)"\s*:')
"""Keys of documents that a model may be a part of."""
_RUN = ('"instance_sha256"', '"solver"')
_LAYER = re.compile(r"\s*\w+\{.*\}\[[0-9]+\]\[?[0-9]")
_STATEMENT = re.compile(rb'"format"\s*:\s*"jigsaw-([a-z]{1,20}(?:-[a-z]{1,20})?)/')


class Form(NamedTuple):
    """A kind of content that a file may have.

    `what`: what it is called in a sentence. `taken`: the command that takes the file, which stands in it as ``FILE``.
    """

    what: str
    taken: str


SIMULATED = " --cluster 2x4 --policy fifo -o results"
"""What a command that simulates a workload needs besides, as an example."""
_SAME_AS = {"itp": "elasticflow", "sia": "pollux"}
_CONVERTED = {
    "deeppool": "a profile of DeepPool",
    "huggingface": "a config.json of a model",
    "jsplib": "a job shop of JSPLIB",
    "kineto": "a trace of the PyTorch profiler",
    "pipedream": "a profile of PipeDream",
}
FORMS: Mapping[str, Form] = {
    "instance": Form("an instance", "jigsaw solve FILE, and --cluster FILE"),
    "plan": Form("a plan", "jigsaw check INSTANCE FILE"),
    "phased-plan": Form("a phased plan", "jigsaw check INSTANCE FILE"),
    "replay": Form("a replay of a plan", "jigsaw plot INSTANCE PLAN --replay FILE"),
    "phased-replay": Form("a replay of a phased plan", "jigsaw export INSTANCE PLAN --to perfetto --replay FILE"),
    "partition": Form("a partition", "jigsaw pipeline FILE"),
    "layers": Form("a layer profile", "jigsaw partition FILE, and jigsaw pipeline FILE --stages N"),
    "model": Form("a model of an instance", "jigsaw new --profile NAME=FILE, and jigsaw partition FILE"),
    "proof": Form("a proof of a bound", "jigsaw check INSTANCE --proof FILE"),
    "result": Form("a result file", "jigsaw bench … --against FILE"),
    **{
        name: Form(reader.what, f"jigsaw simulate --workload {name}:FILE{SIMULATED}")
        for name, reader in READERS.items()
        if name not in _SAME_AS
    },
    "csv": Form(READERS["csv"].what, f"jigsaw simulate --workload FILE{SIMULATED}, and jigsaw new --jobs FILE"),
    "sinfo": Form("nodes of Slurm (sinfo)", "--cluster sinfo:FILE"),
    "nvidia-smi": Form("a matrix of GPUs (nvidia-smi topo -m)", "--cluster nvidia-smi:FILE"),
    **{name: Form(what, f"jigsaw convert {name} FILE") for name, what in _CONVERTED.items()},
}
"""Every form that is recognised, by its name: kinds of documents, formats of traces, clusters and models."""
_DOCUMENTS = frozenset({"instance", "plan", "phased-plan", "replay", "phased-replay", "partition", "layers", "proof"})
_MARKS: Mapping[str, Callable[[str], int]] = {
    "model": lambda head: int(_MODEL.match(head) is not None and _OF_MORE.search(head) is None),
    "result": lambda head: int(all(key in head for key in _RUN) and _OF_MORE.search(head) is None),
    "sinfo": lambda head: 2 * head.startswith("NODELIST|GRES"),
    "nvidia-smi": lambda head: int(_TOPOLOGY.match(head) is not None),
    "deeppool": lambda head: int(_LAYER.match(head) is not None),
    "huggingface": lambda head: int('"model_type"' in head),
    "jsplib": lambda head: int(_is_shop(head)),
    "kineto": lambda head: int('"traceEvents"' in head),
    "pipedream": lambda head: int(" -- forward_compute_time=" in head),
}


@contextmanager
def expecting(data: bytes | str, source: str, *forms: str) -> Iterator[None]:
    """Say what a text is where the block cannot read it and it looks like something else."""
    try:
        yield
    except InvalidInputError as error:
        wanted = tuple(dict.fromkeys(_SAME_AS.get(form, form) for form in forms))
        # A table is known by the name of its file, where a document in JSON is wanted.
        by_name = "csv" if source.lower().endswith(".csv") and _DOCUMENTS.issuperset(wanted) else None
        found = likely_form(data) or by_name
        if found is None or any(_resemblance(form, _head(data)) for form in wanted) or found in wanted:
            raise
        message = f"looks like {FORMS[found].what}, not {' or '.join(FORMS[form].what for form in wanted)}"
        hint = f"it is taken by {FORMS[found].taken.replace('FILE', source)}"
        raise wrong_input(source, message, hint, code="unknown-format") from error


def likely_form(data: bytes | str) -> str | None:
    """Return the form in `FORMS` that a text most resembles, however broken the rest is; None for none."""
    kind = stated_kind(data)
    if kind in FORMS:
        return kind
    head = _head(data)
    likeness = {name: _resemblance(name, head) for name in FORMS}
    best = max(likeness, key=likeness.__getitem__)
    return best if likeness[best] else None


def stated_kind(data: bytes | str) -> str | None:
    """Return the kind of document that the first ``format`` states, as ``phased-plan``, however broken the rest is."""
    found = _STATEMENT.search(data if isinstance(data, bytes) else data.encode(errors="replace"))
    return found[1].decode() if found else None


def _head(data: bytes | str) -> str:
    """Return the beginning of a text."""
    part = unpacked_head(data, _HEAD).decode(errors="replace") if isinstance(data, bytes) else data[:_HEAD]
    return part.removeprefix("\ufeff")


def _is_shop(head: str) -> bool:
    """Return whether a text has, behind comments, numbers of jobs and machines, and then pairs of numbers."""
    lines = (line.split() for line in head.splitlines() if not line.lstrip().startswith("#"))
    first, row = [*(words for words in lines if words), [], []][:2]
    return len(first) == 2 and len(row) > 0 == len(row) % 2 and all(map(str.isdecimal, (*first, *row)))


def _resemblance(form: str, head: str) -> int:
    """Return how many marks of a form stand at the beginning of a text; 0 where any of them is missing."""
    if form in _MARKS:
        return _MARKS[form](head)
    return READERS[form].resembles(head) if form in READERS else 0
