"""A document of others, walked through without knowing that it is right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from jigsaw_opt.documents.readers.table import Accept
from jigsaw_opt.documents.readers.tally import MOST_SPARED, REPEATED, Found, Tally, Unfinished, wrong_record
from jigsaw_opt.documents.readers.times import PointInTime, moment_us
from jigsaw_opt.errors import Code, Problem
from jigsaw_opt.problem.rules.report import Place, Report, describe
from jigsaw_opt.problem.workload import TraceJob

_MOST = 10**6
_QUANTITY = re.compile(
    r"\+?(?P<number>[0-9]{1,12}(?:\.[0-9]{0,12})?)(?:(?P<unit>[num]|[kM]|Ki)|[eE](?P<ten>\+?[0-9]{1,2}))?"
)
_UNITS = {"n": "1e-9", "u": "1e-6", "m": "1e-3", "k": "1e3", "M": "1e6", "Ki": "1024"}


class Tree:
    """A value of a document that may be anything; what is not as expected is noted, once, and read as empty."""

    def __init__(self, value: Any, place: Place, report: Report, noted: set[tuple[Place, str]] | None = None) -> None:
        self.value, self.place, self.report = value, place, report
        self._noted = set() if noted is None else noted

    def __bool__(self) -> bool:
        return self.value is not None

    def add(self, message: str, hint: str = "", *, code: Code) -> None:
        """Note that it is wrong, once.

        `hint`: what would put it right; empty for nothing.
        """
        if (self.place, message) not in self._noted:
            self._noted.add((self.place, message))
            self.report.add(self.place, message, hint, code=code)

    def nothing(self) -> Tree:
        """Return what stands for a value that is not there."""
        return self._below(None, self.place)

    def _below(self, value: Any, place: Place) -> Tree:
        return Tree(value, place, self.report, self._noted)

    def at(self, *keys: str) -> Tree:
        """Return what stands under a path of keys; None where there is nothing."""
        tree = self
        for key in keys:
            if tree.value is not None and not isinstance(tree.value, Mapping):
                tree.add(f"an object is expected, not {describe(tree.value)}", code="wrong-type")
                tree.value = None
            tree = self._below((tree.value or {}).get(key), (tree.place, key))
        return tree

    def names(self) -> tuple[str, ...]:
        """Return the keys of an object; none of anything else."""
        return tuple(self.value) if isinstance(self.value, Mapping) else ()

    def items(self) -> Iterator[Tree]:
        """Yield the values of a list, or of an object; None is empty."""
        value = self.value
        if isinstance(value, list):
            yield from (self._below(one, (self.place, k)) for k, one in enumerate(value))
        elif isinstance(value, Mapping):
            yield from map(self.at, value)
        elif value is not None:
            self.add(f"a list or an object is expected, not {describe(value)}", code="wrong-type")

    def text(self) -> str:
        """Return a text that is not empty."""
        if isinstance(self.value, str) and self.value:
            return self.value
        self.add(f"a text is expected, not {describe(self.value)}", code="wrong-type")
        return ""

    def count(self, default: int) -> int:
        """Return a whole number, also one that is written as a text, as the quantities ``2``, ``2k`` and ``2000m``."""
        value = default if self.value is None else self.value
        if isinstance(value, str) and (found := _QUANTITY.fullmatch(value)):
            amount = Decimal(found["number"]) * Decimal(
                _UNITS[found["unit"]] if found["unit"] else f"1e{found['ten'] or 0}"
            )
            value = int(amount) if amount == int(amount) else value
        if type(value) is int and 0 <= value <= _MOST:
            return value
        code: Code = "out-of-range" if type(value) is int else "wrong-type"
        self.add(f"a whole number from 0 to {_MOST} is expected, not {describe(self.value)}", code=code)
        return 0

    def moment(self) -> PointInTime | None:
        """Return a date and time; None, with the problem noted, where it is none."""
        text = self.text()
        found = moment_us(text) if text else None
        if text and found is None:
            self.add(f"a date and time is expected, not {describe(text)}", code="malformed")
        return found


def accepted_jobs(found: Iterable[tuple[Tree, Found]], accept: Accept, tally: Tally) -> dict[str, TraceJob]:
    """Return the jobs by name, note what is wrong with them, and count what is left out.

    An item in which something is wrong, or with the name of a job before, is left out and counted as well; it is
    an error only where no job is left or nine items of ten are wrong.

    `found`: items of a document, each with its job, or with the reason why it is none.
    """
    jobs: dict[str, TraceJob] = {}
    spared: list[Problem] = []
    report: Report | None = None
    known = 0
    for item, job in found:
        report = item.report
        if wrong := report.problems[known:]:
            del report.problems[known:]
            spared += wrong[: MOST_SPARED - len(spared)]
            tally.leave_out(wrong_record(wrong[0].message))
            continue
        if isinstance(job, str | Unfinished):
            tally.leave_out(job)
            continue
        if job.name in jobs:
            tally.leave_out(REPEATED)
            continue
        for problem in accept(job):
            item.add(problem, code="unsupported")
        jobs[job.name] = job
        known = len(report.problems)
    if report is not None and tally.is_mostly_wrong(len(jobs)):
        report.problems.extend(spared)
    return jobs
