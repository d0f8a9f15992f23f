"""`auto` against `greedy` on cyclic instances: with as much time or more it is never worse."""

from __future__ import annotations

import json
from collections.abc import Iterator

from jigsaw_opt.documents import encode_instance
from jigsaw_opt.instances import generate
from jigsaw_opt.instances.sources import instance_from

from .contract import Campaign, Count, Part, Trial, first
from .documents import Json
from .servant import Servant, servant
from .solvers import contradictions, unsound

__all__ = ["PART"]

_LARGE = (
    "pod:1:objective=period:load=400",
    "pod/cyclic",
    "pod:7:objective=period:load=300",
    "pod:2:objective=period:load=400",
    "cluster/cyclic",
    "rack/tree-cyclic",
)
_GREEDY_SECONDS, _AUTO_SECONDS = 2.0, 5.0
_SMALL, _SMALL_SECONDS = 15, 1.0
_PATIENCE = 60.0


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Large ones, then random small ones."""
    with servant() as helper:
        for name in _LARGE[: campaign.times(len(_LARGE))]:
            document = json.loads(encode_instance(instance_from(name)))
            yield _compared(helper, "large", document, (_GREEDY_SECONDS, _AUTO_SECONDS), name, campaign.seed)
        for number in range(campaign.times(_SMALL)):
            document = _cyclic(campaign, number)
            yield _compared(helper, "small", document, (_SMALL_SECONDS,) * 2, f"instance {number}", campaign.seed)


def _cyclic(campaign: Campaign, number: int) -> Json:
    """A rack of a few jobs on the cyclic horizon."""
    random = campaign.random("cyclic", number)
    load_percent = random.choice((100, 200, 300))
    made = generate("server", random.randrange(10_000), objective="period", load=load_percent)
    found: Json = json.loads(encode_instance(made))
    return found


def _compared(helper: Servant, fault: str, document: Json, seconds: tuple[float, float], what: str, seed: int) -> Trial:
    answers = {
        solver: helper.ask("solved", document, solver, limit, 2, seed, timeout=limit + _PATIENCE)
        for solver, limit in zip(("greedy", "auto"), seconds)
    }
    values = {solver: answer.get("objective") for solver, answer in answers.items()}
    wrong = [
        f"{solver}: {unsound(document, answer)}" for solver, answer in answers.items() if unsound(document, answer)
    ]
    worse = values["greedy"] is not None and (values["auto"] is None or values["auto"] > values["greedy"])
    against = contradictions(answers) if not wrong else []
    failure = first(
        *wrong,
        f"auto has {values['auto']} in {seconds[1]:g} s, greedy {values['greedy']} in {seconds[0]:g} s"
        if worse
        else "",
        *against,
    )
    counts = {Count.ACCEPTED: len(wrong), Count.CONTRADICTED: len(against)}
    took = max(answer.get("seconds", 0.0) for answer in answers.values())
    return Trial(f"{fault} cyclic instances", failure, f"{what}, seed {seed}", took, counts=counts)


PART = Part("auto", "auto is never worse than greedy", trials)
