"""The proof of a bound in words: what no plan does, what kind of bound says so, and the amounts that it adds up."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.solvers.bounds.proof import Proof
from jigsaw_opt.solvers.bounds.relaxation import Bound
from jigsaw_opt.text import duration, printable

__all__ = ["bound_text", "calculation"]

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
    "share of the sum": "as parts of one machine as fast as all, in the best order, they add up to {}",
    "least cost of its completion time": "their completion times cost at least {}",
    "fractions": "rounding up adds {}",
    "fractions of all shares": "rounding up adds {}",
}
"""What is said of the sum of all terms of a name; of other names, the name."""
_AT_ONCE = {"release": "the job may begin at once", "head": "it may begin at once"}
"""What is said where that sum is 0; elsewhere nothing is."""
_WORK = {"work": "it takes", "work of one of the smallest workers": "some GPU has several of them, which take"}
_SHARED = ("capacity", "GPUs", "GPUs that hold at least as many as the smallest")
"""Among how many the work is shared out."""
_UNSAID = (*_SHARED, "largest workers")


def bound_text(objective: str, bound: Bound, searched: int = 0) -> str:
    """Return why no plan is better than a bound, in words with durations that people read.

    `searched`: what the solver of a plan has proven by its search; told first where it is more.
    """
    proof = bound.proof
    lead = _lead(objective, bound.value)
    if searched > bound.value:
        less = f"What adds up proves less: {lead[:1].lower()}{lead[1:]}"
        lead = f"{_lead(objective, searched)}: its solver proved that by search. {less}"
    kind = (
        f" Kind of bound: {printable(proof.relaxation).replace('_', ' ').replace('gpu', 'GPU')}."
        if proof.relaxation
        else ""
    )
    why = "; ".join(_reasons(proof, begins=objective != "period"))
    sentence = printable(proof.sentence)
    return f"{lead}.{kind} {sentence[:1].upper()}{sentence[1:]}{': ' if why else ''}{why}."


def _lead(objective: str, value: int) -> str:
    return _LEADS[objective].format(_amount(value, "weight * us" if objective == _SUM else "us"))


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
