"""A plan with what there is to say of it: where the time of its jobs goes, and why no plan is better than its bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.solvers.bounds.proof import Proof
from jigsaw_opt.solvers.bounds.relaxation import Bound
from jigsaw_opt.solvers.explanation import JobExplanation
from jigsaw_opt.solvers.explanation.breakdown import Explainer, NamedStep
from jigsaw_opt.solvers.explanation.chain import StepKind
from jigsaw_opt.solvers.explanation.in_words import ReportedBound, bound_reason
from jigsaw_opt.solvers.explanation.stretches import JobStretches
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder
from jigsaw_opt.text import duration, printable
from jigsaw_opt.views.lanes import Picture

_SUM = "weighted_completion"
_LEADS = {
    "makespan": "No plan ends before {}",
    "period": "No plan has a period below {}",
    _SUM: "No plan has a sum of weighted completion times below {}",
}
_NAMES = {
    "release": "the job is released at {}",
    "span": "its operations that follow one another take {}",
    "head": "nothing of it can begin before {}",
    "tail": "after the last of it, {} must follow",
    "iterations": "all this in each iteration, of which there are {}",
    "objective that no placement stays within": "by search, no placement of the jobs stays within {}",
    "price of all places asked for": "at the best prices they ask for {}",
    "best value of like bins": "there is room for {}",
    "weighted completion time": "each job ends no earlier than it would alone, which adds up to {}",
    "end": "each job ends no earlier than it would alone, which adds up to {}",
    "weighted waiting": "as parts of one machine as fast as all, in the best order, they wait for one another: {} more",
    "least cost of its completion time": "their completion times cost at least {}",
    "fractions": "rounding up adds {}",
}
"""What is said of the sum of all terms of a name; of other names, the name."""
_AT_ONCE = {"release": "the job may begin at once", "head": "it may begin at once"}
"""What is said where that sum is 0; elsewhere nothing is."""
_WORK = {"work": "it takes", "work of one of the smallest workers": "some GPU has several of them, which take"}
_SHARED = ("capacity", "GPUs", "GPUs that hold at least as many as the smallest")
"""Among how many the work is shared out."""
_UNSAID = (*_SHARED, "largest workers")
TITLES: dict[StepKind, str] = {
    "compute": "compute",
    "exchange": "exchange",
    "partner": "waits for a partner",
    "gpu": "waits for a GPU",
    "link": "waits for a link",
    "memory": "waits for memory",
    "held": "waits for what others hold",
    "power": "waits for power",
    "release": "not yet released",
    "slack": "nothing in the way",
}
"""What the kinds of steps are called."""
_MOST_INTERVALS = 100_000
"""A picture with more is not explained by itself: that would take longer than to draw it."""
_MOST_STEPS = 50_000
"""Most steps of all chains of a picture; jobs that are left then, which end before the others, have none."""
_MOST_WAITS = 5


def bound_text(objective: str, bound: Bound | ReportedBound) -> str:
    """Return why no plan is better than a bound, in words with durations that people read."""
    proof = bound.proof
    lead = _LEADS[objective].format(_amount(bound.value, "weight * us" if objective == _SUM else "us"))
    kind = (
        f" Kind of bound: {printable(proof.relaxation).replace('_', ' ').replace('gpu', 'GPU')}."
        if proof.relaxation
        else ""
    )
    why = "; ".join(_reasons(proof, begins=objective != "period"))
    sentence = printable(proof.sentence)
    return f"{lead}.{kind} {sentence[:1].upper()}{sentence[1:]}{': ' if why else ''}{why}."


def claim_text(claimed: int, proven: int) -> str:
    """Return that a plan file claims a larger bound than what is proven here; empty where it claims none."""
    return f"The plan file claims a bound of {claimed:,}, which was not checked." if claimed > proven else ""


def calculation(objective: str, proof: Proof) -> str:
    """Return the calculation of a proof with exact numbers and their unit; empty where it is a search."""
    done = printable(proof.arithmetic)
    if " <= " in done:
        return f"an objective of one less would need {done}, which is false"
    before, _, value = done.partition(" = ")
    unit = "weight·µs" if objective == _SUM else "µs"
    return f"{value if before == value else done} {unit}" if done else ""


def _reasons(proof: Proof, begins: bool) -> Iterator[str]:
    """Yield what each name among the terms adds to the calculation, and where it `begins` at once, that too."""
    terms = proof.terms
    among = next((term.amount for term in terms if term.name in _SHARED), 1)
    for name in dict.fromkeys(term.name for term in terms if term.name not in _UNSAID):
        alike = [term for term in terms if term.name == name]
        total, jobs = sum(term.amount for term in alike), len({job for term in alike for job in term.jobs})
        of = f" for {jobs} jobs" if jobs > 1 else ""
        if name in _WORK:
            load = _amount(-(-total // among), alike[0].unit)
            yield f"{_WORK[name]} {load}{of}{' even if it is shared out evenly' if among > 1 else ''}"
        elif total:
            other = "this gives" if name == proof.sentence else f"{printable(name)}:"
            amount = _amount(total, alike[0].unit)
            yield (_NAMES[name].format(amount) if name in _NAMES else f"{other} {amount}") + of
        elif begins and name in _AT_ONCE:
            yield _AT_ONCE[name]


def _amount(amount: int, unit: str) -> str:
    if unit in ("us", "weight * us"):
        return duration(amount) + (" (weighted)" if unit != "us" else "")
    return f"{amount:,} {unit.replace(' * us', '·µs')}".strip()


def wait_text(step: NamedStep) -> str:
    """Return what a step that is a wait waits for, and who has it."""
    holder = f", held by {step.by}" if step.by else ""
    return TITLES[step.kind] + (f": {step.on}{holder}" if step.on else "")


def explained_picture(
    drawn: Picture, jobs: Sequence[JobExplanation | JobStretches] | None = None, proof: BoundProof | None = None
) -> Picture:
    """Return the picture of a plan with the stories of its jobs and the reason of its bound.

    Stories of a phased plan are those of its periods, which are pictures of their own.

    `jobs`: the jobs that are explained, of which the first is chosen; None for all, where the plan has at most 100 000
    intervals, or those that end last, where their chains are long. `proof`: a right proof of a bound, which is told;
    None for the best one that is found in a second.
    """
    instance, plan = drawn.instance, drawn.plan
    numbers = {job.name: number for number, job in enumerate(instance.jobs)}
    chosen = None if jobs is None else numbers[jobs[0].job]
    crowded = jobs is None and sum(len(lane.intervals) for lane in drawn.lanes) > _MOST_INTERVALS
    if proof is None and crowded and not plan.is_phased:
        return drawn
    proven = bound_reason(instance, plan.bound, proof)
    if plan.is_phased or crowded:
        return replace(drawn, chosen=chosen, proven=proven)
    found = (job for job in (_last_to_end(drawn) if jobs is None else jobs) if isinstance(job, JobExplanation))
    stories = {numbers[story.job]: story for story in found}
    return replace(drawn, stories=stories, chosen=chosen, proven=proven)


def _last_to_end(drawn: Picture) -> Iterator[JobExplanation]:
    """Yield all jobs, the last to end first, until their chains are long enough together."""
    ends = dict.fromkeys((job.name for job in drawn.instance.jobs), 0)
    for lane in drawn.lanes:
        for interval in lane.intervals:
            name = drawn.instance.jobs[interval.job].name
            ends[name] = max(ends[name], interval.end_us)
    order, steps = KeptOrder.of(drawn.instance, drawn.plan), 0
    explainer, numbers = Explainer(order), {job.name: number for number, job in enumerate(order.jobs)}
    for name in sorted(ends, key=lambda name: -ends[name]):
        found = explainer.of(numbers[name])
        yield found
        steps += len(found.chain)
        if steps > _MOST_STEPS:
            return


def trust_text(bound: ReportedBound) -> str:
    """Return whose word a bound is, in a sentence."""
    if bound.certified:
        return f"This proof, of the kind {printable(bound.proof.kind)}, was checked step by step."
    return f"It rests on the word of {bound.proof.engine or 'its relaxation'}: there is no proof that was checked."


def told_proof(objective: str, bound: ReportedBound, claimed: int) -> dict[str, object]:
    """Return the sentences of a bound, its calculation, and what it rests on by name, as the page takes them.

    `claimed` is the bound that the plan file states.
    """
    proof = bound.proof
    names = {"jobs": proof.jobs, "servers": proof.servers, "links": proof.links}
    text = f"{bound_text(objective, bound)} {trust_text(bound)} {claim_text(claimed, bound.value)}".rstrip()
    told = {"text": text, "calculation": calculation(objective, proof)}
    return told | {key: list(map(printable, name)) for key, name in names.items()}


def told_story(job: JobExplanation) -> dict[str, object]:
    """Return where the time of a job goes, as the page takes it: by title and kind, its longest waits, its chain.

    A step is the name of its operation behind its iteration, with what is said of what it waited for.
    """
    waits = [
        (wait_text(NamedStep(wait.kind, "", 0, 0, wait.us, printable(wait.on), printable(wait.by))), wait.us)
        for wait in job.waits[:_MOST_WAITS]
    ]
    return {
        "end": job.end_us,
        "of": job.explained_us,
        "spent": [(TITLES[kind], us, kind) for kind, us in job.time_us.items() if us],
        "waits": waits,
        "chain": [*_steps(job)],
    }


def _steps(job: JobExplanation) -> Iterator[tuple[str, str]]:
    """Yield each operation of the chain, with what is said of it."""
    before: list[str] = []
    for step in job.chain:
        if step.kind in ("compute", "exchange"):
            yield f"{step.iteration}/{printable(step.operation)}", "\n".join(map(printable, before))
            before = []
        else:
            before.append(f"before it for {step.end_us - step.start_us:,} µs: {wait_text(step)}")
