"""An empty CP-SAT model for all formulations."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from jigsaw_opt.problem.clock import look

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["new_model"]


def new_model() -> cp_model.CpModel:
    """An empty model. Whoever builds it is told by ``OutOfTimeError`` when the time of the solve is over."""
    return _limited_model()()


@cache
def _limited_model() -> type[cp_model.CpModel]:
    """The class of all models, made once: search builds hundreds of them."""
    from ortools.sat.python import cp_model

    class LimitedModel(cp_model.CpModel):
        """Looks at the clock with every constraint."""

        def add(self, ct: Any) -> Any:
            look()
            return super().add(ct)

        def new_bool_var(self, name: str) -> Any:
            look()
            return super().new_bool_var(name)

    return LimitedModel
