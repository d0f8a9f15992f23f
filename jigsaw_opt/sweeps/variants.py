"""Changes of one setting of a simulation at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from jigsaw_opt.scheduling.policy import choose
from jigsaw_opt.simulation.contention import CONTENTIONS
from jigsaw_opt.simulation.request import SimulationRequest

__all__ = ["Variant", "policy_words", "variants"]

_FACTORS = (0.25, 4.0)
_ROUND_S, _RESTART_S = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Variant:
    """A simulation that differs from another in one setting.

    Parameters
    ----------
    setting
        What differs, such as ``placement``.
    before, after
        Its values, in words.
    chosen
        Whether an operator can choose it; else it is an assumption about the cluster.
    request
        The changed simulation.
    """

    setting: str
    before: str
    after: str
    chosen: bool
    request: SimulationRequest


def variants(request: SimulationRequest) -> Iterator[Variant]:
    """Every simulation that differs from `request` in one setting, the policy itself aside.

    Options of the policy take each of their other values, the round and the time of a start a quarter and four times
    theirs, contention its other kinds; failures, where there are any, are left out.

    Raises
    ------
    UsageError
        There is no such policy or option.
    """
    policy, options = choose(request.policy)
    for option, values in policy.options.items():
        for value in values:
            if value != options[option]:
                words = policy_words(policy.name, policy.options, {**options, option: value})
                yield Variant(option, options[option], value, True, replace(request, policy=words))
    for seconds in _others(request.round_s, _ROUND_S):
        yield Variant("round", f"{request.round_s:g} s", f"{seconds:g} s", True, replace(request, round_s=seconds))
    for seconds in _others(request.restart_s, _RESTART_S):
        changed = replace(request, restart_s=seconds)
        yield Variant("restart", f"{request.restart_s:g} s", f"{seconds:g} s", False, changed)
    for kind in CONTENTIONS[:2]:
        if kind != request.contention:
            yield Variant("contention", request.contention, kind, False, replace(request, contention=kind))
    if request.failures:
        yield Variant("failures", request.failures, "none", False, replace(request, failures=""))


def policy_words(name: str, known: Mapping[str, object], options: Mapping[str, str]) -> str:
    """A policy in words as `choose` reads them, without options that have their first value."""
    defaults = choose(name)[1]
    return ":".join([name, *(f"{key}={options[key]}" for key in known if options[key] != defaults[key])])


def _others(seconds: float, where_none: float) -> tuple[float, ...]:
    """A time a quarter and four times as long; one that is not there is given a usual length."""
    return tuple(factor * seconds for factor in _FACTORS) if seconds else (where_none,)
