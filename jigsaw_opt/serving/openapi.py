"""The OpenAPI document of a service: its paths stand in ``openapi.json``, and the bodies are those of `answers`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from msgspec import Struct
from msgspec.json import schema_components

from jigsaw_opt import __version__
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.live.events import NAME, event_schemas
from jigsaw_opt.serving import answers

_PLACE = "#/components/schemas/"


def document() -> Mapping[str, Any]:
    """Return the document, of OpenAPI 3.1."""
    tree: dict[str, Any] = json.loads(files(__package__).joinpath("openapi.json").read_text(encoding="utf-8"))
    types = [one for one in vars(answers).values() if isinstance(one, type) and issubclass(one, Struct)]
    _, schemas = schema_components((*types, TraceJob), ref_template=_PLACE + "{name}")
    job = schemas["TraceJob"]
    job |= {"required": [name for name in job["required"] if name != "submit_us"], "additionalProperties": False}
    job["properties"] |= {"name": NAME, "model": NAME, "gpus": {"type": "integer", "minimum": 1}}
    events = {f"event-{kind}": _event(shape) for kind, shape in event_schemas().items()}
    tree["info"]["version"] = __version__
    schemas |= events | {"Event": {"oneOf": [{"$ref": _PLACE + name} for name in events]}}
    tree["components"]["schemas"] = schemas
    return tree


def _event(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an event as a service takes it: its time is not read, and records have defaults."""
    known: dict[str, Any] = {**shape["properties"], "time_us": {"description": "Is not read."}}
    if "properties" in known.get("job", ()):
        known["job"] = {"$ref": _PLACE + "TraceJob"}
    if "links" in known:
        stated = [name for name in known["server"]["required"] if name != "fabric_latency_us"]
        known["server"] = known["server"] | {"required": stated}
    return {**shape, "properties": known}
