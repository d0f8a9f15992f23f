"""Settings of simulations, from the parts by keyword."""

from __future__ import annotations

from typing import Any

from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.inputs.request import SimulationRequest, read_setting


def setting_of(*parts: Any, **by_name: Any) -> Setting:
    """Return the setting of a simulation with these parts."""
    return read_setting(SimulationRequest(*parts, **by_name))
