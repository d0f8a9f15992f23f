"""Whether two trees of code make the same plans: hashes of what every method makes with one thread and a limit of work.

``python benchmarks/equal_plans.py OLD NEW`` solves with both trees, which are directories with the package in them,
and lists every plan that differs. Without OLD and NEW it prints the hashes of the code that PYTHONPATH leads to, as
JSON; such a file may stand in the place of a tree. Solved are small bundled instances and crowded ones by every method
that takes them, and the same with very many iterations by ``auto``, which makes phased plans. With ``--interpreted``
Python runs the functions that are else compiled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

from common import print_table
from paired.arms import Tree
from paired.request import ended

from jigsaw_opt import Instance, Options, instances, save_plan, solve
from jigsaw_opt.errors import CheckFailedError
from jigsaw_opt.solvers.registry import find, ignored, names, refusal

LONGER = 100_000_000
"""Factor of the iterations of long jobs."""
_LIMITS = ("tiny", "crowded", "most-gpus", "phased", "work-limit")
"""Options that a tree is asked with."""
_CROWDED_FROM = 1000
"""First seed of crowded instances."""


def sources(tiny: int, crowded: int, most_gpus: int) -> Iterator[Instance]:
    """Instances: bundled ones, evenly taken of `tiny`, then crowded ones with 8 GPUs or more, up to a number."""
    bundled = instances.names()
    small = [name for name in bundled if name.startswith("tiny/")]
    larger = [name for name in bundled if name.startswith(("server/", "shop/"))]
    for name in (*small[:: max(1, len(small) // tiny)][:tiny], *larger):
        yield instances.load(name)
    drawn = (instances.generate("crowded", seed) for seed in count(_CROWDED_FROM))
    yield from islice((one for one in drawn if 8 <= one.cluster.gpu_count <= most_gpus), crowded)


def hashes(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """A name of each solve, and the hash of its plan or what else came of it."""
    for number, instance in enumerate(sources(asked.tiny, asked.crowded, asked.most_gpus)):
        options = Options(threads=1, work_limit=asked.work_limit)
        for name in names():
            if refusal(find(name), instance) is None and not ignored(find(name), options):
                yield f"{instance.name} by {name}", digest(solve(instance, name, options))
        if number < asked.phased and instance.horizon == "finite":
            jobs = tuple(replace(job, iterations=job.iterations * LONGER) for job in instance.jobs)
            yield f"{instance.name}, long", digest(solve(replace(instance, jobs=jobs), threads=1))


def digest(result: object) -> str:
    """Hash of a result's plan without its seconds and threads, or its status and bound where it has none."""
    plan = getattr(result, "plan", None)
    if plan is None:
        return f"{getattr(result, 'status', None)}, bound {getattr(result, 'bound', None)}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        save_plan(plan, path)
        document = json.loads(path.read_text("utf-8"))
    for unlike in ("seconds", "threads"):
        document["solver"].pop(unlike, None)
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def interpret() -> None:
    """Let Python run the functions, and as large insertions as the compiled function is asked for."""
    from jigsaw_opt.solvers.engines import compiled
    from jigsaw_opt.solvers.greedy import order_insertion

    compiled.library = lambda: None
    order_insertion._MOST_VISITS = order_insertion._MOST_COMPILED_VISITS


def of_tree(tree: Path, arguments: list[str]) -> dict[str, str]:
    """Hashes of a tree, which solves in a process of its own, or those that a file holds."""
    if tree.is_file():
        found: dict[str, str] = json.loads(tree.read_text("utf-8"))
        return found
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": Tree.at(tree).search_path(Path(folder))}
        command = [sys.executable, __file__, *arguments]
        done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Solves whose plans differ, or that one tree alone has."""
    either = ((name, old.get(name, "-"), new.get(name, "-")) for name in dict.fromkeys((*old, *new)))
    return [row for row in either if row[1] != row[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs="*", metavar="TREE", help="two directories or files of hashes")
    parser.add_argument("--tiny", type=int, default=12, help="how many of the smallest bundled instances")
    parser.add_argument("--crowded", type=int, default=8, help="how many crowded instances")
    parser.add_argument("--most-gpus", type=int, default=16, help="of a crowded instance")
    parser.add_argument("--phased", type=int, default=12, help="how many instances are solved with long jobs, too")
    parser.add_argument("--work-limit", type=float, default=0.2, help="deterministic units for each solve")
    parser.add_argument("--interpreted", action="store_true", help="without compiled functions")
    asked = parser.parse_args()
    if not asked.trees:
        if asked.interpreted:
            interpret()
        print(json.dumps(dict(hashes(asked)), indent=1))
        return
    if len(asked.trees) != 2:
        parser.error("two trees are compared")
    limits = [f"--{name}={vars(asked)[name.replace('-', '_')]}" for name in _LIMITS]
    old, new = (of_tree(tree, limits) for tree in asked.trees)
    found = differences(old, new)
    print(f"{len(old.keys() & new.keys())} solves in both, {len(found)} plans differ")
    if found:
        print_table(("solve", "old", "new"), found)
        raise CheckFailedError(f"{len(found)} of {len(old.keys() | new.keys())} plans differ")


if __name__ == "__main__":
    sys.exit(ended(main))
