"""What explanations of phased plans were called in the release before; kept for one release."""

from typing import TYPE_CHECKING

from jigsaw_opt.system.former_names import former_names

if not TYPE_CHECKING:
    _NOW = "jigsaw_opt.solvers.explanation.stretches"
    _NAMES = {"explain_phased": "explain_phases", "PhasedExplanation": "JobStretches", "PhaseTime": "PhaseTime"}
    __getattr__ = former_names(__name__, {old: f"{_NOW}.{name}" for old, name in _NAMES.items()})
