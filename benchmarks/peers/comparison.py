"""The arithmetic of the comparison: what a run is, who was better, and how much sooner we were as good."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from enum import StrEnum
from statistics import geometric_mean
from typing import Any

_LEAST_SECONDS = 1e-3
"""Shorter times are not told apart."""


class Verdict(StrEnum):
    """How a run ended."""

    PLAN = "plan"
    """With a plan that the checker passed."""
    NO_PLAN = "no plan"
    WRONG = "wrong plan"
    """The checker found a broken rule; the plan does not count."""
    CRASHED = "crashed"
    NOT_TAKEN = "n/a"
    """The method does not take the instance."""


@dataclass(frozen=True, slots=True)
class Run:
    """One method on one instance: what was asked for, which identifies it, and how it ended.

    `objective` is that of the plan that counts, `bound` what the method proved, `seconds` the whole attempt, and
    `trajectory` seconds and objective of each better plan.
    """

    instance: str
    sha256: str
    method: str
    seed: int
    time_limit: float
    threads: int
    verdict: Verdict
    objective: int | None = None
    bound: int | None = None
    seconds: float = 0.0
    trajectory: tuple[tuple[float, int], ...] = ()
    note: str = ""

    @property
    def final_seconds(self) -> float:
        """Seconds to the final objective; the whole limit without a plan that counts."""
        found = seconds_to(self.trajectory, self.objective) if self.objective is not None else None
        return self.time_limit if found is None else found

    def row(self) -> dict[str, Any]:
        """The run as the row of a record."""
        return {"key": key_of(*astuple(self)[:6]), **asdict(self)}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Run:
        """A run from its row."""
        trajectory = tuple((float(seconds), int(objective)) for seconds, objective in row["trajectory"])
        values = {**row, "verdict": Verdict(row["verdict"]), "trajectory": trajectory}
        return cls(**{column.name: values[column.name] for column in fields(cls)})


def key_of(*asked: object) -> str:
    """What identifies a run: instance, hash, method, seed, time limit and threads."""
    return json.dumps(asked)


@dataclass(frozen=True, slots=True)
class Race:
    """Ours against one peer on one instance.

    Ours is `worse` also without a plan where the peer has one. `peer_seconds` are to the peer's final objective,
    `our_seconds` to one at least as good, or to the first plan where the peer has none; the time limit where there is
    no such moment. A `contradiction` is a bound above the objective of the other one's correct plan.
    """

    worse: bool
    peer_seconds: float
    our_seconds: float
    contradiction: bool

    @property
    def ratio(self) -> float:
        """How many times sooner we were as good."""
        return max(self.peer_seconds, _LEAST_SECONDS) / max(self.our_seconds, _LEAST_SECONDS)


@dataclass(frozen=True, slots=True)
class Summary:
    """Ours against one peer over all instances that it takes.

    Ratios are geometric means over all runs, and over those with a correct plan of the peer; None over none.
    """

    runs: int
    planless: int
    worse: int
    contradictions: int
    ratio: float | None
    ratio_of_plans: float | None


def seconds_to(trajectory: Sequence[tuple[float, int]], target: int | None) -> float | None:
    """Seconds until the objective was at most `target` (None: any plan), or None if it never was."""
    return next((seconds for seconds, value in trajectory if target is None or value <= target), None)


def race(ours: Run, peer: Run) -> Race | None:
    """Compare two runs of the same instance; None where the peer does not take it."""
    if peer.verdict is Verdict.NOT_TAKEN:
        return None
    reached = seconds_to(ours.trajectory, peer.objective) if ours.objective is not None else None
    return Race(
        worse=peer.objective is not None and (ours.objective is None or ours.objective > peer.objective),
        peer_seconds=peer.final_seconds,
        our_seconds=ours.time_limit if reached is None else reached,
        contradiction=_above(ours.bound, peer.objective) or _above(peer.bound, ours.objective),
    )


def summary(pairs: Sequence[tuple[Run, Run]]) -> Summary:
    """Sum up (ours, peer) over instances and seeds."""
    races = [(peer, result) for ours, peer in pairs if (result := race(ours, peer)) is not None]
    planned = [result.ratio for peer, result in races if peer.objective is not None]
    return Summary(
        runs=len(races),
        planless=len(races) - len(planned),
        worse=sum(result.worse for _, result in races),
        contradictions=sum(result.contradiction for _, result in races),
        ratio=geometric_mean([result.ratio for _, result in races]) if races else None,
        ratio_of_plans=geometric_mean(planned) if planned else None,
    )


def _above(bound: int | None, objective: int | None) -> bool:
    return bound is not None and objective is not None and bound > objective
