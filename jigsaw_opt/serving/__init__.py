"""A live scheduler that programs ask over HTTP (extra ``serve``), and those who talk to one for others.

Modules beside the folders import Starlette, msgspec and prometheus-client at their heads, so nothing outside the room
imports them before they are used; `require_serve` says what to install where one is missing.
"""

from __future__ import annotations

from importlib.util import find_spec

from jigsaw_opt.errors import MissingEngineError

__all__ = ["require_serve"]

_LIBRARIES = {"starlette": "Starlette", "uvicorn": "uvicorn", "msgspec": "msgspec", "prometheus_client": "prometheus"}


def require_serve() -> None:
    """Do nothing where the libraries of the extra are installed; looks them up without importing them."""
    missing = next((name for module, name in _LIBRARIES.items() if find_spec(module) is None), None)
    if missing is not None:
        raise MissingEngineError(missing, "jigsaw-opt[serve]")
