"""``jigsaw fill``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_instance
from tests.planning.test_fill import CASES
from tests.refusals import ends


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "holes.json"
    save_instance(CASES[0], path)
    return path


def test_instance_and_plan_are_written_and_right(
    document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled, plan = tmp_path / "filled.json", tmp_path / "plan.json"
    options = ["--slowdown", "1.2", "--work-limit", "20", "--time-limit", "300", "--threads", "1"]
    written = ["-o", str(filled), "--plan", str(plan), "--json"]
    assert main(["fill", str(document), "--foreground", "front", *options, *written]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "optimal"
    assert told["period_us"] <= told["allowed_us"] == 18
    assert sum(told["iterations"].values()) == pytest.approx(told["rate_per_s"] * told["period_us"] / 1e6)
    assert main(["check", str(filled), str(plan)]) == 0
    page = tmp_path / "filled.html"
    assert main(["plot", str(filled), str(plan), "--foreground", "front", "-o", str(page)]) == 0
    assert f'"{100 * told["holes_filled"]:.1f} %"' in page.read_text()
    assert main(["plot", str(filled), str(plan), "--foreground", "nobody"]) == 2


def test_a_least_rate_is_kept_and_stated_in_the_instance(document: Path, tmp_path: Path) -> None:
    filled, plan = tmp_path / "filled.json", tmp_path / "plan.json"
    options = ["--work-limit", "20", "--threads", "1", "--least", "b=60000", "-o", str(filled), "--plan", str(plan)]
    assert main(["fill", str(document), "--foreground", "front", *options]) == 0
    (job,) = (job for job in json.loads(filled.read_text())["jobs"] if job["name"] == "b")
    assert job["pace_us"] == 16
    assert main(["check", str(filled), str(plan)]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--foreground", "nobody"], "2: unknown-name --foreground"),
        (["--foreground", "front,a,b"], "2: empty foreground"),
        (["--foreground", "front", "--least", "a"], "2: malformed --least"),
        (["--foreground", "front", "--least", "b=often"], "2: malformed --least"),
        (["--foreground", "front", "--least", "c=2"], "2: unknown-name least"),
        (["--foreground", "front", "--least", "a=200000"], "4: InfeasibleError"),
        (["--foreground", "front", "--slowdown", "0.5"], "2: out-of-range slowdown"),
    ],
)
def test_bad_input_is_named(document: Path, arguments: list[str], told: str) -> None:
    ends(told, "fill", document, *arguments)


def test_jobs_alone_on_a_server_leave_policies_of_the_cluster_valid(capsys: pytest.CaptureFixture[str]) -> None:
    """Each of two foreground jobs is solved on one server; a policy of the cluster names the other one."""
    case = Path(__file__).parents[1] / "data" / "cases" / "robust" / "fill-route-policy.json"
    arguments = ["--foreground", "f,g", "--threads", "1", "--work-limit", "1", "--json"]
    assert main(["fill", str(case), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["foreground_us"] == 20 and found["iterations"]["h"] >= 1
