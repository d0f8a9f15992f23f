"""Packages that tests install: a folder with entry points, and the program with it on its path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def installed(folder: Path, group: str, points: Mapping[str, str]) -> Path:
    """Put the metadata of a package with these entry points, ``module:object`` by name, into a new folder."""
    information = folder / "site" / "others-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (information / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
    return information.parent


def jigsaw(*arguments: str, cwd: Path, package: Path | None = None) -> tuple[int, str, str]:
    """Exit code and output of the program, in which `package` is installed."""
    path = os.pathsep.join(map(str, [ROOT, *([package] if package else [])]))
    command = [sys.executable, "-m", "jigsaw_opt", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, cwd=cwd, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr
