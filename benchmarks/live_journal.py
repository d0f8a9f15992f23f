"""A live scheduler whose journal cannot be written now and then: what it has taken replays to the same scheduler.

Run it as ``python benchmarks/live_journal.py [--events N] [--failures SHARE] [--budgets] [--seed S] [POLICY...]``.
The random events of `live_soak` go to a scheduler, with a step after each. The journal raises at random, also twice in
a row, and the program tries again until it does not. With ``--budgets`` half of the steps wait for no decision, so that
they are late. In the end a fresh scheduler replays the journal: all changes and the state must be equal.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from typing import Any

from common import print_table
from live_soak import Soak

HEADS = ("policy", "events", "refused", "late", "changes equal", "state equal")


class FailingJournal:
    """A journal that raises for a share of its entries, and keeps the others."""

    def __init__(self, failures: float, seed: int) -> None:
        self._failures, self._draw = failures, random.Random(seed)
        self.entries: list[Any] = []
        self.refused = 0

    def __call__(self, entry: Any) -> None:
        """Keep an entry, or raise."""
        if self._draw.random() < self._failures:
            self.refused += 1
            raise OSError("no space left on device")
        self.entries.append(json.loads(json.dumps(entry)))


def insist(call: Callable[[], Any]) -> Any:
    """Call until the journal takes it."""
    while True:
        try:
            return call()
        except OSError:
            pass


def row(policy: str, events: int, failures: float, budgets: bool, seed: int) -> tuple[str, ...]:
    """Return the row of one policy."""
    soak, journal, draw = Soak(policy, 100, seed), FailingJournal(failures, seed), random.Random(seed)
    soak.live._journal = journal
    changes = []
    for _ in range(events):
        event, budget = soak.event(), 0.0 if budgets and draw.random() < 0.5 else None
        insist(lambda: soak.live.handle(event))  # noqa: B023
        changes.append(insist(lambda: soak.live.step(soak.now_us, budget)))  # noqa: B023
        soak.carry_out(changes[-1])
        soak.check()
    state, again = insist(soak.live.state), soak.fresh()
    replayed = [change for entry in journal.entries if (change := again.replay(entry)) is not None]
    late = sum(change.late for change in changes)
    equal = replayed == changes, again.state() == state
    return f"`{policy}`", f"{events}", f"{journal.refused}", f"{late}", *("yes" if one else "NO" for one in equal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=["fifo", "srtf", "las", "backfill:estimates=recent", "jigsaw"])
    parser.add_argument("--events", type=int, default=2000, metavar="N", help="so many events, with a step after each")
    parser.add_argument("--failures", type=float, default=0.2, metavar="SHARE", help="share of entries it refuses")
    parser.add_argument("--budgets", action="store_true", help="half of the steps do not wait for the policy")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = [row(one, asked.events, asked.failures, asked.budgets, asked.seed) for one in asked.policies]
    print_table(HEADS, found)
    assert all("NO" not in one for one in found), "a replay is not the scheduler"


if __name__ == "__main__":
    main()
