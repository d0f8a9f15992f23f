from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from jigsaw_opt.problem import (
    Block,
    Cluster,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Link,
    Model,
    Plan,
    Segment,
    Server,
    Transfer,
)
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.text import printable
from jigsaw_opt.views.explained import explained_picture
from jigsaw_opt.views.html import picture as notebook_picture
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.image import timeline_image
from jigsaw_opt.views.lanes import Interval, Picture, picture
from jigsaw_opt.views.page import filled
from jigsaw_opt.views.perfetto import perfetto_trace
from jigsaw_opt.views.text import timeline_text
from tests.extras import needs_plot
from tests.refusals import misuse


def crossing() -> tuple[Instance, Plan]:
    """A job over two servers, cyclic with period 30; its transfer reaches past the period."""
    model = Model((Segment("s", {"v": 10}, {"v": 10}, 1, 1),))
    cluster = Cluster((Server("a", "v", 1, 100, 1), Server("b", "v", 1, 100, 1)), (), (Link("ab", ("a", "b"), 1),))
    instance = Instance("crossing", cluster, {"m": model}, (Job("j", "m", 2, 1),), "cyclic", "period")
    blocks = (Block(1, 5, 25), Block(1, 0, 20))
    job = JobPlan("j", ("a/0", "b/0"), (Iteration(blocks, (Transfer(1, 25, 35),)),))
    return instance, Plan.of_jobs("crossing", "", "feasible", 30, 1, 30, (job,))


