"""Checks of a document's structure, compiled from its JSON Schema so that the two cannot differ.

Understands the keywords that the shipped schemas use. Unlike JSON Schema itself it takes ``1.0`` for no integer. Of the
alternatives under ``oneOf`` it checks one: of depth rules the one whose `rule` the value names (an installed package
may add some), of others the last one that a key of the value belongs to alone. Those under ``anyOf`` are tried in turn.
``x-most`` limits a ratio. Messages call a value what its ``x-expected`` says; descriptions are for readers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from fractions import Fraction
from functools import cache
from typing import Any

from jigsaw_opt.errors import Code, InvalidInputError, Problem, with_article
from jigsaw_opt.problem.depth import Depth, DepthPlugin, plugins
from jigsaw_opt.problem.rules.keyed import KINDS, Keyed
from jigsaw_opt.problem.rules.report import Place, Report, describe, quoted
from jigsaw_opt.problem.rules.schemas import Kind, depth_schema, shipped
from jigsaw_opt.text import agreeing

Check = Callable[[Any, Place, Report], None]
Keywords = Mapping[str, Any]

_NOUNS = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "number": "a finite number",
    "boolean": "true or false",
    "null": "null",
}
_LARGEST = 2**53 - 1


@cache
def structure(kind: Kind) -> Check:
    """Return the check that reports whatever breaks the schema of `kind`."""
    return compiled({"$ref": "#"}, shipped(kind))


@cache
def structure_of_part(definition: str) -> Check:
    """Return the check of a part of an instance, as `Keyed.keyed` gives it, whose own parts are objects."""
    return _of_parts().compile(_of_parts().resolve(definition))


@cache
def _of_parts() -> _Compiler:
    return _Compiler(shipped("instance"), parts=True)


def compiled(keywords: Keywords, root: Mapping[str, Any]) -> Check:
    """Return the check that reports whatever breaks a schema."""
    return _Compiler(dict(root)).compile(keywords)


class _Compiler:
    def __init__(self, root: dict[str, Any], parts: bool = False) -> None:
        self._root, self._parts = root, parts
        self._named: dict[str, Check] = {}

    def compile(self, keywords: Keywords) -> Check:
        if not keywords:
            return _anything
        if "$ref" in keywords:
            return self._reference(keywords["$ref"])
        if "oneOf" in keywords:
            options = [self.resolve(option["$ref"]) for option in keywords["oneOf"]]
            return self._rules(options) if "rule" in options[0]["properties"] else self._alternatives(options)
        if "anyOf" in keywords:
            return _any_of([self.compile(option) for option in keywords["anyOf"]])
        if "const" in keywords:
            return _words([keywords["const"]])
        if "enum" in keywords:
            return _words(keywords["enum"])
        return self._typed(keywords)

    def resolve(self, pointer: str) -> dict[str, Any]:
        """Return what the schema has under a pointer, or under the name at its end."""
        return self._root if pointer == "#" else dict(self._root["$defs"][pointer.rpartition("/")[2]])

    def _reference(self, pointer: str) -> Check:
        name = pointer.rpartition("/")[2]
        if self._parts and name in KINDS:
            return _part(name)
        if pointer not in self._named:
            # A definition may hold itself: until it is compiled, its name looks the check up late.
            self._named[pointer] = lambda value, place, report: self._named[pointer](value, place, report)
            self._named[pointer] = self.compile(self.resolve(pointer))
        return self._named[pointer]

    def _typed(self, keywords: Keywords) -> Check:
        names = [keywords["type"]] if isinstance(keywords["type"], str) else keywords["type"]
        builders = {
            "integer": _integer,
            "number": _number,
            "string": _string,
            "boolean": _boolean,
            "array": self._list,
            "object": self._object,
            "null": _null,
        }
        expected = keywords.get("x-expected") or " or ".join(_noun(name, keywords) for name in names)
        checks = {_PYTHON[name]: builders[name](keywords, expected) for name in names}
        if len(checks) == 1:
            return next(iter(checks.values()))
        if "number" in names:  # an integer is one, too
            checks.setdefault(int, checks[float])
        return _any_type(checks, expected)

    def _list(self, keywords: Keywords, expected: str) -> Check:
        item_check = self.compile(keywords["items"]) if "items" in keywords else _anything
        first_checks = [self.compile(item) for item in keywords.get("prefixItems", ())]
        low, high = keywords.get("minItems", 0), keywords.get("maxItems")
        count = f"{_how_many(low, high)} {agreeing(max(1, low, high or 0), 'item', 'items')}"

        def check(value: Any, place: Place, report: Report) -> None:
            if not isinstance(value, list | tuple):
                return _wrong(value, place, report, expected)
            if len(value) < low or (high is not None and len(value) > high):
                report.add(place, f"needs {count}; has {len(value)}", code="wrong-count")
            for index, (item, first_check) in enumerate(zip(value, first_checks, strict=False)):
                first_check(item, (place, index), report)
            for index, item in enumerate(value[len(first_checks) :], len(first_checks)):
                item_check(item, (place, index), report)
            return None

        return check

    def _object(self, keywords: Keywords, expected: str) -> Check:
        checks = {key: self.compile(below) for key, below in keywords.get("properties", {}).items()}
        required = frozenset(keywords.get("required", ()))
        others = self._others(keywords)

        def check(value: Any, place: Place, report: Report) -> None:
            if not isinstance(value, dict):
                return _wrong(value, place, report, expected)
            for key, item in value.items():
                checks.get(key, others)(item, (place, key), report)
            if not required <= value.keys():
                for key in keywords["required"]:
                    if key not in value:
                        report.add(place, f"missing key {quoted(key)}", code="missing-field")
            return None

        return check

    def _others(self, keywords: Keywords) -> Check:
        """Return the check of what stands under a key that has no check of its own."""
        below = keywords.get("additionalProperties", True)
        if below is False:
            return _unknown_key(list(keywords["properties"]))
        value_check = _anything if below is True else self.compile(below)
        if "propertyNames" not in keywords:
            return value_check
        key_check = self.compile(keywords["propertyNames"])

        def check(value: Any, place: Place, report: Report) -> None:
            key_check(place[1], place, report)
            value_check(value, place, report)

        return check

    def _alternatives(self, options: list[dict[str, Any]]) -> Check:
        """Return the check of objects that keys of their own tell apart."""
        keys = [option["properties"].keys() for option in options]
        choices = [
            (key, self._with_others_named(option, key, own, set().union(*keys)))
            for option, own in zip(options, keys, strict=True)
            for key in option["required"]
            if sum(key in others for others in keys) == 1
        ]
        default = choices[0][1]
        choices.reverse()

        def check(value: Any, place: Place, report: Report) -> None:
            chosen = default
            if isinstance(value, dict):
                chosen = next((found for key, found in choices if key in value), default)
            chosen(value, place, report)

        return check

    def _with_others_named(self, option: dict[str, Any], key: str, own: Set[str], known: Set[str]) -> Check:
        """Return the check of one alternative, which says so where a key belongs to another one."""
        within = self.compile(option)
        foreign = known - own

        def check(value: Any, place: Place, report: Report) -> None:
            if isinstance(value, dict) and not foreign.isdisjoint(value):
                for other in (name for name in value if name in foreign):
                    report.add((place, other), f"cannot stand beside {quoted(key)}", code="contradiction")
                value = {name: item for name, item in value.items() if name not in foreign}
            within(value, place, report)

        return check

    def _rules(self, options: list[dict[str, Any]]) -> Check:
        """Return the check of depth rules."""
        by_rule = {option["properties"]["rule"]["const"]: self.compile(option) for option in options}
        # Most documents say nothing but the rule, thousands of times: that takes no look at the keys one by one.
        complete = [
            {"rule": rule} for rule, option in zip(by_rule, options, strict=True) if option["required"] == ["rule"]
        ]

        def chosen(rule: Any) -> Check | None:
            if not isinstance(rule, str):
                return None
            if rule not in by_rule and rule in plugins():
                by_rule[rule] = self.compile(depth_schema(rule))
            return by_rule.get(rule)

        def check(value: Any, place: Place, report: Report) -> None:
            if type(value) is not dict and isinstance(value, Depth):
                if isinstance(value, DepthPlugin) and value.rule not in plugins():
                    return None  # only its own class knows what it takes
                value = value.keyed()
            elif self._parts or not isinstance(value, dict):
                return _wrong(value, place, report, "a depth rule" if self._parts else _NOUNS["object"])
            if value in complete:
                return None
            if "rule" not in value:
                report.add(place, 'missing key "rule"', code="missing-field")
            elif named := chosen(value["rule"]):
                named(value, place, report)
            else:
                _words([*dict.fromkeys((*by_rule, *plugins()))])(value["rule"], (place, "rule"), report)
            return None

        return check


def _part(name: str) -> Check:
    """Return the check that a value is an object which has checked itself."""

    def check(value: Any, place: Place, report: Report) -> None:
        if not isinstance(value, Keyed) or value.definition != name:
            _wrong(value, place, report, " or ".join(map(with_article, KINDS[name])))

    return check


def _any_of(options: list[Check]) -> Check:
    """Return the check of alternatives told apart deep within: the one with fewest problems counts."""

    def check(value: Any, place: Place, report: Report) -> None:
        found: list[Sequence[Problem]] = []
        for option in options:
            tried = Report()
            try:
                option(value, place, tried)
                found.append(tried.problems)
            except InvalidInputError as error:  # so many problems that the report is full
                found.append(error.problems)
            if not found[-1]:
                return
        for problem in min(found, key=len):
            report.note(problem)

    return check


_PYTHON: dict[str, type] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
}


def _noun(name: str, keywords: Keywords) -> str:
    if name not in ("integer", "number") or "minimum" not in keywords:
        return _NOUNS[name]
    noun = "an integer" if name == "integer" else "a number"
    if "maximum" not in keywords:
        return f"{noun} of at least {keywords['minimum']}"
    return f"{noun} from {keywords['minimum']} to {_called(keywords['maximum'])}"


def _how_many(low: int, high: int | None) -> str:
    if high is None:
        return f"at least {low}"
    return f"exactly {low}" if low == high else f"{low} to {high}"


def _called(high: float) -> str:
    return "2^53 - 1" if high == _LARGEST else str(high)


def _wrong(value: Any, place: Place, report: Report, expected: str, code: Code = "wrong-type") -> None:
    report.add(place, f"must be {expected}; is {describe(value)}", code=code)


def _anything(value: Any, place: Place, report: Report) -> None:
    """Take any value."""


def _boolean(keywords: Keywords, expected: str) -> Check:
    return _any_type({bool: _anything}, expected)


def _null(keywords: Keywords, expected: str) -> Check:
    return _any_type({type(None): _anything}, expected)


def _any_type(checks: dict[type, Check], expected: str) -> Check:
    def check(value: Any, place: Place, report: Report) -> None:
        kind = dict if isinstance(value, dict) else type(value)
        if kind in checks:
            checks[kind](value, place, report)
        else:
            _wrong(value, place, report, expected)

    return check


def _integer(keywords: Keywords, expected: str) -> Check:
    low, high = keywords["minimum"], keywords.get("maximum")

    def check(value: Any, place: Place, report: Report) -> None:
        if type(value) is not int:
            _wrong(value, place, report, expected)
        elif value < low or (high is not None and value > high):
            _wrong(value, place, report, expected, "out-of-range")

    return check


def _number(keywords: Keywords, expected: str) -> Check:
    low, high = keywords.get("minimum", -sys.float_info.max), keywords.get("maximum", sys.float_info.max)

    def check(value: Any, place: Place, report: Report) -> None:
        if type(value) not in (int, float):
            _wrong(value, place, report, expected)
        elif not low <= value <= high:  # which no infinity is, nor what is no number
            _wrong(value, place, report, expected, "out-of-range")

    return check


def _string(keywords: Keywords, expected: str) -> Check:
    matches, high = re.compile(keywords.get("pattern", "(?s).*")).fullmatch, keywords.get("x-most")

    def check(value: Any, place: Place, report: Report) -> None:
        if type(value) is not str:
            _wrong(value, place, report, expected)
        elif not matches(value):
            _wrong(value, place, report, expected, "malformed")
        elif high is not None and Fraction(value) > high:  # a ratio, which JSON Schema cannot limit
            _wrong(value, place, report, expected, "out-of-range")

    return check


def _words(words: list[str]) -> Check:
    expected = " or ".join(map(quoted, words))

    def check(value: Any, place: Place, report: Report) -> None:
        if not isinstance(value, str):
            _wrong(value, place, report, expected)
        elif value not in words:
            report.add_misspelt(place, f"must be {expected}; is {quoted(value)}", value, words, code="unknown-value")

    return check


def _unknown_key(known: list[str]) -> Check:
    def check(value: Any, place: Place, report: Report) -> None:
        key = str(place[1])
        report.add_misspelt(place, f"unknown key {quoted(key)}", key, known, code="unknown-field")

    return check
