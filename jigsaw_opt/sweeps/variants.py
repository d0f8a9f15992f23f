"""Changes of one setting of a simulation at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jigsaw_opt.scheduling.policy import choose
from jigsaw_opt.simulation.engine.setting import told
from jigsaw_opt.simulation.inputs.contention import CONTENTIONS

_FACTORS = (0.25, 4.0)
_ROUND_S, _RESTART_S = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Variant:
    """A simulation that differs from another in one setting.

    `chosen`: whether an operator can choose it; else it is an assumption about the cluster. `part, value`: what
    `simulate` takes in place of the other's: the name of a parameter, and its argument.
    """

    setting: str
    before: str
    after: str
    chosen: bool
    part: str
    value: Any


def variants(parts: Mapping[str, Any]) -> Iterator[Variant]:
    """Yield every simulation that differs from another in one setting, the policy itself aside.

    Options of the policy take each of their other values, the round and the time of a start a quarter and four times
    theirs, contention its other kinds; failures, where there are any, are left out.

    `parts`: the arguments of `simulate` by name: ``policy``, ``round_s``, ``restart_s``, ``contention`` and
    ``failures``.
    """
    policy, options = choose(parts["policy"])
    for option, values in policy.options.items():
        for value in values:
            if value != options[option]:
                words = policy_words(policy.name, policy.options, {**options, option: value})
                yield Variant(option, options[option], value, True, "policy", words)
    for name, where_none, chosen in (("round", _ROUND_S, True), ("restart", _RESTART_S, False)):
        before = parts[f"{name}_s"]
        for seconds in _others(before, where_none):
            yield Variant(name, f"{before:g} s", f"{seconds:g} s", chosen, f"{name}_s", seconds)
    for kind in CONTENTIONS[:2]:
        if kind != parts["contention"]:
            yield Variant("contention", str(told(parts["contention"])), kind, False, "contention", kind)
    if parts["failures"]:
        yield Variant("failures", str(told(parts["failures"])), "none", False, "failures", "")


def reads_limits(policy: str) -> bool:
    """Return whether a policy, in words, goes by what users say of how long their jobs run: it has ``estimates``."""
    return "estimates" in choose(policy)[1]


def policy_words(name: str, known: Mapping[str, object], options: Mapping[str, str]) -> str:
    """Return a policy in words as `choose` reads them, without options that have their first value."""
    defaults = choose(name)[1]
    return ":".join([name, *(f"{key}={options[key]}" for key in known if options[key] != defaults[key])])


def _others(seconds: float, where_none: float) -> tuple[float, ...]:
    """Return a time a quarter and four times as long; one that is not there is given a usual length."""
    return tuple(factor * seconds for factor in _FACTORS) if seconds else (where_none,)
