"""Markdown pages as a reader's browser sees them: headings, anchors and links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import ceil
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPECIFICATION = ROOT / "docs" / "specification.md"
_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^(#+) +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def pages() -> list[Path]:
    """The README, what else lies beside it, and everything under ``docs/``."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", text)


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one of its rank or above."""
    found = re.search(rf"^(#+) +{re.escape(heading)} *$", text, re.MULTILINE)
    assert found, heading
    end = re.compile(rf"^#{{1,{len(found[1])}}} ", re.MULTILINE).search(text, found.end())
    return text[found.end() : end.start() if end else None]


def equations(text: str) -> list[str]:
    """Spans of code that state that numbers are equal, or that one is not above another."""
    return [span for span in re.findall(r"`([^`\n]+)`", prose(text)) if re.search(r" (=|<=|>=) ", span)]


def holds(equation: str) -> bool:
    """Whether an equation of numbers, ``ceil`` and ``max`` is right."""
    assert re.fullmatch(r"(?:[\d\s+*/%()<>=,-]|ceil|max)+", equation), equation
    return bool(eval(re.sub(r"(?<![<>])=", "==", equation), {"__builtins__": {}, "ceil": ceil, "max": max}))


def headings(text: str) -> list[str]:
    """Anchors of the headings, in order."""
    seen: Counter[str] = Counter()
    found = []
    for _, title in _HEADING.findall(prose(text)):
        words = re.sub(r"[^\w\s-]", "", _LINK.sub("", title).lower()).replace(" ", "-")
        found.append(words if not seen[words] else f"{words}-{seen[words]}")
        seen[words] += 1
    return found


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a link into a page may name."""
    text = page.read_text(encoding="utf-8")
    return frozenset([*headings(text), *re.findall(r'<a id="([^"]+)">', text)])


def links(text: str) -> Iterator[str]:
    """Links of a page that lead to files of this repository, or to a place in the page itself."""
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", prose(text))):
        if not re.match(r"[a-z]+:", target):
            yield target
