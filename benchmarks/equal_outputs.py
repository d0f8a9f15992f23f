"""Whether two trees of code print and write the same: files, standard output and exit codes of ten groups of runs.

``python benchmarks/equal_outputs.py OLD NEW [GROUP ...]`` runs the same commands with both trees, which are directories
with the package in them, and shows where the first difference of each file is. Seconds and dates are left out of the
comparison; in the groups `bench` and `run`, whose figures are measured, all numbers are.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path

from common import shared
from paired.arms import Tree
from paired.request import ended

from jigsaw_opt.errors import CheckFailedError

_ROOT = Path(__file__).resolve().parents[1]
_MEASURED = ("bench", "run")
"""Groups whose figures differ from run to run."""
_NO_CLOCK = "import time\ntime.process_time_ns = lambda: 0\n"
"""What each interpreter of the other groups begins with: the CPU time of a policy is 0."""
_GROUPS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""By name, commands that are run one after the other in one folder."""


def outputs(tree: Tree, group: str, folder: Path) -> dict[str, str]:
    """What the commands of a group write into a folder, print and end with, without what is measured."""
    places = {"data": shared(), "tests": _ROOT / "tests" / "data", "examples": _ROOT / "examples"}
    metadata = folder / "metadata"
    path = tree.search_path(metadata)
    if group not in _MEASURED:
        (metadata / "sitecustomize.py").write_text(_NO_CLOCK)
        path += f":{metadata}"
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "100", "PYTHONHASHSEED": "0"}
    work = folder / "work"
    work.mkdir()
    found = {}
    for line in _GROUPS[group]:
        command = line.format_map(places)
        done = subprocess.run(
            [sys.executable, "-m", "jigsaw_opt", *shlex.split(command)], env=environment, cwd=work, capture_output=True
        )
        if done.returncode in (1, 2, 6):
            raise CheckFailedError(
                f"with {tree.folder}, nothing is compared of jigsaw {command}:\n{done.stderr.decode()}"
            )
        printed = f"exit code {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}"
        found[f"jigsaw {line}"] = without_measures(printed.replace(str(tree.folder / "jigsaw_opt"), "PACKAGE"), group)
    for file in sorted(each for each in work.rglob("*") if each.is_file()):
        text = file.read_bytes().decode("utf-8", "backslashreplace")
        found[str(file.relative_to(work))] = without_measures(text, group)
    return found


def without_measures(text: str, group: str) -> str:
    """A text with every measured second replaced, and every number where all are measured."""
    text = re.sub(r'("(?:seconds|cpu_seconds|created)": *)[0-9.e+-]+', r"\1T", text)
    text = re.sub(r"\b[0-9]+(\.[0-9]+)? m?s\b", "T", text)
    text = re.sub(r",[0-9.]+,[0-9.]+,(\w+)$", r",T,T,\1", text, flags=re.M)
    if group in _MEASURED:
        text = re.sub(r" *[-−+]? *[0-9]+([.,][0-9]+)*", " N", text)
        text = re.sub(r"\[ N(, N)*\](, \[ N(, N)*\])*", "N", text)
        text = re.sub(r" +", " ", text)
    return text


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """What one tree alone has, and where the others begin to differ."""
    for name in dict.fromkeys((*old, *new)):
        if name not in old or name not in new:
            yield f"{name}: only in the {'old' if name in old else 'new'} tree"
        elif old[name] != new[name]:
            pairs = zip(old[name], new[name], strict=False)
            at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            shown = (f"{text[max(0, at - 60) : at + 100]!r}" for text in (old[name], new[name]))
            yield "\n  ".join((f"{name}, from character {at}:", *shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs=2, metavar="TREE", help="directories with the package in them")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(_GROUPS)} (default: all)")
    asked = parser.parse_args()
    if unknown := {*asked.groups} - {*_GROUPS}:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(_GROUPS)}")
    trees = [Tree.at(folder) for folder in asked.trees]
    total = 0
    for group in asked.groups or _GROUPS:
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            old, new = (outputs(tree, group, Path(at)) for tree, at in zip(trees, (first, second), strict=True))
        found = list(differences(old, new))
        total += len(found)
        print("\n".join((f"{group}: {len(old)} outputs, {len(found)} differ", *found)), flush=True)
    if total:
        raise CheckFailedError(f"{total} outputs differ")


if __name__ == "__main__":
    sys.exit(ended(main))
