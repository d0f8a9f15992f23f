"""Phased plans changed at random: the checker and two referees that write out all repetitions judge alike.

One is that of the tests, which judges both ways. The other is the campaign's own, of plans that list all iterations:
what the checker accepts is put to it written out. It knows no job that has ended, so memory is ample, and no period, so
there is no balance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

from jigsaw_opt.documents import decode_instance, decode_phased_plan
from jigsaw_opt.errors import InvalidInputError
from tests.phased_referee import accepts

from . import documents
from .changed import changed
from .contract import Campaign, Count, Part, Trial
from .documents import LARGEST, Json
from .referee import sha256, verdict
from .servant import Servant, servant

__all__ = ["PART", "altered", "compared", "written_out"]

_PLANS, _CHANGES, _EVERY = 50, 20, 5
_MOST_SECONDS = 20.0
_MOST_STEPS = 3000
"""Repetitions times what they list, and microseconds: a referee that goes through all of them takes no more."""


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Plans of random small instances with more iterations: as they are, and changed."""
    with servant() as helper:
        for number in range(campaign.times(_PLANS)):
            random = campaign.random("phased", number)
            instance, how = _instance(random), f"seed {campaign.seed}, phased plan {number}"
            found = helper.ask("phased", instance, timeout=60)
            if found is not None and "raised" in found:
                yield Trial("a phased plan", found["raised"], how)
            elif found is not None:
                plans = [found, *(altered(found, random) for _ in range(_CHANGES))]
                yield from compared(helper, instance, plans, how)
                yield from _resolved(helper, instance, plans[1::_EVERY], random, how)


def _instance(random: Random) -> Json:
    """A small instance of the finite horizon, with up to 40 times the iterations."""
    while (instance := documents.small(random))["horizon"] != "finite":
        pass
    for job in instance["jobs"]:
        job["iterations"] *= random.choice((1, 3, 10, 40))
    return instance


def compared(helper: Servant, instance: Json, plans: list[Json], how: str) -> Iterator[Trial]:
    """All verdicts on plans of one instance; of plans too long to write out only whether there is one in time."""
    for place, plan in enumerate(plans):
        answers = helper.ask("judged", instance, [plan], timeout=_MOST_SECONDS)
        where = f"{how}, change {place}"
        if isinstance(answers, dict):
            yield Trial("a changed phased plan", f"the checker: {answers['raised']}", where)
        elif not _short(plan):
            yield Trial("a phased plan too long to write out", "", where, counts={Count.DOCUMENTS: 1})
        else:
            yield _trial(instance, plan, answers[0], where)


def _resolved(helper: Servant, instance: Json, plans: list[Json], random: Random, how: str) -> Iterator[Trial]:
    """Changed plans as old plans that an instance is solved from: refused, or a correct plan comes out."""
    for place, plan in enumerate(plans):
        before_us = random.choice((None, 1, 50, 10**6))
        answer = helper.ask("resolved", instance, plan, before_us, timeout=_MOST_SECONDS)
        wrong = answer if isinstance(answer, str) else answer["raised"]
        yield Trial("re-solving from a changed phased plan", wrong, f"{how}, plan {place}, before {before_us}")


def _trial(instance: Json, plan: Json, answer: str, how: str) -> Trial:
    right = _accepted(instance, plan)
    second = "" if answer or not right else verdict(*written_out(instance, plan))
    wrong = ""
    if right != (not answer):
        wrong = f"the checker says {answer or 'correct'!r}, the referee {'correct' if right else 'wrong'!r}"
    elif second:
        wrong = f"the checker says 'correct', and written out it breaks {second!r}"
    counts = {Count.DOCUMENTS: 1, Count.ACCEPTED: int(not answer and bool(wrong))}
    return Trial(f"a changed phased plan, {'correct' if right else 'wrong'}", wrong, how, counts=counts)


def _accepted(instance: Json, plan: Json) -> bool:
    asked = decode_instance(json.dumps(instance).encode())
    try:
        return accepts(asked, decode_phased_plan(json.dumps(plan).encode()))
    except InvalidInputError:
        return False


def _short(plan: Json) -> bool:
    """Whether it can be written out; what is no phased plan by its form can."""
    try:
        return all(_steps(phase) <= _MOST_STEPS for group in plan["groups"] for phase in group["phases"])
    except (KeyError, TypeError, ZeroDivisionError, AttributeError):
        return True


def _steps(phase: Json) -> int:
    end = max((x["end_us"] for x in _operations(phase)), default=0)
    latest = max((abs(x["start_us"]) for x in _operations(phase)), default=0)
    return int(max(end, latest, phase["repeats"], phase["period_us"]))


def _operations(phase: Json) -> Iterator[Json]:
    for job in phase["jobs"]:
        for it in job["iterations"]:
            yield from (*it["blocks"], *it["transfers"])


