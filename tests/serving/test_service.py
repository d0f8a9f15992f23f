"""A service takes events in all or none, tells what changes, and loses nothing that it has acknowledged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from socket import create_connection, create_server
from typing import Any
from urllib.parse import quote

import pytest

from jigsaw_opt.errors import InvalidInputError, MissingEngineError, UsageError
from jigsaw_opt.scheduling import LiveScheduler, PlanChange
from jigsaw_opt.scheduling.live import scheduler as live_scheduler
from jigsaw_opt.serving import journal_store, require_serve
from tests.processes import wait_for
from tests.scheduling.test_live_scheduler import Wayward
from tests.serving.services import START_US, HandClock, Served, copied, served, service, submit

from jigsaw_opt.serving.application import ServedPaths  # isort: skip
from jigsaw_opt.serving.board import ClusterBoard  # isort: skip
from jigsaw_opt.serving.connections import server_of  # isort: skip
from jigsaw_opt.serving.journal_store import JournalStore, LeaseLostError, StoreError  # isort: skip
from jigsaw_opt.serving.openapi import document  # isort: skip
from jigsaw_opt.serving.tokens import Tokens, read_tokens  # isort: skip


def test_events_lead_to_changes_that_are_told(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        answer = found.post(submit("a"))
        assert (answer["accepted"], answer["without_effect"]) == (1, [])
        (change,) = found.changes(answer["sequence"])
        assert change["sequence"] > answer["sequence"] and not change["shadow"]
        assert [one["to"]["job"] for one in change["starts"]] == ["a"]
        assert change["starts"][0]["to"]["gpus"] == ["s0/0", "s0/1", "s0/2", "s0/3"]
        answer = found.post([submit("b"), submit("c"), {"event": "priority", "job": "b", "weight": 3}])
        assert answer["accepted"] == 3 and "does not read the weight" in answer["without_effect"][0]
        (change,) = found.changes(answer["sequence"])
        assert [one["to"]["job"] for one in change["starts"]] == ["b"]
        answer = found.post({"event": "finish", "job": "a"})
        assert found.changes(answer["sequence"])[0]["starts"][0]["to"]["job"] == "c"
        last = found.service.sequence
        assert found.get(f"/v1/changes?after={last}") == {"changes": [], "sequence": last}


def test_reads_show_the_cluster_the_jobs_and_their_stories(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post([submit("a", 2), submit("b", 4), submit("c/d", 4), {"event": "server_drained", "server": "s1"}])
        found.changes()
        seen = found.get("/v1/cluster")
        assert [server["state"] for server in seen["servers"]] == ["up", "drained"]
        assert {server["rack"] for server in seen["servers"]} == {"switch"} and len(seen["links"]) == 2
        assert [gpu["jobs"] for gpu in seen["servers"][0]["on"]] == [["a"], ["a"], [], []]
        view = found.get("/v1/view")
        assert view["gpus"] == {"state": [0] * 4 + [2] * 4, "job": [0, 0] + [-1] * 6, "second": [-1] * 8}
        assert view["jobs"]["state"] == [0, 1, 1] and view["waiting"] == [1, 2] and view["servers"]["first"] == [0, 4]
        assert view["jobs"]["reason"][1] == "It waits for 4 GPUs, and 2 GPUs are free."
        page = found.get("/v1/jobs?state=waiting&limit=1")
        assert ([job["name"] for job in page["jobs"]], page["next"], page["total"]) == (["b"], "b", 2)
        assert [job["name"] for job in found.get("/v1/jobs?state=waiting&limit=1&after=b")["jobs"]] == ["c/d"]
        explanation = found.get("/v1/jobs/c%2Fd/explanation")
        assert explanation["job"] == "c/d" and explanation["remedies"]
        assert found.get("/v1/jobs/b/start")["job"] == "b"
        found.get("/v1/jobs/a/start", 409)
        found.post({"event": "finish", "job": "a"})
        settle(found)
        story = found.get("/v1/jobs/a")
        assert story["job"] is None
        gpus = ["s0/0", "s0/1"]
        told = [(row["what"], row["before"], row["after"]) for row in story["story"]]
        assert told == [("submit", [], []), ("start", [], gpus), ("finish", gpus, [])]
        metrics = found.client.get("/metrics").text
        assert 'jigsaw_gpus{state="drained"} 4.0' in metrics and "jigsaw_events_total 5.0" in metrics


def test_what_is_out_of_use_or_held_back_is_shown(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post([submit("a", 2), submit("b", 1) | {"queue": "q"}, submit("c", 1), {"event": "held", "job": "c"}])
        found.post(submit("e", 4))
        out = [{"event": "quota", "queue": "q", "gpus": 0}, {"event": "gpu_failed", "gpu": "s0/3"}, submit("f", 1)]
        found.post([*out, {"event": "server_cordoned", "server": "s1"}, submit("d", 1) | {"queue": "q"}])
        settle(found)
        view = found.get("/v1/view")
        assert (view["servers"]["state"], view["gpus"]["state"]) == ([0, 3], [0, 0, 0, 1, 3, 3, 3, 3])
        reasons = dict(zip(view["jobs"]["name"], view["jobs"]["reason"], strict=True))
        assert reasons["c"] == "It is on hold until it is released."
        assert reasons["d"] == "It waits for 1 GPU within the quota of queue 'q'."
        assert reasons["f"] == "It waits for 1 GPU, and 0 GPUs are free."  # e runs on a server that is not up
        assert [job["name"] for job in found.get("/v1/jobs?state=held")["jobs"]] == ["c"]


def test_what_is_tried_is_not_kept(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post([submit("a"), submit("b"), submit("c")])
        found.changes()
        before, state = found.service.sequence, found.service.live.state()
        tried = found.post({"event": "finish", "job": "a"}, path="/v1/what-if")
        assert [one["to"]["job"] for one in tried["change"]["starts"]] == ["c"]
        assert (found.service.sequence, found.service.live.state()) == (before, state)


LONG = "x" * 300


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/events", b"{", 400, "not-json"),
        ("POST", "/v1/events", b"[" * 100_000, 400, "not-json"),
        ("POST", "/v1/events", b"[]", 422, "wrong-count"),
        ("POST", "/v1/events", b"[1, null]", 422, "wrong-type"),
        ("POST", "/v1/events", b'{"event": "none"}', 422, "unknown-value"),
        ("POST", "/v1/events", b'{"event": "finish", "job": "none"}', 422, "unknown-name"),
        ("POST", "/v1/events", b'{"event": "finish", "job": 5}', 422, "wrong-type"),
        ("POST", "/v1/what-if", b'{"event": "submit", "job": {"name": "a"}}', 422, "missing-field"),
        ("POST", "/v1/events", b" " * 3000, 413, "too-large"),
        ("POST", "/v1/events", json.dumps([submit(str(k)) for k in range(11)]).encode(), 422, "wrong-count"),
        ("GET", "/v1/changes?after=-1", None, 400, "out-of-range"),
        ("GET", "/v1/changes?timeout_s=61", None, 400, "out-of-range"),
        ("GET", "/v1/changes?timeout_s=1", None, 429, "too-large"),
        ("GET", "/v1/jobs?limit=0", None, 400, "out-of-range"),
        ("GET", "/v1/jobs?state=none", None, 400, "unknown-value"),
        ("GET", "/v1/jobs?other=1", None, 400, "unknown-field"),
        ("GET", "/v1/jobs?after=none", None, 404, "unknown-name"),
        ("GET", "/v1/view?other=1", None, 400, "unknown-field"),
        ("GET", "/v1/jobs/none", None, 404, "unknown-name"),
        ("GET", "/v1/jobs/none/explanation", None, 404, "unknown-name"),
        ("GET", "/v1/none", None, 404, "unknown-name"),
        ("PUT", "/v1/events", None, 405, "unknown-name"),
    ],
)
def test_a_wrong_request_is_refused(
    method: str, path: str, body: bytes | None, status: int, code: str, tmp_path: Path
) -> None:
    limits = {"body_bytes": 2500 if body != b"[" * 100_000 else 10**6, "events": 10, "polls": 0}
    with served(tmp_path, limits=limits) as found:
        response = found.client.request(method, path, content=body, headers={"Content-Type": "application/json"})
        assert (response.status_code, response.json()["problems"][0]["code"]) == (status, code), response.text
        assert found.service.board.jobs == {}
        if status == 429:
            assert response.headers["Retry-After"] == "1"


def test_a_wrong_parameter_is_named_with_the_values_that_it_may_have(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        for query, path, told in (
            ("jobs?state=wating", "state", "must be running, waiting or held"),
            ("jobs?limit=many", "limit", "must be an integer from 1 to 1000"),
            ("jobs?stat=held", "stat", "is not known here; known are: state, limit, after"),
            ("changes?timeout_s=-1", "timeout_s", "must be a number of seconds from 0 to 60"),
            ("none", "", "there is no such path"),
        ):
            (problem,) = found.get(f"/v1/{query}", 404 if query == "none" else 400)["problems"]
            assert (problem["path"], problem["message"]) == (path, told)


def test_other_headers_that_are_wrong_are_refused(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post(submit("a"), 400, Idempotency_Key=LONG)
        for headers in ({"Content-Type": "text/yaml"}, {"Content-Type": "text/plain"}, {}):
            assert found.client.post("/v1/events", content=b"{}", headers=headers).status_code == 415
        hosts = {"other.example": 403, "127.0.0.2:80": 200, "[::1]:80": 200, "127.other.example": 403}
        hosts |= {"LOCALHOST": 200, "127.0.0.1:x": 403, "127.0.0.1@other.example": 403, "[": 403, "[::1": 403}
        for host, status in hosts.items():
            assert found.client.get("/v1/jobs", headers={"Host": host}).status_code == status
        assert found.client.get("/v1/cluster/", follow_redirects=False).status_code == 404


@pytest.mark.parametrize("name", ["x/explanation", "x/start", "x/", "/", "x%2Fy", "x y+é", "?#"])
def test_a_job_of_any_name_is_told_of(name: str, tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post([submit("x"), submit(name, 8)])
        path = f"/v1/jobs/{quote(name, safe='')}"
        assert found.get(path)["job"]["name"] == found.get(path)["story"][0]["event"]["job"]["name"] == name
        assert found.get(f"{path}/explanation")["job"] == found.get(f"{path}/start")["job"] == name


def test_what_was_in_use_is_kept_by_the_minute(tmp_path: Path) -> None:
    clock = HandClock()
    with served(tmp_path, clock=clock) as found:
        settle(found)
        happens = [submit("a", 3)], [submit("b", 6)], [{"event": "server_lost", "server": "s1"}]
        for minute, events in enumerate(happens):
            clock.now_us = START_US + 60_000_000 * minute
            found.post(events)
            settle(found)
        usage = found.get("/v1/usage")
        assert usage["time_us"] == [START_US + 60_000_000 * minute for minute in range(3)]
        assert (usage["in_use"], usage["up"], usage["waiting"]) == ([0, 3, 3], [8, 8, 4], [0, 1, 1])
        assert found.get("/v1/caller") == {"name": "", "role": "operate"}
    with served(tmp_path, clock=clock) as found:
        assert found.get("/v1/usage") == usage


def test_of_a_list_all_counts_or_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post(submit("a"))
        before = found.service.sequence
        wrong = [submit("b"), submit("a"), {"event": "cancel", "job": "b"}, {"event": "quota", "queue": 3}]
        problems = found.post(wrong, 422)["problems"]
        assert [(one["path"], one["code"]) for one in problems] == [
            ("$[1].job.name", "duplicate-name"),
            ("$[3]", "missing-field"),
            ("$[3].queue", "wrong-type"),
        ]
        assert "b" not in found.service.live.state()["jobs"] and found.service.sequence <= before + 1
        assert [job["name"] for job in found.get("/v1/jobs")["jobs"]] == ["a"]
        assert found.post([submit("b"), {"event": "cancel", "job": "b"}, submit("b")])["accepted"] == 3


def test_of_a_list_nothing_counts_where_a_late_decision_takes_the_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, real = Wayward(), LiveScheduler.settle
    monkeypatch.setattr(live_scheduler, "choose", lambda text: (policy, {}))
    monkeypatch.setattr(LiveScheduler, "settle", lambda live: (policy.gate.set(), real(live)))
    server = {"name": "new", "gpu_type": "v", "gpus": 4, "gpu_memory": 10**9}
    server |= {"fabric_bandwidth": 10**10, "fabric_latency_us": 0}
    added = {"event": "server_added", "server": server, "links": []}
    running = {"event": "running", "job": submit("b", 1)["job"], "gpus": ["s0/0"], "started_us": START_US}
    with served(tmp_path, budget_s=0.0) as found:
        policy.gate.clear()
        found.post(submit("a", 1))
        wait_for(lambda: found.service.counts["late"] > 0)
        problems = found.post([added, running], 422)["problems"]
        assert [one["path"] for one in problems] == ["$[1].gpus"] and "job 'a'" in problems[0]["message"]
        assert [one["name"] for one in found.get("/v1/cluster")["servers"]] == ["s0", "s1"]
        settle(found)
        entries = [json.loads(body)["event"] for _, _, body in found.service.store.start()[1]]
        assert "taken" in entries and not {"server_added", "running"} & set(entries)
        assert found.get("/v1/jobs/a")["job"]["on"] == ["s0/0"]
        assert found.post([added, {**running, "gpus": ["new/0"]}])["accepted"] == 2


def test_a_request_that_is_sent_again_counts_once_also_after_a_crash(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        first = found.post(submit("a"), Idempotency_Key="k1")
        again = found.post(submit("a"), Idempotency_Key="k1")
        assert again == first
        problem = found.post(submit("b"), 422, Idempotency_Key="k1")["problems"][0]
        assert problem["path"] == "Idempotency-Key"
        crashed = copied(found.service, tmp_path / "crashed")
    with served(crashed) as found:
        assert found.post(submit("a"), Idempotency_Key="k1") == first
        assert [job["name"] for job in found.get("/v1/jobs")["jobs"]] == ["a"]


def run_through(found: Served, clock: HandClock, jobs: range) -> None:
    """Have jobs come, report and end; a step follows each."""
    for k in jobs:
        clock.now_us += 1_000_000
        found.post([submit(f"j{k}", 2 + k % 3), {"event": "progress", "job": f"j{k}", "iterations": 1}])
        if k >= 3:
            found.post({"event": "finish" if k % 2 else "cancel", "job": f"j{k - 3}"})


@pytest.mark.parametrize("policy", ["fifo", "las", "backfill:default_limit=24"])
@pytest.mark.parametrize("entries", [1000, 7])
def test_after_a_crash_it_goes_on_as_if_nothing_had_been(policy: str, entries: int, tmp_path: Path) -> None:
    clock, limits = HandClock(), {"snapshot_entries": entries}
    with served(tmp_path, policy, clock=clock, limits=limits) as found:
        run_through(found, clock, range(8))
        settle(found)
        crashed = copied(found.service, tmp_path / "crashed")
        state, changes = found.service.live.state(), found.changes()
        story = found.get("/v1/jobs/j3")
        with sqlite3.connect(crashed / "served.db") as db:
            kept = db.execute("SELECT count(*) FROM entries").fetchone()[0]
            assert kept < 30 if entries == 7 else kept > 30
        clock.now_us += 1_000_000
        found.post({"event": "finish", "job": "j7"})
        after = [{**one, "sequence": 0} for one in found.changes(found.service.last_change, 1)]
    clock.now_us -= 1_000_000
    with served(crashed, policy, clock=clock, limits=limits) as found:
        assert (found.changes(), found.get("/v1/jobs/j3")) == (changes, story)
        settle(found)
        assert (
            found.service.live.state()["jobs"] == state["jobs"]
            and found.service.live.state()["shares"] == state["shares"]
        )
        clock.now_us += 1_000_000
        found.post({"event": "finish", "job": "j7"})
        assert [{**one, "sequence": 0} for one in found.changes(changes[-1]["sequence"], 1)] == after


def settle(found: Served) -> None:
    """Wait until there is nothing to be done."""
    while found.service._is_due or found.service.board.head[1] != found.service.sequence:
        threading.Event().wait(0.005)


def test_old_changes_are_forgotten(tmp_path: Path) -> None:
    clock = HandClock()
    with served(tmp_path, clock=clock, limits={"snapshot_entries": 5, "kept_entries": 10}) as found:
        run_through(found, clock, range(12))
        settle(found)
        assert found.get("/v1/changes?after=0", 410)["problems"][0]["code"] == "outdated"
        assert found.get(f"/v1/changes?after={found.service.oldest}")["sequence"] == found.service.last_change


def test_what_is_kept_goes_on_with_another_policy_after_an_end_in_order_and_after_a_crash(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post([submit("a", 8), submit("b", 2)])
        settle(found)
        crashed, changes = copied(found.service, tmp_path / "crashed"), found.changes()
    for folder, jobs in ((crashed, ["a", "b"]), (tmp_path, ["a", "b"]), (crashed, ["a", "b", "c"])):
        with served(folder, "las") as found:
            assert list(found.service.live.read(lambda state: state.numbers)) == jobs
            assert found.get("/v1/view")["policy"] == "las" and found.changes()[:1] == changes
            assert found.get("/v1/jobs/a")["job"]["state"] == "running"  # fifo started it
            found.post(submit("c", 2)) if len(jobs) == 2 else None
            settle(found)


def test_entries_that_other_figures_led_to_are_refused(tmp_path: Path) -> None:
    def faster(*given: Any, **own: Any) -> LiveScheduler:
        return LiveScheduler(*given, **own, restart_us=0)

    with served(tmp_path) as found:
        found.post(submit("a"))
        crashed = copied(found.service, tmp_path / "crashed")
    with pytest.raises(InvalidInputError, match="entries of the journal follow"):
        service(crashed, make=faster).start()


def test_what_fails_at_the_last_moment_has_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as found:
        found.post(submit("a"))
        settle(found)
        story, fails = found.get("/v1/jobs/a"), [True]

        def seen(*given: Any) -> ClusterBoard:
            if fails and found.service.store._db.in_transaction and fails.pop():
                raise sqlite3.OperationalError("disk I/O error")
            return real(*given)

        real = ClusterBoard.of
        monkeypatch.setattr(ClusterBoard, "of", seen)
        both = [{"event": "cancel", "job": "a"}, submit("b")]
        assert "disk I/O error" in found.post(both, 503, Idempotency_Key="k")["problems"][0]["message"]
        settle(found)
        assert [job["name"] for job in found.get("/v1/jobs")["jobs"]] == ["a"]
        assert found.get("/v1/jobs/a") == story and not fails
        found.post(both, Idempotency_Key="k")
        assert [job["name"] for job in found.get("/v1/jobs")["jobs"]] == ["b"]


def test_nobody_takes_the_file_over_while_entries_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_store, "_BUSY_S", 0.01)

    class Watched(LiveScheduler):
        def replay(self, entry: Any) -> PlanChange | None:
            with pytest.raises(StoreError, match="locked"):
                JournalStore(crashed / "served.db", 0.3).take_lease()
            return super().replay(entry)

    with served(tmp_path) as found:
        found.post(submit("a"))
        settle(found)
        crashed = copied(found.service, tmp_path / "crashed")
    with served(crashed, make=Watched) as found:
        assert found.get("/v1/jobs")["total"] == 1  # which was replayed


def test_a_snapshot_that_cannot_be_written_is_tried_again_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, limits={"snapshot_entries": 2}) as found:
        store, tries = found.service.store, list[int]()

        def compact(sequence: int, *given: Any) -> None:
            tries.append(sequence)
            if len(tries) < 3:
                raise sqlite3.OperationalError("disk I/O error")
            real(sequence, *given)

        real = store.compact
        monkeypatch.setattr(store, "compact", compact)
        found.post(submit("a"))
        while not store.start()[0] or store.start()[0][0] != found.service.sequence:
            threading.Event().wait(0.005)
        assert tries[2] - tries[0] <= 2 and store.start()[1] == []  # a failure leads to one step


def test_one_service_at_a_time_writes_to_a_file(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        second = JournalStore(tmp_path / "served.db", 0.3)
        with pytest.raises(UsageError, match=r"another service writes to .*served.db: process"):
            second.take_lease()
        found.service.store._db.execute("UPDATE lease SET owner = 'gone', until_us = 0")
        second.take_lease()
        found.post(submit("a"), 503)
        found.service._thread.join(10)
        assert "taken" in found.service.failure
        found.post(submit("b"), 503)
        assert found.get("/readyz", 503)["ok"] is False and found.get("/healthz")["ok"] is True
        assert all(b"submit" not in body for _, _, body in second.start()[1])


def test_a_lease_that_nobody_renews_is_taken_whatever_the_clock_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (JournalStore(tmp_path / "served.db", 0.3) for _ in range(2))
    first.take_lease()
    first._db.execute("UPDATE lease SET owner = 'gone', until_us = until_us + 3600000000")
    second.take_lease()
    assert caplog.messages == [f"{second.path} is held by gone: waiting whether that still writes"]
    with pytest.raises(LeaseLostError), first.writing():
        pass
    second.close()


def test_silent_connections_keep_nobody_out_and_are_closed(tmp_path: Path) -> None:
    with served(tmp_path) as found, create_server(("127.0.0.1", 0)) as listening, ExitStack() as opened:
        server = server_of(found.application.app, 3, 1)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        address = listening.getsockname()
        silent = [opened.enter_context(create_connection(address, 20)) for _ in range(12)]
        silent[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        with create_connection(address, 20) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 200")
        for one in silent:
            with suppress(ConnectionResetError):
                assert one.recv(100) == b""
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def test_nothing_is_acknowledged_while_the_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_store, "_BUSY_S", 0.01)
    with served(tmp_path, limits={"lease_s": 20.0}) as found:
        found.post(submit("a"))
        settle(found)
        before = found.service.sequence
        with sqlite3.connect(tmp_path / "served.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            for body in (submit("b"), [submit("b"), submit("c")]):
                response = found.client.post("/v1/events", json=body)
                assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
            assert "locked" in found.get("/readyz", 503)["reason"]
            found.service.is_stale = True  # as after a write that failed
            assert "locked" in found.post(submit("b"), 503, "/v1/what-if")["problems"][0]["message"]
            other.execute("ROLLBACK")
        assert found.service.sequence == before
        found.post([submit("b"), submit("c")])
        assert found.get("/readyz")["ok"] is True
        assert [job["name"] for job in found.get("/v1/jobs")["jobs"]] == ["a", "b", "c"]


def test_too_many_requests_that_wait_are_refused(tmp_path: Path) -> None:
    found = service(tmp_path, limits={"waiting": 1})
    found.waiting.put(None)
    from starlette.testclient import TestClient

    response = TestClient(ServedPaths(found).app, "http://localhost").post("/v1/events", json=submit("a"))
    assert (response.status_code, response.headers["Retry-After"]) == (429, "1")


class Slow(LiveScheduler):
    """A scheduler whose steps wait until they may go on."""

    begun, may_go_on = threading.Event(), threading.Event()

    def step(self, now_us: int | None = None, budget_s: float | None = None) -> PlanChange:
        self.begun.set()
        self.may_go_on.wait(30)
        return super().step(now_us, budget_s)


def test_reads_do_not_wait_for_a_step(tmp_path: Path) -> None:
    Slow.begun.clear()
    with served(tmp_path, make=Slow) as found:
        Slow.may_go_on.set()
        found.post(submit("a"))
        settle(found)
        Slow.may_go_on.clear()
        Slow.begun.clear()
        found.post(submit("b"))
        assert Slow.begun.wait(10)
        for path in ("/v1/view", "/v1/cluster", "/v1/jobs", "/v1/jobs/b", "/v1/changes", "/metrics"):
            assert found.client.get(path).status_code == 200
        assert found.get("/v1/jobs")["total"] == 2
        Slow.may_go_on.set()


def test_changes_are_sent_as_they_come(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post(submit("a"))
        first = found.changes()[0]["sequence"]
        with ThreadPoolExecutor(1) as pool:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(first)}
            stream = pool.submit(found.client.get, "/v1/changes", headers=headers)
            found.post(submit("b"))
            second = found.changes(first)[0]["sequence"]
            threading.Timer(0.2, found.application.end).start()
            told = stream.result(20).text
        assert f"\nevent: change\nid: {second}\ndata: " in told and f"id: {first}\n" not in told
        data = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
        assert [one["starts"][0]["to"]["job"] for one in data] == ["b"]


def test_a_poll_waits_for_a_change(tmp_path: Path) -> None:
    with served(tmp_path) as found, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(found.changes, 0, 30)
        found.post(submit("a"))
        assert waiting.result(20)[0]["starts"][0]["to"]["job"] == "a"


def test_a_shadow_only_tells(tmp_path: Path) -> None:
    with served(tmp_path, shadow=True) as found:
        found.post(submit("a"))
        (change,) = found.changes()
        assert change["shadow"] and change["starts"][0]["to"]["gpus"] == ["s0/0", "s0/1", "s0/2", "s0/3"]
        assert found.get("/v1/jobs")["jobs"][0]["state"] == "waiting"
        running = {"event": "running", "job": submit("a")["job"], "gpus": [f"s1/{k}" for k in range(4)]}
        found.post(running | {"started_us": START_US})
        (change,) = found.changes(change["sequence"])
        assert (change["starts"], change["stops"], change["moves"]) == ([], [], [])
        assert found.get("/v1/jobs/a")["job"]["on"] == [f"s1/{k}" for k in range(4)]
        whats = [row["what"] for row in found.get("/v1/jobs/a")["story"]]
        assert whats == ["submit", "would start", "running"]
        crashed, changes = copied(found.service, tmp_path / "crashed"), found.changes()
    with served(crashed, shadow=True) as found:
        settle(found)
        assert found.changes() == changes


TOKENS = {"read": "r" * 16, "submit": "s" * 16, "operate": "o" * 16, "other": "t" * 16}


def tokens(folder: Path) -> Tokens:
    path = folder / "tokens"
    rows: list[dict[str, Any]] = [{"name": role, "role": role, "token": TOKENS[role]} for role in ("read", "submit")]
    rows.append({"name": "operate", "role": "operate", "sha256": sha256(TOKENS["operate"].encode()).hexdigest()})
    rows.append({"name": "other", "role": "submit", "token": TOKENS["other"]})
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return read_tokens(path)


def test_roles_say_who_may_do_what(tmp_path: Path) -> None:
    with served(tmp_path, tokens=tokens(tmp_path)) as found:

        def status(role: str, method: str, path: str, body: object = None) -> int:
            headers = {"Authorization": f"Bearer {TOKENS[role]}"}
            return int(found.client.request(method, path, json=body, headers=headers).status_code)

        response = found.client.get("/v1/view")
        assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        for wrong in ("Bearer no", f"Basic {TOKENS['operate']}", "", "Bearer é"):
            assert found.client.get("/metrics", headers={"Authorization": wrong.encode()}).status_code == 401
        for one in found.application.endpoints:
            asked = found.client.request(one.method, one.path, json=submit("a"))
            assert asked.status_code == (200 if one.path in ("/healthz", "/readyz") else 401), one.path
        assert status("read", "GET", "/v1/view") == status("read", "POST", "/v1/what-if", submit("a")) == 200
        assert status("read", "POST", "/v1/events", submit("a")) == 403
        assert status("submit", "POST", "/v1/events", submit("a")) == 200
        assert status("submit", "POST", "/v1/events", {"event": "server_lost", "server": "s0"}) == 403
        other = {"Authorization": f"Bearer {TOKENS['other']}"}
        response = found.client.post("/v1/events", json={"event": "cancel", "job": "a"}, headers=other)
        (problem,) = response.json()["problems"]
        assert (response.status_code, problem["code"], problem["path"]) == (403, "not-allowed", "$")
        assert status("submit", "POST", "/v1/events", {"event": "finish", "job": "a"}) == 403
        assert status("operate", "POST", "/v1/events", {"event": "server_lost", "server": "s0"}) == 200
        running = {"event": "running", "job": submit("a")["job"], "gpus": [f"s1/{k}" for k in range(4)]}
        assert status("operate", "POST", "/v1/events", {**running, "started_us": START_US}) == 200
        assert status("other", "POST", "/v1/events", {"event": "cancel", "job": "a"}) == 403
        assert status("submit", "POST", "/v1/events", {"event": "cancel", "job": "a"}) == 200
        assert status("other", "POST", "/v1/events", submit("a")) == 200
        assert status("submit", "POST", "/v1/events", {"event": "cancel", "job": "a"}) == 403
        settle(found)
        headers = {"Authorization": f"Bearer {TOKENS['read']}"}
        story = found.client.get("/v1/jobs/a", headers=headers).json()["story"]
        assert [row["who"] for row in story if row["what"] in ("submit", "cancel")] == ["submit", "submit", "other"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("{", "malformed"),
        ('{"name": "a", "role": "read"}', "contradiction"),
        ('{"name": "a", "role": "none", "token": "0123456789abcdef"}', "malformed"),
        ('{"name": "a", "role": "read", "token": "short"}', "malformed"),
        ('{"name": "a", "role": "read", "sha256": "00"}', "malformed"),
        ('{"name": "a", "role": "read", "token": "0123456789abcdef"}\n' * 2, "duplicate-name"),
    ],
)
def test_a_wrong_file_of_tokens_is_refused_without_telling_them(text: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        read_tokens(path)
    assert caught.value.problems[0].code == code and "0123456789" not in str(caught.value)


def test_what_is_wrong_with_a_token_is_told_by_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(
        '{"name": "a", "role": "all", "token": "too short", "until": 1}\nread\n{"token": "0123456789abcdef"}\n'
    )
    with pytest.raises(InvalidInputError) as caught:
        read_tokens(path)
    assert [problem.message for problem in caught.value.problems] == [
        "'until' is not known here; known are: name, role, token, sha256; "
        "'role' must be read, submit or operate; 'token' must be at least 16 characters long",
        "is no object of JSON with 'token', 'name' and 'role'",
        "'name' is missing; 'role' is missing",
    ]


def test_the_document_describes_every_path_and_answer(tmp_path: Path) -> None:
    from jsonschema import Draft202012Validator

    tree = document()
    described = {(path, method.upper()) for path, ways in tree["paths"].items() for method in ways}
    with served(tmp_path) as found:
        paths = {(one.path.replace(":path", ""), one.method) for one in found.application.endpoints}
        assert described == paths and json.loads(found.client.get("/openapi.json").text) == json.loads(json.dumps(tree))
        for name in json.dumps(tree).split('"#/')[1:]:
            part: Any = tree
            for key in name.split('"')[0].split("/"):
                part = part[key]
        found.post([submit("a"), submit("b"), submit("c"), {"event": "link_down", "link": "l0"}])
        found.changes()
        for path in ("/v1/changes", "/v1/cluster", "/v1/jobs", "/v1/view", "/v1/jobs/{name}", "/readyz"):
            schema = tree["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            Draft202012Validator({**schema, "components": tree["components"]}).validate(
                found.get(path.format(name="a"))
            )
        event = Draft202012Validator({"$ref": "#/components/schemas/Event", "components": tree["components"]})
        assert event.is_valid({**submit("a", after=["b"]), "time_us": 2**60})
        wrong = submit("a", 0), submit(""), submit("a", none=1), {"event": "submit", "job": {}}
        assert not any(map(event.is_valid, (*wrong, {"event": "held", "job": ""}, {"event": "held", "job": LONG * 4})))
        server = {"name": "s9", "gpu_type": "v", "gpus": 4, "gpu_memory": 1, "fabric_bandwidth": 1}
        assert event.is_valid({"event": "server_added", "server": server})
        assert not event.is_valid({"event": "server_added", "server": {**server, "gpus": None}})
        found.post({"event": "server_added", "server": server})
        refused = {"$ref": "#/components/schemas/Refused", "components": tree["components"]}
        Draft202012Validator(refused).validate(found.get("/v1/jobs/none", 404))


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(InvalidInputError, match="another program"):
        JournalStore(path, 1.0)
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(InvalidInputError, match="no database of a service"):
        JournalStore(tmp_path / "text", 1.0)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_serve()
    monkeypatch.setattr("jigsaw_opt.serving.find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(MissingEngineError, match=r"uvicorn is not installed; run: pip install 'jigsaw-opt\[serve\]'"):
        require_serve()


def test_what_keeps_a_job_waiting_is_told(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        array = {"array": "s", "array_limit": 1}
        later = submit("later", 1, submit_us=START_US + 120_000_000)
        found.post([submit("a", 1), submit("b", 1, after=["a", "none"]), later])
        found.post([submit("s1", 1, **array), submit("s2", 1, **array), {"event": "held", "job": "b"}])
        settle(found)
        seen = {job["name"]: (job["state"], job["reason"]) for job in found.get("/v1/jobs")["jobs"]}
        assert [name for name, (state, _) in seen.items() if state == "running"] == ["a", "s1"]
        assert seen["b"] == ("held", "It is on hold until it is released.")
        assert seen["later"] == ("waiting", "It begins at its time of submission, in about 2 min.")
        assert seen["s2"] == ("waiting", "It waits for a place in array s, which has 1.")
        found.post([{"event": "released", "job": "b"}, submit("c", 1, after=["s", "b", "a", "later"])])
        reasons = {job["name"]: job["reason"] for job in found.get("/v1/jobs")["jobs"]}
        assert reasons["b"] == "It waits for the end of a."
        assert reasons["c"] == "It waits for the end of a, b, later, s1 and 1 other job."


def test_progress_alone_leads_to_no_step(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        found.post(submit("a"))
        settle(found)
        steps = found.service.counts["steps"]
        found.post([{"event": "progress", "job": "a", "iterations": 100}] * 2)
        assert found.get("/v1/jobs/a")["job"]["progress"] == 0.1
        settle(found)
        found.post({"event": "finish", "job": "a"})
        settle(found)
        assert found.service.counts["steps"] == steps + 1


def test_a_time_that_is_stated_is_not_read_and_an_answer_is_repeated_whole(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        event = {**submit("a", weight=5), "time_us": 5}
        assert found.post(event, path="/v1/what-if")["without_effect"][0].startswith("'time_us' is not read")
        first = found.post(event, Idempotency_Key="k")
        assert len(first["without_effect"]) == 2 and "weight" in first["without_effect"][1]
        assert found.post(event, Idempotency_Key="k") == first
        assert found.get("/v1/jobs/a")["story"][0]["time_us"] == START_US
        crashed = copied(found.service, tmp_path / "crashed")
    with served(crashed) as found:
        assert found.post(event, Idempotency_Key="k") == first


def test_on_a_full_disk_nothing_is_acknowledged(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        db = found.service.store._db
        found.post(submit("a"))
        settle(found)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        large = [submit(f"b{k}", array=LONG) for k in range(100)]
        assert "full" in found.post(large, 503)["problems"][0]["message"]
        assert found.get("/v1/jobs")["total"] == 1 and "full" in found.get("/readyz", 503)["reason"]
        db.execute("PRAGMA max_page_count = 1000000")
        assert found.post(large)["accepted"] == 100


def test_a_body_that_does_not_come_in_time_is_refused(tmp_path: Path) -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(30)
        return {}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    sent: list[dict[str, Any]] = []
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/events", "query_string": b"", "headers": headers}
    application = ServedPaths(service(tmp_path, limits={"body_s": 0.01}))
    asyncio.run(application.app(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 408 and b"did not come in time" in sent[1]["body"]
