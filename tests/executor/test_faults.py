"""Whatever goes wrong, a replay ends with one message and no process left, and goes on from its last checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from replayed import instance, run, written

from jigsaw_opt.documents import load_replay
from tests.processes import alive, wait_for
from tests.refusals import ends

SEGMENTS = [("0", 4 * 9 * 16), ("1-2", 4 * 17 * 3)]


@dataclass
class Ground:
    """An instance with a network that can fail, a plan for it, and what an undisturbed run comes to."""

    folder: Path
    files: tuple[Path, Path]
    digests: list[tuple[str, ...]]

    @property
    def trigger(self) -> Path:
        return self.folder / "trigger"

    def run(self, *options: object) -> int:
        return run(*self.command(*options))

    def command(self, *options: object) -> tuple[object, ...]:
        source, plan = self.files[:2]
        common = (source, plan, "--trust", "faulty:net", "--warm-up", 0, "--iterations", 3, "-o", self.output)
        return ("run", *common, *options)

    @property
    def output(self) -> Path:
        return self.folder / "replay.json"

    def resumed(self, checkpoint: Path) -> tuple[list[tuple[str, ...]], list[int]]:
        """Parameters at the end of a run that goes on, and where it began."""
        self.trigger.unlink()
        assert self.run("--checkpoint", checkpoint, "--resume") == 0
        jobs = load_replay(self.output).timeline.jobs
        return [job.parameters_sha256 for job in jobs], [job.first_iteration for job in jobs]

    def living(self) -> list[int]:
        """Processes of all runs so far that have not ended."""
        numbers = [int(path.name.removeprefix("process")) for path in self.folder.glob("process*")]
        assert numbers
        return [number for number in numbers if alive(number)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("faults")
    times = {"forward_us": {"box": 300}, "backward_us": {"box": 500}, "activation_bytes": 4096}
    entry = {"zoo": "faulty:net", "arguments": {"trigger": str(folder / "trigger")}, "batch_size": 4}
    net = {"segments": [{"name": n, "parameter_bytes": size, **times} for n, size in SEGMENTS], "executor": entry}
    problem = instance(models={"net": net})
    found = Ground(folder, written(folder, problem), [])
    assert found.run() == 0
    found.digests = [job.parameters_sha256 for job in load_replay(found.output).timeline.jobs]
    return found


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("kill", "SIGKILL"),
        ("raise", "ValueError: "),
        ("exit", "SystemExit: 0 ("),
        ("nan", " nan"),
        ("full", "job0-worker"),
    ],
)
def test_a_fault_ends_the_run_and_it_goes_on(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str], fault: str, message: str
) -> None:
    ground.trigger.write_text(f"{fault} 5")  # the first call finds what a block keeps
    checkpoint = tmp_path / "checkpoint"
    assert ground.run("--checkpoint", checkpoint, "--checkpoint-every", 1) == 1
    printed = capfd.readouterr().err
    assert printed.count("error") == 1 and message in printed and "Traceback" not in printed
    assert not ground.living()
    if fault in ("kill", "full"):
        digests, first = ground.resumed(checkpoint)
        assert digests == ground.digests
        assert max(first) >= 2 and min(first) >= 1


@contextmanager
def interrupted_once(is_due: Callable[[], bool]) -> Iterator[None]:
    """Press Ctrl-C as soon as something holds."""

    def interrupt() -> None:
        wait_for(is_due)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    caller = threading.Thread(target=interrupt)
    caller.start()
    yield
    caller.join()


def test_ctrl_c_ends_the_run_and_keeps_the_checkpoint(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ground.trigger.write_text("nothing 0")
    checkpoint = tmp_path / "checkpoint"
    saving = ("--checkpoint", checkpoint, "--checkpoint-every", 1)
    with interrupted_once(lambda: any(checkpoint.glob("job2-*-iteration[2-9]*.pt"))):
        assert ground.run("--iterations", 10_000, *saving) == 130
    printed = capfd.readouterr().err
    assert printed.count("\n") == 3 and f"wrote {ground.output}" in printed
    assert str(checkpoint) in printed and "--resume" in printed
    measured = load_replay(ground.output).timeline
    assert all(len(job.iterations) > 0 and job.parameters_sha256 == () for job in measured.jobs)
    assert run("plot", ground.files[0], ground.files[1], "--replay", ground.output, "-o", tmp_path / "p.html") == 0
    assert not ground.living()
    assert len(list(checkpoint.glob("job2-*.pt"))) in (1, 2)
    assert all(torch.load(path, weights_only=True)["iteration"] >= 1 for path in checkpoint.glob("job*.pt"))


def test_an_interrupt_before_a_job_is_saved_as_a_whole_says_the_way_on(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ground.trigger.write_text("nothing 0")
    checkpoint = tmp_path / "checkpoint"
    saving = ("--checkpoint", checkpoint, "--checkpoint-every", 1_000_000)
    begun_anew = f"no job is saved as a whole yet in {checkpoint}; the same command and --resume begins anew"
    for options, told in (((), "--checkpoint DIR"), (saving, begun_anew)):
        known = len(list(ground.folder.glob("process*")))
        with interrupted_once(lambda known=known: len(list(ground.folder.glob("process*"))) > known):
            assert ground.run(*options, "--iterations", 10_000) == 130
        assert told in capfd.readouterr().err and not ground.living()
    assert ground.run(*saving, "--iterations", 1, "--resume") == 0


def test_a_finished_run_can_be_made_longer(ground: Ground, tmp_path: Path) -> None:
    ground.trigger.write_text("nothing 0")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / ".jigsaw-killed.tmp").touch()
    assert ground.run("--checkpoint", checkpoint, "--iterations", 2) == 0
    assert not list(checkpoint.glob(".*"))
    (checkpoint / ".jigsaw-killed.tmp").touch()
    digests, first = ground.resumed(checkpoint)
    assert not list(checkpoint.glob(".*"))
    assert digests == ground.digests
    assert first == [4, 4, 6]
    ends("2: empty checkpoint", *ground.command("--checkpoint", checkpoint, "--resume"))


def test_a_checkpoint_is_not_overwritten_nor_taken_for_another_run(ground: Ground, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    statement = checkpoint / "checkpoint.json"
    resumed = ground.command("--checkpoint", checkpoint, "--resume")
    ends(f"3: unreadable {statement}", *resumed)
    checkpoint.mkdir()
    statement.write_text('{"seed": 1}')
    ends("2: unwritable checkpoint", *ground.command("--checkpoint", checkpoint))
    keys = ("format", "instance_sha256", "plan_sha256", "optimiser", "learning rate", "momentum", "averaging", "seed")
    ends("3: " + "; ".join(f"mismatch {statement} {key}" for key in keys), *resumed)
    ends("2: missing-option checkpoint", *ground.command("--resume"))
    assert not ground.living()


def test_a_refused_run_leaves_no_folder_and_what_was_there_stays(ground: Ground, tmp_path: Path) -> None:
    """What the model is made of is known in the processes alone, when the folder is there."""
    ground.trigger.write_text("nothing 0")
    other = ground.folder / "other.json"
    other.write_text(ground.files[0].read_text().replace('"1-2"', '"1-3"'))
    plan = tmp_path / "plan.json"
    assert run("solve", other, "--solver", "greedy", "-q", "-o", plan) == 0
    words = ("run", other, plan, "--trust", "faulty:net", "--warm-up", 0)
    assert run(*words, "--checkpoint", tmp_path / "new" / "saved") in (2, 3)
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "note").touch()
    assert run(*words, "--checkpoint", tmp_path / "old") in (2, 3)
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["note"]


def test_progress_of_a_run_is_said_where_it_is_asked_for(ground: Ground, capfd: pytest.CaptureFixture[str]) -> None:
    ground.trigger.write_text("nothing 0")
    assert ground.run("-v") == 0
    said = capfd.readouterr().err.splitlines()
    assert [line.split()[-1] for line in said[1:4]] == ["start", "begins", "plan"] and said[3].startswith("pass 1 of 3")
