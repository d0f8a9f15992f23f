"""The JSON Schemas of the documents, shipped as files."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Literal, get_args

from jigsaw_opt.errors import UsageError

__all__ = ["Kind", "schema"]

Kind = Literal["instance", "plan", "replay"]


def schema(kind: Kind) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a document.

    It states the structure only: names that must exist or differ, and sums that must not be zero, are left to the
    decoder. JSON Schema cannot tell ``1.0`` from ``1``; the decoder takes only the latter.

    Parameters
    ----------
    kind
        ``"instance"``, ``"plan"`` or ``"replay"``.

    Raises
    ------
    UsageError
        For any other `kind`.
    """
    if kind not in get_args(Kind):
        raise UsageError(f"no schema for {kind!r}; there are {', '.join(map(repr, get_args(Kind)))}")
    loaded: dict[str, Any] = json.loads(files(__name__).joinpath(f"{kind}.json").read_bytes())
    return loaded
