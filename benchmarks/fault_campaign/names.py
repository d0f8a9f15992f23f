"""Names from an enemy: for the terminal, for a spreadsheet, for a page. They arrive as text everywhere."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from .contract import FAULT, Campaign, Part, Trial, first
from .documents import Json, instance, job, models, servers, written
from .launch import raw, tried

_NAMES = (
    "\x1b[2J\x1b[31mred\x9b31mred first\rsecond bell\x07\x08\x08\x7f\x1b]0;title\x07"
    "\u202eright to left\u2066\u2069\u200f\u061ca line\u2028\u2029\u0085\n",
    "{{data}}{{title}}<|script><script>alert(1)<|script><!--<b>bold<|b>&amp;[red]markup[|red] [link=x]"
    '%s {0} $HOME `id`quotes " and \\',
    *("=cmd|' -C calc'!A0", "+1+1", "-1-1", "@sum(a1)", "\t=1+1"),
)
"""Controls, markup and formulas; a name has no slash."""
_ACTIVE = re.compile(r"^[\t\r ]*[=+\-@]")
_NUMBER = re.compile(r"^[+-]?[0-9.]+(e[+-]?[0-9]+)?$")


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Every command that prints or writes, with names of every kind."""
    for name in _NAMES[: campaign.times(len(_NAMES))]:
        yield from _views(campaign.fresh("names"), name, f"the name {name!a}")


def _views(folder: Path, name: str, how: str) -> Iterator[Trial]:
    source, wide, wrong = (folder / f"{kind}.json" for kind in ("instance", "wide", "wrong"))
    for path, document in ((source, _named(name)), (wide, _named(name, 99)), (wrong, _wrong(name))):
        written(document, path)
    plan, page, program = folder / "plan.json", folder / "plan.html", folder / "program.lp"
    greedy, export = ("solve", source, "--solver", "greedy"), ("export", source)
    bench = ("bench", source, "--solvers", "greedy", "-v", "-o", folder / "bench")
    commands: tuple[tuple[tuple[object, ...], set[int]], ...] = (
        ((*greedy, "-v", "--timeline", "-o", plan), {0}),
        ((*greedy, "--json", "-q"), {0}),
        (("solve", wide), {4}),
        (("validate", wrong), {3}),
        (("solve", wrong), {3}),
        (("check", source, plan), {0}),
        (("check", wide, plan), {7}),
        (("plot", source, plan), {0}),
        (("solve", f"{name}.json"), {2, 3}),
        (("solve", source, "--solver", name), {2}),
        (bench, {0}),
        # Not everything is a name to the reader of tables, as lines end where a cell does.
        (_simulation(folder, name, 1), {0, 3}),
        (_simulation(folder, name, 99), {3}),
        (("plot", source, plan, "-o", page), {0}),
        ((*export, plan, "--to", "perfetto", "-o", folder / "trace.json"), {0}),
        ((*export, "--to", "lp", "-o", program), {0}),
    )
    for words, codes in commands:
        yield tried(str(words[0]), folder, words, codes, how=how)
    files: dict[str, Callable[[str], str]] = {
        "*/*.csv": _cells,
        "plan.html": lambda text: _page(text, name),
        "simulated1/report.html": lambda text: _page(text, name),
        "trace.json": lambda text: _named_in(text, name),
        "program.lp": raw,
    }
    for pattern, holds in files.items():
        for path in folder.glob(pattern):
            yield Trial(path.name, holds(path.read_bytes().decode()), how, counts=FAULT, files=(path,))


def _named(name: str, workers: int = 2) -> Json:
    """Every name of an instance is this one."""
    net = models(2)["net"]
    for k, segment in enumerate(net["segments"]):
        segment.update(name=f"{name}{k}", forward_us={name: 300}, backward_us={name: 600})
    places = [{**server, "name": name + server["name"][1:], "gpu_type": name} for server in servers(1, 2)]
    jobs = [{**job(name, workers), "model": name}, {**job(f"{name}b"), "model": name}]
    made = instance(jobs, places, {name: net}, name=name)
    made["cluster"]["switches"] = [f"{name}hub"]
    for link, place in zip(made["cluster"]["links"], places):
        link.update(name=name + link["name"], ends=[place["name"], f"{name}hub"])
    return made


def _wrong(name: str) -> Json:
    """Names where none belong, and keys that are none."""
    made = _named(name)
    made["jobs"][0] |= {"model": f"{name}?", "depth": {"rule": name}, name: 1}
    made["jobs"][1]["name"] = name
    return {**made, "horizon": name, name: name}


def _simulation(folder: Path, name: str, gpus: int) -> tuple[object, ...]:
    work = folder / f"trace{gpus}.csv"
    with work.open("w", newline="") as stream:
        csv.writer(stream).writerows((("name", "submit_s", "model", "gpus", "iterations"), (name, 0, name, gpus, 100)))
    return ("simulate", "--workload", work, "--cluster", "2x4", "--policy", "fifo", "-o", folder / f"simulated{gpus}")


def active_cells(text: str) -> list[str]:
    """Cells of a table in CSV that a spreadsheet takes for formulas."""
    cells = (cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row)
    return [cell for cell in cells if _ACTIVE.match(cell) and not _NUMBER.match(cell)]


def _cells(text: str) -> str:
    cells = active_cells(text)
    return f"a cell that a spreadsheet runs: {cells[0]!a}" if cells else ""


class _Page(HTMLParser):
    """The data of a page, and how many scripts it has."""

    data, scripts, inside = "", 0, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = ("id", "data") in attrs
        self.scripts += tag == "script"

    def handle_data(self, data: str) -> None:
        self.data += data if self.inside else ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


def _page(text: str, name: str) -> str:
    page = _Page()
    page.feed(text)
    return first(_named_in(page.data, name), f"{page.scripts} scripts" if page.scripts != 2 else "")


def _named_in(text: str, name: str) -> str:
    """Whether data in JSON has a name in it, as it is or with what cannot be seen written out."""
    try:
        found = json.dumps(json.loads(text))
    except ValueError as error:
        return f"the data cannot be read: {error}"
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name.strip())
    forms = (json.dumps(form)[1:-1] for form in (name.strip(), shown))
    return "" if any(form in found for form in forms) else "the name is not in the data"


PARTS = (Part("names", "names are text: on a terminal, in a spreadsheet, in a page", trials),)
