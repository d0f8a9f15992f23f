"""Where repairs after failures were in the release before; kept for one release."""

from typing import TYPE_CHECKING

from jigsaw_opt.system.former_names import former_names

if not TYPE_CHECKING:
    _NAMES = ("FailureRepair", "repaired")
    __getattr__ = former_names(__name__, {name: f"jigsaw_opt.solvers.failure_repair.{name}" for name in _NAMES})