def embedded(page: str) -> dict[str, Any]:
    """Return the data of a page."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert data
    found: dict[str, Any] = json.loads(data.group(1))
    return found


def test_lanes_are_gpus_then_links_with_their_intervals_by_start(pair: Instance, pair_plan: Plan) -> None:
    shown = picture(pair, pair_plan)
    assert [lane.name for lane in shown.lanes] == ["s0/0", "s0/1"]
    assert shown.lanes[1].intervals == [Interval(0, 600, 0, 0, 1, 1), Interval(600, 1800, 1, 0, 0, 2)]
    assert (shown.end_us, shown.lanes[0].busy_us) == (1800, 1200)


def test_a_cyclic_plan_is_shown_in_one_period_and_split_at_its_end() -> None:
    lanes = picture(*crossing()).lanes
    assert [lane.name for lane in lanes] == ["a/0", "b/0", "ab"]
    assert lanes[2].intervals == [Interval(0, 5, 0, 0, 1, 0), Interval(25, 30, 0, 0, 1, 0)]


def test_text_shows_jobs_and_holes(pair: Instance, pair_plan: Plan) -> None:
    rows = timeline_text(picture(pair, pair_plan), 18).splitlines()
    assert rows[0] == "s0/0 |AAAAAAAAAAAA······|  67 % busy"
    assert rows[1] == "s0/1 |AAAAAABBBBBBBBBBBB| 100 % busy"
    assert rows[-1] == "jobs: A = a, B = b"


def test_html_is_self_contained_and_carries_the_plan(pair: Instance, pair_plan: Plan) -> None:
    page = timeline_html(picture(pair, pair_plan))
    assert not re.search(r"(?:src|href)\s*=|https?://|@import|url\(", page)
    data = embedded(page)
    assert [job["name"] for job in data["jobs"]] == ["a", "b"]
    assert data["lanes"][1]["intervals"][1] == [600, 1800, 1, 0, 0, 2]


def test_perfetto_has_one_track_a_lane_below_its_server_and_no_overlap() -> None:
    trace = json.loads(perfetto_trace(picture(*crossing())))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == 4
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in spans:
        tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) == 3
    for track in tracks.values():
        assert all(first[1] <= second[0] for first, second in zip(sorted(track), sorted(track)[1:], strict=False))
    names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    lanes = [event for event in trace["traceEvents"] if event["name"] == "thread_name"]
    assert sorted(names.values()) == ["links", "server a", "server b"]
    assert {event["args"]["name"]: names[event["pid"]] for event in lanes} == {
        "a/0": "server a",
        "b/0": "server b",
        "ab": "links",
    }


def exchanging() -> tuple[Instance, Plan]:
    """Two iterations of two workers on two servers, with a transfer after each."""
    instance, _ = crossing()
    instance = replace(
        instance, jobs=(replace(instance.jobs[0], iterations=2),), horizon="finite", objective="makespan"
    )
    rounds = tuple(
        Iteration((Block(1, at, at + 20), Block(1, at + 5, at + 25)), (Transfer(1, at + 25, at + 35),))
        for at in (0, 40)
    )
    return instance, Plan.of_jobs("crossing", "", "feasible", 75, 1, None, (JobPlan("j", ("a/0", "b/0"), rounds),))


def test_perfetto_counts_what_is_taken() -> None:
    events = json.loads(perfetto_trace(picture(*exchanging())))["traceEvents"]
    counted = [(event["name"], event["ts"], event["args"]["taken"]) for event in events if event["ph"] == "C"]
    assert [each for each in counted if each[0] == "links taken"] == [
        ("links taken", at, taken) for at, taken in ((25, 1), (35, 0), (65, 1), (75, 0))
    ]
    assert counted[:4] == [("GPUs taken", at, taken) for at, taken in ((0, 1), (20, 0), (40, 1), (60, 0))]


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(pair: Instance, pair_plan: Plan) -> None:
    drawn = named(pair, pair_plan, EVIL)
    shown = notebook_picture(drawn.instance, drawn.plan)
    frame = shown._repr_html_()
    found = re.fullmatch(r'<iframe [^<>]*sandbox="allow-scripts"[^<>]*srcdoc="([^"<>]*)"></iframe>', frame)
    assert found and unescape(found[1]) == timeline_html(explained_picture(shown))


EVIL = "{{data}}</script><!--\u2028\x1b\u202e$\\x_{$ {{title}} $a$ \\$"


def named(instance: Instance, plan: Plan, name: str) -> Picture:
    """The picture of a plan in which everything has that name."""
    server = altered(instance.cluster.servers[0], name=name)
    jobs = tuple(altered(job, name=f"_{name}{k}", model=name) for k, job in enumerate(instance.jobs))
    models = {name: next(iter(instance.models.values()))}
    cluster = altered(instance.cluster, servers=(server,))
    instance = altered(instance, name=name, cluster=cluster, models=models, jobs=jobs)
    planned = tuple(
        replace(job, name=jobs[k].name, gpus=tuple(gpu.replace("s0", name) for gpu in job.gpus))
        for k, job in enumerate(plan.jobs)
    )
    return picture(instance, replace(plan.with_jobs(planned), instance=name, solver={"name": name}))


def test_a_name_is_text_in_every_picture(pair: Instance, pair_plan: Plan) -> None:
    page, usual = timeline_html(named(pair, pair_plan, EVIL)), timeline_html(picture(pair, pair_plan))
    for mark in ("<script", "</script", "<!--", "<title>"):
        assert page.count(mark) == usual.count(mark)
    seen = "{{data}}</script><!--\\u2028\\x1b\\u202e$\\x_{$ {{title}} $a$ \\$"
    assert embedded(page)["name"] == embedded(page)["solver"] == seen
    assert embedded(page)["jobs"][0]["name"] == f"_{seen}0"
    assert "<title>{{data}}&lt;/script&gt;&lt;!--" in page
    text = timeline_text(named(pair, pair_plan, EVIL + "\n\r"))
    assert text.count("\n") == timeline_text(picture(pair, pair_plan)).count("\n")
    assert text.replace("\n", "").isprintable()
    events = json.loads(perfetto_trace(named(pair, pair_plan, EVIL)))["traceEvents"]
    assert f"_{EVIL}0" in {event["name"] for event in events if event["ph"] == "X"}


@needs_plot
@pytest.mark.parametrize("name", [EVIL, "$\\frac{$", "作业 \x07"])
def test_no_name_is_mathematics(
    pair: Instance, pair_plan: Plan, name: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    from matplotlib import rcParams
    from matplotlib.text import Text

    drawn: list[tuple[str, object]] = []
    prepare = Text._preprocess_math

    def noted(self: Text, text: str) -> tuple[str, object]:
        found: tuple[str, object] = prepare(self, text)
        drawn.append(found)
        return found

    monkeypatch.setattr(Text, "_preprocess_math", noted)
    monkeypatch.setitem(rcParams, "text.usetex", True)
    assert timeline_image(named(pair, pair_plan, name)).startswith(b"\x89PNG")
    assert (f"_{printable(name)}0", False) in drawn and (f"{printable(name)}/1", False) in drawn
    assert not recwarn.list


@needs_plot
def test_a_plan_that_ends_too_late_for_an_axis(pair: Instance, pair_plan: Plan) -> None:
    with misuse("too-large end_us"):
        timeline_image(replace(picture(pair, pair_plan), end_us=10**400))


def test_numbers_that_json_does_not_have_are_null_in_pages() -> None:
    page = filled("bench.html", "title", {"half": float("inf"), "low": [float("nan"), 1.5], "text": "Infinity"})
    assert embedded(page) == {"half": None, "low": [None, 1.5], "text": "Infinity"}
