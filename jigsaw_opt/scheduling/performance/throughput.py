"""The throughput model of AdaptDL, which Pollux (OSDI 2021, section 3.2) and Sia (SOSP 2023) fit to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats

_TINY = 1e-8
_STEPS = 60
_FLOOR = 1e-9
"""Added to the diagonal of the normal equations; keeps parameters in place of which no measurement tells anything."""
_ENOUGH = 1e-4
"""Relative gain of a step at which the fit ends."""
_STUCK = 1e6
_LARGEST_GAMMA = 10.0
_OVERLAP_WEIGHT = 0.03
"""A smaller gamma is preferred where the measurements do not tell, as in AdaptDL (10^-3 of its square)."""


class Measured(NamedTuple):
    """One measurement: servers, GPUs and samples a GPU; seconds of an iteration, and those of them in the exchange."""

    servers: int
    gpus: int
    local: int
    step_s: float
    sync_s: float


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """Seconds of an iteration: compute grows with the samples of a GPU, the exchange with the GPUs beyond two.

    ``T_grad = compute + per_sample * b``, ``T_sync = fixed + per_gpu * max(K - 2, 0)`` on one server or over several,
    and ``T = (T_grad^gamma + T_sync^gamma)^(1/gamma)``, where gamma from 1 to 10 says how far they overlap.
    """

    compute: float
    per_sample: float
    across: float
    across_per_gpu: float
    within: float
    within_per_gpu: float
    gamma: float

    def compute_s(self, local: Any) -> Any:
        """Return seconds of a pass over `local` samples; arrays are taken element by element, here and below."""
        return self.compute + self.per_sample * local

    def exchange_s(self, servers: Any, gpus: Any) -> Any:
        """Return seconds of the exchange of gradients."""
        import numpy as np

        beyond = np.maximum(gpus - 2, 0)
        several = self.across + self.across_per_gpu * beyond
        one = self.within + self.within_per_gpu * beyond
        return np.where(servers > 1, several, np.where(gpus > 1, one, _TINY))

    def step_s(self, servers: Any, gpus: Any, local: Any) -> Any:
        """Return seconds of an iteration of one pass."""
        compute, exchange = self.compute_s(local), self.exchange_s(servers, gpus)
        return (compute**self.gamma + exchange**self.gamma) ** (1 / self.gamma)

    def known_from(self, within: bool, across: bool) -> ThroughputModel:
        """Return the model as far as a job knows it from the placements that it has had.

        What was never measured is taken as perfect scaling; exchange over several servers is at least 1.1 times that
        within one (AdaptDL's prior).
        """
        known = self
        if not within:
            known = replace(known, within=_TINY, within_per_gpu=_TINY)
        if not across:
            known = replace(known, across=1.1 * known.within, across_per_gpu=1.1 * known.within_per_gpu)
        return known


def fit(measured: Sequence[Measured]) -> ThroughputModel:
    """Return the model with the least squared logarithmic errors of compute and of whole iterations.

    By Levenberg and Marquardt's method over the logarithms of the times, which keeps them positive.
    """
    import numpy as np

    columns = [np.array(column, dtype=float) for column in zip(*measured, strict=True)]
    point = np.array([np.log(0.1), np.log(0.01)] * 3 + [-4.0])
    errors = _errors(point, columns)
    damping = 1.0
    for _ in range(_STEPS):
        slopes = _slopes(point, errors, columns)
        normal = slopes.T @ slopes
        # Damping in proportion to the diagonal makes the step independent of the scale of each parameter.
        damped = normal + damping * np.diag(np.diag(normal)) + _FLOOR * np.eye(len(point))
        step = np.linalg.solve(damped, -slopes.T @ errors)
        # At most 2 a step, a factor of e^2 for times: the slopes hold only nearby.
        moved = point + np.clip(step, -2, 2)
        found = _errors(moved, columns)
        gain = 1 - float(found @ found) / max(float(errors @ errors), _FLOOR**2)
        if gain > 0:
            point, errors, damping = moved, found, damping / 3
        else:
            damping *= 4
        if 0 <= gain < _ENOUGH or damping > _STUCK:
            break
    return _model(point)


def _model(point: Floats) -> ThroughputModel:
    import numpy as np

    # A logistic function keeps gamma between 1 and its largest value, as exponentials keep times positive.
    gamma = 1 + (_LARGEST_GAMMA - 1) / (1 + np.exp(-point[6:]))
    return ThroughputModel(*np.concatenate([np.exp(np.clip(point[:6], -18, 5)), gamma]).tolist())


def _errors(point: Floats, columns: Sequence[Floats]) -> Floats:
    import numpy as np

    servers, gpus, local, step, sync = columns
    model = _model(point)
    # Differences of logarithms are relative errors: short iterations count as much as long ones.
    compute = np.log(model.compute_s(local) / np.maximum(step - sync, _TINY))
    whole = np.log(model.step_s(servers, gpus, local) / step)
    size = np.sqrt(len(step))
    return np.concatenate([compute / size, whole / size, [_OVERLAP_WEIGHT * (model.gamma - 1)]])


def _slopes(point: Floats, errors: Floats, columns: Sequence[Floats]) -> Floats:
    import numpy as np

    change = 1e-5
    moved = point + change * np.eye(len(point))
    return np.array([(_errors(one, columns) - errors) / change for one in moved]).T
