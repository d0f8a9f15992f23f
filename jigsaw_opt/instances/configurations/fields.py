"""The values of a configuration: those that are stated, and for others the defaults of ``transformers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jigsaw_opt.errors import Code
from jigsaw_opt.problem.rules.report import Report, describe, quoted

__all__ = ["Fields"]

_MOST = 2**31
_MOST_LAYERS = 10_000


class Fields:
    """The values of a configuration; what is wrong is noted and read as the least value.

    `tree`: the document, also as an attribute. `defaults`: what a key that is missing means; None is for keys whose
    value follows from others. `read`: names of the values that were asked for, and other names of keys.
    """

    def __init__(
        self,
        tree: Mapping[str, Any],
        defaults: Mapping[str, Any],
        aliases: Mapping[str, str],
        source: str,
        report: Report,
    ) -> None:
        self.tree, self._defaults, self._source, self._report = tree, defaults, source, report
        self.read = set(aliases)
        self._noted: set[tuple[str, str]] = set()
        self._names = {key: name for name, key in aliases.items() if name in tree and key not in tree}
        for name, key in aliases.items():
            if name in tree and key in tree and tree[name] != tree[key]:
                self.add(
                    name,
                    f"is {describe(tree[name])}, and {key}, which means the same, is {describe(tree[key])}",
                    code="contradiction",
                )

    def add(self, key: str, message: str, *, code: Code) -> None:
        """Note that the value of a key is wrong; what is read more than once is noted once."""
        if (key, message) not in self._noted:
            self._noted.add((key, message))
            self._report.add((f"{self._source}: $", self._names.get(key, key)), message, code=code)

    def value(self, key: str) -> Any:
        """Return the value of a key, or its default."""
        name = self._names.get(key, key)
        self.read.add(name)
        return self.tree.get(name, self._defaults.get(key))

    def text(self, key: str) -> str:
        """Return a text; null is the default."""
        value = self.value(key)
        value = self._defaults.get(key, "") if value is None else value
        if isinstance(value, str):
            return value
        self.add(key, f"a text is expected, not {describe(value)}", code="wrong-type")
        return ""

    def whole(self, key: str, derived: int | None = None, least: int = 1, most: int = _MOST) -> int:
        """Return a whole number; null is what follows from other values, where the key has such a meaning.

        The number; `least` where the value is wrong, which is noted.

        `derived`: what null means; None where it has no meaning.
        """
        value = self.value(key)
        value = derived if value is None else value
        if type(value) is int and least <= value <= most:
            return value
        self.add(
            key,
            f"a whole number from {least} to {most} is expected, not {describe(value)}",
            code="out-of-range" if type(value) is int else "wrong-type",
        )
        return least

    def layers(self, key: str, derived: int | None = None) -> int:
        """Return a number of layers."""
        return self.whole(key, derived, most=_MOST_LAYERS)

    def flag(self, key: str | bool) -> bool:
        """Return whether a key says so; what is no key stands for itself."""
        if isinstance(key, bool):
            return key
        value = self.value(key)
        if not isinstance(value, bool):
            self.add(key, f"true or false is expected, not {describe(value)}", code="wrong-type")
        return value is True

    def gated(self, key: str | bool) -> bool:
        """Return whether a dense layer has a gate: a key names its function, as in ``gated-gelu``."""
        if isinstance(key, bool):
            return key
        first, *rest = self.text(key).split("-")
        if len(rest) > 1 or (rest and first != "gated"):
            self.add(
                key, f"is a function, or gated- and a function, not {quoted(self.text(key))}", code="unknown-value"
            )
        return bool(rest)

    def sides(self, key: str) -> tuple[int, int]:
        """Return height and width, of which a single number gives both."""
        value = self.value(key)
        both = value if isinstance(value, list) else [value, value]
        if len(both) == 2 and all(type(side) is int and 1 <= side <= _MOST for side in both):
            return both[0], both[1]
        self.add(
            key, f"one or two whole numbers from 1 to {_MOST} are expected, not {describe(value)}", code="wrong-type"
        )
        return 1, 1

    def indices(self, key: str) -> frozenset[int]:
        """Return a list of whole numbers; null is an empty one."""
        value = self.value(key)
        if value is None or (isinstance(value, list) and all(type(index) is int for index in value)):
            return frozenset(value or ())
        self.add(key, f"a list of whole numbers is expected, not {describe(value)}", code="wrong-type")
        return frozenset()

    def labels(self) -> int:
        """Return the number of classes: those of ``id2label``, else ``num_labels``."""
        names = self.value("id2label")
        if isinstance(names, dict):
            return len(names)
        if names is not None:
            self.add("id2label", f"an object is expected, not {describe(names)}", code="wrong-type")
        return self.whole("num_labels", 2, least=0)

    def shared_out(self, key: str, whole: int, parts: int) -> int:
        """Return a part of a number; a rest is noted, unless one of them is wrong and read as its least value."""
        if whole % parts and not (self._noted and min(whole, parts) <= 1):
            self.add(key, f"{parts} does not divide {whole}", code="contradiction")
        return max(1, whole // parts)