def written_out(instance: Json, plan: Json) -> tuple[Json, Json]:
    """The instance without what only holds in a period, and a correct phased plan as one that lists all iterations."""
    asked = deepcopy(instance)
    for server in asked["cluster"]["servers"]:
        server["gpu_memory"] = LARGEST
    for job in asked["jobs"]:
        job.get("depth", {}).pop("balance", None)
    listed: dict[str, Json] = {}
    for phase in (phase for group in plan["groups"] for phase in group["phases"]):
        for job in phase["jobs"]:
            own = listed.setdefault(job["name"], {"name": job["name"], "gpus": job["gpus"], "iterations": []})
            for r in range(phase["repeats"]):
                moved = phase["start_us"] + r * phase["period_us"]
                own["iterations"] += [_later(it, moved) for it in job["iterations"]]
    jobs = [listed[job["name"]] for job in asked["jobs"]]
    stated = {key: plan[key] for key in ("instance", "status", "objective", "bound", "solver") if key in plan}
    return asked, {
        "format": "jigsaw-plan/1",
        "instance_sha256": sha256(asked),
        **stated,
        "period_us": None,
        "jobs": jobs,
    }


def _later(it: Json, by: int) -> Json:
    return {
        key: [{**x, "start_us": x["start_us"] + by, "end_us": x["end_us"] + by} for x in it[key]]
        for key in ("blocks", "transfers")
    }


def altered(plan: Json, random: Random) -> Json:
    """A phased plan with changes of phases and groups, or of any document; often with the makespan that it has then."""
    found = deepcopy(plan)
    for change in random.sample(_OF_PHASES, k=random.choice((0, 1, 2))):
        change(found, random)
    if found == plan or random.random() < _ROUGH:
        found = changed(found, random)
    if random.random() < _RESTATED:
        _restate(found)
    return found


_ROUGH, _RESTATED = 0.3, 0.7


def _restate(plan: Json) -> None:
    """The makespan that it has, for a plan that states one: a weighted completion stays."""
    try:
        ends = [
            phase["start_us"]
            + (phase["repeats"] - 1) * phase["period_us"]
            + max(x["end_us"] for x in _operations(phase))
            for group in plan["groups"]
            for phase in group["phases"]
        ]
        plan["objective"], plan["status"] = max(max(ends), plan["bound"]), "feasible"
    except (KeyError, TypeError, ValueError):
        return


def _phases(plan: Json, random: Random) -> list[Json]:
    found: list[Json] = random.choice(plan["groups"])["phases"]
    return found


def _split(plan: Json, random: Random) -> None:
    """One phase as two: correct where its repetitions do not reach into one another."""
    phases = _phases(plan, random)
    at = random.randrange(len(phases))
    phase, later = phases[at], deepcopy(phases[at])
    first = random.randint(1, max(1, phase["repeats"] - 1))
    later["start_us"] += first * phase["period_us"]
    later["repeats"], phase["repeats"] = max(1, phase["repeats"] - first), first
    phases.insert(at + 1, later)


def _move(plan: Json, random: Random) -> None:
    """A phase and those after it later, or earlier."""
    phases, by = _phases(plan, random), random.choice((-3, -1, 1, 2, 30))
    for phase in phases[random.randrange(len(phases)) :]:
        phase["start_us"] = max(0, phase["start_us"] + by)


def _stretch(plan: Json, random: Random) -> None:
    """A longer or shorter period, without a change of what is done in it."""
    phase = random.choice(_phases(plan, random))
    phase["period_us"] = max(1, phase["period_us"] + random.choice((-2, -1, 1, 5)))


def _repeat(plan: Json, random: Random) -> None:
    phase = random.choice(_phases(plan, random))
    phase["repeats"] = max(1, phase["repeats"] + random.choice((-1, 1)))


def _regroup(plan: Json, random: Random) -> None:
    """Groups in another order, which is as correct, or two of them made one."""
    random.shuffle(plan["groups"])
    if len(plan["groups"]) > 1 and random.random() < _ROUGH:
        plan["groups"][0]["phases"] += plan["groups"].pop()["phases"]


def _part(plan: Json, random: Random) -> None:
    """The last phase of a group as a group of its own, or without one of its jobs."""
    phases = _phases(plan, random)
    jobs: list[Any] = phases[-1]["jobs"]
    if len(phases) > 1 and random.random() < _ROUGH:
        plan["groups"].append({"phases": [phases.pop()]})
    elif len(jobs) > 1:
        jobs.pop(random.randrange(len(jobs)))


_OF_PHASES = (_split, _move, _stretch, _repeat, _regroup, _part)

PART = Part("phased", "the checker and two referees judge changed phased plans alike", trials)
