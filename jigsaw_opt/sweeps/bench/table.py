"""Rows as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jigsaw_opt.documents.csv_text import csv_text

__all__ = ["COLUMNS", "csv_table"]

COLUMNS = (
    "instance",
    "set",
    "horizon",
    "objective_kind",
    "gpus",
    "workers",
    "solver",
    "seed",
    "time_limit",
    "work_limit",
    "gap_limit",
    "threads",
    "status",
    "stopped_by",
    "objective",
    "bound",
    "gap",
    "bound_reason",
    "seconds",
    "seconds_to_objective",
    "primal_dual_integral",
    "cpu_seconds",
    "peak_rss_mib",
    "host",
    "host_cores",
    "hardware",
    "versions",
    "instance_sha256",
    "error",
)
"""Columns in their order; the trajectory is only in the JSON lines."""


def csv_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV with a header line; what is not known is an empty cell."""
    return csv_text(COLUMNS, ([_cell(row.get(column)) for column in COLUMNS] for row in rows))


def _cell(value: Any) -> Any:
    return "; ".join(f"{name} {version}" for name, version in value.items()) if isinstance(value, Mapping) else value
