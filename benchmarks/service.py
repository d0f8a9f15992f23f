"""A service under load, at its limits, and killed again and again.

Run as ``python benchmarks/service.py``. It starts ``jigsaw serve`` in a process of its own, on a free port, with tokens
and an empty file, and asks it over connections that stay open:

* load: clients send reads, events and wrong requests in turn, each after a random pause. Printed are latencies by kind
  of request and the statuses of the answers; every kind has the statuses that are right for it.
* limits: a body that is too large or does not come, more requests than may wait, more long polls than may be open.
* kills: SIGKILL under load. What was acknowledged is to be there after it, what was told is to be told again, and a
  request that got no answer is sent again with its Idempotency-Key. The lease of the killed process is ended by hand.

The exit code is 1 if anything is not as it is to be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import print_table

PROGRAM = "import sys; from jigsaw_opt.cli import main; sys.argv[0] = 'jigsaw'; main()"
DATABASE, ROLES, FEW, MANY = "jigsaw-serve.db", ("read", "submit", "operate"), 100, 500
LOST = (OSError, EOFError)
"""What a connection raises that the service has closed."""
READS = {
    "view": "/v1/view",
    "cluster": "/v1/cluster",
    "list": "/v1/jobs?limit=50",
    "changes": "/v1/changes?after={last}",
    "story": "/v1/jobs/{job}",
    "explanation": "/v1/jobs/{job}/explanation",
    "metrics": "/metrics",
}
READ_WEIGHTS = (20, 20, 20, 20, 20, 1, 5)
"""An explanation takes up to 2 s, as it tries what would start a job; it is asked for now and then."""
WRONG: dict[str, tuple[int, str, str, Any, str]] = {
    "no token": (401, "GET", "/v1/view", None, ""),
    "unknown token": (401, "POST", "/v1/events", {"event": "cancel", "job": "j1"}, "unknown"),
    "role": (403, "POST", "/v1/events", {"event": "server_lost", "server": "s0"}, "submit"),
    "no JSON": (400, "POST", "/v1/events", b"{", "operate"),
    "no event": (422, "POST", "/v1/events", [{"event": "none"}, 5, {"event": "submit", "job": {}}], "operate"),
    "query": (400, "GET", "/v1/jobs?limit=-1", None, "read"),
    "path": (404, "GET", "/v1/none", None, "read"),
}


class Connection:
    """A connection to a service, opened when it is first needed."""

    def __init__(self, port: int) -> None:
        self._port, self._streams = port, None

    async def ask(
        self, method: str, path: str, body: Any = None, role: str = "operate", **more: Any
    ) -> tuple[int, Any]:
        """Send a request; status and body of the answer. `more`: a key, or a length that the body has not."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        head = [f"{method} {path} HTTP/1.1", "Host: service", f"Content-Length: {more.get('length', len(data))}"]
        head += [f"Authorization: Bearer {role:*<16}"] * bool(role) + ["Content-Type: application/json"]
        head += [f"Idempotency-Key: {more.get('key')}"] * ("key" in more)
        streams = self._streams = self._streams or await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = streams
        writer.write("\r\n".join([*head, "", ""]).encode() + data)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        answer = await reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), json.loads(answer) if "json" in fields["content-type"] else answer

    def close(self) -> None:
        """Close it; the next request opens another."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()


class Load:
    """What clients do to a service, and what came of it.

    `jobs, ended, unsure`: names of jobs that were acknowledged, of those whose end was, and of those whose end got no
    answer. `lost`: requests without an answer, by key.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.last, self.asked, self.wrong = random.Random(seed), 0, 0, list[str]()
        self.jobs, self.ended, self.unsure, self.lost = dict[str, None](), set[str](), set[str](), dict[str, Any]()
        self.seconds, self.statuses = defaultdict[str, list[float]](list), defaultdict[str, Counter[int]](Counter)

    async def client(self, port: int, pause_s: float, end: asyncio.Event) -> None:
        """Ask until the end, or until the service is gone."""
        connection = Connection(port)
        try:
            while not end.is_set():
                await asyncio.sleep(self.rng.expovariate(1 / pause_s))
                (kind,) = self.rng.choices(("read", "event", "poll", "wrong"), (45, 40, 5, 10))
                await (self._event(connection) if kind == "event" else self._other(connection, kind))
        except LOST:
            pass
        finally:
            connection.close()

    async def _timed(self, kind: str, right: Sequence[int], connection: Connection, *words: Any, **more: Any) -> Any:
        began = time.monotonic()
        status, answer = await connection.ask(*words, **more)
        self.seconds[kind].append(time.monotonic() - began)
        self.statuses[kind][status] += 1
        if status not in right:
            self.wrong.append(f"{kind}: {status} {str(answer)[:200]}")
        return answer

    async def _other(self, connection: Connection, kind: str) -> None:
        if kind == "wrong":
            what, (status, *words) = self.rng.choice(list(WRONG.items()))
            await self._timed(f"wrong: {what}", (status,), connection, *words)
            return
        (what,) = self.rng.choices(list(READS), READ_WEIGHTS) if kind == "read" else ("long poll",)
        job = self.rng.choice(list(self.jobs)) if self.jobs else "none"
        path = READS.get(what, "/v1/changes?after={last}&timeout_s=2").format(last=self.last, job=job)
        right = (200, 404, 409) if "{job}" in READS.get(what, "") else (200,)  # it may end, or the policy be deciding
        answer = await self._timed(what, right, connection, "GET", path, role="read")
        self.last = answer["sequence"] if what in ("changes", "long poll") else self.last

    async def _event(self, connection: Connection) -> None:
        self.asked += 1
        kind, key, jobs = self.rng.choice(("submit", "cancel", "progress")), f"k{self.asked}", list(self.jobs)
        kind = "submit" if len(jobs) < FEW else "cancel" if len(jobs) > MANY else kind
        names = [f"j{self.asked}-{k}" for k in range(self.rng.choice((1, 1, 3)))]
        if kind == "submit":
            stated = {"model": "m", "iterations": 10_000, "time_limit_us": 10**9}
            wanted = [{**stated, "name": name, "gpus": self.rng.choice((1, 2, 4, 8))} for name in names]
            events = [{"event": kind, "job": job} for job in wanted]
        else:
            names = [self.rng.choice(jobs)]
            events = [{"event": kind, "job": names[0]} | ({"iterations": 5} if kind == "progress" else {})]
            if kind == "cancel":
                del self.jobs[names[0]]
        right = (200, 422) if kind == "progress" else (200,)  # somebody else may have cancelled it
        try:
            await self._timed(kind, right, connection, "POST", "/v1/events", events, key=key)
        except LOST:
            self.lost |= {key: events} if kind == "submit" else {}
            self.unsure.update(names if kind == "cancel" else ())
            raise
        self.jobs |= dict.fromkeys(names) if kind == "submit" else {}
        self.ended.update(names if kind == "cancel" else ())


