"""The JSON Schemas of the documents, shipped as files."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from importlib.resources import files
from typing import Any, Literal, get_args

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.depth import DepthPlugin, depth_class, plugins
from jigsaw_opt.system.plugins import loadable
from jigsaw_opt.text import nearest

__all__ = ["Kind", "depth_schema", "schema", "shipped"]

Kind = Literal["instance", "plan", "phased-plan", "replay", "phased-replay", "partition", "layers", "proof", "result"]
_PARTS_OF: dict[Kind, Kind] = {"phased-plan": "plan", "phased-replay": "replay"}
"""Documents whose schemas take definitions from that of another one."""


def schema(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a document.

    That of an instance has the depth rules that installed packages add. It states the structure only: names that must
    exist or differ, and sums that must not be zero, are left to the decoder. JSON Schema cannot tell ``1.0`` from
    ``1``; the decoder takes only the latter.

    Parameters
    ----------
    kind
        ``"instance"``, ``"plan"``, ``"phased-plan"``, ``"replay"``, ``"phased-replay"``, ``"partition"``,
        ``"layers"``, ``"proof"`` or ``"result"``.

    Raises
    ------
    UsageError
        For any other `kind`.
    """
    whole = shipped(kind)
    if kind == "instance":
        whole["$defs"]["depth"]["oneOf"] += loadable(depth_schema, plugins())
    return whole


def shipped(kind: Kind) -> dict[str, Any]:
    """Return the schema as it is without the depth rules that installed packages add; see `schema`."""
    if kind not in get_args(Kind):
        raise UsageError(f"no schema for {kind!r}; {nearest(kind, get_args(Kind))}", code="unknown-value", path="kind")
    loaded: dict[str, Any] = json.loads(files(__name__).joinpath(f"{kind}.json").read_bytes())
    if kind in _PARTS_OF:
        loaded["$defs"] = {**shipped(_PARTS_OF[kind])["$defs"], **loaded["$defs"]}
    return loaded


def depth_schema(rule: str) -> dict[str, Any]:
    """Return the JSON Schema of what stands under ``depth`` for a rule that a package adds."""
    added = depth_class(rule)
    if not issubclass(added, DepthPlugin):
        raise UsageError(f"depth rule {rule!r} is no plug-in", code="unknown-name", path="rule")
    needed = [field.name for field in fields(added) if field.default is MISSING]
    keys = {"rule": {"const": rule}, **added.keys}
    return {"type": "object", "additionalProperties": False, "required": ["rule", *needed], "properties": keys}
