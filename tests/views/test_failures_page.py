"""The page of failures: layout of the cluster, and what it says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_instance, encode_plan
from jigsaw_opt.problem import Cluster, Link, Server
from jigsaw_opt.solvers.failure_repair import FailureRepair
from jigsaw_opt.solvers.failures import Failure
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import FailedPart, FailureEffect, FailureEffects, PartKind
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.failures_page import FailureDescription, failures_html, positions, severity
from tests.solvers.test_failures import chained
from tests.views.test_views import embedded


def test_servers_are_below_their_switches() -> None:
    servers = tuple(Server(name, "v", 1, 1, 1) for name in ("a", "b", "c", "d"))
    ends = (("a", "rack1"), ("b", "rack0"), ("c", "rack1"), ("d", "rack0"), ("rack0", "spine"), ("rack1", "spine"))
    links = tuple(Link(f"l{k}", pair, 1) for k, pair in enumerate(ends))
    places = positions(Cluster(servers, ("rack0", "rack1", "spine", "unused"), links))
    assert [places[name][1] for name in ("a", "d", "rack0", "rack1", "spine")] == pytest.approx(
        [1, 1, 2 / 3, 2 / 3, 1 / 3]
    )
    assert places["unused"][1] == 0 and places["rack1"][0] < places["rack0"][0]
    around = positions(Cluster(servers))
    assert around["a"] == (0.5, 0) and around["c"] == pytest.approx((0.5, 1))
    assert len(set(places.values())) == 8 and all(0 <= at <= 1 for place in places.values() for at in place)


def test_the_page_has_all_effects_as_data() -> None:
    jobs = (replace(chained().jobs[0], name="<!--<b>", deadline_us=15),)
    instance = replace(chained(), jobs=jobs)
    plan = solve(instance, "greedy", Options(threads=1)).plan
    assert plan is not None
    effects = list(FailureEffects(instance, plan).each())
    assert [severity(effect) for effect in effects] == [3, 0, 0, 0, 3, 3]
    page = failures_html(instance, plan.objective, list(map(Failure, effects)))
    assert "<b>" not in page and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    data = embedded(page)
    told = {each["failed"]: each for each in data["effects"]}
    assert list(told)[:3] == ["server a", "server b", "link fast"]
    assert told["link fast"]["objective"] == "16 µs (+33.3 %)"
    assert told["link fast"]["broken"] == told["link fast"]["rerouted"] == ["<!--<b>"]


def effect(kind: PartKind, name: str, stopped: tuple[str, ...] = (), objective: int | None = 100) -> FailureEffect:
    return FailureEffect((FailedPart(kind, name),), stopped, {}, {}, objective, ())


def words() -> FailureDescription:
    jobs = tuple(replace(chained().jobs[0], name=f"j{k}") for k in range(8))
    return FailureDescription(replace(chained(), jobs=jobs), 100)


def figures(told: str) -> list[str]:
    """Return the numbers of a sentence with their units, and the names of jobs, in its order."""
    return re.findall(r"j\d|\d+(?: µs| jobs?)?", told)


def test_where_jobs_stop_there_is_no_gain() -> None:
    few, many = effect("server", "a", ("j1",), 30), effect("server", "b", tuple(f"j{k}" for k in range(7)), 20)
    assert figures(words().happens(few)) == ["1", "8 jobs", "j1"]
    assert figures(words().happens(many)) == ["7", "8 jobs", "j0", "j1", "j2", "j3", "3"]
    assert figures(words().outcome(few)) == ["30 µs", "7 jobs"]
    assert figures(words().outcome(many)) == ["20 µs", "1 job"]
    assert figures(words().outcome(effect("server", "c", tuple(f"j{k}" for k in range(8)), None))) == []
    assert words().outcome(effect("link", "d", (), 90)) == "90 µs (−10.0 %)"


def test_the_worst_is_said_first() -> None:
    slow = replace(effect("link", "up", (), 134), rerouted={"j0": ("x",)})
    known = [effect("link", "x"), slow, replace(effect("server", "a", ("j1",)), failed=slow.failed * 2)]
    # Two at once are no single failure.
    assert words().worst(known) == (
        "The worst single failure is link up: makespan 134 µs (+34.0 %); 1 of 8 jobs is rerouted: j0."
    )
    stopping = [effect("server", name, ("j1",)) for name in ("a", "b")]
    assert words().worst([*known, *stopping]).endswith("server a: 1 of 8 jobs stops: j1. As bad: server b.")
    assert figures(words().worst(known[:1])) == []


def test_a_repair_without_all_jobs_has_no_gain() -> None:
    full = FailureRepair("feasible", "resolve", 110, 0, {}, (), chained(), None)
    assert words().repair(full) == "110 µs (+10.0 %)"
    unplaced = words().repair(replace(full, objective=50, unplaced={"j0": "too wide"}))
    assert figures(unplaced) == ["j0", "50 µs", "7 jobs"]
    assert "unknown" in words().repair(replace(full, objective=None, status="unknown"))


def test_the_command_writes_it(tmp_path: Path) -> None:
    instance = chained()
    plan = solve(instance, "greedy", Options(threads=1)).plan
    assert plan is not None
    files = [tmp_path / name for name in ("i.json", "p.json", "page.html")]
    for path, content in zip(files, (encode_instance(instance), encode_plan(plan)), strict=False):
        path.write_bytes(content)
    assert main(["failures", *map(str, files[:2]), "--pairs", "-o", str(files[2])]) == 0
    data = embedded(files[2].read_text(encoding="utf-8"))
    assert any(len(effect["parts"]) == 2 for effect in data["effects"])
    assert main(["failures", *map(str, files[:2]), "-o", str(files[1])]) == 2
