"""Names from an enemy: for the terminal, for a spreadsheet, for a page. They arrive as text everywhere."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .documents import Json, instance, job, models, servers
from .launch import Ended, failure, run_jigsaw

__all__ = ["PART", "active_cells", "raw"]

_PATIENCE = 60.0
_CONTROLS = (
    "\x1b[2J\x1b[31mred",
    "\x9b31mred",
    "first\rsecond",
    "bell\x07\x08\x08\x7f",
    "\x1b]0;title\x07",
    "\u202eright to left\u2066\u2069",
    "\u200f\u061c",
    "a line\u2028\u2029\u0085\n",
)
_FORMULAS = ("=cmd|' -C calc'!A0", "+1+1", "-1-1", "@sum(a1)", "\t=1+1")
_MARKUP = (
    "{{data}}{{title}}",
    "</script><script>alert(1)</script><!--",
    "<b>bold</b>&amp;",
    "[red]markup[/red] [link=x]",
    "%s {0} $HOME `id`",
    'quotes " and \\',
)
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys; newline and tab are layout."""
_ACTIVE = re.compile(r"^[\t\r ]*[=+\-@]")
_NUMBER = re.compile(r"^[+-]?[0-9.]+(e[+-]?[0-9]+)?$")
_FAULT = {Count.FAULTS: 1}


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Every command that prints or writes, with names of every kind."""
    together = ("".join(_CONTROLS), "".join(_MARKUP), *_FORMULAS)
    for name in (*together, *_CONTROLS, *_MARKUP)[: campaign.times(len(together))]:
        # A name has no slash, so `</script>` cannot be one; what else ends data early can.
        yield from _all_views(campaign.fresh("names"), name.replace("/", "|"), f"the name {name!a}")


def _all_views(folder: Path, name: str, how: str) -> Iterator[Trial]:
    document = _named(name)
    source, plan = documents.written(document, folder / "instance.json"), folder / "plan.json"
    solve = ("solve", source, "--solver", "greedy")
    for fault, words, codes in (
        ("solve", (*solve, "-v", "--timeline", "-o", plan), {0}),
        ("solve --json", (*solve, "--json", "-q"), {0}),
        ("solve, infeasible", ("solve", documents.written(_named(name, 99), folder / "wide.json")), {4}),
        ("validate, wrong", ("validate", documents.written(_wrong(name), folder / "wrong.json")), {3}),
        ("solve, wrong", ("solve", folder / "wrong.json"), {3}),
        ("check", ("check", source, plan), {0}),
        ("check, wrong", ("check", folder / "wide.json", plan), {7}),
        ("plot as text", ("plot", source, plan), {0}),
        ("a file that is not there", ("solve", f"{name}.json"), {2, 3}),
        ("a solver that is not there", ("solve", source, "--solver", name), {2}),
        ("bench", ("bench", source, "--solvers", "greedy", "-v", "-o", folder / "bench"), {0}),
        # Not everything is a name to the reader of tables, as lines end where a cell does.
        ("simulate", (*_simulation(folder, name), "-o", folder / "simulated"), {0, 3}),
        ("simulate, wrong", (*_simulation(folder, name, 99), "-o", folder / "none"), {3}),
    ):
        ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
        yield _judged(fault, ended, codes, how, raw(ended.out + ended.err))
    for table in (*folder.glob("bench/*.csv"), *folder.glob("simulated/*.csv")):
        text = table.read_bytes().decode()
        cells = active_cells(text)
        wrong = f"a cell that a spreadsheet runs: {cells[0]!a}" if cells else ""
        yield Trial(f"{table.name} in a spreadsheet", wrong, how, counts=_FAULT, files=(table,))
    yield from _pages(folder, source, plan, name, how)


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


def _simulation(folder: Path, name: str, gpus: int = 1) -> tuple[object, ...]:
    work = folder / f"trace{gpus}.csv"
    with work.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(("name", "submit_s", "model", "gpus", "iterations"))
        table.writerow((name, 0, name, gpus, 100))
    return ("simulate", "--workload", work, "--cluster", "2x4", "--policy", "fifo")


def _judged(fault: str, ended: Ended, codes: set[int], how: str, more: str) -> Trial:
    wrong = first(failure(ended, codes), more)
    return Trial(fault, wrong, f"{how}; {ended.command}", ended.seconds, ended.mebibytes, _FAULT)


def raw(text: str) -> str:
    """The first character of a text that a terminal would obey."""
    found = _RAW.search(text)
    return f"a raw {found.group()!a} in {text[max(0, found.start() - 20) : found.end() + 20]!a}" if found else ""


def active_cells(text: str) -> list[str]:
    """Cells of a table in CSV that a spreadsheet takes for formulas."""
    cells = (cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row)
    return [cell for cell in cells if _ACTIVE.match(cell) and not _NUMBER.match(cell)]


class _Page(HTMLParser):
    """The data of a page, and how many scripts it has."""

    def __init__(self) -> None:
        super().__init__()
        self.data, self.scripts, self.title, self._inside = "", 0, "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = "data" if ("id", "data") in attrs else tag
        self.scripts += tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "data":
            self.data += data
        elif self._inside == "title":
            self.title += data


def _pages(folder: Path, source: Path, plan: Path, name: str, how: str) -> Iterator[Trial]:
    """Pages hold the names as data; traces and programs can be read."""
    page, trace, program = (folder / file for file in ("plan.html", "trace.json", "program.lp"))
    ended = run_jigsaw("plot", source, plan, "-o", page, folder=folder, timeout=_PATIENCE)
    yield _judged("plot as a page", ended, {0}, how, first(raw(ended.err), _page(page, name)))
    report = folder / "simulated" / "report.html"
    if report.exists():
        yield Trial("report of a simulation", _page(report, name), how, counts=_FAULT, files=(report,))
    ended = run_jigsaw("export", source, plan, "--to", "perfetto", "-o", trace, folder=folder, timeout=_PATIENCE)
    yield _judged("a trace", ended, {0}, how, first(raw(ended.err), _holds(trace, name)))
    ended = run_jigsaw("export", source, "--to", "lp", "-o", program, folder=folder, timeout=_PATIENCE)
    written = program.read_text() if program.exists() else ""
    yield _judged("a program", ended, {0}, how, first(raw(ended.err), raw(written)))


def _page(path: Path, name: str) -> str:
    page = _Page()
    page.feed(path.read_text() if path.exists() else "")
    more = f"{page.scripts} scripts" if page.scripts != 2 else ""
    return first(_named_in(page.data, name), more)


def _holds(path: Path, name: str) -> str:
    return _named_in(path.read_text() if path.exists() else "", name)


def _named_in(text: str, name: str) -> str:
    """Whether data in JSON has a name in it, as it is or with what cannot be seen written out."""
    try:
        texts = list(_texts(json.loads(text)))
    except ValueError as error:
        return f"the data cannot be read: {error}"
    forms = (name.strip(), "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name.strip()))
    return "" if any(form in one for one in texts for form in forms) else "the name is not in the data"


def _texts(tree: object) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    for inner in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _texts(inner)


PART = Part("names", "names are text: on a terminal, in a spreadsheet, in a page", trials)
