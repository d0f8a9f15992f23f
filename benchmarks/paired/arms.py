"""What is compared: a tree of code, and how its solves differ from others."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jigsaw_opt.documents import write_atomically
from jigsaw_opt.errors import UsageError
from paired.cases import Case

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory with the package in it, such as a worktree of a commit, and a hash of all its Python files.

    Rows of other code are never taken for its own.
    """

    folder: Path
    digest: str

    @classmethod
    def at(cls, folder: Path) -> Tree:
        """The tree in a directory."""
        folder = folder.resolve()
        if not (folder / "jigsaw_opt" / "__init__.py").exists():
            raise UsageError(f"{folder} is no directory with jigsaw_opt in it")
        digest = hashlib.sha256()
        for path in sorted((folder / "jigsaw_opt").rglob("*.py")):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
        return cls(folder, digest.hexdigest()[:16])

    def search_path(self, output: Path) -> str:
        """Value of PYTHONPATH that leads to this tree and to its own entry points.

        Those of an installed package belong to other code, so the tree's are written to a folder under `output`.
        """
        project = tomllib.loads((self.folder / "pyproject.toml").read_text("utf-8"))["project"]
        metadata = output / "entry-points" / self.digest
        about = metadata / "jigsaw_opt-0.dist-info"
        if not about.exists():
            about.mkdir(parents=True)
            lines = [f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0+{self.digest}\n"]
            write_atomically(about / "METADATA", "".join(lines).encode())
            groups = project.get("entry-points", {})
            text = "\n".join(
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
                for group, points in groups.items()
            )
            write_atomically(about / "entry_points.txt", text.encode())
        return f"{metadata.resolve()}:{self.folder}"


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to solve: code, parameters of the search as TOML, relaxations that are left out, other values of constants.

    `matters` says whether it can differ from the first arm, given that one's row of the same case; where not, it is not
    run. None where it always can.
    """

    name: str
    tree: Tree
    params: str = ""
    without_bounds: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    matters: Callable[[Case, Row], bool] | None = field(default=None, compare=False)
