"""Where the levels of a job's workers were in the release before; kept for one release."""

from typing import TYPE_CHECKING

from jigsaw_opt.system.former_names import former_names

if not TYPE_CHECKING:
    _NAMES = ("Assignment", "LevelSchedule", "Rule")
    __getattr__ = former_names(__name__, {name: f"jigsaw_opt.executor.level_schedule.{name}" for name in _NAMES})
