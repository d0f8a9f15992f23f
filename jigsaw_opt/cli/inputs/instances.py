"""List the bundled instances with their size, best known objective, bound, plan and proof, and who found them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import print_table, tell

if TYPE_CHECKING:
    from jigsaw_opt.instances import BestKnown


ARGUMENTS: Arguments = {
    "[set] SET": "only this set: tiny, server, rack, pod, cluster, pipeline or shop",
    "--json": "print them as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Print one row an instance."""
    rows = _rows(arguments.set)
    tell(arguments.json, rows, lambda: _print(rows))
    return 0


def _print(rows: list[dict[str, Any]]) -> None:
    headers = ("name", "objective", "horizon", "gpus", "jobs", "workers", "blocks", "best", "bound", "gap")
    shown = ({**row, "gap": None if row["gap"] is None else f"{100 * row['gap']:.2f} %"} for row in rows)
    cells = [[*(row[header] for header in headers), "yes" if row["plan"] else "no", _trust(row)] for row in shown]
    print_table((*headers, "plan", "proof"), cells, headers[3:])


def _trust(row: dict[str, Any]) -> str:
    """Return what the stored proof shows."""
    if row["certified_bound"] != row["bound"] or not row["bound"]:
        return f"of {row['certified_bound']}" if row["certified_bound"] else "no"
    return "certified optimal" if row["best"] == row["bound"] else "bound certified"


def _rows(only: str | None) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from jigsaw_opt.documents import instance_sha256
    from jigsaw_opt.instances import best_known, load, names
    from jigsaw_opt.instances.catalogue import plan_path, proof_path

    rows: list[dict[str, Any]] = []
    for name in names(only):
        instance, best, plan, proof = load(name), best_known(name), plan_path(name), proof_path(name)
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
                "plan": str(plan) if plan.exists() else None,
                "certified_bound": best.certified_bound if best else None,
                "proof": str(proof) if proof.exists() else None,
                "bound_reason": best.bound_reason if best else None,
                "found": asdict(best.found) if best and best.found else None,
                "proved": asdict(best.proved) if best and best.proved else None,
                "instance_sha256": instance_sha256(instance),
            }
        )
    return rows


def _gap(best: BestKnown | None) -> float | None:
    from jigsaw_opt.solvers.result import relative_gap

    return None if best is None or best.objective is None else relative_gap(best.objective, best.bound)
