"""Correct plans and their instances changed at random: the package's checker and the referee judge alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

from . import documents
from .contract import Campaign, Count, Part, Trial
from .documents import LARGEST, Json
from .referee import sha256, verdict
from .servant import Servant, servant

__all__ = ["PART", "changed", "compared"]

_PLANS, _CHANGES = 500, 40


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Plans of random small instances: as they are, changed, and for a changed instance."""
    with servant() as helper:
        for number in range(campaign.times(_PLANS)):
            random = campaign.random("changed", number)
            instance = documents.small(random)
            found = helper.ask("solved", instance, "greedy", 5.0, timeout=60)
            how = f"seed {campaign.seed}, plan {number}"
            if "raised" in found:
                yield Trial("a plan of greedy", found["raised"], how)
            elif found.get("plan") is not None:
                plans = [found["plan"], *(changed(found["plan"], random) for _ in range(_CHANGES))]
                yield from compared(helper, "a changed plan", instance, plans, how)
                yield from _other_instances(helper, instance, found["plan"], random, how)
            yield from _shaped(helper, random, how)


def _shaped(helper: Servant, random: Random, how: str) -> Iterator[Trial]:
    """Plans of a random instance with shaped jobs, in which one thing follows another: as they are, and changed."""
    made = documents.shaped(random)
    if made is not None:
        instance, plan = made
        plans = [plan, *(changed(plan, random) for _ in range(_CHANGES))]
        yield from compared(helper, "a changed plan with shapes", instance, plans, how)


def compared(helper: Servant, fault: str, instance: Json, plans: list[Json], how: str) -> Iterator[Trial]:
    """Both verdicts on plans of one instance."""
    answers = helper.ask("judged", instance, plans, timeout=60)
    if isinstance(answers, dict):
        yield Trial(fault, f"the checker: {answers['raised']}", how)
        return
    for place, (plan, answer) in enumerate(zip(plans, answers, strict=True)):
        own = verdict(instance, plan)
        counts = {Count.DOCUMENTS: 1, Count.ACCEPTED: int(bool(own) and not answer)}
        differ = f"the checker says {answer or 'correct'!r}, the referee {own or 'correct'!r}"
        kind = f"{fault}, {'wrong' if own else 'correct'}"
        yield Trial(kind, differ if bool(own) != bool(answer) else "", f"{how}, change {place}", counts=counts)


def _other_instances(helper: Servant, instance: Json, plan: Json, random: Random, how: str) -> Iterator[Trial]:
    """The plan judged for instances that differ in a number, whose hash it states."""
    for place in range(_CHANGES // 8):
        other = deepcopy(instance)
        _change_number(other, random)
        stated = {**plan, "instance_sha256": sha256(other)}
        answer = helper.ask("hashed", other, timeout=60)
        wrong = "" if answer == stated["instance_sha256"] else f"another hash: {answer}"
        yield Trial("the hash of a changed instance", wrong, f"{how}, instance {place}")
        yield from compared(helper, "a plan of a changed instance", other, [stated], f"{how}, instance {place}")


def changed(plan: Json, random: Random) -> Json:
    """A plan with one to three changes, of numbers, order, size, names or keys."""
    found = deepcopy(plan)
    for change in random.choices(_OF_VALUES, k=random.choice((1, 1, 2, 3))):
        change(found, random)
    if random.random() < _ROUGH:
        random.choice(_OF_FORM)(found, random)
    return found


def _number(plan: Json, random: Random) -> None:
    holder, key = random.choice(list(_numbers(plan)))
    holder[key] = random.choice(
        (holder[key] + 1, max(0, holder[key] - 1), 0, random.randint(0, 2 * holder[key] + 2), LARGEST)
    )


def _kind(plan: Json, random: Random) -> None:
    holder, key = random.choice(list(_numbers(plan)))
    holder[key] = random.choice((None, True, -1, 1.5, str(holder[key]), [], {}))


def _shift(plan: Json, random: Random) -> None:
    """A whole job later or earlier: often still correct but for its objective."""
    job, shift = random.choice(_jobs(plan)), random.choice((-2, -1, 1, 2))
    for holder, key in list(_numbers({"jobs": [job]})):
        if key in ("start_us", "end_us"):
            holder[key] = max(0, holder[key] + shift)


def _loosen(plan: Json, random: Random) -> None:
    """A worse bound, which is still one."""
    plan["bound"], plan["status"] = random.randint(0, plan["bound"]), "feasible"


def _gpu(plan: Json, random: Random) -> None:
    job = random.choice(_jobs(plan))
    places = [gpu for other in _jobs(plan) for gpu in other["gpus"]]
    job["gpus"][random.randrange(len(job["gpus"]))] = random.choice((*places, "s0/00", "s0/99", "x/0", "s0", "/"))


def _exchange(plan: Json, random: Random) -> None:
    """Two elements of a list exchanged, one taken out or put in twice."""
    found = random.choice([one for one in _lists(plan) if one])
    one, other = random.randrange(len(found)), random.randrange(len(found))
    random.choice(
        (
            lambda: found.__setitem__(slice(None), [*found[:one], *found[one + 1 :]]),
            lambda: found.insert(one, deepcopy(found[other])),
            lambda: found.__setitem__(one, deepcopy(found[other])),
        )
    )()


def _key(plan: Json, random: Random) -> None:
    holder = random.choice(list(_objects(plan)))
    key = random.choice(list(holder))
    random.choice((lambda: holder.pop(key), lambda: holder.update(more=1), lambda: holder.update({key: "x"})))()


_Change = Callable[[Json, Random], None]
_OF_VALUES: tuple[_Change, ...] = (_number, _number, _shift, _loosen, _gpu)
_OF_FORM: tuple[_Change, ...] = (_exchange, _kind, _key)
_ROUGH = 0.2
"""How often the form of the document is changed, too."""


def _jobs(plan: Json) -> list[Json]:
    """Jobs of a plan, or of all phases of one."""
    return [holder for holder in _objects(plan) if "gpus" in holder]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _lists(value: Any) -> Iterator[list[Any]]:
    for holder in _objects(value):
        yield from (inner for inner in holder.values() if isinstance(inner, list))


def _numbers(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    for holder in _objects(value):
        yield from (
            (holder, key) for key, inner in holder.items() if type(inner) is int and key not in ("seed", "seconds")
        )


_LEAST = {
    "gpus",
    "workers",
    "iterations",
    "bandwidth",
    "fabric_bandwidth",
    "state_factor",
    "weight",
    "deadline_us",
    "pace_us",
    "max_links",
    "min_contributors",
}


def _change_number(instance: Json, random: Random) -> None:
    """Another number in an instance, so that it stays valid."""
    places = [place for place in _numbers(instance) if place[1] not in ("workers", "iterations", "mean_depth")]
    holder, key = random.choice(places)
    if key == "release_us" and instance["horizon"] == "cyclic":
        return
    least = int(key in _LEAST or (key in ("v", "w") and holder[key] > 0))
    holder[key] = random.choice((max(least, holder[key] - 1), holder[key] + 1, 2 * holder[key] + 1, least))


PART = Part("changed", "the checker and a referee of its own judge changed documents alike", trials)
