"""What a part of the campaign is given and what it hands back."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random


class Count(StrEnum):
    """What the summary counts over all parts; the last three must be 0."""

    DOCUMENTS = "documents changed"
    SIGNALS = "signals sent"
    FAULTS = "faults injected"
    LOST = "plans lost"
    ACCEPTED = "wrong plans accepted"
    CONTRADICTED = "bounds contradicted"


FAULT = {Count.FAULTS: 1}


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing that was tried: its kind, what was seen that must not be, and how to do it again."""

    fault: str
    failure: str = ""
    how: str = ""
    seconds: float = 0.0
    mebibytes: float = 0.0
    counts: Mapping[Count, int] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Campaign:
    """Where and how much is tried, 1 for some minutes; moments of signals alone do not follow the seed."""

    folder: Path
    seed: int = 0
    scale: float = 1.0

    def random(self, *what: object) -> Random:
        """A generator of random numbers for one purpose."""
        return Random("/".join(map(str, (self.seed, *what))))

    def times(self, count: int) -> int:
        """How often to do what is done `count` times at scale 1; at least once."""
        return max(1, round(count * self.scale))

    def fresh(self, name: str) -> Path:
        """An empty folder of that name."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of fault: its name for ``--only``, what is to hold, and all that is tried."""

    name: str
    guarantee: str
    trials: Callable[[Campaign], Iterator[Trial]]


@dataclass(slots=True)
class Row:
    """All trials of one kind of fault, or of a part where none is named."""

    part: str
    fault: str
    tried: int = 0
    failed: int = 0
    worst_seconds: float = 0.0
    worst_mebibytes: float = 0.0


@dataclass
class Tally:
    """What all trials came to."""

    counts: Counter[Count] = field(default_factory=lambda: Counter(dict.fromkeys(Count, 0)))
    failures: list[tuple[str, Trial]] = field(default_factory=list)
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing failed and nothing was counted that must not be."""
        return not self.failures and not any(self.counts[c] for c in (Count.LOST, Count.ACCEPTED, Count.CONTRADICTED))

    def add(self, part: str, trial: Trial) -> None:
        """Take one trial."""
        for fault in ("", trial.fault):
            row = self.rows.setdefault((part, fault), Row(part, fault))
            row.tried += 1
            row.failed += bool(trial.failure)
            row.worst_seconds = max(row.worst_seconds, trial.seconds)
            row.worst_mebibytes = max(row.worst_mebibytes, trial.mebibytes)
        self.counts.update(trial.counts)
        if trial.failure:
            self.failures.append((part, trial))


def first(*failures: str | None) -> str:
    """The first failure that is one."""
    return next((failure for failure in failures if failure), "")
