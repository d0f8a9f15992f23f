"""Tools of the repository, which no source archive has: the checks of a commit, the workflows, the release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.refusals import carries

ROOT = Path(__file__).parents[1]
WORKFLOWS = {path.stem: yaml.load(path.read_text(), yaml.BaseLoader) for path in ROOT.glob(".github/workflows/*.yml")}
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]


def hook(name: str) -> dict[str, Any]:
    (found,) = (each for repository in HOOKS for each in repository["hooks"] if each["id"] == name)
    return dict(found)


def test_commits_are_checked_with_the_tools_of_the_environment() -> None:
    assert {repository["repo"] for repository in HOOKS} == {"local"}
    for name in ("ruff", "ruff-format", "mypy"):
        assert hook(name)["entry"].startswith(".venv/bin/")
        assert hook(name)["language"] == "system"
    tool("pre_commit", "validate-config", ".pre-commit-config.yaml")


def test_subjects_of_commits_are_short() -> None:
    """The hook is a pattern over the whole message; bodies may be as wide as they like."""
    assert hook("subject")["stages"] == ["commit-msg"] and "--multiline" in hook("subject")["args"]
    for length, refused in ((10, False), (72, False), (73, True), (200, True)):
        message = f"{'x' * length}\n\n{'y' * 300}\n"
        assert bool(re.search(hook("subject")["entry"], message, re.MULTILINE | re.DOTALL)) is refused


def tool(module: str, *arguments: str | Path) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed (extra dev)")
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", "workflows/*.yml"),
        ("dependabot", "dependabot.yml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
    ],
)
def test_files_for_the_forge_keep_its_schemas(schema: str, pattern: str) -> None:
    files = sorted((ROOT / ".github").glob(pattern))
    assert files
    tool("check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


def test_workflows_have_no_known_weakness() -> None:
    """Permissions beyond need, credentials that stay, caches that others fill, text that becomes a command."""
    zizmor = shutil.which("zizmor", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if zizmor is None:
        pytest.skip("zizmor is not installed (extra dev)")
    command = [zizmor, "--offline", "--quiet", "--no-progress", "."]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def steps() -> list[str]:
    jobs = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]
    return [step["run"] for job in jobs for step in job.get("steps", []) if "run" in step]


def test_workflows_run_what_is_there() -> None:
    """Targets of the Makefile, the release's script, and nothing by a path that is gone."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {target for run in steps() for target in re.findall(r"^make ([\w-]+)", run, re.MULTILINE)}
    assert asked and asked <= targets
    scripts = {name for run in steps() for name in re.findall(r"python (\S+\.py)", run)}
    assert scripts and all((ROOT / name).is_file() for name in scripts)


def test_every_python_version_that_is_promised_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [each.rsplit(" ", 1)[1] for each in project["classifiers"] if each.startswith("Programming Language")]
    assert {each for each in named if "." in each} == set(
        WORKFLOWS["tests"]["jobs"]["core"]["strategy"]["matrix"]["python"]
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with what a release changes and reads."""
    for name in ("jigsaw_opt/__init__.py", "CITATION.cff", "CHANGELOG.md", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "a")
    git(tmp_path, "config", "user.email", "a@example.org")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "before")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, text=True, capture_output=True).stdout


def publish_as(project: Path, owner: str, contact: str) -> None:
    settings = project / "pyproject.toml"
    text = re.sub('^owner = ".*"$', f'owner = "{owner}"', settings.read_text(), flags=re.MULTILINE)
    settings.write_text(re.sub('^contact = ".*"$', f'contact = "{contact}"', text, flags=re.MULTILINE))


def release(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, str(ROOT / ".github" / "release.py"), *arguments]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_release_sets_version_and_date_everywhere_and_makes_the_tag(project: Path) -> None:
    (project / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n* [New](docs/a.md).\n\n## [0.1.0] - 2020-01-01\n\n* Old.\n"
    )
    publish_as(project, "someone", "someone@example.com")
    git(project, "commit", "--quiet", "--all", "--message", "a change")
    assert release(project, "cut", "98.7.6")[0] == 0
    assert git(project, "tag", "--list").split() == ["v98.7.6"] and not git(project, "status", "--porcelain")
    assert '__version__ = "98.7.6"' in (project / "jigsaw_opt" / "__init__.py").read_text()
    citation = yaml.load((project / "CITATION.cff").read_text(), yaml.BaseLoader)
    assert citation["version"] == "98.7.6"
    heading = f"## [Unreleased]\n\n## [98.7.6] - {citation['date-released']}\n\n* [New](docs/a.md).\n"
    assert heading in (project / "CHANGELOG.md").read_text()
    code, printed, _ = release(project, "notes", "v98.7.6")
    assert code == 0 and re.fullmatch(r"\* \[New\]\(https://\S+/jigsaw_opt/blob/v98\.7\.6/docs/a\.md\)\.\n", printed)


def test_a_release_names_all_that_is_amiss_and_changes_nothing(project: Path) -> None:
    (project / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    publish_as(project, "OWNER", "anybody@example.org")
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file() and ".git" not in path.parts}
    code, _, problems = release(project, "cut", "0.0.1")
    assert code == 1 and len(problems.splitlines()) == 4 and "name owner and contact" in problems
    assert "not above" in problems and carries(problems, "nothing", "Unreleased") and "commit first" in problems
    assert before == {path: path.read_bytes() for path in before} and not git(project, "tag", "--list")


def test_only_a_tag_of_the_version_with_a_named_owner_is_published(project: Path) -> None:
    text = (project / "jigsaw_opt" / "__init__.py").read_text()
    (version,) = re.findall('^__version__ = "(.+)"$', text, re.MULTILINE)
    for tag, owner, contact, amiss in (
        ("v9.9.9", "someone", "someone@example.com", "is not of the version"),
        (f"v{version}", "OWNER", "someone@example.com", "name owner in"),
        (f"v{version}", "OWNER", "anybody@example.org", "name owner and contact in"),
        (f"v{version}", "someone", "someone@example.com", ""),
    ):
        publish_as(project, owner, contact)
        code, _, problems = release(project, "ready", tag)
        assert code == bool(amiss) and amiss in problems
