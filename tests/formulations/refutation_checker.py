"""A small checker of refutations in cutting planes, which knows of the rules of VeriPB only those that are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Literal = tuple[int, bool]
"""A variable, and whether it counts as 1 less its value."""


class WrongStepError(Exception):
    """A step does not follow."""


@dataclass(frozen=True)
class Constraint:
    """Literals with factors above 0 add up to at least a number; `normal` makes it from any factors."""

    factors: dict[Literal, int]
    least: int

    @classmethod
    def normal(cls, terms: Iterable[tuple[int, Literal]], least: int) -> Constraint:
        sums = dict[int, int]()
        for factor, (x, negated) in terms:
            sums[x] = sums.get(x, 0) + (-factor if negated else factor)
            least -= factor if negated else 0
        factors = {(x, total < 0): abs(total) for x, total in sums.items() if total}
        return cls(factors, least - sum(total for total in sums.values() if total < 0))

    @classmethod
    def read(cls, words: list[str]) -> Constraint:
        place = words.index(">=")
        terms = [(int(a), literal(x)) for a, x in zip(words[:place:2], words[1:place:2], strict=True)]
        return cls.normal(terms, int(words[place + 1]))

    def terms(self, factor: int = 1) -> Iterator[tuple[int, Literal]]:
        return ((factor * a, x) for x, a in self.factors.items())

    def negated(self) -> Constraint:
        return Constraint.normal(self.terms(-1), 1 - self.least)

    def implies(self, other: Constraint) -> bool:
        """Return whether the other one follows by leaving out of this one what is more."""
        lost = sum(max(0, a - other.factors.get(x, 0)) for x, a in self.factors.items())
        return max(0, self.least - lost) >= other.least


def literal(word: str) -> Literal:
    return int(word.lstrip("~x")), word.startswith("~")


@dataclass
class Checker:
    """The constraints that are derived so far, numbered from 1."""

    known: list[Constraint] = field(default_factory=list)

    def check(self, problem: bytes, steps: bytes) -> None:
        """Fail unless the steps refute the problem."""
        self.known = [Constraint.read(x.split()) for x in problem.decode().splitlines() if not x.startswith("*")]
        head, loaded, *lines = (x.split() for x in steps.decode().splitlines() if not x.startswith("*"))
        self.require(head[-1] == "1.1" and loaded == ["f", str(len(self.known))])
        for rule, *words in lines[:-1]:
            self.known.append({"p": self.sum, "u": self.propagated, "red": self.defined}[rule](words))
        self.require(lines[-1] == ["c", "-1"])
        self.require(sum(self.known[-1].factors.values()) < self.known[-1].least)

    def require(self, holds: bool) -> None:
        if not holds:
            raise WrongStepError(len(self.known))

    def sum(self, words: list[str]) -> Constraint:
        stack = list[int | Constraint]()
        for word in words[:-1]:
            if word == "+":
                other, one = self.operand(stack.pop()), self.operand(stack.pop())
                stack.append(Constraint.normal([*one.terms(), *other.terms()], one.least + other.least))
            elif word in "*d":
                number, one = stack.pop(), self.operand(stack.pop())
                assert isinstance(number, int)
                self.require(number >= 1)
                if word == "*":
                    stack.append(Constraint.normal(one.terms(number), one.least * number))
                else:
                    stack.append(
                        Constraint({x: -(-a // number) for x, a in one.factors.items()}, -(-one.least // number))
                    )
            else:
                stack.append(int(word) if word.isdigit() else Constraint({literal(word): 1}, 0))
        self.require(len(stack) == 1)
        return self.operand(stack[0])

    def operand(self, what: int | Constraint) -> Constraint:
        return self.known[what - 1] if isinstance(what, int) else what

    def propagated(self, words: list[str]) -> Constraint:
        """Return a constraint whose negation unit propagation contradicts."""
        made, values = Constraint.read(words), dict[int, bool]()
        constraints = [made.negated(), *self.known]
        before = -1
        while before < len(values):
            before = len(values)
            for each in constraints:
                open_ = {x: a for x, a in each.factors.items() if values.get(x[0], not x[1]) != x[1]}
                left = sum(open_.values()) - each.least
                if left < 0:
                    return made
                values |= {x: not negated for (x, negated), a in open_.items() if a > left and x not in values}
        raise WrongStepError(len(self.known))

    def defined(self, words: list[str]) -> Constraint:
        """Return a constraint that holds if a variable, of which only few are known, is set to a value."""
        place = words.index(";")
        made, x, value = Constraint.read(words[:place]), int(words[-2].lstrip("x")), int(words[-1])
        for each in (made, *self.known):
            if {(x, False), (x, True)} & each.factors.keys():
                rest = [(a, name) for a, name in each.terms() if name[0] != x]
                least = each.least - each.factors.get((x, value == 0), 0)
                self.require(made.negated().implies(Constraint.normal(rest, least)))
        return made
