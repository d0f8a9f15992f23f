"""Why no plan is better than a bound, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from jigsaw_opt.problem.bound_proof import Argument


@dataclass(frozen=True, slots=True)
class Term:
    """One amount that a proof rests on.

    `name`: what it is, such as ``work``. `unit`: ``us``, ``bytes``, ``weight * us``, or empty for a plain number.
    `jobs`: names of the jobs that it comes from.
    """

    name: str
    amount: int
    unit: str = "us"
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof that no plan has an objective below a value.

    Its fields are plain values.

    `sentence`: what proves it, in the user's terms. `arithmetic`: the calculation that gives the value, as in ``5 +
    ceil(90 / 4) + 7 = 35``. A destructive bound has the false inequality that an objective of one less would ask for,
    as in ``90 <= 88``. Empty where an engine's search is the proof. `jobs, servers, links`: names of what it rests on;
    of a server, its GPUs. `relaxation`: name of the relaxation, or of the solver whose search has proven it. `engine`:
    whose word it is, as ``CP-SAT``; empty where it adds up without one. `argument`: the same for a program to check
    (docs/proofs.md), as plain JSON values; None where an engine's word is all there is.
    """

    sentence: str = ""
    arithmetic: str = ""
    terms: tuple[Term, ...] = ()
    jobs: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    relaxation: str = ""
    engine: str = ""
    argument: Argument | None = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """Kind of its argument; of an argument about some jobs alone, what is argued of them. Empty without one."""
        argument = self.argument or {"kind": ""}
        while argument["kind"] == "some jobs":
            argument = argument["argument"]
        return str(argument["kind"])

    def as_json(self) -> dict[str, Any]:
        """Return what it says for people, as values of JSON: all but its argument."""
        return {name: value for name, value in asdict(self).items() if name != "argument"}


def added(amounts: Iterable[int]) -> str:
    """Return a sum as text: written out where it has at most eight terms, else its value."""
    amounts = tuple(amounts)
    return " + ".join(map(str, amounts)) if 0 < len(amounts) <= 8 else str(sum(amounts))
