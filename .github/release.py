"""Cut a release, and say what the workflow of releases must know of one.

``python .github/release.py cut 0.3.0`` sets the version and its date wherever they stand, commits that and makes the
tag; ``ready v0.3.0`` exits with 1 where the tag is not of this version or the owner is not named yet; ``notes v0.3.0``
prints the release's section of the changelog.
"""

import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

ROOT = Path.cwd()
VERSION, CITATION, CHANGELOG = (ROOT / name for name in ("jigsaw_opt/__init__.py", "CITATION.cff", "CHANGELOG.md"))
_VERSION = re.compile(r'(?<=^__version__ = ")[\d.]+(?=")', re.MULTILINE)
_ASK = "name {} in pyproject.toml (tool.jigsaw_opt)"


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, text=True, capture_output=True).stdout.strip()


def current() -> str:
    """Return the version that stands in the package."""
    found = _VERSION.search(VERSION.read_text())
    return found[0] if found else sys.exit("no version in the package")


def section(heading: str) -> str:
    """Return what the changelog says under this heading, which may be nothing."""
    found = re.search(rf"^## \[{re.escape(heading)}\].*?\n(.*?)(?=^## |\Z)", CHANGELOG.read_text(), re.M | re.S)
    return found[1].strip() if found else ""


def publisher() -> dict[str, str]:
    """Return the owner and the address that pyproject.toml names."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["jigsaw_opt"])


def unnamed() -> list[str]:
    """Return what is a placeholder still."""
    return [name for name, value in publisher().items() if value == "OWNER" or value.endswith("@example.org")]


def replace(path: Path, pattern: str, text: str) -> None:
    """Replace the one place of the file that the pattern finds."""
    new, times = re.subn(pattern, text, path.read_text(), flags=re.MULTILINE)
    if times != 1:
        sys.exit(f"{path.name}: {pattern} is there {times} times, not once")
    path.write_text(new)


def cut(version: str) -> None:
    """Set version and date, commit and tag; change nothing where anything is amiss."""
    numbers = [int(each) for each in version.split(".")] if re.fullmatch(r"\d+\.\d+\.\d+", version) else []
    problems = [
        problem
        for problem, true in {
            f"{version} is no version such as 0.3.0": not numbers,
            f"{version} is not above {current()}": numbers <= [int(each) for each in current().split(".")],
            "the changelog has nothing under [Unreleased]": not section("Unreleased"),
            "commit first: the work tree has changes": git("status", "--porcelain"),
            f"the tag v{version} is there": git("tag", "--list", f"v{version}"),
            _ASK.format(" and ".join(unnamed())): unnamed(),
        }.items()
        if true
    ]
    if problems:
        sys.exit("\n".join(problems))
    today = date.today().isoformat()
    replace(VERSION, _VERSION.pattern, version)
    replace(CITATION, r"^version: .*$", f"version: {version}")
    replace(CITATION, r"^date-released: .*$", f"date-released: {today}")
    replace(CHANGELOG, r"^## \[Unreleased\]$", f"## [Unreleased]\n\n## [{version}] - {today}")
    git("commit", "--quiet", "--all", "--message", f"Release {version}")
    git("tag", "--annotate", f"v{version}", "--message", f"Release {version}")
    print(f"made the tag v{version}; to publish: git push --follow-tags")


def ready(tag: str) -> None:
    """Exit with 1 where this tag must not be published."""
    if tag != f"v{current()}":
        sys.exit(f"the tag {tag} is not of the version {current()}")
    if not section(current()):
        sys.exit(f"the changelog has no section of {current()}")
    if unnamed():
        sys.exit(_ASK.format(" and ".join(unnamed())))


def notes(tag: str) -> None:
    """Print the section of the changelog, with addresses at this tag in place of paths."""
    files = f"https://github.com/{publisher()['owner']}/jigsaw_opt/blob/{tag}/"
    print(re.sub(r"(?<=\]\()(?!https?:|#)", files, section(tag.removeprefix("v"))))


if __name__ == "__main__":
    commands = {"cut": cut, "ready": ready, "notes": notes}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](sys.argv[2])
