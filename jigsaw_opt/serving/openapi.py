"""The OpenAPI document of a service: its paths stand in ``openapi.json``, and the bodies are those of `answers`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from msgspec import Struct
from msgspec.json import schema_components

from jigsaw_opt import __version__
from jigsaw_opt.scheduling.live.events import event_schemas
from jigsaw_opt.serving import answers

_PLACE = "#/components/schemas/"


def document() -> Mapping[str, Any]:
    """Return the document, of OpenAPI 3.1."""
    tree: dict[str, Any] = json.loads(files(__package__).joinpath("openapi.json").read_text(encoding="utf-8"))
    types = [one for one in vars(answers).values() if isinstance(one, type) and issubclass(one, Struct)]
    _, schemas = schema_components(types, ref_template=_PLACE + "{name}")
    events = {f"event-{kind}": shape for kind, shape in event_schemas().items()}
    tree["info"]["version"] = __version__
    tree["components"]["schemas"] = (
        schemas | events | {"Event": {"oneOf": [{"$ref": _PLACE + name} for name in events]}}
    )
    return tree
