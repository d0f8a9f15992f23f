"""Whatever goes wrong, a replay ends with one message and no process left, and goes on from its last checkpoint."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")


from replayed import instance, run, written  # noqa: E402

from jigsaw_opt.documents import load_replay  # noqa: E402
from tests.processes import alive  # noqa: E402
from tests.refusals import ends  # noqa: E402

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
        plan, source = self.files[1], self.files[0]
        length = () if "--minutes" in options else ("--iterations", 3)
        common = ("--instance", source, "--trust", "faulty:net", "--warm-up", 0, *length, "-o", self.output)
        return ("run", plan, *common, *options)

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
    ("fault", "code", "message"),
    [
        ("kill", 1, "SIGKILL"),
        ("raise", 1, "ValueError: "),
        ("exit", 1, "SystemExit: 0 ("),
        ("nan", 1, " nan"),
        ("full", 1, "job0-worker"),
    ],
)
def test_a_fault_ends_the_run_and_it_goes_on(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str], fault: str, code: int, message: str
) -> None:
    ground.trigger.write_text(f"{fault} 5")  # the first call finds what a block keeps
    checkpoint = tmp_path / "checkpoint"
    assert ground.run("--checkpoint", checkpoint, "--checkpoint-every", 1) == code
    printed = capfd.readouterr().err
    assert printed.count("error") == 1 and message in printed and "Traceback" not in printed
    assert not ground.living()
    digests, first = ground.resumed(checkpoint)
    assert digests == ground.digests
    assert max(first) >= 2 and min(first) >= 1


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is heard even where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_run_and_keeps_the_checkpoint(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ground.trigger.write_text("nothing 0")
    checkpoint = tmp_path / "checkpoint"
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not list(checkpoint.glob("job2-*-iteration[2-9]*.pt")) and time.monotonic() < deadline:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    caller = threading.Thread(target=interrupt)
    caller.start()
    files = ("--instance", ground.files[0], "--trust", "faulty:net", "-o", ground.output)
    saving = ("--checkpoint", checkpoint, "--checkpoint-every", 1)
    assert run("run", ground.files[1], *files, "--minutes", 2, *saving) == 130
    caller.join()
    printed = capfd.readouterr().err
    assert printed.count("\n") == 3 and f"wrote {ground.output}" in printed
    assert str(checkpoint) in printed and "--resume" in printed
    measured = load_replay(ground.output).timeline
    assert all(len(job.iterations) > 0 and job.parameters_sha256 == () for job in measured.jobs)
    assert run("plot", ground.files[0], ground.files[1], "--replay", ground.output, "-o", tmp_path / "p.html") == 0
    assert not ground.living()
    assert len(list(checkpoint.glob("job2-*.pt"))) in (1, 2)
    assert all(torch.load(path, weights_only=True)["iteration"] >= 1 for path in checkpoint.glob("job*.pt"))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_without_checkpoints_says_how_to_have_them(
    ground: Ground, capfd: pytest.CaptureFixture[str]
) -> None:
    ground.trigger.write_text("nothing 0")
    main = threading.main_thread().ident
    assert main is not None
    known = len(list(ground.folder.glob("process*")))

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while len(list(ground.folder.glob("process*"))) == known and time.monotonic() < deadline:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    caller = threading.Thread(target=interrupt)
    caller.start()
    assert ground.run("--minutes", 2) == 130
    caller.join()
    assert "--checkpoint DIR" in capfd.readouterr().err
    assert not ground.living()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_before_a_job_is_saved_as_a_whole_and_the_way_on(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ground.trigger.write_text("nothing 0")
    checkpoint, main = tmp_path / "checkpoint", threading.main_thread().ident
    assert main is not None
    known = len(list(ground.folder.glob("process*")))

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while len(list(ground.folder.glob("process*"))) == known and time.monotonic() < deadline:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    caller = threading.Thread(target=interrupt)
    caller.start()
    saving = ("--checkpoint", checkpoint, "--checkpoint-every", 1_000_000)
    assert ground.run(*saving, "--minutes", 2) == 130
    caller.join()
    told = f"no job is saved as a whole yet in {checkpoint}; the same command and --resume begins anew"
    assert told in capfd.readouterr().err
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


def test_a_forged_checkpoint_ends_the_run_in_one_message(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ground.trigger.write_text("nothing 0")
    checkpoint = tmp_path / "checkpoint"
    assert ground.run("--checkpoint", checkpoint, "--iterations", 2) == 0
    for path in checkpoint.glob("job*.pt"):
        state = torch.load(path, weights_only=True)
        torch.save(state | {"optimiser": {"state": None, "param_groups": []}}, path)
    capfd.readouterr()
    assert ground.run("--checkpoint", checkpoint, "--resume") == 3
    printed = capfd.readouterr().err
    assert "$.optimiser.state: " in printed and "$.optimiser.param_groups: " in printed
    assert printed.count("error") == 1 and "Traceback" not in printed
    assert not ground.living()


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
    assert not ground.living()


def test_what_differs_from_the_run_of_a_checkpoint_is_named(
    ground: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.trigger.write_text("nothing 0")
    assert ground.run("--checkpoint", tmp_path / "checkpoint") == 0
    resumed = ground.command("--checkpoint", tmp_path / "checkpoint", "--resume", "--learning-rate", 0.02)
    ends(f"3: mismatch {tmp_path / 'checkpoint' / 'checkpoint.json'} learning rate", *resumed)
    told = capsys.readouterr().err
    assert " 0.01" in told and " 0.02" in told
    ends("2: missing-option checkpoint", *ground.command("--resume"))


def test_code_is_imported_only_if_trusted(ground: Ground) -> None:
    ends("3: not-allowed $.models.net.executor.zoo", "run", ground.files[1], "--instance", ground.files[0])


def test_a_refused_run_leaves_no_folder_and_what_was_there_stays(ground: Ground, tmp_path: Path) -> None:
    """What the model is made of is known in the processes alone, when the folder is there."""
    ground.trigger.write_text("nothing 0")
    other = ground.folder / "other.json"
    other.write_text(ground.files[0].read_text().replace('"1-2"', '"1-3"'))
    plan = tmp_path / "plan.json"
    assert run("solve", other, "--solver", "greedy", "-q", "-o", plan) == 0
    words = ("run", plan, "--instance", other, "--trust", "faulty:net", "--warm-up", 0)
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
    assert ground.run("-q") == 0
    assert "pass 1" not in capfd.readouterr().err
