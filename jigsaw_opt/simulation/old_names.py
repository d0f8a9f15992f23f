"""What simulations were called before every part could be an object; kept for one release."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from jigsaw_opt.system.former_names import FormerNameWarning

__all__ = ["SimulationRequest", "takes_requests"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """The arguments of `simulate` in words, as one object."""

    workload: str
    cluster: str
    policy: str
    performance: str = ""
    contention: str = "exclusive"
    round_s: float = 60.0
    restart_s: float = 30.0
    draw_models: bool = False
    seed: int = 0
    foreground_gpus: int | None = None
    failures: str = ""
    columns: str = ""
    too_wide: str = "refuse"


def takes_requests(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let `simulate` take a `SimulationRequest`, and instances by the names under which its cluster may be one."""

    @wraps(function)
    def call(*arguments: _P.args, **more: _P.kwargs) -> _R:
        others: dict[str, Any] = dict(more)
        request = others.pop("request", arguments[0] if arguments else None)
        if isinstance(request, SimulationRequest):
            warnings.warn("give simulate the parts of a SimulationRequest", FormerNameWarning, stacklevel=2)
            parts: dict[str, Any] = asdict(request)
            instances = others.pop("instances", None) or {}
            parts["cluster"] = instances.get(parts["cluster"], parts["cluster"])
            return function(**parts, **others)  # type: ignore[call-arg]
        return function(*arguments, **more)

    return call
