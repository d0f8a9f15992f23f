"""Load instances and workloads from their sources: a file, a name of the bundled library, or a family and a seed.

Bundled workloads are drawn, not traced, so that a first simulation needs no file: ``day`` has 60 jobs of 1 to 4 GPUs
that come within a day, ``week`` 300 of 1 to 8 within a week. Times between submissions are exponential with means of
1300 and 2000 s, durations lognormal around 22 and 33 min.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

from jigsaw_opt.documents import exists, load_instance
from jigsaw_opt.documents.file_bytes import read_file
from jigsaw_opt.documents.readers.table import Accept, anything
from jigsaw_opt.documents.readers.traces import READERS, read_trace
from jigsaw_opt.documents.readers.workload_csv import columns_of
from jigsaw_opt.documents.recognising import SIMULATED, expecting
from jigsaw_opt.errors import UsageError, malformed, wrong_input
from jigsaw_opt.instances.catalogue import load, names
from jigsaw_opt.instances.families import families, generate
from jigsaw_opt.problem.instance import Instance, Objective
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.text import nearest, readable, similar, suggestion

_FOLDER = Path(__file__).parent / "data" / "workloads"


def workload_names() -> tuple[str, ...]:
    """Return their names, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.csv")))


def bundled_workload(name: str) -> Path | None:
    """Return the file of a bundled workload; None where there is none of that name."""
    return _FOLDER / f"{name}.csv" if name in workload_names() else None


SIZES = ("servers", "gpus", "load", "bandwidth")
"""Numbers of a recipe that a user may set."""
OBJECTIVES: tuple[str, ...] = get_args(Objective)
_MOST_DIGITS = 18


def instance_from(source: str) -> Instance:
    """Return the instance in the file `source`, the bundled one of that name, or one of a family.

    `source`: A file, a name as in ``rack/plain``, or a family and a seed with changes of the recipe, as in ``rack:100``
    or ``cluster:3:load=400:objective=makespan``.
    """
    if not exists(source):
        if source.partition(":")[0] in families() and ":" in source:
            return _of_family(source)
        if source in names():
            return load(source)
        if source in workload_names():
            hint = f"it is taken by jigsaw simulate --workload {source}{SIMULATED}, and jigsaw new --jobs {source}"
            raise wrong_input(source, "is a bundled workload, not an instance", hint, code="unknown-format")
        hint = _hint(source)
        if hint:
            raise wrong_input(source, "there is no such file, bundled instance or family", hint, code="unknown-name")
    return load_instance(source)


def workload_path(source: str) -> str | Path:
    """Return the file `source` of a workload, or that of the bundled one of that name."""
    found = None if exists(source) else bundled_workload(source)
    if found is None and not exists(source):
        if source in names():
            hint = f"it is taken by jigsaw solve {source}, and --cluster {source}"
            raise wrong_input(source, "is a bundled instance, not a workload", hint, code="unknown-format")
        hint = suggestion(source, workload_names())
        if hint:
            raise wrong_input(source, "there is no such file or bundled workload", hint, code="unknown-name")
    return found or source


def workload_from(source: str, columns: str = "", accept: Accept = anything) -> Workload:
    """Return the jobs in the file `source` or ``FORMAT:FILE``, or of the bundled workload of that name.

    `columns`: what a file in our own format calls its columns. `accept`: yields what else is wrong with a job.
    """
    theirs = columns_of(columns)
    name, colon, file = source.partition(":")
    if colon and name not in READERS and name.isalnum() and not exists(source):
        raise UsageError(
            f"no format {name!r} of traces; {nearest(name, sorted(READERS))}", code="unknown-value", path="workload"
        )
    if name not in READERS or not file:
        name, file = "csv", source
    data, place = read_file(workload_path(file)), readable(file)
    # What is wrong with columns that the caller names is said of them.
    with nullcontext() if theirs else expecting(data, place, name):
        return read_trace(name, data, place, accept, theirs)


def _hint(source: str) -> str:
    """Return which name or family may have been meant."""
    family, colon, rest = source.partition(":")
    if not colon:
        return suggestion(source, [*names(), *(f"{known}:0" for known in families())])
    near = similar(family, families())
    return "" if near is None else f"did you mean '{near}:{rest}'?"


def generated(family: str, seed: int, changes: Mapping[str, int | str]) -> Instance:
    """Return the instance of a family and seed, with `SIZES` and the objective as the user wants them."""
    for name, value in changes.items():
        if name == "objective" and value not in OBJECTIVES:
            raise UsageError(
                f"no objective {value!r}; {nearest(str(value), OBJECTIVES)}", code="unknown-value", path="objective"
            )
        if isinstance(value, int) and value < 1:
            raise UsageError(f"{name} is at least 1, not {value}", code="out-of-range")
    return generate(family, seed, **changes)


def _of_family(source: str) -> Instance:
    family, seed, *changes = source.split(":")
    if not _is_number(seed):
        raise malformed("seed", f"{source}: the seed is a whole number of at most {_MOST_DIGITS} digits, not {seed!r}")
    stated = dict(_change(source, change) for change in changes)
    return generated(family, int(seed), stated)


def _is_number(text: str) -> bool:
    """Return whether it is a whole number of a length that anybody means."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _change(source: str, change: str) -> tuple[str, int | str]:
    name, _, value = change.partition("=")
    if name == "objective":
        return name, value
    if name not in SIZES or not _is_number(value):
        known = f"NAME=N with {', '.join(SIZES)}, or objective=NAME"
        told = f"{source}: a change is {known}, not {change!r}"
        hint = None if name in SIZES else suggestion(name, (*SIZES, "objective"))
        raise UsageError(f"{told}; {hint}" if hint else told, code="malformed")
    return name, int(value)
