"""The commands that lead from a loop of one's own to a run by a plan work as the page has them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from jigsaw_opt.documents import load_replay  # noqa: E402
from tests.pages import section  # noqa: E402
from tests.processes import wait_for  # noqa: E402

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_training"
PROGRAMS = {
    "jigsaw": ["-P", "-m", "jigsaw_opt"],
    "torchrun": ["-m", "torch.distributed.run", "--standalone"],
    "python": [],
}
"""By name, what Python runs instead; as those installed, the first one does not look into its folder by itself."""


def commands() -> list[list[str]]:
    page = (ROOT / "docs" / "training-loop.md").read_text()
    return [shlex.split(line) for line in re.findall(r"^\$ (.*)", section(page, "From a loop to a plan"), re.MULTILINE)]


def test_it_takes_at_most_15_lines_beyond_the_model() -> None:
    text = "".join((EXAMPLE / name).read_text() for name in ("training.py", "loop.py"))
    code = re.sub(r'^ *""".*?"""$', "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    assert sum(bool(line) and not re.match(r"import |from |#", line) for line in code) <= 15


@pytest.mark.slow
def test_the_commands_of_the_page_lead_from_a_loop_to_a_run_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), ".")), "OMP_NUM_THREADS": "1"}

    def start(program: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, *PROGRAMS[program], *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=pipe, stderr=pipe)

    def done(*words: str) -> str:
        process = start(*words)
        printed, told = process.communicate()
        assert process.returncode == 0, told
        return printed

    (cd, loop, export, *measured, new, solve, run, resume, load) = commands()
    assert (cd, export) == (["cd", "examples/own_training"], ["export", "PYTHONPATH=."])
    losses = re.findall(r"loss ([0-9]\.[0-9]{3})", done(*loop))  # two lines may run together
    assert len(losses) == 2 and all(float(loss) < 1.2 for loss in losses)  # guesses have 1.386
    for words in (*measured, new, solve):
        done(*words)

    assert (run, run.index("--iterations")) == (resume[:-1], run.index("1000") - 1)
    interrupted = start(*run, "--checkpoint-every", "1")
    saved = folder / "saved"
    try:
        wait_for(lambda: any(saved.glob("job1-*-iteration??*.pt")) or interrupted.poll() is not None)
    finally:
        interrupted.send_signal(signal.SIGTERM)
        told = interrupted.communicate()[1]
    assert interrupted.returncode == 130 and "--resume" in told, told
    last = max(int(path.stem.partition("iteration")[2]) for path in saved.glob("*.pt"))
    passes = str(last // 6 + 2)
    replays = []
    for words in (resume, [passes if word == "saved" else word for word in run]):
        done(*(passes if word == "1000" else word for word in words), "-o", "replay.json")
        replays.append(load_replay(folder / "replay.json").timeline.jobs)
    resumed, whole = ([job.parameters_sha256 for job in jobs] for jobs in replays)
    assert resumed == whole and all(len(set(own)) == 1 for own in whole)
    assert min(job.first_iteration for job in replays[0]) > 0 == max(job.first_iteration for job in replays[1])
    done(*(word.replace("iteration8000", f"iteration{8 * int(passes)}") for word in load))
