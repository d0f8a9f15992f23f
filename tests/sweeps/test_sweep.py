"""Nothing that has finished is lost or done twice, whoever dies."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from jigsaw_opt.errors import InvalidInputError, JigsawError, UsageError
from jigsaw_opt.sweeps.bench.summary import is_row
from jigsaw_opt.sweeps.engine_local import LocalEngine
from jigsaw_opt.sweeps.record import Record, read_rows
from jigsaw_opt.sweeps.task import SweepTask, rows_of, sweep, unfinished
from tests.processes import alive, wait_for
from tests.refusals import misuse, refuses
from tests.sweeps.calls import broken, calls, gated_tasks, killed, squared

ROOT = Path(__file__).parents[2]


def squares(folder: Path, count: int) -> list[SweepTask]:
    return [SweepTask(f"{n}", squared, (folder, n), {"number": n}) for n in range(count)]


def lines(folder: Path) -> list[str]:
    file = folder / "rows.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def test_every_task_gets_one_row_and_is_not_run_again(tmp_path: Path) -> None:
    tasks, seen = squares(tmp_path, 3), []
    with Record(tmp_path / "rows.jsonl") as record:
        sweep(tasks[:2], LocalEngine(), record)
        sweep(tasks, LocalEngine(jobs=2), record, lambda row, *_: seen.append(row))
        assert unfinished(tasks, record) == []
        assert [row["square"] for row in rows_of(tasks, record)] == [0, 1, 4]
    assert [row["key"] for row in seen] == ["2"]
    assert sorted(name for name, _ in calls(tmp_path)) == ["0", "1", "2"]
    assert json.loads(lines(tmp_path)[0]) == {"key": "0", "number": 0, "error": None, "square": 0}


@pytest.mark.slow
def test_a_killed_driver_loses_nothing_that_had_finished(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sweeps.calls", str(tmp_path)]
    # A short name, for the path of a socket below it has room for a hundred characters.
    scratch = Path(tempfile.mkdtemp(prefix="scratch-"))
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(scratch)}) as driver:
        wait_for(lambda: len(lines(tmp_path)) == 2 and len(calls(tmp_path)) == 4)
        driver.send_signal(signal.SIGKILL)
    before = lines(tmp_path)
    # Its processes end with it, or they would take time from those of the next driver.
    wait_for(lambda: not any(alive(int(pid)) for _, pid in calls(tmp_path)))
    wait_for(lambda: not list(scratch.iterdir()))
    scratch.rmdir()
    (tmp_path / "gate").touch()
    with Record(tmp_path / "rows.jsonl") as record:
        sweep(gated_tasks(tmp_path), LocalEngine(), record)
    after = lines(tmp_path)
    assert after[:2] == before
    assert sorted(json.loads(line)["key"] for line in after) == ["0", "1", "2", "3"]
    assert sorted(name for name, _ in calls(tmp_path)) == ["0", "1", "2", "2", "3", "3"]


@pytest.mark.parametrize("left", [1, 30, -5])
def test_half_a_line_at_the_end_is_cut_off(left: int, tmp_path: Path) -> None:
    tasks = squares(tmp_path, 2)
    with Record(tmp_path / "rows.jsonl") as record:
        sweep(tasks, LocalEngine(), record)
    whole = lines(tmp_path)
    (tmp_path / "rows.jsonl").write_text(whole[0] + "\n" + whole[1][:left])
    with Record(tmp_path / "rows.jsonl") as record:
        assert [task.key for task in unfinished(tasks, record)] == ["1"]
        sweep(tasks, LocalEngine(), record)
    assert lines(tmp_path) == whole


def test_lines_that_are_no_rows_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    text = '{"key": "a"}\n{"ke\n[1]\n{"key": 3}\nsomething else'
    path.write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        Record(path)
    assert [problem.path for problem in caught.value.problems] == [f"{path}:{n}" for n in (2, 3, 4, 5)]
    assert path.read_text() == text


LABELS = {"set": "s", "instance": "x", "solver": "a", "seed": 0, "time_limit": 1, "instance_sha256": "0" * 64}
GOOD = {**LABELS, "error": None, "gap": 0.5, "objective": 3, "trajectory": [[0.1, None, 2], [1, 3, 2]]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"error": [1]},
        {"gap": "x"},
        {"gap": float("nan")},
        {"unknown": float("inf")},
        *({"objective": value} for value in ([1], 10**400, -5, 12.5, True)),
        {"bound": "5"},
        {"instance_sha256": "zz"},
        {"threads": 0},
        {"seconds": -3},
        {"versions": dict.fromkeys(map(str, range(1100)), 1)},
        *({"trajectory": value} for value in (5, [[1, 2]], [[None, 2, 3]])),
        {"status": "\ud800"},
        '"deep": %s' % ("[" * 100_000),
        '"error": null, "error": null',
    ],
    ids=lambda wrong: str(wrong)[:30],
)
def test_rows_that_a_summary_cannot_be_made_of_are_named(tmp_path: Path, wrong: dict[str, object] | str) -> None:
    path = tmp_path / "rows.jsonl"
    last = f'{{"key": "b", {wrong}}}' if isinstance(wrong, str) else json.dumps({"key": "b", **GOOD, **wrong})
    path.write_text(json.dumps({"key": "a", **GOOD}) + "\n" + last + "\n")
    with pytest.raises(InvalidInputError) as caught:
        Record(path, is_row)
    assert [str(problem) for problem in caught.value.problems] == [
        f"{path}:2: is not a row (take another folder, or delete the line, and its task runs again)"
    ]


def test_two_rows_of_one_run_are_refused_unless_they_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first, other = '{"key": "a", "x": 1}\n', '{"key": "a", "x": 2}\n'
    path.write_text(first + first)
    with Record(path) as record:
        assert record.rows == {"a": {"key": "a", "x": 1}}
    path.write_text(first + '{"key": "b"}\n' + other)
    with refuses(f"duplicate-name {path}:3"):
        Record(path)


def test_who_only_reads_is_told_of_a_line_that_is_cut(tmp_path: Path) -> None:
    path, told = tmp_path / "rows.jsonl", list[str]()
    for text in ("", '{"key": "a"}\n'):
        path.write_text(text)
        read_rows(path, lambda _row: True, told.append)
    assert told == []
    path.write_text('{"key": "a"}\n{"key": "b", "sol')
    assert [*read_rows(path, lambda _row: True, told.append)] == ["a"]
    assert told == [f"the last line of {path} is cut off, and its run is left out"]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    with misuse(f"unwritable {tmp_path / 'rows.jsonl'}"):
        Record(tmp_path / "rows.jsonl")


def test_two_drivers_do_not_write_one_record(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Record(path), pytest.raises(JigsawError, match=re.escape(str(path))):
        Record(path)
    with Record(path) as record:
        assert record.rows == {}


def test_a_worker_that_is_killed_once_is_tried_again(tmp_path: Path) -> None:
    tasks = [SweepTask("killed", killed, (tmp_path, 1)), *squares(tmp_path, 2)]
    with Record(tmp_path / "rows.jsonl") as record:
        sweep(tasks, LocalEngine(), record)
        rows = rows_of(tasks, record)
    assert [(row["error"], row["square"]) for row in rows] == [(None, -1), (None, 0), (None, 1)]
    assert [name for name, _ in calls(tmp_path)] == ["killed", "0", "1", "killed"]


@pytest.mark.slow
def test_a_worker_that_always_dies_is_an_error_row_and_costs_no_other(tmp_path: Path) -> None:
    tasks = [
        SweepTask("killed", killed, (tmp_path, 9)),
        SweepTask("broken", broken, (tmp_path,)),
        *squares(tmp_path, 2),
    ]
    with Record(tmp_path / "rows.jsonl") as record:
        sweep(tasks, LocalEngine(jobs=2), record)
        errors = [row["error"] for row in rows_of(tasks, record)]
    assert errors == [
        "its process was killed by SIGKILL",
        "its process ended with exit code 3 and no result",
        None,
        None,
    ]
    assert len(lines(tmp_path)) == 4
    assert sorted(name for name, _ in calls(tmp_path)) == ["0", "1", *["broken"] * 2, *["killed"] * 2]


def test_a_sweep_that_is_stopped_ends_what_is_under_way(tmp_path: Path) -> None:
    tasks = gated_tasks(tmp_path)
    with Record(tmp_path / "rows.jsonl") as record:
        sweep(tasks, LocalEngine(jobs=2), record, stopped=lambda: len(calls(tmp_path)) == 4)
        assert [row["key"] for row in rows_of(tasks, record)] == ["0", "1"]
    assert not any(alive(int(pid)) for _, pid in calls(tmp_path))


def test_signals_to_the_group_do_not_reach_the_workers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sweeps.calls", str(tmp_path), "deaf"]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as driver:
        wait_for(lambda: len(calls(tmp_path)) == 4)
        os.killpg(driver.pid, signal.SIGTERM)
        (tmp_path / "gate").touch()
        assert driver.wait(60) == 0
    assert sorted(name for name, _ in calls(tmp_path)) == ["0", "1", "2", "3"]


def test_ctrl_c_while_a_process_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, started = ForkServerProcess, []
    start = kind.start

    def start_and_interrupt(process: ForkServerProcess) -> None:
        start(process)
        started.append(process)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(kind, "start", start_and_interrupt)
    # Tests that run in the background inherit that Ctrl-C is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(LocalEngine().run([SweepTask("long", time.sleep, (1000,), {})]))
    finally:
        signal.signal(signal.SIGINT, before)
    assert [process.is_alive() for process in started] == [False]


def test_rows_of_other_tasks_are_left_out_and_labels_are_the_tasks(tmp_path: Path) -> None:
    renamed = SweepTask("1", squared, (tmp_path, 1), {"number": "one"})
    with Record(tmp_path / "rows.jsonl") as record:
        sweep(squares(tmp_path, 3), LocalEngine(jobs=2), record)
        assert rows_of([renamed], record) == [{"key": "1", "number": "one", "error": None, "square": 1}]


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0)])
def test_an_engine_without_jobs_or_attempts_is_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(UsageError):
        LocalEngine(*numbers)
