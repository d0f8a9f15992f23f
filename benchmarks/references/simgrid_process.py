"""Runs cases in SimGrid, as a program of its own: cases as JSON on standard input, ends in seconds on standard output.

SimGrid's own interpreter runs it, so it imports nothing of this repository. A case has ``bandwidths``, a link each,
and ``tasks``. A task starts at ``release`` once all parts of others that ``after`` names have ended. It is either
computation on a ``gpu``, with the seconds of its ``parts`` one after the other, or ``bytes`` over all its ``links`` at
no more than ``rate``. The answer has by case and task the ends of its parts.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

SETTINGS = (
    "network/model:CM02",
    "network/crosstraffic:0",
    "network/TCP-gamma:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
)
PRECISE = ("maxmin/precision", "surf/precision", "precision/work-amount", "precision/timing")
"""How exactly SimGrid divides links and rounds times, by the names of its older and newer versions."""


def engine():
    """A fresh engine, as exact as it can be."""
    import simgrid

    made = simgrid.Engine(["replay", "--log=root.thresh:error", *(f"--cfg={each}" for each in SETTINGS)])
    for name in PRECISE:
        with suppress(IndexError, RuntimeError):  # a version has two of them
            simgrid.Engine.set_config(f"{name}:1e-12")
    return made


class Replay:
    """A case in SimGrid: each task is an actor, with a semaphore that counts what has ended of what it waits for."""

    def __init__(self, case) -> None:
        import simgrid

        self.simgrid, self.tasks, self.engine = simgrid, case["tasks"], engine()
        self.zone = simgrid.NetZone.create_full_zone("all")
        self.links = [self.zone.create_link(f"l{k}", float(b)).seal() for k, b in enumerate(case["bandwidths"])]
        gpus = {task["gpu"] for task in self.tasks if "gpu" in task}
        # A unit of work is a second: times of blocks do not pass through a speed.
        self.gpus = {gpu: self.zone.create_host(f"g{gpu}", 1.0).seal() for gpu in sorted(gpus)}
        self.origin = self.zone.create_host("origin", 1.0).seal()
        self.pairs = [self._pair(k, task) if "bytes" in task else None for k, task in enumerate(self.tasks)]
        self.zone.seal()
        self.ended = [simgrid.Semaphore(0) for _ in self.tasks]
        self.waiting = {}
        for number, task in enumerate(self.tasks):
            for before, part in task["after"]:
                self.waiting.setdefault((before, part), []).append(number)
        self.ends = [[] for _ in self.tasks]

    def _pair(self, number, task):
        """Two hosts of its own, joined by the links of a transfer and by one that only it uses, for its rate alone."""
        hosts = [self.zone.create_host(f"{end}{number}", 1.0).seal() for end in ("from", "to")]
        own = self.zone.create_link(f"own{number}", float(task["rate"])).seal()
        steps = [self.simgrid.LinkInRoute(link) for link in (own, *(self.links[k] for k in task["links"]))]
        self.zone.add_route(hosts[0].netpoint, hosts[1].netpoint, None, None, steps, False)
        return hosts

    def run(self):
        """The ends of all parts of all tasks, in seconds."""
        for number in range(len(self.tasks)):
            host = self.gpus[self.tasks[number]["gpu"]] if "gpu" in self.tasks[number] else self.origin
            self.simgrid.Actor.create(f"t{number}", host, self._carry_out, number)
        self.engine.run()
        return self.ends

    def _carry_out(self, number):
        task, this = self.tasks[number], self.simgrid.this_actor
        for _ in task["after"]:
            self.ended[number].acquire()
        if task["release"] > self.simgrid.Engine.clock:
            this.sleep_until(task["release"])
        if "bytes" in task:
            if task["bytes"]:
                self.simgrid.Comm.sendto(*self.pairs[number], task["bytes"])
            self._end(number)
            return
        for part in task["parts"]:
            if part:
                this.execute(float(part))
            self._end(number)

    def _end(self, number):
        part = len(self.ends[number])
        self.ends[number].append(self.simgrid.Engine.clock)
        for follower in self.waiting.get((number, part), ()):
            self.ended[follower].release()


def answer(case):
    """The ends of a case, by a child: SimGrid has one engine in the life of a process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            json.dump(Replay(case).run(), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as found:
        text = found.read()
    os.waitpid(child, 0)
    return json.loads(text)


if __name__ == "__main__":
    json.dump([answer(case) for case in json.load(sys.stdin)], sys.stdout)