def start(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a service in a folder; its process and its port."""
    tokens = (json.dumps({"name": role, "role": role, "token": f"{role:*<16}"}) + "\n" for role in ROLES)
    (folder / "tokens").write_text("".join(tokens))
    words = ["serve", "16x8:a100", "--policy", "backfill", "--port", "0", "--tokens", "tokens"]
    command = [sys.executable, "-c", PROGRAM, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    told = process.stderr.readline()
    if not told.startswith("listening"):
        raise SystemExit(told + process.stderr.read())
    return process, int(told.split()[-1])


async def loaded(load: Load, port: int, clients: int, pause_s: float, seconds: float) -> None:
    """Have clients ask for some time."""
    end = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, end.set)
    await asyncio.gather(*(load.client(port, pause_s, end) for _ in range(clients)))


async def at_once(port: int, count: int, *words: Any, **more: Any) -> Counter[int]:
    """Send a request over so many connections at the same time; the statuses of the answers."""
    connections = [Connection(port) for _ in range(count)]
    answers = await asyncio.gather(*(one.ask(*words, **more) for one in connections))
    for one in connections:
        one.close()
    return Counter(status for status, _ in answers)


async def limits(port: int, folder: Path) -> list[tuple[str, Counter[int], bool]]:
    """Ask for more than a service takes; what was asked, the statuses, and whether they are right."""
    large = await at_once(port, 4, "POST", "/v1/events", b" " * (4 * 2**20 + 1))
    slow = await at_once(port, 4, "POST", "/v1/events", b"[", length=2)
    last = (await Connection(port).ask("GET", "/v1/view"))[1]["sequence"] + 1000
    polls = await at_once(port, 520, "GET", f"/v1/changes?after={last}&timeout_s=5")
    with sqlite3.connect(folder / DATABASE, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")  # so that requests wait
        asyncio.get_running_loop().call_later(5, other.execute, "ROLLBACK")
        many = await at_once(port, 900, "POST", "/v1/events", {"event": "quota", "queue": "q", "gpus": 100})
    return [
        ("4 bodies of more than 4 MiB", large, large == {413: 4}),
        ("4 bodies that do not come", slow, slow == {408: 4}),
        ("520 long polls at once", polls, polls == {200: 500, 429: 20}),
        ("900 events at once, the file locked for 5 s", many, many.keys() <= {200, 429, 503} and many[200] < 900),
    ]


async def told_by(port: int) -> dict[int, Any]:
    """All changes that a service tells, by number."""
    found, last, connection = dict[int, Any](), 0, Connection(port)
    while True:
        answer = (await connection.ask("GET", f"/v1/changes?after={last}"))[1]
        found |= {change["sequence"]: change for change in answer["changes"]}
        last = answer["sequence"]
        if not answer["changes"]:
            connection.close()
            return found


async def killed(load: Load, folder: Path, turns: int, clients: int) -> tuple[list[int], list[str]]:
    """Kill services under load; GPUs, jobs and changes that were compared, and what was not as before."""
    counts, told, wrong = [0, 0, 0], dict[int, Any](), list[str]()
    for turn in range(turns + 1):
        process, port = start(folder)
        try:
            connection = Connection(port)
            there = set((await connection.ask("GET", "/v1/view"))[1]["jobs"]["name"])
            now = await told_by(port)
            wrong += [f"turn {turn}: job {name} is lost" for name in load.jobs.keys() - there]
            wrong += [f"turn {turn}: job {name} is there again" for name in load.ended & there]
            wrong += [f"turn {turn}: change {number} differs" for number in told if now.get(number) != told[number]]
            counts[0], counts[1] = counts[0] + len(load.jobs) + len(load.ended), counts[1] + len(told)
            for key, events in load.lost.items():
                status, answer = await connection.ask("POST", "/v1/events", events, key=key)
                wrong += [f"turn {turn}: {key} sent again: {answer}"] * (status != 200)
                load.jobs |= {event["job"]["name"]: None for event in events}
            counts[2], load.lost = counts[2] + len(load.lost), {}
            if turn < turns:
                running = asyncio.create_task(loaded(load, port, clients, 0.02, 60))
                await asyncio.sleep(load.rng.uniform(0.5, 1.5))
                told = await told_by(port)
                await asyncio.sleep(load.rng.uniform(0.0, 0.1))
                process.send_signal(signal.SIGKILL)
                await running
        finally:
            process.kill()
            process.wait()
        with sqlite3.connect(folder / DATABASE) as db:
            db.execute("UPDATE lease SET until_us = 0")
    return counts, wrong


def main(words: Sequence[str] | None = None) -> int:
    """Print latencies, what the limits refuse, and what kills have lost; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("clients", 200), ("seconds", 20), ("pause", 1.0), ("kills", 20), ("seed", 1)):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default: {default}")
    given = parser.parse_args(words)
    load = Load(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process, port = start(folder)
        try:
            asyncio.run(loaded(load, port, given.clients, given.pause, given.seconds))
            rows = list[tuple[object, ...]]()
            for kind, own in sorted(load.seconds.items()):
                times = (f"{1000 * sorted(own)[int(share * len(own))]:.1f}" for share in (0.5, 0.99))
                statuses = ", ".join(f"{status}: {count}" for status, count in sorted(load.statuses[kind].items()))
                rows.append((kind, len(own), *times, statuses))
            print_table(("request", "count", "p50 ms", "p99 ms", "statuses"), rows)
            found = asyncio.run(limits(port, folder)) if given.seconds else []
        finally:
            process.kill()
            process.wait()
    with tempfile.TemporaryDirectory() as name:
        after = Load(given.seed)
        counts, lost = asyncio.run(killed(after, Path(name), given.kills, 8))
    print(f"\n{sum(map(len, load.seconds.values())) / (given.seconds or 1):.0f} requests a second")
    for what, statuses, is_right in found:
        print(f"{what}: {dict(sorted(statuses.items()))}{'' if is_right else ': WRONG'}")
    jobs, changes, again = counts
    print(f"{given.kills} kills: {jobs} jobs and {changes} changes compared, {again} requests again, {len(lost)} wrong")
    wrong = [*load.wrong, *after.wrong, *lost]
    print(*wrong[:20], sep="\n")
    return int(bool(wrong) or not all(is_right for *_, is_right in found))


if __name__ == "__main__":
    sys.exit(main())
