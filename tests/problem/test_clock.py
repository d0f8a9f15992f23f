"""The clock of a solve, busy times against a table of every microsecond, and tables in memory."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

import jigsaw_opt as jo
from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.calendar import Calendar, union
from jigsaw_opt.problem.clock import Clock, check_deadline, checking_deadline, current, in_context, limited, within
from jigsaw_opt.problem.data_table import DataTable


def over() -> Clock:
    return Clock(0.0, threading.Event())


def test_a_limit_ends_what_looks() -> None:
    with limited(over()):
        with pytest.raises(OutOfTimeError):
            check_deadline()
        with pytest.raises(OutOfTimeError):
            list(checking_deadline([1]))
    check_deadline()


def test_a_cancel_ends_it_after_the_grace() -> None:
    cancel = threading.Event()
    at_once, later = Clock(None, cancel), Clock(None, cancel, grace=3600.0)
    assert not at_once.over and not later.over
    cancel.set()
    assert at_once.over and not later.over


def test_time_kept_back_is_not_there() -> None:
    clock = Clock(3600.0, threading.Event())
    clock.has_plan(1800.0)
    clock.has_plan(1801.0)
    assert not clock.over
    clock.has_plan(3600.0)
    assert clock.over


def test_without_a_plan_the_time_is_over_sooner() -> None:
    clock = Clock(3600.0, threading.Event())
    clock.end_without_plan(0.0)
    assert clock.over and clock.left == 0.0
    clock.has_plan(0.0)
    assert not clock.over and clock.left > 0.0


def test_another_thread_is_limited_only_in_the_context() -> None:
    with limited(over()), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current).result() is None
        with pytest.raises(OutOfTimeError):
            pool.submit(in_context(check_deadline)).result()


def test_rows_and_columns() -> None:
    table = DataTable.of([{"a": 1, "b": 2}, {"b": 3, "c": "<x>"}], first=["c"])
    assert table.columns == ("c", "a", "b")
    assert table.rows == ((None, 1, 2), ("<x>", None, 3))
    assert table["b"] == (2, 3) and len(table) == 2
    assert list(table)[1] == {"c": "<x>", "a": None, "b": 3}
    assert repr(table) == "DataTable(2 rows of c, a, b)"
    assert table == DataTable(table.columns, list(table.rows)) and table != DataTable(("c",), []) and table != [()]
    page = table._repr_html_()
    assert "&lt;x&gt;" in page and "<x>" not in page
    assert "<p>5 more</p>" in DataTable(("n",), ((n,) for n in range(25)))._repr_html_()


def test_the_progress_of_a_solve_is_a_table() -> None:
    result = jo.solve(jo.instances.load("tiny/000"), "greedy")
    assert result.progress.columns == ("seconds", "objective", "bound")
    assert result.progress["objective"] == tuple(event.objective for event in result.trajectory)
    assert len(result.progress) >= 1 and result.progress["objective"][-1] == result.objective


PERIOD = 12
LONGEST = 40


class Table:
    """The same by a set of busy microseconds."""

    def __init__(self, period: int | None) -> None:
        self.period, self.busy = period, set[int]()

    def at(self, start: int, end: int) -> set[int]:
        return {moment if self.period is None else moment % self.period for moment in range(start, end)}

    def earliest(self, moment: int, duration: int) -> int | None:
        if self.period is not None and duration > self.period:
            return None
        starts = range(moment, moment + LONGEST + (self.period or 0))
        return next((start for start in starts if not self.at(start, start + duration) & self.busy), None)


def drawn(draw: Random, period: int | None) -> tuple[Calendar, Table, list[tuple[int, int]]]:
    """Return a calendar and a table with the same intervals, and these."""
    calendar, table, added = Calendar(period), Table(period), []
    for _ in range(draw.randrange(6)):
        start, length = draw.randrange(30), draw.randrange(1, 5)
        if not table.at(start, start + length) & table.busy:
            calendar.add(start, start + length)
            table.busy |= table.at(start, start + length)
            added.append((start, start + length))
    return calendar, table, added


@pytest.mark.parametrize("period", [None, PERIOD])
@pytest.mark.parametrize("seed", range(20))
def test_earliest_start_is_the_first_free_one(seed: int, period: int | None) -> None:
    calendar, table, _ = drawn(Random(seed), period)
    assert calendar.busy_us == len(table.busy)
    for moment in range(LONGEST):
        for duration in range(PERIOD + 2):
            assert calendar.earliest(moment, duration) == table.earliest(moment, duration), (moment, duration)


@pytest.mark.parametrize("period", [None, PERIOD])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_removed_leaves_no_trace(seed: int, period: int | None) -> None:
    draw = Random(seed)
    calendar, table, added = drawn(draw, period)
    draw.shuffle(added)
    for start, end in added:
        calendar.remove(start, end)
        table.busy -= table.at(start, end)
        assert calendar.busy_us == len(table.busy)
        assert [calendar.earliest(moment, 2) for moment in range(LONGEST)] == [
            table.earliest(moment, 2) for moment in range(LONGEST)
        ]
    assert (calendar.starts, calendar.ends, calendar.busy_us) == ([], [], 0)


@pytest.mark.parametrize("seed", range(20))
def test_hole_is_the_whole_free_time_around_the_first_free_moment(seed: int) -> None:
    calendar, table, _ = drawn(Random(seed), PERIOD)
    for moment in range(LONGEST):
        start, end = calendar.hole(moment)
        first = table.earliest(moment, 1)
        if not table.busy:
            assert (start, end) == (moment, moment + PERIOD)
        elif first is None:
            assert start == end
        else:
            assert start <= first < end
            assert not table.at(start, end) & table.busy
            assert table.at(start - 1, start) <= table.busy and table.at(end, end + 1) <= table.busy


def test_a_clock_within_another_is_over_with_it_and_keeps_its_grace() -> None:
    cancel = threading.Event()
    with limited(Clock(None, cancel, grace=3600.0)), limited(within(1800.0)):
        cancel.set()
        check_deadline()
    for outer in (over(), Clock(None, cancel)):
        with pytest.raises(OutOfTimeError), limited(outer), limited(within(3600.0)):
            check_deadline()


def test_intervals_that_overlap_or_meet_become_one() -> None:
    finite = Calendar(None, [(8, 9), (1, 3), (2, 4), (4, 6), (7, 7)])
    assert (finite.starts, finite.ends, finite.busy_us) == ([1, 8], [6, 9], 6)
    around = Calendar(10, [(8, 12), (21, 24)])
    assert (around.starts, around.ends, around.busy_us) == ([0, 8], [4, 10], 6)


@pytest.mark.parametrize("period", [None, PERIOD])
@pytest.mark.parametrize("seed", range(10))
def test_union_is_busy_where_any_is(seed: int, period: int | None) -> None:
    draw = Random(seed)
    pairs = [drawn(draw, period)[:2] for _ in range(3)]
    both = union([calendar for calendar, _ in pairs], period)
    busy = set[int]().union(*(table.busy for _, table in pairs))
    assert {moment for span in zip(both.starts, both.ends, strict=True) for moment in range(*span)} == busy
    assert both.busy_us == len(busy)


def test_union_of_one_calendar_follows_its_changes() -> None:
    calendar = Calendar()
    same = union([calendar], None)
    calendar.add(2, 5)
    assert same is calendar and same.earliest(1, 2) == 5
