"""List the bundled instances with their size, best known objective and bound."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt.instances import BestKnown

HELP = "list the bundled instances"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "set", nargs="?", metavar="SET", help="only this set: tiny, server, rack, pod, cluster, pipeline or shop"
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print one row an instance."""
    from jigsaw_opt.cli.output import print_json, print_table

    rows = _rows(arguments.set)
    if arguments.json:
        print_json(rows)
        return 0
    headers = ("name", "objective", "horizon", "gpus", "jobs", "workers", "blocks", "best", "bound", "gap")
    right = headers[3:]
    print_table(headers, [[row[header] for header in headers] for row in rows], right)
    return 0


def _rows(only: str | None) -> list[dict[str, object]]:
    from jigsaw_opt.documents import instance_sha256
    from jigsaw_opt.instances import best_known, load, names

    rows: list[dict[str, object]] = []
    for name in names(only):
        instance, best = load(name), best_known(name)
        rows.append(
            {
                "name": name,
                "objective": instance.objective,
                "horizon": instance.horizon,
                "gpus": instance.cluster.gpu_count,
                "jobs": len(instance.jobs),
                "workers": instance.workers,
                "blocks": instance.blocks,
                "best": best.objective if best else None,
                "bound": best.bound if best else None,
                "gap": _gap(best),
                "instance_sha256": instance_sha256(instance),
            }
        )
    return rows


def _gap(best: BestKnown | None) -> str | None:
    from jigsaw_opt.solvers.result import relative_gap

    return None if best is None or best.objective is None else f"{100 * relative_gap(best.objective, best.bound):.2f} %"
